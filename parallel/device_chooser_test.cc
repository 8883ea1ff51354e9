// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_chooser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

namespace lockstep::parallel::internal {
namespace {

using Clock = DeviceChooser::Clock;

constexpr auto kReplicas = DeviceChoice::kReplicas;
constexpr auto kOneDevice = DeviceChoice::kOneDevice;
constexpr auto kUndecided = DeviceChoice::kUndecided;
constexpr int kFewestSteps = 22;
constexpr int kMostSteps = 102;

// Seconds that a step takes in a mode.
using Seconds = std::function<double(DeviceChoice mode)>;
// The same for step i.
using SecondsOf = std::function<double(int i, DeviceChoice mode)>;

Seconds seconds(double replicas, double one_device) {
  return [=](DeviceChoice mode) { return mode == kReplicas ? replicas : one_device; };
}

SecondsOf always(double replicas, double one_device) {
  return [=](int, DeviceChoice mode) { return mode == kReplicas ? replicas : one_device; };
}

// A training whose clock moves only by what its steps are said to take.
struct Training {
  DeviceChoice forward(const Seconds& until_next, int64_t rows = 32, bool updated = true) {
    const DeviceChoice mode = chooser.next(rows, updated, now);
    now += std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(until_next(mode)));
    return mode;
  }

  // Trains until there is a decision. Returns how the steps ran that were measured.
  std::vector<DeviceChoice> train(const SecondsOf& step_seconds) {
    std::vector<DeviceChoice> modes;
    for (int i = 0; i <= kMostSteps; ++i) {
      modes.push_back(forward([&](DeviceChoice mode) { return step_seconds(i, mode); }));
      if (chooser.choice() != kUndecided) {
        modes.pop_back();
        break;
      }
    }
    return modes;
  }

  DeviceChooser chooser;
  Clock::time_point now;
};

int64_t count(const std::vector<DeviceChoice>& modes, DeviceChoice mode) {
  return std::count(modes.begin(), modes.end(), mode);
}

TEST(DeviceChooserTest, PicksTheFaster) {
  for (const double ratio : {0.1, 0.5, 0.9, 0.97, 1.03, 1.1, 2.0, 10.0}) {
    Training training;
    training.train(always(0.01 * ratio, 0.01));
    EXPECT_EQ(training.chooser.choice(), ratio < 1 ? kReplicas : kOneDevice) << ratio;
    EXPECT_EQ(training.chooser.mode(), training.chooser.choice());
    EXPECT_NEAR(training.chooser.ratio().value(), ratio, 1e-5);
  }
}

TEST(DeviceChooserTest, TakesOneDeviceWhereBothAreEqual) {
  Training training;
  EXPECT_EQ(training.train(always(0.01, 0.01)).size(), 38);
  EXPECT_EQ(training.chooser.choice(), kOneDevice);

  Training hardly_faster;
  hardly_faster.train(always(0.00997, 0.01));
  EXPECT_EQ(hardly_faster.chooser.choice(), kOneDevice);
}

TEST(DeviceChooserTest, MeasuresBothInTurns) {
  Training training;
  // Undecided for as long as it can be: half of the steps say one thing, half the other.
  const auto modes = training.train(
      [](int i, DeviceChoice mode) { return (i % 2 == 0) == (mode == kReplicas) ? 0.01 : 0.02; });
  ASSERT_EQ(modes.size(), kMostSteps);
  EXPECT_EQ(count(modes, kReplicas), kMostSteps / 2);
  EXPECT_EQ(count(modes, kOneDevice), kMostSteps / 2);
  const std::vector<DeviceChoice> first(modes.begin(), modes.begin() + kFewestSteps);
  std::vector<DeviceChoice> expected(3, kReplicas);
  expected.insert(expected.end(), 3, kOneDevice);
  for (const auto mode : {kReplicas, kOneDevice, kOneDevice, kReplicas}) {
    expected.insert(expected.end(), 4, mode);
  }
  EXPECT_EQ(first, expected);
}

TEST(DeviceChooserTest, DecidesSoonerTheClearerItIs) {
  Training twice;
  EXPECT_EQ(twice.train(always(0.01, 0.02)).size(), kFewestSteps);
  Training slower;
  EXPECT_EQ(slower.train(always(0.02, 0.01)).size(), kFewestSteps);
  Training close;
  EXPECT_EQ(close.train(always(0.01, 0.0105)).size(), 38);
}

TEST(DeviceChooserTest, NeverMeasuresAfterTheDecision) {
  Training training;
  training.train(always(0.01, 0.02));
  const double ratio = training.chooser.ratio().value();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(training.forward(seconds(100, 1), /*rows=*/1 + i), kReplicas);
  }
  EXPECT_EQ(training.chooser.ratio(), ratio);
}

TEST(DeviceChooserTest, ForgetsFirstStepsAndStepsAfterAChange) {
  Training training;
  DeviceChoice last = kUndecided;
  const auto modes = training.train([&](int i, DeviceChoice mode) {
    const bool strange = i < 6 || mode != last;
    last = mode;
    return mode == kReplicas ? (strange ? 1.0 : 0.01) : (strange ? 0.001 : 0.02);
  });
  EXPECT_EQ(training.chooser.choice(), kReplicas);
  EXPECT_EQ(modes.size(), kFewestSteps);  // nothing spoke against it
}

TEST(DeviceChooserTest, DoesNotWaitForOneContraryStep) {
  Training training;
  const auto modes = training.train(
      [](int i, DeviceChoice mode) { return mode == kReplicas ? (i == 7 ? 1.0 : 0.01) : 0.02; });
  EXPECT_EQ(training.chooser.choice(), kReplicas);
  EXPECT_EQ(modes.size(), 38);
}

// Cases of noise, as factors of what a step would take.
struct Noise {
  const char* name;
  std::function<double(int i, std::mt19937_64& bits)> factor;
};

double usual_noise(std::mt19937_64& bits) {
  const double noise = std::exp(std::normal_distribution<double>(0, 0.03)(bits));
  std::uniform_real_distribution<double> uniform;
  // One step in twenty is slow, few of them by a lot.
  return uniform(bits) < 0.05 ? noise * (1 + 0.3 * std::pow(uniform(bits) + 1e-9, -1 / 1.2))
                              : noise;
}

std::vector<Noise> noises() {
  return {
      {"heavy tails", [](int, auto& bits) { return usual_noise(bits); }},
      {"three times as slow in the end",
       [](int i, auto& bits) { return usual_noise(bits) * (1 + 2 * std::min(1.0, i / 60.0)); }},
      {"three times as fast in the end",
       [](int i, auto& bits) { return usual_noise(bits) / (1 + 2 * std::min(1.0, i / 60.0)); }},
      {"every fourth is slow",
       [](int i, auto& bits) { return usual_noise(bits) * (i % 4 == 2 ? 3 : 1); }},
      {"every fifth is slow",
       [](int i, auto& bits) { return usual_noise(bits) * (i % 5 == 2 ? 3 : 1); }},
      {"evaluation once in a while",
       [](int i, auto& bits) { return usual_noise(bits) * (i % 13 == 12 ? 500 : 1); }},
  };
}

TEST(DeviceChooserTest, PicksTheFasterThroughNoise) {
  for (const Noise& noise : noises()) {
    for (const double ratio : {0.5, 0.8, 0.9, 1.1, 1.25, 2.0}) {
      for (int run = 0; run < 50; ++run) {
        std::mt19937_64 bits(1000 + run);
        Training training;
        training.train([&](int i, DeviceChoice mode) {
          return (mode == kReplicas ? ratio : 1) * noise.factor(i, bits);
        });
        EXPECT_EQ(training.chooser.choice(), ratio < 1 ? kReplicas : kOneDevice)
            << noise.name << ", ratio " << ratio << ", run " << run;
      }
    }
  }
}

// Of what is decided by a hair a share goes wrong, and costs little.
TEST(DeviceChooserTest, LosesTwoPercentInFewRunsThatAreNearlyTies) {
  for (const Noise& noise : noises()) {
    int losses = 0;
    for (const double ratio : {0.95, 0.97, 0.99, 1.0, 1.01, 1.03, 1.05}) {
      for (int run = 0; run < 100; ++run) {
        std::mt19937_64 bits(2000 + run);
        Training training;
        training.train([&](int i, DeviceChoice mode) {
          return (mode == kReplicas ? ratio : 1) * noise.factor(i, bits);
        });
        const double taken = training.chooser.choice() == kReplicas ? ratio : 1;
        losses += taken / std::min(ratio, 1.0) > 1.02 ? 1 : 0;
      }
    }
    EXPECT_LT(losses, 20) << "of 700: " << noise.name;
  }
}

TEST(DeviceChooserTest, TakesAStepTooShortForTheClock) {
  Training training;
  training.train(always(0, 0));
  EXPECT_EQ(training.chooser.choice(), kOneDevice);
  EXPECT_EQ(training.chooser.ratio(), 1);
}

TEST(DeviceChooserTest, LeavesOutStepsWithOtherRows) {
  Training training;
  std::vector<DeviceChoice> usual;
  for (int i = 0; i < 1000 && training.chooser.choice() == kUndecided; ++i) {
    // Every second batch is small, and replicas seem to be fast in these.
    const bool small = i >= 6 && i % 2 == 0;
    const auto mode = training.forward(small ? seconds(0.001, 1) : seconds(0.02, 0.01),
                                       /*rows=*/small ? 5 : 32);
    if (training.chooser.choice() == kUndecided && !small) {
      usual.push_back(mode);
    }
  }
  EXPECT_EQ(training.chooser.choice(), kOneDevice);
  EXPECT_NEAR(training.chooser.ratio().value(), 2, 1e-5);
  EXPECT_EQ(usual.size(), kFewestSteps);
  EXPECT_EQ(count(usual, kReplicas), kFewestSteps / 2);
}

TEST(DeviceChooserTest, MeasuresAnewWhenBatchesBecomeOfAnotherSize) {
  Training training;
  for (int i = 0; i < 30; ++i) {
    training.forward(seconds(0.1, 0.1), /*rows=*/64);
  }
  EXPECT_EQ(training.chooser.ratio(), 1);
  int steps = 0;
  for (; steps < 1000 && training.chooser.choice() == kUndecided; ++steps) {
    // From now on all sizes count.
    training.forward(seconds(0.01, 0.02), /*rows=*/steps % 3 == 0 ? 31 : 32);
    EXPECT_EQ(training.chooser.ratio().has_value(), steps < 8 || steps == 8 + kFewestSteps)
        << steps;
  }
  EXPECT_EQ(training.chooser.choice(), kReplicas);
  EXPECT_NEAR(training.chooser.ratio().value(), 0.5, 1e-5);
  EXPECT_EQ(steps, 8 + kFewestSteps + 1);
}

TEST(DeviceChooserTest, CountsAllStepsWhereRowsVary) {
  Training training;
  int steps = 0;
  for (; steps < 1000 && training.chooser.choice() == kUndecided; ++steps) {
    training.forward(seconds(0.01, 0.02), /*rows=*/1 + steps);
  }
  EXPECT_EQ(training.chooser.choice(), kReplicas);
  EXPECT_EQ(steps, kFewestSteps + 1);
}

TEST(DeviceChooserTest, RunsTheForwardsOfAStepAlike) {
  Training training;
  int steps = 0;
  for (; steps < 1000 && training.chooser.choice() == kUndecided; ++steps) {
    // Two forwards of three are faster with replicas, the whole step is not.
    const auto first = training.forward(seconds(0.01, 0.02), /*rows=*/32, /*updated=*/true);
    EXPECT_EQ(training.forward(seconds(0.01, 0.02), /*rows=*/32, /*updated=*/false), first);
    EXPECT_EQ(training.forward(seconds(0.10, 0.02), /*rows=*/16, /*updated=*/false), first);
  }
  EXPECT_EQ(training.chooser.choice(), kOneDevice);
  EXPECT_NEAR(training.chooser.ratio().value(), 2, 1e-5);
  EXPECT_EQ(steps, kFewestSteps + 1);
}

TEST(DeviceChooserTest, AddsUpTheRowsOfAStep) {
  Training training;
  int steps = 0;
  for (; steps < 1000 && training.chooser.choice() == kUndecided; ++steps) {
    const bool small = steps >= 6 && steps % 2 == 0;
    training.forward(small ? seconds(0.1, 0.01) : seconds(0.01, 0.02), /*rows=*/small ? 5 : 32);
    training.forward(seconds(0.01, 0.02), /*rows=*/32, /*updated=*/false);
  }
  EXPECT_EQ(training.chooser.choice(), kReplicas);
  EXPECT_NEAR(training.chooser.ratio().value(), 0.5, 1e-5);
  EXPECT_EQ(steps, kFewestSteps + 16 + 1);
}

TEST(DeviceChooserTest, TakesForwardsForStepsWhereUpdatesAreRareOrUnseen) {
  for (const int forwards_per_update : {9, 1000}) {
    Training training;
    int forwards = 0;
    for (; forwards < 1000 && training.chooser.choice() == kUndecided; ++forwards) {
      training.forward(seconds(0.01, 0.02), /*rows=*/32, forwards % forwards_per_update == 0);
    }
    EXPECT_EQ(training.chooser.choice(), kReplicas);
    EXPECT_NEAR(training.chooser.ratio().value(), 0.5, 1e-5);
    EXPECT_EQ(forwards, 8 + kFewestSteps + 1);
  }
}

TEST(DeviceChooserTest, RunsForwardsWithoutGraphAsTheOthers) {
  Training training;
  EXPECT_EQ(training.chooser.mode(), kReplicas);
  for (int i = 0; i < 2 * kFewestSteps; ++i) {
    const auto mode = training.forward(seconds(0.02, 0.01));
    EXPECT_EQ(training.chooser.mode(), mode);
  }
}

TEST(DeviceChooserTest, MeasuresNothingOnceTheChoiceIsSet) {
  for (const DeviceChoice choice : {kReplicas, kOneDevice}) {
    for (const int steps_before : {0, 17, kMostSteps + 1}) {
      Training training;
      for (int i = 0; i < steps_before; ++i) {
        training.forward(seconds(0.01, 0.01));
      }
      training.chooser.set(choice);
      EXPECT_EQ(training.chooser.choice(), choice);
      EXPECT_EQ(training.chooser.mode(), choice);
      for (int i = 0; i < 2 * kMostSteps; ++i) {
        ASSERT_EQ(training.forward(choice == kReplicas ? seconds(2, 1) : seconds(1, 2)), choice);
      }
      EXPECT_EQ(training.chooser.ratio(), std::nullopt);
    }
  }
}

TEST(DeviceChooserTest, MeasuresAnewOnceTheChoiceIsTakenBack) {
  Training training;
  training.train(always(0.01, 0.02));
  training.chooser.set(kUndecided);
  EXPECT_EQ(training.chooser.choice(), kUndecided);
  EXPECT_EQ(training.chooser.ratio(), std::nullopt);
  EXPECT_EQ(training.train(always(0.02, 0.01)).size(), kFewestSteps);
  EXPECT_EQ(training.chooser.choice(), kOneDevice);
}

}  // namespace
}  // namespace lockstep::parallel::internal
