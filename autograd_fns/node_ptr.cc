// SPDX-License-Identifier: Apache-2.0
#include "autograd_fns/node_ptr.h"
