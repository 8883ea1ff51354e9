// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/libtorch_shim/torch/csrc/autograd/functions/comm.h"
