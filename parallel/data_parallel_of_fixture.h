// SPDX-License-Identifier: Apache-2.0
// data_parallel_of_fixture.h: a fixture for tests with modules of their own.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "parallel/data_parallel_fixture.h"

namespace lockstep::parallel {

class DataParallelOfTest : public DataParallelTest {
 protected:
  // DataParallel of a new module on the devices.
  template <class M>
  DataParallel<M> parallel_of(std::shared_ptr<M> module) const {
    module->reset();
    module->to(first());
    return DataParallel<M>(std::move(module), devices(), options());
  }

  // The index of the last replica, as messages name it.
  std::string last() const { return std::to_string(num_devices() - 1); }
};

}  // namespace lockstep::parallel
