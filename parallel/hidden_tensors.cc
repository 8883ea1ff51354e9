// SPDX-License-Identifier: Apache-2.0
#include "parallel/hidden_tensors.h"
