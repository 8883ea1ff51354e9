// SPDX-License-Identifier: Apache-2.0
#include "parallel/worker_pool.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "parallel/spin_wait.h"
#include "testing/matchers.h"

namespace lockstep::parallel {
namespace {

using internal::Barrier;
using lockstep::testing::ThrowsError;

int threads_of_a_new_thread() {
  int count = 0;
  std::thread([&] { count = at::get_num_threads(); }).join();
  return count;
}

TEST(WorkerPoolTest, RunsAllTasksAtTheSameTime) {
  WorkerPool pool;
  for (const int64_t n : {1, 2, 5, 3}) {
    // Were any two tasks to share a thread, the first of them would wait here for ever.
    Barrier barrier(n);
    std::vector<std::thread::id> threads(n);
    pool.run(n, [&](int64_t i) {
      threads[i] = std::this_thread::get_id();
      barrier.arrive_and_wait();
    });
    EXPECT_EQ(std::set<std::thread::id>(threads.begin(), threads.end()).size(),
              static_cast<size_t>(n));
    EXPECT_EQ(threads[0], std::this_thread::get_id());
  }
}

TEST(WorkerPoolTest, GrowsToTheLargestCallAndKeepsItsThreads) {
  WorkerPool pool;
  EXPECT_EQ(pool.num_workers(), 0);
  pool.run(1, [](int64_t) {});
  EXPECT_EQ(pool.num_workers(), 0);
  pool.run(4, [](int64_t) {});
  EXPECT_EQ(pool.num_workers(), 3);
  for (int step = 0; step < 100; ++step) {
    pool.run(2 + step % 3, [](int64_t) {});
  }
  EXPECT_EQ(pool.num_workers(), 3);
}

TEST(WorkerPoolTest, GivesATaskTheSameThreadInEveryCall) {
  WorkerPool pool;
  std::vector<std::thread::id> first(3);
  std::vector<std::thread::id> second(3);
  pool.run(3, [&](int64_t i) { first[i] = std::this_thread::get_id(); });
  pool.run(3, [&](int64_t i) { second[i] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
}

TEST(WorkerPoolTest, NoTasksAreNoWork) {
  WorkerPool pool;
  EXPECT_TRUE(pool.try_run(0, [](int64_t) { FAIL(); }).empty());
}

TEST(WorkerPoolTest, RejectsNegativeCounts) {
  WorkerPool pool;
  EXPECT_THAT([&] { pool.run(-1, [](int64_t) {}); },
              ThrowsError("[WorkerPool] expected a number of tasks of at least 0, got -1"));
  RunOptions options;
  options.intra_op_threads = -2;
  EXPECT_THAT(
      [&] {
        pool.run(
            1, [](int64_t) {}, options);
      },
      ThrowsError("[WorkerPool] expected intra_op_threads of at least 0, got -2"));
}

// --- nested and concurrent calls -------------------------------------------------------------

TEST(WorkerPoolTest, NestedCallsNeverWaitForBusyWorkers) {
  WorkerPool pool;
  Barrier all(3 * 3);
  std::atomic<int> tasks{0};
  pool.run(3, [&](int64_t) {
    pool.run(3, [&](int64_t) {
      ++tasks;
      all.arrive_and_wait();
    });
  });
  EXPECT_EQ(tasks, 9);
  EXPECT_EQ(pool.num_workers(), 8);
}

TEST(WorkerPoolTest, ConcurrentCallsNeverWaitForEachOther) {
  WorkerPool pool;
  constexpr int kCallers = 4;
  Barrier all(kCallers * 3);
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&] { pool.run(3, [&](int64_t) { all.arrive_and_wait(); }); });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(pool.num_workers(), kCallers * 2);
}

TEST(WorkerPoolTest, ManyCallersShareOnePoolWithoutMixingTheirTasks) {
  WorkerPool pool;
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&pool, &wrong, c] {
      for (int call = 0; call < 500; ++call) {
        std::vector<int> seen(3, -1);
        pool.run(3, [&](int64_t i) { seen[i] = c * 1000 + call; });
        wrong += seen != std::vector<int>(3, c * 1000 + call);
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(pool.num_workers(), 6);
}

TEST(WorkerPoolTest, CanBeDestroyedRightAfterACall) {
  for (int i = 0; i < 300; ++i) {
    WorkerPool pool;
    pool.run(3, [](int64_t) {});
  }
}

TEST(WorkerPoolTest, TheSharedPoolIsOneObject) {
  EXPECT_EQ(&shared_worker_pool(), &shared_worker_pool());
}

// --- exceptions ------------------------------------------------------------------------------

TEST(WorkerPoolTest, ReportsWhatEachTaskThrewByIndex) {
  WorkerPool pool;
  const auto thrown = pool.try_run(4, [](int64_t i) {
    if (i % 2 == 1) {
      throw std::runtime_error("task " + std::to_string(i));
    }
  });
  ASSERT_EQ(thrown.size(), 4u);
  EXPECT_EQ(thrown[0], nullptr);
  EXPECT_NE(thrown[1], nullptr);
  EXPECT_EQ(thrown[2], nullptr);
  EXPECT_NE(thrown[3], nullptr);
}

TEST(WorkerPoolTest, ThrowsWhatTheLowestIndexThrewOnceAllHaveEnded) {
  WorkerPool pool;
  for (int repeat = 0; repeat < 50; ++repeat) {
    Barrier all_started(4);
    std::atomic<int> ended{0};
    struct CountsEnds {
      std::atomic<int>& ended;
      ~CountsEnds() { ++ended; }
    };
    try {
      pool.run(4, [&](int64_t i) {
        const CountsEnds end{ended};
        all_started.arrive_and_wait();
        if (i >= 1) {
          throw std::out_of_range("task " + std::to_string(i));
        }
      });
      FAIL() << "nothing was thrown";
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), "task 1");
    }
    EXPECT_EQ(ended, 4);
  }
}

TEST(WorkerPoolTest, CarriesExceptionsOfAnyType) {
  WorkerPool pool;
  try {
    pool.run(3, [](int64_t i) { throw static_cast<int>(40 + i); });
    FAIL() << "nothing was thrown";
  } catch (int value) {
    EXPECT_EQ(value, 40);
  }
  EXPECT_THAT([&] { pool.run(2, [](int64_t i) { TORCH_CHECK(i != 1, "no task ", i); }); },
              ThrowsError("no task 1"));
}

TEST(WorkerPoolTest, WorksAsBeforeAfterAnException) {
  WorkerPool pool;
  EXPECT_THROW(pool.run(3, [](int64_t) { throw 1; }), int);
  std::atomic<int> ran{0};
  pool.run(3, [&](int64_t) { ++ran; });
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(pool.num_workers(), 2);
}

// --- the caller's state ----------------------------------------------------------------------

// Calls `read` in three tasks and returns what they got.
template <class Read>
auto in_all_tasks(WorkerPool& pool, const Read& read) {
  std::vector<decltype(read())> seen(3);
  pool.run(3, [&](int64_t i) { seen[i] = read(); });
  return seen;
}

TEST(WorkerPoolTest, WorkersTakeOverGradMode) {
  WorkerPool pool;
  const auto read = [] { return static_cast<int>(at::GradMode::is_enabled()); };
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 1));
  {
    const at::NoGradGuard no_grad;
    EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 0));
  }
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 1));
}

TEST(WorkerPoolTest, WorkersTakeOverInferenceMode) {
  WorkerPool pool;
  const auto read = [] {
    return static_cast<int>(c10::InferenceMode::is_enabled() && at::ones({1}).is_inference());
  };
  {
    const c10::InferenceMode inference;
    EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 1));
  }
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 0));
}

TEST(WorkerPoolTest, WorkersTakeOverAutocastWithItsDtype) {
  WorkerPool pool;
  const auto read = [] { return at::ones({2, 2}).mm(at::ones({2, 2})).scalar_type(); };
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    EXPECT_EQ(in_all_tasks(pool, read), std::vector<at::ScalarType>(3, dtype));
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  at::autocast::set_autocast_dtype(at::kCPU, before);
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<at::ScalarType>(3, at::kFloat));
}

TEST(WorkerPoolTest, WorkersTakeOverTheFlushingOfDenormals) {
  WorkerPool pool;
  // Computed by an operator, so that the compiler does not.
  const at::Tensor tiny = at::full({1}, std::numeric_limits<float>::denorm_min());
  const auto read = [&] { return static_cast<int>(tiny.mul(1.0).item<float>() == 0.0f); };
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 0));
  if (!at::globalContext().setFlushDenormal(true)) {
    GTEST_SKIP() << "this processor cannot flush denormals";
  }
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 1));
  at::globalContext().setFlushDenormal(false);
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 0));
}

TEST(WorkerPoolTest, WorkersTakeOverTheRoundingMode) {
  WorkerPool pool;
  pool.run(3, [](int64_t) {});  // a thread begins with the mode of the one that starts it
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const auto seen = in_all_tasks(pool, [] { return std::fegetround(); });
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(seen, std::vector<int>(3, FE_UPWARD));
}

// --- thread counts ---------------------------------------------------------------------------

TEST(WorkerPoolTest, DividesTheCallersThreadsAmongTheTasks) {
  WorkerPool pool;
  const int before = at::get_num_threads();
  const auto read = [] { return at::get_num_threads(); };
  at::set_num_threads(7);
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 2));
  at::set_num_threads(2);
  EXPECT_EQ(in_all_tasks(pool, read), std::vector<int>(3, 1));
  at::set_num_threads(before);
}

TEST(WorkerPoolTest, UsesTheGivenNumberOfThreads) {
  WorkerPool pool;
  RunOptions options;
  options.intra_op_threads = 4;
  std::vector<int> seen(3);
  pool.run(
      3, [&](int64_t i) { seen[i] = at::get_num_threads(); }, options);
  EXPECT_EQ(seen, std::vector<int>(3, 4));
}

TEST(WorkerPoolTest, LeavesThreadCountsOfTheCallerAndOfLaterThreadsUnchanged) {
  WorkerPool pool;
  const int before = at::get_num_threads();
  const int before_elsewhere = threads_of_a_new_thread();
  for (const int64_t threads : {1, 5}) {
    RunOptions options;
    options.intra_op_threads = threads;
    pool.run(
        3,
        [](int64_t) {
          at::ones({64, 64}).mm(at::ones({64, 64}));
        },
        options);
    EXPECT_EQ(at::get_num_threads(), before);
    EXPECT_EQ(threads_of_a_new_thread(), before_elsewhere);
  }
  EXPECT_THROW(pool.run(2, [](int64_t) { throw 1; }), int);
  EXPECT_EQ(at::get_num_threads(), before);
  EXPECT_EQ(threads_of_a_new_thread(), before_elsewhere);
}

TEST(WorkerPoolTest, FollowsACountThatIsSetBetweenCalls) {
  WorkerPool pool;
  const int before = at::get_num_threads();
  pool.run(2, [](int64_t) {});
  at::set_num_threads(6);
  std::vector<int> seen(2);
  pool.run(2, [&](int64_t i) { seen[i] = at::get_num_threads(); });
  EXPECT_EQ(seen, std::vector<int>(2, 3));
  EXPECT_EQ(at::get_num_threads(), 6);
  EXPECT_EQ(threads_of_a_new_thread(), 6);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace lockstep::parallel
