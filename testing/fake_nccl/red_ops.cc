// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/red_ops.h"

#include <cstring>
#include <map>
#include <string>

#include "testing/fake_nccl/library.h"
#include "testing/fake_nccl/reports.h"

namespace lockstep::fake_nccl::internal {
namespace {

// Far from the built-in ones.
constexpr int kFirst = 1000;

std::map<RedOp, std::shared_ptr<PreMulSum>>& made() {
  static auto* const all = new std::map<RedOp, std::shared_ptr<PreMulSum>>();
  return *all;
}

std::string owner(const PreMulSum& scalar) { return describe(*find(scalar.comm)); }

// What a call by the rank may not do with the reduction, or nothing.
std::string misuse(RedOp op, const Communicator& comm) {
  const auto found = made().find(op);
  if (found == made().end()) {
    return "expected a reduction that red_op_create_pre_mul_sum made or a built-in one, got the "
           "value " +
           std::to_string(static_cast<int>(op));
  }
  if (found->second->is_destroyed) {
    return name_of(op) + " was destroyed";
  }
  if (find(found->second->comm) != &comm) {
    return name_of(op) + " is one of " + owner(*found->second);
  }
  return "";
}

}  // namespace

Result create_pre_mul_sum(RedOp* op, void* scalar, DataType dtype, ScalarResidence residence,
                          Communicator* comm) {
  const std::string who = describe(*comm) + ", red_op_create_pre_mul_sum: ";
  const auto refuse_argument = [&](const std::string& what) {
    return refuse(Result::kInvalidArgument, who + what);
  };
  if (op == nullptr || scalar == nullptr) {
    return refuse_argument(std::string("expected a place for the ") +
                           (op == nullptr ? "reduction" : "scalar") + ", got null");
  }
  if (!is_known(dtype) || is_float8(dtype)) {
    return refuse_argument("expected a dtype that can be multiplied here, got " + name_of(dtype));
  }
  PreMulSum made_now = {handle_of(comm), dtype, {}, nullptr, false};
  const FakeNcclMemory memory = library().host.memory_at(scalar);
  if (residence == ScalarResidence::kHostImmediate) {
    if (memory.device >= 0) {
      return refuse_argument("expected a scalar of the host, got memory of device " +
                             std::to_string(memory.device));
    }
    std::memcpy(made_now.value, scalar, size_of(dtype));
  } else {
    if (memory.device != comm->device || memory.bytes < size_of(dtype)) {
      return refuse_argument(
          "expected a scalar in live memory of device " + std::to_string(comm->device) + ", got " +
          (memory.device < 0 ? "none of any device"
                             : "memory of device " + std::to_string(memory.device)));
    }
    made_now.address = scalar;
  }
  *op = static_cast<RedOp>(kFirst + static_cast<int>(made().size()));
  made()[*op] = std::make_shared<PreMulSum>(made_now);
  return Result::kSuccess;
}

Result destroy_red_op(RedOp op, Communicator* comm) {
  const std::string wrong = is_built_in(op) ? name_of(op) + " is built in" : misuse(op, *comm);
  if (!wrong.empty()) {
    return refuse(Result::kInvalidArgument, describe(*comm) + ", red_op_destroy: " + wrong);
  }
  made()[op]->is_destroyed = true;
  return Result::kSuccess;
}

Result resolve_red_op(const Communicator& comm, Call* call) {
  if (is_built_in(call->op)) {
    return Result::kSuccess;
  }
  const std::string who = describe(comm) + ", " + name_of(call->kind) + ": ";
  const std::string wrong = misuse(call->op, comm);
  if (!wrong.empty()) {
    return refuse(Result::kInvalidArgument, who + wrong);
  }
  const auto& scalar = made()[call->op];
  if (scalar->dtype != call->dtype) {
    return refuse(Result::kInvalidArgument, who + "expected " + name_of(call->op) + " with " +
                                                name_of(scalar->dtype) + ", got " +
                                                name_of(call->dtype));
  }
  call->scalar = scalar;
  return Result::kSuccess;
}

}  // namespace lockstep::fake_nccl::internal
