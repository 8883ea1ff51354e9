#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: format.sh          formats every C++ file of the repository, in place
#        format.sh --check  fails and says where, if a file below here is not formatted
set -eu

if ! command -v clang-format > /dev/null; then
  echo "format.sh: no clang-format; ./tools/bazel installs it on Debian" >&2
  exit 1
fi

mode=(-i)
if [[ ${1:-} == --check ]]; then
  mode=(--dry-run --Werror)
else
  cd "$(dirname "$(readlink -f "$0")")/../.."
fi
mapfile -t files < <(find -L . \( -path ./external -o -name 'bazel-*' -o -name .git \) -prune \
  -o \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -print | sort)
if [[ ${#files[@]} -eq 0 ]]; then
  echo "format.sh: no C++ file below $PWD" >&2
  exit 1
fi
clang-format --style=file "${mode[@]}" "${files[@]}"
echo "format.sh: ${#files[@]} files"
