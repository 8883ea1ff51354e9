// SPDX-License-Identifier: Apache-2.0
// subject: what the checks run on. A program links one of :cuda_subject, a GPU with NCCL, and
// :simulated_subject, a simulated device with a fake of NCCL, on which the checks are tested where
// there is no GPU.
#pragma once

#include <c10/core/Device.h>

#include "comm/nccl/nccl_api.h"

namespace lockstep::gpu_check {

// The device. There is one while tests run: without it none does, and the program fails.
c10::Device device();

// NCCL for that device. Throws: c10::Error that says where it was looked for.
const comm::nccl::NcclApi& nccl();

// For a check that breaks a rule of NCCL on purpose: the fake would fail it otherwise.
void forget_broken_rules();

}  // namespace lockstep::gpu_check
