// SPDX-License-Identifier: Apache-2.0
#include "parallel/typed_call.h"
