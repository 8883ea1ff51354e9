// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/paths.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fashion_mnist {
namespace {

namespace fs = std::filesystem;

class FindDataDirTest : public ::testing::Test {
 protected:
  FindDataDirTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / "paths" / info->name();
    fs::remove_all(root_);
    fs::create_directories(root_ / "workspace");
  }
  std::string put_images(const fs::path& folder) const {
    fs::create_directories(root_ / folder);
    std::ofstream(root_ / folder / "train-images-idx3-ubyte.gz") << "x";
    return (root_ / folder).string();
  }
  std::string find() const {
    const auto found = find_data_dir(root_ / "workspace", root_ / "program");
    return found.has_value() ? fs::path(*found).lexically_normal().string() : "";
  }

  fs::path root_;
};

TEST_F(FindDataDirTest, FindsTheRunfilesBelowTheCurrentFolder) {
  const std::string folder = put_images("workspace/external/fashion_mnist/some/depth");
  EXPECT_EQ(find(), folder);
}

TEST_F(FindDataDirTest, FindsTheRunfilesBesideTheCurrentFolder) {
  const std::string folder = put_images("fashion_mnist");
  EXPECT_EQ(find(), folder);
}

TEST_F(FindDataDirTest, FindsTheRunfilesBesideTheProgram) {
  const std::string folder = put_images("program.runfiles/fashion_mnist");
  EXPECT_EQ(find(), folder);
}

TEST_F(FindDataDirTest, FindsNothingInAnEmptyRepository) {
  fs::create_directories(root_ / "fashion_mnist");
  const std::string found = find();
  EXPECT_TRUE(found.empty() || found == "/usr/share/datasets/fashion-mnist") << found;
}

TEST(ResolvePathTest, ReadsRelativePathsFromTheUsersFolder) {
  EXPECT_EQ(resolve_path("runs/a", "/home/ada"), "/home/ada/runs/a");
  EXPECT_EQ(resolve_path("../runs", "/home/ada"), "/home/runs");
}

TEST(ResolvePathTest, KeepsAbsolutePathsAndPathsWithoutAUsersFolder) {
  EXPECT_EQ(resolve_path("/tmp/a", "/home/ada"), "/tmp/a");
  EXPECT_EQ(resolve_path("runs/a", ""), "runs/a");
}

TEST(UserFolderFromEnvTest, IsWhatBazelRunSays) {
  setenv("BUILD_WORKING_DIRECTORY", "/home/ada", 1);
  EXPECT_EQ(user_folder_from_env(), "/home/ada");
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(user_folder_from_env(), "");
}

}  // namespace
}  // namespace fashion_mnist
