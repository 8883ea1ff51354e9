// SPDX-License-Identifier: Apache-2.0
#include "examples/printed_numbers.h"

#include <cstdlib>
#include <sstream>

namespace lockstep::examples {

std::vector<double> printed_numbers(const std::string& text, const std::string& word) {
  std::vector<double> numbers;
  std::istringstream words(text);
  std::string before;
  for (std::string now; words >> now; before = now) {
    char* end = nullptr;
    const double number = std::strtod(now.c_str(), &end);
    if (before == word && end != now.c_str()) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace lockstep::examples
