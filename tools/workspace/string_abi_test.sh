#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program compiled for the other layout of std::string than LibTorch's stops at
# one sentence (pytorch#13541).
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

ours=$((1 - theirs))
if compile -D_GLIBCXX_USE_CXX11_ABI="$ours" 2> "$TEST_TMPDIR/said"; then
  echo "_GLIBCXX_USE_CXX11_ABI=$ours was accepted" >&2
  exit 1
fi
cat "$TEST_TMPDIR/said"
[[ $(grep -c ' error: ' "$TEST_TMPDIR/said") -eq 1 ]]
grep -q "LibTorch was built with _GLIBCXX_USE_CXX11_ABI=$theirs, .* with _GLIBCXX_USE_CXX11_ABI=$ours" \
  "$TEST_TMPDIR/said"
