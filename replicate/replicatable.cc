// SPDX-License-Identifier: Apache-2.0
#include "replicate/replicatable.h"

namespace lockstep::replicate {

Replicatable::~Replicatable() = default;

void Replicatable::visit_extra_tensors(const TensorVisitor&) {}

}  // namespace lockstep::replicate
