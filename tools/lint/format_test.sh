#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# format.sh passes what is formatted and refuses what is not.
set -eu

readonly format=$PWD/tools/lint/format.sh
readonly style=$PWD/.clang-format
cd "$(mktemp -d "$TEST_TMPDIR/XXXXXX")"
cp "$style" .clang-format

printf 'int f(int x) { return x; }\n' > a.cc
"$format" --check

printf 'int f( int x ){return x;}\n' > a.cc
if "$format" --check 2> errors; then
  echo "a file that is not formatted was passed" >&2
  exit 1
fi
grep -q 'a.cc:1' errors

rm a.cc
if "$format" --check; then
  echo "an empty folder was passed" >&2
  exit 1
fi
