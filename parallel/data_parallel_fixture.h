// SPDX-License-Identifier: Apache-2.0
// data_parallel_fixture.h: what the tests of DataParallel share: the settings they run in, small
// modules, and the gradients of the same chunks one after another.
// A suite derives from DataParallelTest and runs over every device set with both backward engines:
//   class DataParallelGradientsTest : public DataParallelTest {};
//   LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelGradientsTest);
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "comm/scatter.h"
#include "parallel/data_parallel.h"
#include "parallel/intra_op_threads.h"
#include "testing/device_sets.h"
#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::parallel {

struct Setting {
  lockstep::testing::DeviceSet set;
  BackwardEngine engine = BackwardEngine::kAutomatic;
};

inline std::ostream& operator<<(std::ostream& os, const Setting& setting) {
  return os << setting.set
            << (setting.engine == BackwardEngine::kPerReplica ? "_per_replica" : "_whole_graph");
}

inline std::string setting_name(const ::testing::TestParamInfo<Setting>& info) {
  return ::testing::PrintToString(info.param);
}

// Every device set with every engine that it can have.
inline std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const auto& set : lockstep::testing::all_device_sets()) {
    settings.push_back({set, BackwardEngine::kWholeGraph});
    if (set.devices[0].is_cpu() && set.devices.size() > 1) {
      settings.push_back({set, BackwardEngine::kPerReplica});
    }
  }
  return settings;
}

#define LOCKSTEP_INSTANTIATE_DATA_PARALLEL(Suite)                                                 \
  INSTANTIATE_TEST_SUITE_P(All, Suite, ::testing::ValuesIn(::lockstep::parallel::all_settings()), \
                           ::lockstep::parallel::setting_name)

class DataParallelTest : public ::testing::TestWithParam<Setting> {
 protected:
  const std::vector<c10::Device>& devices() const { return GetParam().set.devices; }
  c10::Device first() const { return devices()[0]; }
  size_t num_devices() const { return devices().size(); }

  DataParallelOptions options() const {
    DataParallelOptions options;
    options.backward = GetParam().engine;
    options.replicate.collectives = GetParam().set.collectives;
    return options;
  }

  std::vector<int64_t> sizes(int64_t rows) const {
    return comm::even_sizes(rows, static_cast<int64_t>(num_devices()));
  }

  at::Tensor data(at::IntArrayRef shape, uint64_t seed) const {
    return lockstep::testing::random_tensor(shape, seed).to(first());
  }

  // So that the references below add up in the same order as the replicas.
  const internal::IntraOpThreadsGuard one_thread_{1};
};

// Two layers in double, with a method of its own.
struct MlpImpl : torch::nn::Cloneable<MlpImpl> {
  MlpImpl(int64_t in, int64_t hidden, int64_t out) : in(in), hidden(hidden), out(out) {
    MlpImpl::reset();
  }
  void reset() override {
    a = register_module("a", torch::nn::Linear(in, hidden));
    b = register_module("b", torch::nn::Linear(hidden, out));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return b(at::tanh(a(x))); }
  int64_t width() const { return hidden; }

  int64_t in, hidden, out;
  torch::nn::Linear a{nullptr}, b{nullptr};
};
TORCH_MODULE(Mlp);

// out = x * weight, a vector of `width` ones in double.
struct ScaleImpl : torch::nn::Cloneable<ScaleImpl> {
  explicit ScaleImpl(int64_t width) : width(width) { ScaleImpl::reset(); }
  void reset() override { weight = register_parameter("weight", at::ones({width}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }

  int64_t width;
  at::Tensor weight;
};
TORCH_MODULE(Scale);

// A module whose forward is given as a function of one parameter, ones(width) in double, and of
// the inputs.
struct FunctionModule : torch::nn::Cloneable<FunctionModule> {
  using Function = std::function<at::Tensor(const at::Tensor& weight, const at::Tensor& x)>;

  FunctionModule(int64_t width, Function function) : width(width), function(std::move(function)) {
    FunctionModule::reset();
  }
  void reset() override { weight = register_parameter("weight", at::ones({width}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& x) { return function(weight, x); }

  int64_t width;
  Function function;
  at::Tensor weight;
};

inline std::shared_ptr<FunctionModule> make_function_module(int64_t width,
                                                            FunctionModule::Function function) {
  return std::make_shared<FunctionModule>(width, std::move(function));
}

// A module that is on no device of any list.
struct ElsewhereModule : torch::nn::Cloneable<ElsewhereModule> {
  ElsewhereModule() { ElsewhereModule::reset(); }
  void reset() override {
    weight = register_parameter("weight", at::empty({2}, at::TensorOptions().device("meta")));
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }

  at::Tensor weight;
};

// Gives every parameter seeded values.
inline void fill(torch::nn::Module& module, uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    parameter.copy_(lockstep::testing::random_tensor(parameter.sizes(), seed++) * 0.5);
  }
}

// Removes and returns the gradients of the module's parameters, undefined ones included.
inline std::vector<at::Tensor> take_gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> gradients;
  for (at::Tensor& parameter : module.parameters()) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

inline void expect_same_bits(const std::vector<at::Tensor>& actual,
                             const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_THAT(actual[i], lockstep::testing::BitwiseEqual(expected[i])) << "tensor " << i;
  }
}

inline void expect_close(const std::vector<at::Tensor>& actual,
                         const std::vector<at::Tensor>& expected,
                         lockstep::testing::Tolerance tolerance = {1e-12, 1e-13}) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_THAT(actual[i], lockstep::testing::AllClose(expected[i], tolerance)) << "tensor " << i;
  }
}

}  // namespace lockstep::parallel
