// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/block.h"
