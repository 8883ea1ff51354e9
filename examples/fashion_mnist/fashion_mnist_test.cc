// SPDX-License-Identifier: Apache-2.0
// The whole program on the real files, as a person starts it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "examples/fashion_mnist/model.h"
#include "examples/run_program.h"

namespace fashion_mnist {
namespace {

using lockstep::examples::ProgramOptions;
using lockstep::examples::ProgramResult;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

namespace fs = std::filesystem;

class FashionMnistTest : public ::testing::Test {
 protected:
  FashionMnistTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / "fashion_mnist" / info->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  ProgramResult start(std::vector<std::string> flags, const ProgramOptions& options = {}) const {
    flags.insert(flags.begin(), {"examples/fashion_mnist/fashion_mnist",
                                 "--output_dir=" + path("run"), "--devices=cpu,cpu"});
    return lockstep::examples::run_program(flags, options);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(FashionMnistTest, TrainsOnTheRealFilesAndWritesItsResults) {
  const ProgramResult result = start({"--limit=1000", "--epochs=2"});
  ASSERT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.error, IsEmpty());
  EXPECT_THAT(result.out, HasSubstr("data: 1000 training and 1000 test samples"));
  EXPECT_THAT(result.out, HasSubstr("devices: cpu,cpu; batch size 128, seed 1"));
  EXPECT_THAT(result.out, ContainsRegex("epoch 2/2  100 %  [0-9]+ samples/s  loss"));
  EXPECT_THAT(result.out, ContainsRegex("test accuracy: [5-8][0-9]\\.[0-9]+ %"));
  EXPECT_THAT(result.out, ContainsRegex("on cpu alone \\([0-9]+ threads\\): [0-9.]+ times"));
  EXPECT_THAT(result.out, Not(HasSubstr("\r")));
  EXPECT_TRUE(fs::exists(path("run/fashion_mnist.svg")));
  std::ifstream csv(path("run/fashion_mnist.csv"));
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(csv), {}, '\n'), 3);
  Net net;
  torch::load(net, path("run/fashion_mnist.pt"));
}

TEST_F(FashionMnistTest, ContinuesAndEvaluatesACheckpoint) {
  ASSERT_EQ(start({"--limit=500", "--epochs=1", "--seed=5"}).exit_code, 0);
  const std::string load = "--load=" + path("run/fashion_mnist.pt");
  const ProgramResult more = start({"--limit=500", "--epochs=2", load});
  EXPECT_EQ(more.exit_code, 0) << more.error;
  EXPECT_THAT(more.out, HasSubstr("seed 5"));
  EXPECT_THAT(more.out, HasSubstr("after epoch 1"));
  EXPECT_THAT(more.out, HasSubstr("epoch 2/2"));
  EXPECT_THAT(more.out, Not(HasSubstr("epoch 1/2")));

  const auto written = fs::last_write_time(path("run/fashion_mnist.pt"));
  const ProgramResult evaluated = start({"--limit=500", "--epochs=2", load});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.error;
  EXPECT_THAT(evaluated.out, ContainsRegex("test accuracy: [0-9.]+ % \\(loss"));
  EXPECT_THAT(evaluated.out, Not(HasSubstr("epoch 2/2")));
  EXPECT_EQ(fs::last_write_time(path("run/fashion_mnist.pt")), written);
}

TEST_F(FashionMnistTest, KeepsTheLastCheckpointOnCtrlC) {
  ProgramOptions options;
  options.interrupt_after = [](const std::string& line) {
    return line.find("test accuracy") != std::string::npos;
  };
  const ProgramResult result = start({"--limit=500", "--epochs=100000"}, options);
  EXPECT_EQ(result.exit_code, 130) << result.error;
  EXPECT_THAT(result.out, ContainsRegex("interrupted; kept .*fashion_mnist.pt, the state after"));
  const ProgramResult loaded =
      start({"--limit=500", "--epochs=0", "--load=" + path("run/fashion_mnist.pt")});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.error;
  EXPECT_THAT(loaded.out, HasSubstr("test accuracy: "));
}

TEST_F(FashionMnistTest, ChecksItsGradients) {
  const ProgramResult result = start({"--check", "--batch_size=32"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.error;
  EXPECT_THAT(result.out, HasSubstr("perturbed replica detected: difference "));
  EXPECT_THAT(result.out, HasSubstr("check passed"));
}

// A wrong flag and a part of the one sentence it must give.
struct WrongFlag {
  std::string name;
  std::string flag;
  std::string sentence;
};

class WrongFlagTest : public FashionMnistTest, public ::testing::WithParamInterface<WrongFlag> {};

TEST_P(WrongFlagTest, GivesOneSentenceAndExitCodeOne) {
  const ProgramResult result = start({"--limit=100", "--epochs=1", GetParam().flag});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr(GetParam().sentence));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  EXPECT_THAT(result.out, Not(HasSubstr("epoch")));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongFlagTest,
    ::testing::Values(WrongFlag{"Devices", "--devices=cpu,gpu", "'gpu' is not a device"},
                      WrongFlag{"AbsentCuda", "--devices=cuda:99", "cuda:99 is not there"},
                      WrongFlag{"Epochs", "--epochs=-1", "--epochs: expected 0 or more"},
                      WrongFlag{"NothingToDo", "--epochs=0", "name one with --load"},
                      WrongFlag{"EpochsNoNumber", "--epochs=two", "epochs"},
                      WrongFlag{"BatchSize", "--batch_size=0", "--batch_size: expected 1 or more"},
                      WrongFlag{"Lr", "--lr=0", "--lr: expected a number above 0"},
                      WrongFlag{"LrNan", "--lr=nan", "--lr: expected a number above 0"},
                      WrongFlag{"Seed", "--seed=-1", "seed"},
                      WrongFlag{"Limit", "--limit=-5", "--limit"},
                      WrongFlag{"DataDir", "--data_dir=/no/such", "/no/such: no such folder"},
                      WrongFlag{"OutputDir", "--output_dir=/dev/null/x", "cannot be made a folder"},
                      WrongFlag{"NoOutputDir", "--output_dir=", "--output_dir: expected a folder"},
                      WrongFlag{"Load", "--load=/no/such.pt", "/no/such.pt: no such file"},
                      WrongFlag{"Unknown", "--epoch=1", "epoch"},
                      WrongFlag{"NoFlag", "train", "train"}),
    [](const auto& info) { return info.param.name; });

TEST_F(FashionMnistTest, RefusesATruncatedFileInsteadOfInventingData) {
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    std::ofstream(folder_ / name, std::ios::binary) << std::string("\0\0\x08\x03\0\0\0\x05", 8);
  }
  const ProgramResult result = start({"--data_dir=" + folder_.string()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.error,
            "fashion_mnist: " + path("train-images-idx3-ubyte") + ": ends within its header\n");
}

TEST_F(FashionMnistTest, WritesBelowTheFolderTheCommandWasTypedIn) {
  setenv("BUILD_WORKING_DIRECTORY", folder_.c_str(), 1);
  const ProgramResult result = start({"--limit=100", "--epochs=1", "--output_dir=mine"});
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_TRUE(fs::exists(path("mine/fashion_mnist.pt")));
}

}  // namespace
}  // namespace fashion_mnist
