// SPDX-License-Identifier: Apache-2.0
// device_chooser.h: finds out whether replicas or one device make a training faster. Internal to
// parallel.
//
// It is told of every forward that records a graph, before it starts, and says how to run it:
//   const DeviceChoice mode = chooser.next(rows, updated, DeviceChooser::Clock::now());
// From the times between these calls it learns what whole steps take: forward, backward, optimizer,
// data loader. So what is compared is what the user waits for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/device_policy.h"

namespace lockstep::parallel::internal {

// Note [Replicas or one device]
// A step begins with the first forward after an update of the parameters, so that the forwards of a
// GAN or of accumulated gradients are one step and run alike. Where updates are rare or cannot be
// seen, every forward is a step.
// - Both ways first get steps that do not count: threads start, memory is allocated, kernels are
//   chosen.
// - Then blocks of four steps take turns: R O O R, O R R O, ... so that whatever grows or shrinks
//   meanwhile hits both alike. The first step of a block does not count either: caches hold what
//   the other way left there.
// - Two neighbouring blocks are a pair. Step i of one over step i of the other is a ratio in which
//   the speed of the machine at that time cancels. The median of all ratios is the result: what
//   happens once in a while, a checkpoint or an evaluation, does not move it.
// - After every two pairs an interval is looked at that holds the true median 99 times in 100. Once
//   it leaves no doubt the measurement is over: a slow way is not tried for long. The nearer the
//   two ways are, the longer it takes and the less that costs. In the end the median decides.
// - Replicas must win by half a percent. A tie may go either way; one device needs less memory.
//
// Threads: no lock; calls take turns.
class DeviceChooser {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns how to run the forward that starts `now`: kReplicas or kOneDevice. `rows`: its batch
  // size. `updated`: whether a parameter was written since the last call. Devices with queues of
  // their own must have ended what came before.
  // Steps whose rows are not those of most do not count, such as the last of an epoch, unless rows
  // vary all the time. A decision stands whatever becomes of the rows.
  DeviceChoice next(int64_t rows, bool updated, Clock::time_point now);

  // How to run a forward that records no graph. It is not counted.
  DeviceChoice mode() const;

  // kUndecided while it measures. Setting it ends that; kUndecided starts it anew.
  DeviceChoice choice() const { return choice_; }
  void set(DeviceChoice choice);

  // The time of a step with replicas over that on one device, as of the last look; absent before
  // the first, and where the choice was set.
  std::optional<double> ratio() const { return ratio_; }

 private:
  struct Step {
    Clock::time_point start;
    int64_t rows = 0;
    int64_t forwards = 0;
  };

  bool continues_step(bool updated);
  void end_step(Clock::time_point now);
  bool counts(int64_t rows);
  void measure_anew();
  void look();

  DeviceChoice choice_ = DeviceChoice::kUndecided;
  std::optional<double> ratio_;

  std::optional<Step> step_;     // the one that is running
  std::vector<double> seconds_;  // of the steps so far that followed the plan
  std::vector<int64_t> first_rows_;
  std::optional<int64_t> usual_rows_;  // what most of these are
  int64_t unusual_in_a_row_ = 0;
  bool any_rows_count_ = false;
  bool every_forward_is_a_step_ = false;
};

}  // namespace lockstep::parallel::internal
