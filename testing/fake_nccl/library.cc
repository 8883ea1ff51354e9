// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/library.h"

namespace lockstep::fake_nccl::internal {

Library& library() {
  static auto* const the_library = new Library();
  return *the_library;
}

}  // namespace lockstep::fake_nccl::internal
