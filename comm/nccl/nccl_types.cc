// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_types.h"
