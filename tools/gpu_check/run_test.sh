#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `run check` with programs that only say how they ended: what it counts, and when it fails.
set -eu

readonly run=$PWD/tools/gpu_check/run
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir -p "$work/bin" "$work/pack" "$work/site/torch/lib" "$work/site/nvidia/nccl/lib"
export PATH=$work/bin:$PATH

# program NAME TEXT CODE
program() {
  printf '#!/bin/bash\nprintf "%%s\\n" "%s"\nexit %d\n' "$2" "$3" > "$work/pack/$1"
  chmod +x "$work/pack/$1"
}

python_has() {
  printf '#!/bin/bash\necho %s\necho %s\n' "$1" "$work/site" > "$work/bin/python3"
  chmod +x "$work/bin/python3"
}

all_pass() {
  python_has 2.11.0+cu130
  program conformance '[  PASSED  ] 500 tests.
[  SKIPPED ] 2 tests, listed below:' 0
  program gpu_checks '[  PASSED  ] 1 test.' 0
  program copy_rate '$LD_LIBRARY_PATH' 0
}

# expect CODE TEXT: `run check` ends so and says so.
expect() {
  local code=0 said
  said=$("$run" check "$work/pack" 2>&1) || code=$?
  if [[ $code -ne $1 || $said != *"$2"* ]]; then
    printf 'expected exit code %d and "%s", got %d and:\n%s\n' "$1" "$2" "$code" "$said" >&2
    exit 1
  fi
}

all_pass
expect 0 "gpu_check: 502 passed, 0 failed, 2 skipped"
expect 0 "$work/site/torch/lib:$work/site/nvidia/nccl/lib"

program gpu_checks '[  FAILED  ] A.One (3 ms)
[  FAILED  ] A.Two (0 ms)
[  FAILED  ] B/A.Three/0, where GetParam() = 7 (12 ms)
[  PASSED  ] 20 tests.' 1
expect 1 "gpu_check: 521 passed, 3 failed, 2 skipped"

all_pass
program conformance 'no CUDA device' 1
expect 1 "gpu_check: 2 passed, 1 failed, 0 skipped"

all_pass
program conformance '[  PASSED  ] 0 tests.' 0
expect 1 "conformance failed (exit code 0)"

all_pass
program copy_rate 'wrong tensor' 1
expect 1 "gpu_check: 501 passed, 1 failed, 2 skipped"

all_pass
rm "$work/pack/gpu_checks"
expect 1 "gpu_checks failed (exit code 127)"

python_has 2.10.0
expect 1 "the programs need torch 2.11, and python3 has 2.10.0"
python_has none
expect 1 "the programs need torch 2.11, and python3 has none"
