// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_nccl/rank_set.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <thread>
#include <utility>

#include "testing/fake_nccl/simulated_nccl.h"

namespace lockstep::fake_nccl {
namespace {

const comm::nccl::NcclApi& nccl() { return simulated_nccl(); }

void expect_success(Result result) {
  TORCH_CHECK(result == Result::kSuccess, "[rank_set] ", nccl().get_error_string(result), ": ",
              nccl().get_last_error(nullptr));
}

}  // namespace

Result wait(CommHandle comm) {
  Result state = Result::kInProgress;
  while (state == Result::kInProgress) {
    const Result asked = nccl().comm_get_async_error(comm, &state);
    if (asked != Result::kSuccess) {
      return asked;
    }
    std::this_thread::yield();
  }
  return state;
}

Result grouped(int ranks, const std::function<Result(int rank)>& call) {
  nccl().group_start();
  for (int rank = 0; rank < ranks; ++rank) {
    call(rank);
  }
  return nccl().group_end();
}

RankSet::RankSet(int ranks, Mode mode) : comms_(ranks) {
  comm::nccl::UniqueId id;
  expect_success(nccl().get_unique_id(&id));
  comm::nccl::Config config;
  config.blocking = mode == Mode::kBlocking ? 1 : 0;
  const Result result = grouped(ranks, [&](int rank) {
    const c10::DeviceGuard current(simdev::device(rank));
    return nccl().comm_init_rank_config(&comms_[rank], ranks, id, rank, &config);
  });
  if (mode == Mode::kBlocking) {
    expect_success(result);
  }
  for (CommHandle comm : comms_) {
    expect_success(wait(comm));
  }
}

RankSet::~RankSet() {
  for (CommHandle comm : comms_) {
    if (comm != nullptr) {
      Result state = Result::kSuccess;
      nccl().comm_get_async_error(comm, &state);
      state == Result::kSuccess ? nccl().comm_destroy(comm) : nccl().comm_abort(comm);
    }
  }
}

CommHandle RankSet::release(int rank) { return std::exchange(comms_[rank], nullptr); }

StreamHandle stream(int rank) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  return guard.getStream(simdev::device(rank)).native_handle();
}

DataType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kChar:
      return DataType::kInt8;
    case at::kByte:
      return DataType::kUint8;
    case at::kInt:
      return DataType::kInt32;
    case at::kLong:
      return DataType::kInt64;
    case at::kHalf:
      return DataType::kFloat16;
    case at::kFloat:
      return DataType::kFloat32;
    case at::kDouble:
      return DataType::kFloat64;
    case at::kBFloat16:
      return DataType::kBfloat16;
    default:
      TORCH_CHECK(false, "[dtype_of] expected a dtype of NCCL, got ", tensor.scalar_type());
  }
}

std::vector<at::Tensor> on_devices(int ranks, const std::function<at::Tensor(int)>& make) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(make(rank).to(simdev::device(rank)));
  }
  return all;
}

Result all_reduce(const RankSet& ranks, int rank, const at::Tensor& send, const at::Tensor& recv,
                  RedOp op) {
  return nccl().all_reduce(send.data_ptr(), recv.data_ptr(), send.numel(), dtype_of(send), op,
                           ranks[rank], stream(rank));
}

Result reduce(const RankSet& ranks, int rank, const at::Tensor& send, const at::Tensor& recv,
              int root, RedOp op) {
  return nccl().reduce(send.data_ptr(), recv.data_ptr(), send.numel(), dtype_of(send), op, root,
                       ranks[rank], stream(rank));
}

Result broadcast(const RankSet& ranks, int rank, const at::Tensor& send, const at::Tensor& recv,
                 int root) {
  return nccl().broadcast(send.data_ptr(), recv.data_ptr(), recv.numel(), dtype_of(recv), root,
                          ranks[rank], stream(rank));
}

Result all_gather(const RankSet& ranks, int rank, const at::Tensor& send, const at::Tensor& recv) {
  return nccl().all_gather(send.data_ptr(), recv.data_ptr(), send.numel(), dtype_of(send),
                           ranks[rank], stream(rank));
}

Result reduce_scatter(const RankSet& ranks, int rank, const at::Tensor& send,
                      const at::Tensor& recv, RedOp op) {
  return nccl().reduce_scatter(send.data_ptr(), recv.data_ptr(), recv.numel(), dtype_of(recv), op,
                               ranks[rank], stream(rank));
}

}  // namespace lockstep::fake_nccl
