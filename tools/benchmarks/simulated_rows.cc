// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/simulated_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/data_parallel.h"
#include "testing/simdev/checker.h"
#include "testing/simdev/simdev.h"
#include "tools/benchmarks/models.h"
#include "tools/benchmarks/paired.h"

namespace lockstep::benchmarks {
namespace {

constexpr size_t kCheckerOff = 0;
constexpr size_t kCheckerOn = 1;
constexpr size_t kCpu = 2;

struct Operands {
  at::Tensor vector, other, matrix, out;
};

struct Operator {
  const char* name;
  std::function<at::Tensor(Operands&)> run;
};

const std::vector<Operator>& operators() {
  static const std::vector<Operator> all = {
      {"add", [](Operands& x) { return x.vector + x.other; }},
      {"add-out", [](Operands& x) { return at::add_out(x.out, x.vector, x.other); }},
      {"relu", [](Operands& x) { return at::relu(x.vector); }},
      {"sum", [](Operands& x) { return x.matrix.sum(); }},
      {"cat",
       [](Operands& x) {
         return at::cat({x.vector, x.other});
       }},
      {"mm", [](Operands& x) { return at::mm(x.matrix, x.matrix); }},
      {"view", [](Operands& x) { return x.matrix.view({-1}); }},
  };
  return all;
}

Operands operands_on(c10::Device device) {
  const at::TensorOptions options(device);
  return {at::ones({4}, options), at::ones({4}, options), at::ones({8, 8}, options),
          at::ones({4}, options)};
}

void note_overhead(Session& session, const std::string& name, const PairedRun& run, size_t side) {
  const double overhead = run.min_seconds(side) - run.min_seconds(kCpu);
  session.note("S1 " + name + ": " + format_time(overhead, "us") + " more than on the CPU");
}

void measure_operator(Session& session, const Operator& op) {
  const std::string off = std::string(op.name) + "-off", on = std::string(op.name) + "-on";
  if (!session.wants_case(off) && !session.wants_case(on)) return;
  Operands host = operands_on(c10::Device(at::kCPU)), there = operands_on(simdev::device(1));
  const auto on_device = [&] { op.run(there); };
  const std::vector<Side> sides{
      {"simulated", on_device, [] { simdev::set_checking(false); }},
      {"simulated, checked", on_device, [] { simdev::set_checking(true); }},
      {"CPU", [&] { op.run(host); }, [] { simdev::set_checking(false); }}};
  const PairedRun run(sides, {{kCpu, kCheckerOff}, {kCpu, kCheckerOn}}, session.paired_options(),
                      process_meter());
  session.check(at::equal(op.run(there).cpu(), op.run(host)),
                "S1 " + std::string(op.name) + ": the device's result is not the CPU's");
  session.add_case({"S1", off, "us", kCheckerOff, kCpu, std::nullopt}, run);
  session.add_case({"S1", on, "us", kCheckerOn, kCpu, std::nullopt}, run);
  note_overhead(session, off, run, kCheckerOff);
  note_overhead(session, on, run, kCheckerOn);
}

void measure_operators(Session& session) {
  if (!session.wants("S1")) return;
  const at::NoGradGuard no_grad;
  for (const Operator& op : operators()) measure_operator(session, op);
  session.add_geomean("S1");
}

// A network, its replicas and a batch on the first of them.
class Trainer {
 public:
  explicit Trainer(const std::vector<c10::Device>& devices)
      : net_(std::make_shared<ConvNet>()),
        input_(at::randn({64, 1, 28, 28}).to(devices[0])),
        target_(at::randint(10, {64}, at::kLong).to(devices[0])) {
    net_->to(devices[0]);
    parallel_ = std::make_unique<parallel::DataParallel<ConvNet>>(net_, devices);
  }

  void copy_from(const Trainer& other) {
    const at::NoGradGuard no_grad;
    const auto sources = other.net_->parameters();
    const auto targets = net_->parameters();
    for (size_t i = 0; i < targets.size(); ++i) at::Tensor(targets[i]).copy_(sources[i]);
    input_.copy_(other.input_);
    target_.copy_(other.target_);
  }

  void step() {
    net_->zero_grad();
    at::cross_entropy_loss(parallel_->forward(input_), target_).backward();
  }

  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : net_->parameters()) all.push_back(parameter.grad().cpu());
    return all;
  }

 private:
  std::shared_ptr<ConvNet> net_;
  at::Tensor input_, target_;
  std::unique_ptr<parallel::DataParallel<ConvNet>> parallel_;
};

void measure_training(Session& session) {
  if (!session.wants("S2")) return;
  const std::vector<c10::Device> devices = simdev::first_devices(simdev::device_count());
  Trainer host(std::vector<c10::Device>(devices.size(), at::kCPU));
  Trainer there(devices);
  there.copy_from(host);
  const auto step_there = [&] { there.step(); };
  const std::vector<Side> sides{
      {"simulated", step_there, [] { simdev::set_checking(false); }},
      {"simulated, checked", step_there, [] { simdev::set_checking(true); }},
      {"CPU replicas", [&] { host.step(); }, [] { simdev::set_checking(false); }}};
  const PairedRun run(sides, {{kCpu, kCheckerOff}, {kCpu, kCheckerOn}}, session.paired_options(),
                      process_meter());
  simdev::set_checking(true);
  there.step();
  host.step();
  const auto got = there.gradients(), expected = host.gradients();
  bool close = true;
  for (size_t i = 0; i < got.size(); ++i) {
    close = close && at::allclose(got[i], expected[i], 1e-4, 1e-5);
  }
  session.check(close, "S2: gradients on simulated devices are not those of CPU replicas");
  session.add_case({"S2", "checker-off", "ms", kCheckerOff, kCpu, std::nullopt}, run);
  session.add_case({"S2", "checker-on", "ms", kCheckerOn, kCpu, std::nullopt}, run);
  session.add_geomean("S2");
}

}  // namespace

void measure_simulated_devices(Session& session) {
  if (!session.wants("S1") && !session.wants("S2")) return;
  simdev::initialize();
  measure_operators(session);
  measure_training(session);
}

}  // namespace lockstep::benchmarks
