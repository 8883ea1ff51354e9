// SPDX-License-Identifier: Apache-2.0
#include "testing/simdev/internal/operators.h"

#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <deque>

#include "testing/simdev/internal/autocast.h"
#include "testing/simdev/internal/copy_kernels.h"
#include "testing/simdev/internal/fallback.h"
#include "testing/simdev/internal/layer_kernels.h"
#include "testing/simdev/internal/rnn_kernels.h"
#include "testing/simdev/internal/sparse.h"
#include "testing/simdev/internal/storage_kernels.h"
#include "testing/simdev/internal/view_kernels.h"

namespace lockstep::simdev::internal {
namespace {

// Lives as long as the process, and so do its registrations.
torch::Library& library(const char* name, c10::DispatchKey key) {
  static auto* const libraries = new std::deque<torch::Library>();
  return libraries->emplace_back(torch::Library::IMPL, name, key, __FILE__, __LINE__);
}

// Otherwise these keys resolve the lazy bits by a clone, which copies, which comes here again.
void pass_copies_through(c10::DispatchKey key) {
  torch::Library& aten = library("aten", key);
  aten.impl("_copy_from", torch::CppFunction::makeFallthrough());
  aten.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace

void register_operators() {
  torch::Library& dense = library("aten", c10::DispatchKey::PrivateUse1);
  register_storage_kernels(dense);
  register_copy_kernels(dense);
  register_view_kernels(dense);
  register_layer_kernels(dense);
  register_rnn_kernels(dense);
  register_sparse_kernels(library("aten", c10::DispatchKey::SparsePrivateUse1));
  register_fallback(library("_", c10::DispatchKey::PrivateUse1),
                    library("_", c10::DispatchKey::SparsePrivateUse1));
  pass_copies_through(c10::DispatchKey::Conjugate);
  pass_copies_through(c10::DispatchKey::Negative);
  library("_", c10::DispatchKey::AutocastPrivateUse1)
      .fallback(torch::CppFunction::makeFallthrough());
  register_autocast_kernels(library("aten", c10::DispatchKey::AutocastPrivateUse1));
}

}  // namespace lockstep::simdev::internal
