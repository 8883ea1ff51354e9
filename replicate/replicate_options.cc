// SPDX-License-Identifier: Apache-2.0
#include "replicate/replicate_options.h"
