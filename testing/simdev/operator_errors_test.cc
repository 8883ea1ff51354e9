// SPDX-License-Identifier: Apache-2.0
// What operators refuse: operands of another device, host tensors, unknown layouts, and how the
// message names them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "testing/matchers.h"
#include "testing/simdev/counters.h"
#include "testing/simdev/simdev.h"
#include "testing/simdev/test_environment.h"

namespace lockstep::simdev {
namespace {

using lockstep::testing::BitwiseEqual;
using lockstep::testing::ThrowsError;

const bool kDevicesInUse = use_in_tests();

at::TensorOptions on(int index) { return at::TensorOptions(device(index)); }

TEST(OperandTest, NamesOperatorArgumentAndBothDevices) {
  const at::Tensor a = at::ones({2, 2}, on(0)), b = at::ones({2, 2}, on(1));
  EXPECT_THAT([&] { at::mm(a, b); },
              ThrowsError("[aten::mm.out] expected argument 'mat2' on simdev:0, as 'self' is, got "
                          "simdev:1"));
  EXPECT_THAT([&] { at::embedding(a, at::zeros({2}, on(3).dtype(at::kLong))); },
              ThrowsError("expected argument 'index' on simdev:0, as 'self' is, got simdev:3"));
}

TEST(OperandTest, NamesHostTensorsWithDimensions) {
  const at::Tensor host = at::ones({2, 2}), there = at::ones({2, 2}, on(1));
  EXPECT_THAT([&] { at::mm(there, host); },
              ThrowsError("[aten::mm.out] expected argument 'mat2' on simdev:1, as 'self' is, got "
                          "a tensor of size [2, 2] on cpu"));
  EXPECT_THAT([&] { at::mm(host, there); },
              ThrowsError("expected argument 'self' on simdev:1, as 'mat2' is, got a tensor of "
                          "size [2, 2] on cpu"));
}

TEST(OperandTest, RefusesHostTensorsToWriteTo) {
  at::Tensor host = at::zeros({});
  EXPECT_THAT([&] { at::sum_out(host, at::ones({3}, on(1)), at::IntArrayRef{}); },
              ThrowsError("on cpu"));
}

TEST(OperandTest, LeavesPointwiseOperatorsToLibTorchsOwnCheck) {
  EXPECT_THAT([&] { at::ones({2}, on(0)) + at::ones({2}, on(1)); },
              ThrowsError("found at least two devices, simdev:0 and simdev:1"));
  EXPECT_THAT([&] { at::ones({2}) + at::ones({2}, on(1)); },
              ThrowsError("found at least two devices, simdev:1 and cpu"));
}

TEST(OperandTest, ChecksExplicitKernelsToo) {
  const at::Tensor x = at::ones({1, 1, 4}, on(0)), w = at::ones({1, 1, 2}, on(1));
  EXPECT_THAT([&] { at::conv1d(x, w); },
              ThrowsError("[aten::convolution] expected argument 'weight' on simdev:0, as 'input' "
                          "is, got simdev:1"));
  EXPECT_THAT(
      [&] {
        at::_thnn_fused_lstm_cell(at::ones({1, 4}, on(0)), at::ones({1, 4}, on(2)),
                                  at::ones({1, 1}, on(0)));
      },
      ThrowsError("expected argument 'hidden_gates' on simdev:0, as 'input_gates' is, got "
                  "simdev:2"));
}

TEST(OperandTest, LeavesNoTraceOfARefusedOperator) {
  const at::Tensor a = at::ones({2, 2}, on(0)), b = at::ones({2, 2}, on(1));
  at::Tensor out = at::full({2, 2}, 7, on(0));
  const int64_t kernels = counters(0).kernels;
  EXPECT_THAT([&] { at::mm_out(out, a, b); }, ThrowsError("[aten::mm.out]"));
  EXPECT_EQ(counters(0).kernels, kernels);
  EXPECT_THAT(out, BitwiseEqual(at::full({2, 2}, 7)));
}

TEST(OperandTest, RefusesAGeneratorOfTheHost) {
  const at::Generator host = at::globalContext().defaultGenerator(at::kCPU);
  EXPECT_THAT([&] { at::ones({3}, on(1)).normal_(0, 1, host); },
              ThrowsError("[aten::normal_] expected a generator of simdev:1, got one of cpu"));
}

TEST(OperandTest, SeesOverlapOfWhatIsReadAndWritten) {
  at::Tensor t = at::ones({4}, on(1));
  EXPECT_THAT(
      [&] {
        at::Tensor out = t.slice(0, 1, 4);
        at::mul_out(out, t.slice(0, 0, 3), t.slice(0, 0, 3));
      },
      ThrowsError("unsupported operation"));
}

TEST(OperandTest, KeepsThatANumberDoesNotPromote) {
  const at::Tensor x = at::arange(1000), number = at::full({}, 0.1, at::kDouble);
  const at::Tensor there = number.to(device(1));
  for (const at::Tensor& made : {number, there}) {
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  EXPECT_THAT(x.to(device(1)) * there, BitwiseEqual(x * number));  // as float, not as double
  EXPECT_THAT(x.to(device(1)) + 1, BitwiseEqual(x + 1));  // the number leaves nothing behind
}

TEST(CopyOperandTest, RefusesSizesThatDoNotBroadcast) {
  at::Tensor target = at::zeros({2, 3}, on(1));
  EXPECT_THAT([&] { target.copy_(at::ones({4})); },
              ThrowsError("[aten::copy_] expected a source that broadcasts to [2, 3], got [4]"));
}

TEST(CopyOperandTest, RefusesOtherKindsOfDevices) {
  at::Tensor target = at::zeros({3}, on(1));
  EXPECT_THAT([&] { target.copy_(at::ones({3}, at::kMeta)); }, ThrowsError("meta"));
}

TEST(EmptyTest, RefusesWhatADeviceDoesNotHave) {
  EXPECT_THAT([&] { at::empty({3}, on(1).pinned_memory(true)); },
              ThrowsError("[empty] expected pin_memory for a tensor of the CPU only"));
  EXPECT_THAT([&] { at::empty({3}, on(1).layout(at::kMkldnn)); },
              ThrowsError("Unsupported device type for mkldnn layout: simdev"));
  EXPECT_THAT([&] { at::empty({-3}, on(1)); }, ThrowsError("negative dimension -3"));
  EXPECT_THAT([&] { at::empty({3}, c10::Device(c10::DeviceType::PrivateUse1, 9)); },
              ThrowsError("9"));
}

TEST(EmptyTest, RefusesStoragesOfOtherDevices) {
  at::Tensor t = at::empty({3}, on(1));
  EXPECT_THAT([&] { t.set_(at::ones({3}, on(2)).storage()); },
              ThrowsError("Attempted to set the storage of a tensor on device \"simdev:1\""));
  EXPECT_THAT([&] { t.resize_({-1}); }, ThrowsError("negative dimension -1"));
}

TEST(SparseOperandTest, RefusesPartsOfTwoDevices) {
  const at::Tensor indices = at::zeros({1, 2}, on(0).dtype(at::kLong));
  EXPECT_THAT([&] { at::_sparse_coo_tensor_unsafe(indices, at::ones({2}, on(1)), {4}); },
              ThrowsError("[sparse_coo_tensor] expected indices on simdev:1, as the values are, "
                          "got simdev:0"));
}

at::Tensor twice(const at::Tensor& self) { return self * 2; }

TEST(OwnOperatorTest, RunsWithItsCpuKernelAlone) {
  torch::Library definitions(torch::Library::DEF, "simdev_test", std::nullopt, __FILE__, __LINE__);
  definitions.def("twice(Tensor self) -> Tensor");
  const auto twice_of = [](const at::Tensor& tensor) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("simdev_test::twice", "")
        .typed<at::Tensor(const at::Tensor&)>()
        .call(tensor);
  };
  const at::Tensor x = at::arange(3, on(1));
  EXPECT_THAT([&] { twice_of(x); },
              ThrowsError("[simdev_test::twice] expected a kernel for CPU, which simulated devices "
                          "run operators by, got none"));
  torch::Library kernels(torch::Library::IMPL, "simdev_test", c10::DispatchKey::CPU, __FILE__,
                         __LINE__);
  kernels.impl("twice", twice);
  EXPECT_THAT(twice_of(x), BitwiseEqual(at::arange(3) * 2));
  EXPECT_EQ(twice_of(x).device(), device(1));
}

}  // namespace
}  // namespace lockstep::simdev
