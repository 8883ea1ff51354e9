#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: libraries_test.sh [--not-run] PROGRAM [CUDA_LIBRARY...]
# The program needs these CUDA libraries and no others, and finds CUDA if it has
# them: a library that no code calls must not be dropped by the linker, nor one
# come along that nobody asked for (pytorch#36437).
set -eu

run=yes
if [[ $1 == --not-run ]]; then
  run=no
  shift
fi
readonly program=$1
shift

needed=$(readelf --dynamic --wide "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
found=$(grep -E 'cuda\.so' <<< "$needed" | sort || true)
wanted=$(printf '%s\n' "$@" | sort)
if ! grep -q '^libtorch_cpu.so$' <<< "$needed"; then
  printf '%s does not need libtorch_cpu.so, only:\n%s\n' "$program" "$needed" >&2
  exit 1
fi
if [[ $found != "$wanted" ]]; then
  printf 'CUDA libraries needed by %s:\n%s\nexpected:\n%s\n' "$program" "$found" "$wanted" >&2
  exit 1
fi

[[ $run == yes ]] || exit 0
said=$("$program")
echo "$said"
if [[ $# -eq 0 ]]; then
  [[ $said == "CUDA no, 0 devices" ]]
else
  [[ $said == "CUDA yes, "* ]]
fi
