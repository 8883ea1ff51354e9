// SPDX-License-Identifier: Apache-2.0
#include "replicate/gradient_router.h"

namespace lockstep::replicate::internal {

GradientRouter::~GradientRouter() = default;

}  // namespace lockstep::replicate::internal
