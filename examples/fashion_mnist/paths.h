// SPDX-License-Identifier: Apache-2.0
// paths: where the data lies and where results go. `bazel run` starts a program in its runfiles
// folder, so a relative path a person types has to be read from the folder they stand in.
#pragma once

#include <optional>
#include <string>

namespace fashion_mnist {

// The folder the person typed the command in, if `bazel run` started us; else empty, which means
// the current folder.
std::string user_folder_from_env();

// `path` as seen from `user_folder`; unchanged if it is absolute or `user_folder` is empty.
std::string resolve_path(const std::string& path, const std::string& user_folder);

// The folder with the training images below one of: the runfiles, started by Bazel in `folder` or
// by hand as `program`; Debian's place for the data set.
std::optional<std::string> find_data_dir(const std::string& folder, const std::string& program);

}  // namespace fashion_mnist
