// SPDX-License-Identifier: Apache-2.0
#include "parallel/failure.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <cxxabi.h>

#include <typeinfo>
#include <utility>

namespace lockstep::parallel {
namespace {

std::optional<Failure>& failure_of_this_thread() {
  thread_local std::optional<Failure> failure;
  return failure;
}

std::string describe(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return type == nullptr ? "an exception of a foreign language" : c10::demangle(type->name());
  }
}

}  // namespace

const std::optional<Failure>& last_failure() { return failure_of_this_thread(); }

namespace internal {

void throw_first_failure(const std::vector<std::exception_ptr>& thrown,
                         c10::ArrayRef<c10::Device> devices) {
  std::exception_ptr first;
  Failure failure;
  for (size_t r = 0; r < thrown.size(); ++r) {
    if (thrown[r] == nullptr) {
      continue;
    }
    if (first == nullptr) {
      first = thrown[r];
      failure.replica = static_cast<int64_t>(r);
      failure.device = devices[r];
      failure.message = describe(thrown[r]);
    } else {
      failure.others.push_back({static_cast<int64_t>(r), devices[r], describe(thrown[r])});
    }
  }
  if (first == nullptr) {
    return;
  }
  const std::string place = "in replica " + std::to_string(failure.replica) + " of " +
                            std::to_string(thrown.size()) + " on " + failure.device.str();
  failure_of_this_thread() = std::move(failure);
  try {
    std::rethrow_exception(first);
  } catch (c10::Error& error) {
    error.add_context(place);
    throw;
  }
}

}  // namespace internal
}  // namespace lockstep::parallel
