// SPDX-License-Identifier: Apache-2.0
// sequence.h: brings the calls of a communicator's ranks together, and sees whether they agree.
#pragma once

#include <memory>

#include "testing/fake_nccl/communicator.h"

namespace lockstep::fake_nccl::internal {

// The rank's calls of the submission have come. Runs the round when it is complete. What is wrong
// becomes the ranks' error.
void arrive(Submission::Batch* batch, const std::shared_ptr<Submission>& submission);

// The communicators of the submission have waited for their peers too long: reports where each
// rank stands, unless a test asked for it, and breaks them.
void give_up(const Submission& submission);

}  // namespace lockstep::fake_nccl::internal
