// SPDX-License-Identifier: Apache-2.0
// printed_numbers: reads figures from what an example printed.
//   printed_numbers("step 0  loss 3\nstep 1  loss 2\n", "loss")   ->  {3, 2}
#pragma once

#include <string>
#include <vector>

namespace lockstep::examples {

// The numbers that directly follow `word`, in order.
std::vector<double> printed_numbers(const std::string& text, const std::string& word);

}  // namespace lockstep::examples
