// SPDX-License-Identifier: Apache-2.0
#include "comm/internal/plain_memory.h"
