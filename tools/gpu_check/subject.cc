// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/subject.h"
