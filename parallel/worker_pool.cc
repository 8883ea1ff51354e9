// SPDX-License-Identifier: Apache-2.0
#include "parallel/worker_pool.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cfenv>
#include <mutex>
#include <optional>
#include <thread>

#include "parallel/intra_op_threads.h"
#include "parallel/spin_wait.h"

namespace lockstep::parallel {
namespace {

// What the workers of one call take over from its caller.
struct CallerState {
  explicit CallerState(int64_t threads) : intra_op_threads(threads) {
    std::fegetenv(&floating_point);
    const auto accelerator = at::getAccelerator();
    if (accelerator.has_value()) {
      const c10::impl::VirtualGuardImpl guard(*accelerator);
      if (guard.deviceCount() > 0) {
        device = guard.getDevice();
      }
    }
  }

  const at::ThreadLocalState thread_local_state;
  std::fenv_t floating_point;
  std::optional<c10::Device> device;
  const int64_t intra_op_threads;
};

// One call of try_run, on the caller's stack.
struct Job {
  Job(int64_t n, const std::function<void(int64_t)>& function, int64_t threads)
      : task(function), caller(threads), remaining(n - 1), thrown(n) {}

  void run(int64_t index) noexcept {
    try {
      task(index);
    } catch (...) {
      thrown[index] = std::current_exception();
    }
  }

  const std::function<void(int64_t)>& task;
  const CallerState caller;
  std::atomic<int64_t> remaining;
  internal::SpinWait* done = nullptr;  // a worker's: it outlives the job
  std::vector<std::exception_ptr> thrown;
};

class Worker {
 public:
  Worker() : thread_([this] { main(); }) {}

  ~Worker() { stop(); }

  // Ends the thread. The worker must be idle.
  void stop() {
    if (thread_.joinable()) {
      job_ = nullptr;
      posted_.advance();
      thread_.join();
    }
  }

  // The worker must be idle.
  void post(Job& job, int64_t index) {
    job_ = &job;
    index_ = index;
    posted_.advance();
  }

  // For the end of a job. Whoever advances it may still be doing so when the waiting caller has
  // gone on, so it must not live on the caller's stack.
  internal::SpinWait& done() { return done_; }

 private:
  void main() {
    for (uint32_t seen = 0;; ++seen) {
      posted_.wait_while(seen);
      if (job_ == nullptr) {
        return;
      }
      Job& job = *job_;
      {
        std::fesetenv(&job.caller.floating_point);
        const internal::IntraOpThreadsGuard threads(job.caller.intra_op_threads);
        const at::ThreadLocalStateGuard state(job.caller.thread_local_state);
        const c10::OptionalDeviceGuard device(job.caller.device);
        job.run(index_);
      }
      internal::SpinWait& done = *job.done;
      if (job.remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        done.advance();
      }
    }
  }

  Job* job_ = nullptr;
  int64_t index_ = 0;
  internal::SpinWait posted_;
  internal::SpinWait done_;
  std::thread thread_;
};

}  // namespace

class WorkerPool::Impl {
 public:
  // All threads end before any worker goes: one may still be at the end of the last job, in the
  // done() of another.
  ~Impl() {
    for (const auto& worker : workers_) {
      worker->stop();
    }
  }

  // Takes `count` workers out of the idle ones, the same ones in the same order if it can be, so
  // that a replica finds its memory in the caches and arenas of its last thread.
  std::vector<Worker*> claim(int64_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Worker*> claimed;
    for (size_t i = 0; i < workers_.size() && claimed.size() < static_cast<size_t>(count); ++i) {
      if (!busy_[i]) {
        busy_[i] = true;
        claimed.push_back(workers_[i].get());
      }
    }
    try {
      while (claimed.size() < static_cast<size_t>(count)) {
        workers_.push_back(std::make_unique<Worker>());
        busy_.push_back(true);
        claimed.push_back(workers_.back().get());
      }
    } catch (...) {  // no more threads to be had
      mark_idle(claimed);
      throw;
    }
    return claimed;
  }

  void release(const std::vector<Worker*>& claimed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    mark_idle(claimed);
  }

  int64_t size() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int64_t>(workers_.size());
  }

 private:
  void mark_idle(const std::vector<Worker*>& claimed) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (std::find(claimed.begin(), claimed.end(), workers_[i].get()) != claimed.end()) {
        busy_[i] = false;
      }
    }
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<bool> busy_;
};

WorkerPool::WorkerPool() : impl_(std::make_unique<Impl>()) {}

WorkerPool::~WorkerPool() = default;

std::vector<std::exception_ptr> WorkerPool::try_run(int64_t n,
                                                    const std::function<void(int64_t)>& task,
                                                    const RunOptions& options) {
  TORCH_CHECK(n >= 0, "[WorkerPool] expected a number of tasks of at least 0, got ", n);
  TORCH_CHECK(options.intra_op_threads >= 0,
              "[WorkerPool] expected intra_op_threads of at least 0, got ",
              options.intra_op_threads);
  if (n == 0) {
    return {};
  }
  const int64_t threads = options.intra_op_threads > 0
                              ? options.intra_op_threads
                              : std::max<int64_t>(1, at::get_num_threads() / n);
  Job job(n, task, threads);
  const std::vector<Worker*> workers = impl_->claim(n - 1);
  uint32_t before = 0;
  if (!workers.empty()) {
    job.done = &workers[0]->done();
    before = job.done->value();
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i]->post(job, static_cast<int64_t>(i) + 1);
  }
  {
    const internal::IntraOpThreadsGuard guard(threads);
    job.run(0);
  }
  if (!workers.empty()) {
    job.done->wait_while(before);
  }
  impl_->release(workers);
  return std::move(job.thrown);
}

void WorkerPool::run(int64_t n, const std::function<void(int64_t)>& task,
                     const RunOptions& options) {
  for (const std::exception_ptr& thrown : try_run(n, task, options)) {
    if (thrown != nullptr) {
      std::rethrow_exception(thrown);
    }
  }
}

int64_t WorkerPool::num_workers() const { return impl_->size(); }

WorkerPool& shared_worker_pool() {
  static auto* const pool = new WorkerPool;
  return *pool;
}

}  // namespace lockstep::parallel
