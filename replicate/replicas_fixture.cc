// SPDX-License-Identifier: Apache-2.0
#include "replicate/replicas_fixture.h"
