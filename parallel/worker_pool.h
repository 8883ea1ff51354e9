// SPDX-License-Identifier: Apache-2.0
// worker_pool.h: threads that run one task per replica, all at the same time.
// Use it through DataParallel or parallel_apply. It is not a queue: a call with n tasks gets n - 1
// threads of its own, so tasks may wait for each other.
//
//   lockstep::parallel::WorkerPool pool;
//   pool.run(2, [&](int64_t i) { outputs[i] = replicas[i]->forward(inputs[i]); });
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::parallel {

struct RunOptions {
  // Threads that operators may use inside each task. 0: the caller's at::get_num_threads() divided
  // by the number of tasks, at least 1. Counts of the caller and of later threads are unchanged
  // afterwards.
  int64_t intra_op_threads = 0;
};

// A pool grows as needed and never shrinks. Idle threads spin for a moment, then sleep.
// Threads: all members may be called from any thread, also from inside a task: a call that finds no
//   idle worker starts new ones, so it never waits for another call's tasks.
class WorkerPool {
 public:
  WorkerPool();
  // Joins the workers. No call may be running.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs task(0) on the calling thread and task(1) ... task(n - 1) on workers, all at the same
  // time, and returns when all have ended. Each worker takes over the caller's thread-local state:
  // grad and inference mode, autocast with its dtypes, dispatch keys, profiler, floating-point
  // environment (denormals), and the accelerator's current device.
  // Returns: what each task threw, or null; entry i belongs to task(i).
  [[nodiscard]] std::vector<std::exception_ptr> try_run(int64_t n,
                                                        const std::function<void(int64_t)>& task,
                                                        const RunOptions& options = {});

  // The same, but throws what the task with the lowest index threw, unchanged.
  void run(int64_t n, const std::function<void(int64_t)>& task, const RunOptions& options = {});

  // How many threads the pool has, idle or busy.
  int64_t num_workers() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// The pool that functions without one of their own share. Never destroyed: its threads are asleep
// at exit and are left alone.
WorkerPool& shared_worker_pool();

}  // namespace lockstep::parallel
