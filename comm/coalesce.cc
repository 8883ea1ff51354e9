// SPDX-License-Identifier: Apache-2.0
#include "comm/coalesce.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace lockstep::comm {

std::vector<CoalesceGroup> coalesce_groups(at::TensorList tensors, int64_t buffer_bytes,
                                           int64_t alone_bytes) {
  TORCH_CHECK(buffer_bytes > 0, "[coalesce_groups] expected a positive buffer_bytes, got ",
              buffer_bytes);
  TORCH_CHECK(alone_bytes > 0, "[coalesce_groups] expected a positive alone_bytes, got ",
              alone_bytes);
  std::vector<CoalesceGroup> closed;
  std::vector<CoalesceGroup> open;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.defined()) {
      continue;
    }
    const c10::ScalarType dtype = tensor.scalar_type();
    const int64_t bytes = static_cast<int64_t>(tensor.nbytes());
    if (bytes >= alone_bytes) {
      closed.push_back(CoalesceGroup{dtype, {static_cast<int64_t>(i)}, bytes});
      continue;
    }
    auto group = std::find_if(open.begin(), open.end(),
                              [&](const CoalesceGroup& g) { return g.dtype == dtype; });
    if (group == open.end()) {
      group = open.insert(open.end(), CoalesceGroup{dtype, {}, 0});
    }
    group->indices.push_back(static_cast<int64_t>(i));
    group->bytes += bytes;
    if (group->bytes >= buffer_bytes) {
      closed.push_back(std::exchange(*group, CoalesceGroup{dtype, {}, 0}));
    }
  }
  for (CoalesceGroup& group : open) {
    if (!group.indices.empty()) {
      closed.push_back(std::move(group));
    }
  }
  return closed;
}

}  // namespace lockstep::comm
