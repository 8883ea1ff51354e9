// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel_of_fixture.h"
