// SPDX-License-Identifier: Apache-2.0
#include "replicate/replica_set.h"
