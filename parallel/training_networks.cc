// SPDX-License-Identifier: Apache-2.0
#include "parallel/training_networks.h"
