// SPDX-License-Identifier: Apache-2.0
// kernel_call.h: one operator on a device, run by CPU kernels on aliases of its tensors.
//   KernelCall call("aten::mm");
//   const at::Tensor a = call.read(self, "self"), b = call.read(mat2, "mat2");
//   const auto running = call.launch();
//   return call.result(at::mm(a, b));
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <utility>

#include "testing/simdev/internal/memory.h"
#include "testing/simdev/internal/ordering.h"

namespace lockstep::simdev::internal {

// Within one, operators on CPU tensors are the body of a device's kernel: they make their tensors
// in its arena and see neither autograd nor autocast.
class KernelBody {
 public:
  explicit KernelBody(int device);

 private:
  c10::impl::ExcludeDispatchKeyGuard keys_;
  RedirectHostAllocations allocations_;
};

// How an operator uses one of its arguments.
struct Operand {
  const char* name = "";  // lives for ever, as all names here
  bool written = false;
  bool may_be_on_host = false;  // whatever its size; 0-dim tensors that are read always may
};

// What an operator does to the bytes of its tensors.
enum class Effect {
  kAccess,    // reads and writes them: counts as a kernel, and the checker looks at it
  kMetadata,  // leaves them alone, as views do
};

class KernelCall {
 public:
  explicit KernelCall(const char* op, Effect effect = Effect::kAccess) : op_(op), effect_(effect) {}
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  // Fixes the device; else the first argument on one does. `name` is the argument that says so.
  // Throws: c10::Error if the device is another already.
  void run_on(int device, const char* name);
  int device() const { return device_; }

  // The CPU alias of an argument, one per tensor. Undefined tensors stay undefined.
  // Throws: c10::Error if the tensor lies elsewhere than the arguments before it.
  at::Tensor alias(const at::Tensor& tensor, const Operand& operand);
  at::Tensor read(const at::Tensor& tensor, const char* name) { return alias(tensor, {name}); }
  at::Tensor write(const at::Tensor& tensor, const char* name) {
    return alias(tensor, {name, /*written=*/true});
  }
  std::optional<at::Tensor> read(const std::optional<at::Tensor>& tensor, const char* name) {
    return tensor ? std::optional<at::Tensor>(read(*tensor, name)) : std::nullopt;
  }

  // All arguments are known: counts the kernel and shows its accesses to the checker.
  // Throws: RaceError, before anything was written.
  [[nodiscard]] KernelBody launch();

  // The device tensor for a CPU tensor that the kernel returned: an argument, a view of one, or
  // memory the kernel made.
  at::Tensor result(const at::Tensor& host);
  // Gives written arguments the sizes and the memory that the kernel gave their aliases.
  void write_back();

 private:
  struct Argument {
    at::Tensor device, host;
    Operand operand;
  };

  void expect_host_operand(const at::Tensor& tensor, const Operand& operand) const;
  at::Tensor dense_alias(const at::Tensor& tensor);
  at::Tensor sparse_alias(const at::Tensor& tensor, const Operand& operand);
  c10::Storage device_storage(const c10::Storage& host, bool* made);
  void write_back_dense(const Argument& argument);
  void write_back_sparse(const Argument& argument);
  void note_write(const at::Tensor& tensor);

  const char* op_;
  Effect effect_;
  int device_ = -1;
  const char* device_name_ = "";  // the argument that fixed the device
  Launch launch_;
  c10::SmallVector<Argument, 6> arguments_;
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 2> adopted_;  // host's, device's
};

}  // namespace lockstep::simdev::internal
