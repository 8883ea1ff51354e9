#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program compiled for the other layout of std::string than LibTorch's (pytorch#13541), or as an
# older C++, stops at one sentence.
set -eu

cd external/libtorch
printf '#include <c10/core/Device.h>\n' > "$TEST_TMPDIR/program.cc"
compile() {
  g++ -std=c++17 -fsyntax-only -isystem abi -isystem include "$@" "$TEST_TMPDIR/program.cc"
}

compile
theirs=$(sed -n 's/.*was built with _GLIBCXX_USE_CXX11_ABI=\([01]\),.*/\1/p' \
  abi/torch/headeronly/macros/Macros.h)
compile -D_GLIBCXX_USE_CXX11_ABI="$theirs"

# refused SENTENCE FLAG: the compiler says that one sentence, and nothing else is wrong.
refused() {
  if compile "$2" 2> "$TEST_TMPDIR/said"; then
    echo "$2 was accepted" >&2
    exit 1
  fi
  cat "$TEST_TMPDIR/said"
  [[ $(grep -c ' error: ' "$TEST_TMPDIR/said") -eq 1 ]]
  grep -q "$1" "$TEST_TMPDIR/said"
}

ours=$((1 - theirs))
refused "LibTorch was built with _GLIBCXX_USE_CXX11_ABI=$theirs, .* with _GLIBCXX_USE_CXX11_ABI=$ours" \
  -D_GLIBCXX_USE_CXX11_ABI="$ours"
refused 'LibTorch needs C++17: compile with -std=c++17 or later' -std=c++14
