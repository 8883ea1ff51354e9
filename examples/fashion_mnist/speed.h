// SPDX-License-Identifier: Apache-2.0
// speed: how many samples a second several devices train, and how many one device does alone, on
// this machine, now. Works on copies of the network and leaves the network itself alone.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/fashion_mnist/idx.h"
#include "examples/fashion_mnist/model.h"

namespace fashion_mnist {

struct SpeedOptions {
  std::vector<c10::Device> devices;
  int64_t batch_size = 0;
  int64_t batches = 20;  // in each round
  int64_t rounds = 3;    // taken in turns, so that both sides meet the same machine
};

// Samples per second, the median of the rounds.
struct Speed {
  double several_devices = 0;
  double one_device = 0;  // devices[0], with every thread the program has
};

Speed compare_speed(const Net& net, const Dataset& dataset, const SpeedOptions& options);

}  // namespace fashion_mnist
