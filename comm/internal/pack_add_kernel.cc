// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/pack_add_kernel.h"
