// SPDX-License-Identifier: Apache-2.0
// check: are the gradients of several devices the gradients of one? Trains a few steps and compares
// every parameter's gradient with two references computed on one device:
//   chunked     the same chunks one after another, batch normalisation per chunk, gradients summed
//               in chunk order from zero: must be equal bit for bit;
//   full batch  the whole batch at once, normalisation by the running statistics: equal up to
//               rounding, as sums are taken in another order.
// Dropout is off in both. As a check of the check, one replica is then made wrong on purpose: the
// difference must show.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "examples/fashion_mnist/idx.h"

namespace fashion_mnist {

enum class Reference { kChunked, kFullBatch };

struct CheckOptions {
  std::vector<c10::Device> devices;  // at least two
  int64_t batch_size = 0;
  int64_t steps = 3;
  uint64_t seed = 0;
  double lr = 0;
};

struct GradientCase {
  at::ScalarType dtype = at::kFloat;
  Reference reference = Reference::kChunked;
  double offset_in_last_replica = 0;  // added to what it reads; not 0: a replica that is wrong
};

// The largest difference met in any step, relative to the reference; 0 means equal bit for bit.
struct GradientDifference {
  double whole = 0;      // norm of the difference by norm of the gradient, all parameters as one
  double parameter = 0;  // largest entry of one parameter's difference by largest of its gradient
};

GradientDifference largest_gradient_difference(const Dataset& dataset, const CheckOptions& options,
                                               const GradientCase& which);

// What GradientDifference::whole may be: 0 for the chunked reference; for the full batch 1e-12 in
// float64 and 1e-6 in float32. Single parameters have no bound in float32: a convolution sums so
// many terms that its own rounding can exceed 1e-6 of a small gradient.
double allowed_difference(const GradientCase& which);

// Runs every case, prints a line for each, and says whether all are as they must be.
// Throws:  std::runtime_error in one sentence if there are fewer than two devices or fewer samples
//          than devices.
bool check_gradients(const Dataset& dataset, const CheckOptions& options, std::ostream& out);

}  // namespace fashion_mnist
