// SPDX-License-Identifier: Apache-2.0
#include "examples/fashion_mnist/paths.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace fashion_mnist {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRepository = "fashion_mnist";
constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";

std::optional<std::string> folder_with_images(const fs::path& root) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(root, error), end; !error && at != end;
       at.increment(error)) {
    const std::string stem = at->path().stem().string();
    if (stem == "train-images-idx3-ubyte") return at->path().parent_path().string();
  }
  return std::nullopt;
}

}  // namespace

std::string user_folder_from_env() {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  return folder == nullptr ? "" : folder;
}

std::string resolve_path(const std::string& path, const std::string& user_folder) {
  return (fs::path(user_folder) / path).lexically_normal().string();
}

std::optional<std::string> find_data_dir(const std::string& folder, const std::string& program) {
  const fs::path runfiles = program + ".runfiles";
  for (const fs::path& root :
       {fs::path(folder) / "external" / kRepository, fs::path(folder) / ".." / kRepository,
        runfiles / kRepository, fs::path(kDebianFolder)}) {
    if (auto found = folder_with_images(root.lexically_normal())) return found;
  }
  return std::nullopt;
}

}  // namespace fashion_mnist
