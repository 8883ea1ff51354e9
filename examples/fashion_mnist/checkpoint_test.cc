// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/checkpoint.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace fashion_mnist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSeed = 0xfedcba9876543210;
const EpochRow kRow{1, 0.5, 0.8, 0.4, 0.85, 20.25, 2962.96};

torch::optim::SGD make_optimizer(Net& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

void train_step(Net& net, torch::optim::SGD& optimizer, const at::Tensor& images) {
  optimizer.zero_grad();
  net(images).square().sum().backward();
  optimizer.step();
}

bool equal_values(const NetImpl& a, const NetImpl& b) {
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    if (!at::equal(a.parameters()[i], b.parameters()[i])) return false;
  }
  for (size_t i = 0; i < a.buffers().size(); ++i) {
    if (!at::equal(a.buffers()[i], b.buffers()[i])) return false;
  }
  return true;
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "/checkpoint_" + info->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/run.pt";
  }

  std::string error_of(const std::function<void()>& call) const {
    try {
      call();
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
      return error.what();
    }
    return "no error";
  }
  int64_t files_in_folder() const {
    const std::filesystem::directory_iterator files(folder_);
    return std::distance(begin(files), end(files));
  }

  std::string folder_, path_;
  const at::Tensor images_ = at::randn({4, 1, 28, 28});
};

TEST_F(CheckpointTest, ContinuesExactlyWhereTheRunStopped) {
  Net net(NetOptions{0.0});
  auto optimizer = make_optimizer(net);
  train_step(net, optimizer, images_);
  save_checkpoint(path_, *net, optimizer, {1, kSeed, {kRow}});

  Net other(NetOptions{0.0});
  auto other_optimizer = make_optimizer(other);
  const std::vector<at::Tensor> tensors = other->parameters();
  const TrainingState state = load_checkpoint(path_, *other, &other_optimizer);
  EXPECT_EQ(state.epoch, 1);
  EXPECT_EQ(state.seed, kSeed);
  ASSERT_EQ(state.history.size(), 1u);
  EXPECT_EQ(state.history[0].epoch, 1);
  EXPECT_EQ(state.history[0].samples_per_second, kRow.samples_per_second);
  EXPECT_TRUE(equal_values(*net, *other));
  EXPECT_TRUE(tensors[0].is_same(other->parameters()[0]));

  // The momentum came along too: the next step is the same.
  train_step(net, optimizer, images_);
  train_step(other, other_optimizer, images_);
  EXPECT_TRUE(equal_values(*net, *other));
}

TEST_F(CheckpointTest, IsReadByTorchLoadOfTheBareModule) {
  Net net;
  auto optimizer = make_optimizer(net);
  save_checkpoint(path_, *net, optimizer, {0, 1, {}});
  Net other;
  ASSERT_FALSE(equal_values(*net, *other));
  torch::load(other, path_);
  EXPECT_TRUE(equal_values(*net, *other));
}

TEST_F(CheckpointTest, ReplacesTheOldFileAndLeavesNoOther) {
  Net net;
  auto optimizer = make_optimizer(net);
  save_checkpoint(path_, *net, optimizer, {1, 1, {}});
  save_checkpoint(path_, *net, optimizer, {2, 1, {}});
  EXPECT_EQ(load_checkpoint(path_, *net, nullptr).epoch, 2);
  EXPECT_EQ(files_in_folder(), 1);
}

TEST_F(CheckpointTest, SaysInOneSentenceThatItCannotWrite) {
  Net net;
  auto optimizer = make_optimizer(net);
  const std::string path = folder_ + "/none/run.pt";
  EXPECT_THAT(error_of([&] { save_checkpoint(path, *net, optimizer, {}); }),
              HasSubstr(path + ": cannot be written"));
  std::filesystem::create_directories(path_ + "/in_the_way");
  EXPECT_THAT(error_of([&] { save_checkpoint(path_, *net, optimizer, {}); }),
              HasSubstr(path_ + ": cannot be written"));
  EXPECT_EQ(files_in_folder(), 1);
}

TEST_F(CheckpointTest, RejectsAMissingFile) {
  Net net;
  EXPECT_EQ(error_of([&] { load_checkpoint(path_, *net, nullptr); }), path_ + ": no such file");
}

TEST_F(CheckpointTest, RejectsWhatIsNoArchiveAndWhatIsCutShort) {
  Net net;
  auto optimizer = make_optimizer(net);
  std::ofstream(path_) << "hello";
  const std::string sentence = path_ + ": is not a torch archive, or is damaged";
  EXPECT_EQ(error_of([&] { load_checkpoint(path_, *net, nullptr); }), sentence);
  save_checkpoint(path_, *net, optimizer, {});
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  EXPECT_EQ(error_of([&] { load_checkpoint(path_, *net, nullptr); }), sentence);
}

TEST_F(CheckpointTest, RejectsAnotherNetworkAndLeavesOursAlone) {
  Net net;
  auto optimizer = make_optimizer(net);
  const auto before = std::dynamic_pointer_cast<NetImpl>(net->clone());
  torch::nn::Linear linear(2, 3);
  torch::save(linear, path_);
  EXPECT_EQ(error_of([&] { load_checkpoint(path_, *net, nullptr); }),
            path_ + ": does not hold this program's network");

  Net wider;
  wider->named_parameters()["conv1.weight"].set_data(at::randn({16, 1, 5, 5}));
  save_checkpoint(path_, *wider, optimizer, {});
  EXPECT_EQ(error_of([&] { load_checkpoint(path_, *net, nullptr); }),
            path_ + ": holds another conv1.weight than this program's network");
  EXPECT_TRUE(equal_values(*before, *net));
}

TEST_F(CheckpointTest, RejectsABareModuleThatHasNoState) {
  Net net;
  torch::save(net, path_);
  EXPECT_EQ(error_of([&] { load_checkpoint(path_, *net, nullptr); }), path_ + ": holds no epoch");
}

}  // namespace
}  // namespace fashion_mnist
