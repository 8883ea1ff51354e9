#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: clang_tidy.sh STAMP CONFIG SOURCE FLAG...
set -eu

readonly stamp=$1 config=$2 source=$3
shift 3
if ! command -v clang-tidy > /dev/null; then
  echo "no clang-tidy: apt-get install clang-tidy" >&2
  exit 1
fi
if ! clang-tidy --quiet --config-file="$config" "$source" -- "$@" > "$stamp" 2>&1; then
  cat "$stamp"
  exit 1
fi
