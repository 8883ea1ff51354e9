// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/data_parallel_rows.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/data_parallel.h"
#include "parallel/worker_pool.h"
#include "tools/benchmarks/libtorch_peer.h"
#include "tools/benchmarks/machine.h"
#include "tools/benchmarks/models.h"

namespace lockstep::benchmarks {
namespace {

constexpr int kReplicas = 2;
constexpr int64_t kBatches = 4;  // in turns, so that no step finds its input in a cache

enum SideIndex : size_t {
  kClass,
  kFunction,
  kPeerOneThread,
  kPeerThreadEach,
  kHalves,
  kOneDevice,
  kAllCores,
};

using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

struct Batch {
  at::Tensor input;
  at::Tensor target;

  Batch half(int64_t index) const {
    const int64_t size = input.size(0) / kReplicas;
    return {input.narrow(0, index * size, size), target.narrow(0, index * size, size)};
  }
};

template <class M>
struct Configuration {
  std::string name;
  std::shared_ptr<M> model;
  std::vector<Batch> batches;
  Loss loss;
};

std::vector<c10::Device> two_replicas() { return {c10::Device(at::kCPU), c10::Device(at::kCPU)}; }

// A step on the next batch, by the given forward.
template <class M, class Forward>
std::function<void()> training_step(const Configuration<M>& c, Forward forward) {
  return [&c, forward = std::move(forward), next = size_t{0}]() mutable {
    const Batch& batch = c.batches[next++ % c.batches.size()];
    c.model->zero_grad();
    c.loss(forward(batch.input), batch.target).backward();
  };
}

// Two steps on half a batch at once, on twins of the model, with nothing to exchange.
template <class M>
class Halves {
 public:
  explicit Halves(const Configuration<M>& c) : configuration_(c) {
    for (int i = 0; i < kReplicas; ++i) {
      twins_.push_back(std::dynamic_pointer_cast<M>(c.model->clone()));
    }
    for (const Batch& batch : c.batches) {
      for (int64_t i = 0; i < kReplicas; ++i) halves_.push_back(batch.half(i));
    }
  }

  void step() {
    const size_t batch = next_++ % configuration_.batches.size();
    pool_.run(kReplicas, [&](int64_t i) {
      const Batch& half = halves_[batch * kReplicas + static_cast<size_t>(i)];
      M& twin = *twins_[static_cast<size_t>(i)];
      twin.zero_grad();
      configuration_.loss(twin.forward(half.input), half.target).backward();
    });
  }

 private:
  const Configuration<M>& configuration_;
  std::vector<std::shared_ptr<M>> twins_;
  std::vector<Batch> halves_;
  parallel::WorkerPool pool_;
  size_t next_ = 0;
};

std::vector<at::Tensor> gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& parameter : module.parameters()) {
    copies.push_back(parameter.grad().clone());
  }
  return copies;
}

bool all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

// Whether each of our sides gives LibTorch's gradients, with dropout off: the draws of two threads
// have no fixed order.
template <class M>
void check_gradients(Session& session, Configuration<M>& c, parallel::DataParallel<M>& wrapped) {
  const bool has_dropout = std::is_same_v<M, TransformerLayer>;
  if (has_dropout) c.model->eval();
  const Batch& batch = c.batches.front();
  const auto gradients_by = [&](const auto& forward) {
    c.model->zero_grad();
    c.loss(forward(batch.input), batch.target).backward();
    return gradients(*c.model);
  };
  const auto expected =
      gradients_by([&](const at::Tensor& x) { return libtorch_peer::data_parallel(c.model, x); });
  session.check(
      all_equal(gradients_by([&](const at::Tensor& x) { return wrapped.forward(x); }), expected),
      c.name + ": gradients of DataParallel differ from LibTorch's");
  session.check(all_equal(gradients_by([&](const at::Tensor& x) {
                            return parallel::data_parallel(c.model, x, two_replicas());
                          }),
                          expected),
                c.name + ": gradients of data_parallel() differ from LibTorch's");
  c.model->train();
}

template <class M>
void measure(Session& session, Configuration<M> c) {
  if (!session.wants_case(c.name)) return;
  at::set_num_threads(1);
  parallel::DataParallel<M> wrapped(c.model, two_replicas());
  check_gradients(session, c, wrapped);

  const auto threads = [](int count) { return [count] { at::set_num_threads(count); }; };
  const auto by_peer = [&](const at::Tensor& x) {
    return libtorch_peer::data_parallel(c.model, x);
  };
  const auto on_one_device = [&](const at::Tensor& x) { return c.model->forward(x); };
  Halves<M> halves(c);
  std::vector<Side> sides(kAllCores + 1);
  sides[kClass] = {"DataParallel",
                   training_step(c, [&](const at::Tensor& x) { return wrapped.forward(x); }),
                   threads(1)};
  sides[kFunction] = {"data_parallel()",
                      training_step(c,
                                    [&](const at::Tensor& x) {
                                      return parallel::data_parallel(c.model, x, two_replicas());
                                    }),
                      threads(1)};
  sides[kPeerOneThread] = {"LibTorch, one thread", training_step(c, by_peer), threads(1)};
  sides[kHalves] = {"half batches", [&] { halves.step(); }, threads(1)};
  sides[kOneDevice] = {"one device", training_step(c, on_one_device), threads(1)};
  sides[kPeerThreadEach] = {"LibTorch, one thread a replica", training_step(c, by_peer),
                            threads(kReplicas)};
  sides[kAllCores] = {"one device, all cores", training_step(c, on_one_device),
                      threads(available_cores())};

  std::vector<Comparison> comparisons;
  for (const size_t ours : {kClass, kFunction}) {
    for (const size_t other : {kPeerOneThread, kPeerThreadEach, kHalves}) {
      comparisons.push_back({other, ours});
    }
  }
  comparisons.push_back({kOneDevice, kClass});
  comparisons.push_back({kAllCores, kClass});
  const PairedRun run(sides, comparisons, session.paired_options(), process_meter());
  at::set_num_threads(1);

  const bool each_is_faster =
      run.median_seconds(kPeerThreadEach) < run.median_seconds(kPeerOneThread);
  const size_t peer = each_is_faster ? kPeerThreadEach : kPeerOneThread;
  if (session.wants("P1a") || session.wants("P1a-functional")) {
    session.note(c.name + ": LibTorch's data_parallel with one thread in all " +
                 format_time(run.median_seconds(kPeerOneThread), "ms") + ", one a replica " +
                 format_time(run.median_seconds(kPeerThreadEach), "ms") + "; the faster counts");
  }
  const CaseSides rows[] = {
      {"P1a", c.name, "ms", kClass, peer, kHalves},
      {"P1a-functional", c.name, "ms", kFunction, peer, kHalves},
      {"P2", c.name, "ms", kClass, kOneDevice, kHalves},
      {"P2b", c.name, "ms", kClass, kAllCores, kHalves},
  };
  for (const CaseSides& row : rows) {
    if (session.wants(row.id)) session.add_case(row, run);
  }
}

template <class M>
Configuration<M> classifier(const std::string& name, std::shared_ptr<M> model,
                            const std::vector<int64_t>& input_sizes, int64_t classes) {
  Configuration<M> c{name, std::move(model), {}, [](const at::Tensor& output, const at::Tensor& t) {
                       return at::cross_entropy_loss(output, t);
                     }};
  for (int64_t i = 0; i < kBatches; ++i) {
    c.batches.push_back(
        {at::randn(input_sizes), at::randint(classes, {input_sizes.front()}, at::kLong)});
  }
  return c;
}

Configuration<TransformerLayer> transformer(const std::string& name) {
  Configuration<TransformerLayer> c{
      name,
      std::make_shared<TransformerLayer>(),
      {},
      [](const at::Tensor& output, const at::Tensor& t) { return at::mse_loss(output, t); }};
  for (int64_t i = 0; i < kBatches; ++i) {
    c.batches.push_back({at::randn({16, 32, 128}), at::randn({16, 32, 128})});
  }
  return c;
}

std::shared_ptr<Mlp> mlp(std::vector<int64_t> widths) {
  return std::make_shared<Mlp>(std::move(widths));
}

}  // namespace

void measure_data_parallel(Session& session) {
  const std::vector<std::string> ids{"P1a", "P1a-functional", "P2", "P2b"};
  if (std::none_of(ids.begin(), ids.end(), [&](const auto& id) { return session.wants(id); })) {
    return;
  }
  libtorch_peer::flush_denormals_on_team(std::max(kReplicas, available_cores()));
  measure(session, classifier("mlp64", mlp({784, 512, 512, 10}), {64, 784}, 10));
  measure(session, classifier("mlp256", mlp({784, 512, 512, 10}), {256, 784}, 10));
  measure(session, classifier("conv64", std::make_shared<ConvNet>(), {64, 1, 28, 28}, 10));
  measure(session, classifier("resnet8", std::make_shared<ResNet18>(), {8, 3, 64, 64}, 1000));
  measure(session, classifier("resnet16", std::make_shared<ResNet18>(), {16, 3, 64, 64}, 1000));
  measure(session, classifier("deep50", mlp(std::vector<int64_t>(51, 64)), {64, 64}, 64));
  measure(session, classifier("deep100", mlp(std::vector<int64_t>(101, 64)), {64, 64}, 64));
  measure(session, classifier("lstm", std::make_shared<LstmClassifier>(), {32, 16, 32}, 10));
  measure(session, transformer("transformer"));
  for (const std::string& id : ids) session.add_geomean(id);
}

}  // namespace lockstep::benchmarks
