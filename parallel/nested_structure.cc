// SPDX-License-Identifier: Apache-2.0
#include "parallel/nested_structure.h"
