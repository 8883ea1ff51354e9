// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/simulated_nccl.h"
#include "testing/simdev/simdev.h"
#include "tools/gpu_check/subject.h"

namespace lockstep::gpu_check {
namespace {

const bool kDevicesInUse = fake_nccl::use_in_tests({/*devices=*/2});

}  // namespace

c10::Device device() { return simdev::device(0); }

const comm::nccl::NcclApi& nccl() { return fake_nccl::simulated_nccl(); }

void forget_broken_rules() { fake_nccl::take_reports(); }

}  // namespace lockstep::gpu_check
