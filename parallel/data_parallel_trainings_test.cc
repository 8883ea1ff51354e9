// SPDX-License-Identifier: Apache-2.0
// Whole networks, trained for a few steps by DataParallel and on one device: there by the same
// chunks in turn, which must give the same bits, or by the full batch, which must come close.
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "parallel/data_parallel_fixture.h"
#include "parallel/training_networks.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::random_tensor;

constexpr int kSteps = 3;

// --- what is trained, and how ----------------------------------------------------------------

using Optimizer = std::unique_ptr<torch::optim::Optimizer>;
using MakeOptimizer = Optimizer (*)(const std::vector<at::Tensor>& parameters);

Optimizer sgd(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.3));
}

Optimizer momentum(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

// A large eps: Adam divides by the gradient's size, also where that is rounding alone, as for the
// bias of attention's keys.
Optimizer adam(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.05).eps(0.1));
}

at::Tensor label_loss(const at::Tensor& output) {
  const at::Tensor labels = at::arange(output.size(0), output.options().dtype(at::kLong));
  return at::cross_entropy_loss(output, labels.remainder(kClasses));
}

at::Tensor distance_from_one(const at::Tensor& output) { return (output - 1).pow(2).mean(); }

template <class Network>
struct Task {
  std::function<Network()> make;
  std::function<at::Tensor(int64_t rows, uint64_t seed)> batch;  // on the CPU
  at::Tensor (*loss)(const at::Tensor& output);
  int64_t dim = 0;  // of the rows
};

Task<ResNet> image_task() {
  return {[] { return ResNet(); },
          [](int64_t rows, uint64_t seed) {
            return random_tensor({rows, 3, 8, 8}, seed);
          },
          label_loss};
}

// BatchNorm that does not look at its batch, with statistics of other images.
Task<ResNet> image_task_in_eval_mode() {
  Task<ResNet> task = image_task();
  task.make = [] {
    ResNet net;
    net->forward(random_tensor({8, 3, 8, 8}, 77).to(at::kFloat));
    net->eval();
    return net;
  };
  return task;
}

Task<SequenceNet> sequence_task() {
  return {[] { return SequenceNet(); },
          [](int64_t rows, uint64_t seed) {
            return random_tensor({rows, 5, 4}, seed);
          },
          label_loss};
}

// The layer wants the rows in dimension 1.
Task<torch::nn::TransformerEncoderLayer> attention_task() {
  return {[] {
            return torch::nn::TransformerEncoderLayer(
                torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).dropout(0));
          },
          [](int64_t rows, uint64_t seed) {
            return random_tensor({5, rows, 8}, seed);
          },
          distance_from_one, 1};
}

Task<WordNet> word_task(bool sparse) {
  return {[sparse] { return WordNet(sparse); },
          [](int64_t rows, uint64_t seed) {
            return random_tensor({rows, 4}, seed, at::kLong).abs();
          },
          label_loss};
}

// --- the comparison --------------------------------------------------------------------------

enum class Reference { kChunksInTurn, kFullBatch };

struct Results {
  at::Tensor loss;
  at::Tensor input_gradient;  // undefined if the batch is not floating
};

at::Tensor make_leaf(const at::Tensor& batch) {
  return batch.detach().clone().requires_grad_(batch.is_floating_point());
}

template <class Forward>
Results train_whole(const Forward& forward, const at::Tensor& batch,
                    at::Tensor (*loss_of)(const at::Tensor&)) {
  const at::Tensor input = make_leaf(batch);
  const at::Tensor loss = loss_of(forward(input));
  loss.backward();
  return {loss.detach(), input.grad()};
}

class DataParallelTrainingsTest : public DataParallelTest {
 protected:
  // Batches of 8 and 7 rows, split evenly and not.
  template <class Network>
  void expect_same_training(const Task<Network>& task, Reference reference,
                            const std::vector<MakeOptimizer>& optimizers) const {
    for (const int64_t rows : {8, 7}) {
      for (size_t i = 0; i < optimizers.size(); ++i) {
        SCOPED_TRACE("rows " + std::to_string(rows) + ", optimizer " + std::to_string(i));
        expect_same_training(task, reference, optimizers[i], rows);
      }
    }
  }

  template <class Network>
  Network make(const Task<Network>& task, at::ScalarType dtype) const {
    at::manual_seed(1);
    Network network = task.make();
    network->to(first(), dtype);
    return network;
  }

  template <class Network>
  at::Tensor batch(const Task<Network>& task, int64_t rows, int step, at::ScalarType dtype) const {
    const at::Tensor batch = task.batch(rows, 10 + step);
    return batch.to(first(), batch.is_floating_point() ? dtype : batch.scalar_type());
  }

 private:
  template <class Network>
  void expect_same_training(const Task<Network>& task, Reference reference,
                            MakeOptimizer make_optimizer, int64_t rows) const {
    const bool in_turn = reference == Reference::kChunksInTurn;
    const at::ScalarType dtype = in_turn ? at::kFloat : at::kDouble;
    const auto expect_same = in_turn ? expect_same_bits : expect_close_in_double;
    Network one = make(task, dtype);
    Network many = make(task, dtype);
    DataParallelOptions options = this->options();
    options.dim = task.dim;
    DataParallel parallel(many, devices(), options);
    const Optimizer one_optimizer = make_optimizer(one->parameters());
    const Optimizer many_optimizer = make_optimizer(parallel.parameters());
    for (int step = 0; step < kSteps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const at::Tensor x = batch(task, rows, step, dtype);
      one_optimizer->zero_grad();
      many_optimizer->zero_grad();
      const Results expected =
          in_turn ? train_in_turn(one, x, task)
                  : train_whole([&](const at::Tensor& x) { return one->forward(x); }, x, task.loss);
      const Results results =
          train_whole([&](const at::Tensor& x) { return parallel.forward(x); }, x, task.loss);
      expect_same({results.loss, results.input_gradient}, {expected.loss, expected.input_gradient});
      expect_same(gradients(*many), gradients(*one));
      one_optimizer->step();
      many_optimizer->step();
      expect_same(many->parameters(), one->parameters());
    }
    const auto replicas = parallel.replicas();
    ASSERT_EQ(replicas.size(), num_devices());
    for (size_t i = 0; i < num_devices(); ++i) {
      EXPECT_EQ(replicas[i]->parameters()[0].device(), devices()[i]);
    }
  }

  // Every chunk has memory of its own, as on the device of a replica. backward() adds to the
  // gradients that are there, so the sums are in the chunks' order.
  template <class Network>
  Results train_in_turn(Network& network, const at::Tensor& batch,
                        const Task<Network>& task) const {
    const auto sizes = this->sizes(batch.size(task.dim));
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> detached;
    for (const at::Tensor& chunk : batch.split_with_sizes(sizes, task.dim)) {
      inputs.push_back(make_leaf(chunk.contiguous()));
      outputs.push_back(network->forward(inputs.back()));
      detached.push_back(outputs.back().detach());
    }
    const at::Tensor joined = make_leaf(at::cat(detached, task.dim));
    const at::Tensor loss = task.loss(joined);
    loss.backward();
    const auto parts = joined.grad().split_with_sizes(sizes, task.dim);
    std::vector<at::Tensor> input_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].backward(parts[i].contiguous());
      input_gradients.push_back(inputs[i].grad());
    }
    return {loss.detach(),
            batch.is_floating_point() ? at::cat(input_gradients, task.dim) : at::Tensor()};
  }

  static std::vector<at::Tensor> gradients(const torch::nn::Module& module) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : module.parameters()) {
      gradients.push_back(parameter.grad());
    }
    return gradients;
  }

  static void expect_close_in_double(const std::vector<at::Tensor>& actual,
                                     const std::vector<at::Tensor>& expected) {
    expect_close(actual, expected);
  }
};
LOCKSTEP_INSTANTIATE_DATA_PARALLEL(DataParallelTrainingsTest);

// --- images ----------------------------------------------------------------------------------

TEST_P(DataParallelTrainingsTest, AResNetTrainsAsTheSameChunksInTurn) {
  expect_same_training(image_task(), Reference::kChunksInTurn, {momentum, adam});
}

TEST_P(DataParallelTrainingsTest, AResNetWithFixedStatisticsTrainsAsTheFullBatch) {
  expect_same_training(image_task_in_eval_mode(), Reference::kFullBatch, {momentum, adam});
}

TEST_P(DataParallelTrainingsTest, StatisticsOfAResNetFollowTheFirstChunk) {
  ResNet net = make(image_task(), at::kFloat);
  ResNet observer = make(image_task(), at::kFloat);
  DataParallel parallel(net, devices(), options());
  const Optimizer optimizer = momentum(parallel.parameters());
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor x = batch(image_task(), 7, step, at::kFloat);
    optimizer->zero_grad();
    label_loss(parallel.forward(x)).backward();
    {
      const at::NoGradGuard no_grad;
      const auto values = net->parameters();
      auto copies = observer->parameters();
      for (size_t i = 0; i < values.size(); ++i) {
        copies[i].copy_(values[i]);
      }
      observer->forward(x.narrow(0, 0, sizes(7)[0]).contiguous());
    }
    EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), step + 1);
    expect_same_bits(net->buffers(), observer->buffers());
    optimizer->step();
  }
}

// --- sequences -------------------------------------------------------------------------------

TEST_P(DataParallelTrainingsTest, AnLstmTrainsAsTheSameChunksInTurn) {
  expect_same_training(sequence_task(), Reference::kChunksInTurn, {momentum, adam});
}

TEST_P(DataParallelTrainingsTest, AnLstmTrainsAsTheFullBatch) {
  expect_same_training(sequence_task(), Reference::kFullBatch, {momentum, adam});
}

TEST_P(DataParallelTrainingsTest, ATransformerLayerTrainsAsTheSameChunksInTurn) {
  expect_same_training(attention_task(), Reference::kChunksInTurn, {momentum, adam});
}

TEST_P(DataParallelTrainingsTest, ATransformerLayerTrainsAsTheFullBatch) {
  expect_same_training(attention_task(), Reference::kFullBatch, {momentum, adam});
}

// --- embeddings ------------------------------------------------------------------------------

TEST_P(DataParallelTrainingsTest, AnEmbeddingTrainsAsTheSameChunksInTurn) {
  expect_same_training(word_task(/*sparse=*/false), Reference::kChunksInTurn, {momentum, adam});
}

TEST_P(DataParallelTrainingsTest, AnEmbeddingTrainsAsTheFullBatch) {
  expect_same_training(word_task(/*sparse=*/false), Reference::kFullBatch, {momentum, adam});
}

TEST_P(DataParallelTrainingsTest, ASparseEmbeddingTrainsAsTheSameChunksInTurn) {
  expect_same_training(word_task(/*sparse=*/true), Reference::kChunksInTurn, {sgd});
}

TEST_P(DataParallelTrainingsTest, ASparseEmbeddingTrainsAsTheFullBatch) {
  expect_same_training(word_task(/*sparse=*/true), Reference::kFullBatch, {sgd});
}

}  // namespace
}  // namespace lockstep::parallel
