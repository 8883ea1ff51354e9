// SPDX-License-Identifier: Apache-2.0
// copy_rows: how fast the coalesced verbs move memory on one device, as a share of what a plain
// copy of the same bytes reaches there.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/benchmarks/statistics.h"
#include "tools/gpu_check/device_operations.h"

namespace lockstep::gpu_check {

struct CopyOptions {
  int64_t tensors = 16;          // that a bucket's bytes are spread over
  int64_t rounds = 30;           // every side once in each, so that ratios are taken within a round
  double sample_seconds = 2e-3;  // a sample repeats its side until it takes so long
  int64_t max_repeats = 200;
};

struct CopyRow {
  std::string name;
  int64_t bucket_bytes = 0;
  double seconds = 0;                          // median, of one call
  double bytes_per_second = 0;                 // read and written
  benchmarks::RatioEstimate share_of_limit;    // of the plain copy's rate; 1 for itself
  std::optional<DeviceOperations> operations;  // of one call
  std::string operations_unknown;              // why, if they are not there
};

// One row for the limit, a copy_ of one tensor into another, and one each for
// broadcast_coalesced_out to one row, broadcast_coalesced to one fresh row and reduce_add_coalesced
// of two rows, packed first and, where the device type has that kernel, in one; all on `device`, by
// copies, and in one bucket.
// Throws: c10::Error if a verb gives a wrong result.
std::vector<CopyRow> measure_copies(c10::Device device, int64_t bucket_bytes,
                                    const CopyOptions& options = {});

// A table with a header, one line for each row.
std::string format_rows(const std::vector<CopyRow>& rows);

}  // namespace lockstep::gpu_check
