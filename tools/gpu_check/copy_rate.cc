// SPDX-License-Identifier: Apache-2.0
// Prints how fast the coalesced verbs move memory on the first CUDA device, and what they ask of
// it.
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "testing/gpu_device_sets.h"
#include "tools/gpu_check/copy_rows.h"

int main() {
  if (lockstep::testing::cuda_device_count() == 0) {
    std::fprintf(stderr, "no CUDA device\n");
    return 1;
  }
  const c10::Device device(c10::kCUDA, 0);
  std::printf("one bucket of 16 tensors on %s; medians of 30 rounds in turns\n",
              device.str().c_str());
  try {
    std::vector<lockstep::gpu_check::CopyRow> rows;
    for (int64_t bytes = int64_t{64} << 10; bytes <= int64_t{64} << 20; bytes *= 4) {
      const auto more = lockstep::gpu_check::measure_copies(device, bytes);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    std::printf("%s", lockstep::gpu_check::format_rows(rows).c_str());
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
}
