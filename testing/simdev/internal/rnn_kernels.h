// SPDX-License-Identifier: Apache-2.0
// rnn_kernels.h: the cells of LSTM and GRU, which LibTorch wants fused on a device.
#pragma once

namespace torch {
class Library;
}

namespace lockstep::simdev::internal {

// `library` is that of "aten" on PrivateUse1.
void register_rnn_kernels(torch::Library& library);

}  // namespace lockstep::simdev::internal
