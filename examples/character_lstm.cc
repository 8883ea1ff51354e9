// SPDX-License-Identifier: Apache-2.0
// character_lstm: a language model of single characters, trained on text files.
//   character_lstm [FILE...]   without files: this repository's own texts
#include <torch/torch.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep.h"

namespace {

constexpr int64_t kBytes = 256;  // a character is a byte
constexpr int64_t kEmbedding = 32;
constexpr int64_t kHidden = 128;
constexpr int64_t kLength = 64;  // of a piece of text
constexpr int64_t kBatch = 16;
constexpr int kEpochs = 15;
constexpr double kLogOfTwo = 0.69314718;

constexpr std::array kTexts{"README.md",          "autograd_fns/README.md", "comm/README.md",
                            "parallel/DESIGN.md", "parallel/README.md",     "replicate/README.md"};

struct CharacterLstmImpl : torch::nn::Cloneable<CharacterLstmImpl> {
  CharacterLstmImpl() { reset(); }

  // Everything is registered here, so that the module can be copied.
  void reset() override {
    embedding = register_module("embedding", torch::nn::Embedding(kBytes, kEmbedding));
    lstm = register_module(
        "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(kEmbedding, kHidden).batch_first(true)));
    head = register_module("head", torch::nn::Linear(kHidden, kBytes));
  }

  // Characters [N, T] -> scores of the character after each [N, T, 256].
  torch::Tensor forward(const torch::Tensor& characters) {
    return head(std::get<0>(lstm(embedding(characters))));
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(CharacterLstm);

std::string read_texts(int argc, char** argv) {
  std::vector<std::filesystem::path> paths(argv + 1, argv + argc);
  // `bazel run` starts a program in another folder than the one its arguments were typed in.
  const char* typed_in = std::getenv("BUILD_WORKING_DIRECTORY");
  for (auto& path : paths) path = std::filesystem::path(typed_in ? typed_in : "") / path;
  if (paths.empty()) paths.assign(kTexts.begin(), kTexts.end());
  std::string text;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    TORCH_CHECK(file, "[character_lstm] ", path, " cannot be read");
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  return text;
}

torch::Tensor to_tensor(const std::string& text) {
  return torch::tensor(std::vector<uint8_t>(text.begin(), text.end()), torch::kLong);
}

// Mean bits needed per character, of logits [N, T, 256] for the characters that did follow [N, T].
torch::Tensor bits(const torch::Tensor& logits, const torch::Tensor& followed) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), followed.flatten()) / kLogOfTwo;
}

// Writes on after `text`, one likely character after another.
std::string write_on(CharacterLstm& net, std::string text, int64_t length) {
  torch::NoGradGuard no_grad;
  for (int64_t i = 0; i < length; ++i) {
    const auto logits = net(to_tensor(text).unsqueeze(0))[0][-1];
    const auto next = torch::multinomial((logits / 0.5).softmax(0), 1).item<int64_t>();
    text += next == '\n' ? ' ' : static_cast<char>(next);
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  torch::manual_seed(1);
  const auto text = to_tensor(read_texts(argc, argv));
  TORCH_CHECK(text.size(0) > 20 * kLength, "[character_lstm] the texts have only ", text.size(0),
              " characters");
  // Pieces of text, each with one character more than it is long. The last tenth is for tests.
  const auto pieces = text.unfold(0, kLength + 1, kLength);
  const auto trained = pieces.slice(0, 0, pieces.size(0) * 9 / 10);
  const auto tested = pieces.slice(0, trained.size(0));

  CharacterLstm net;
  lockstep::parallel::DataParallel parallel(net, {torch::kCPU, torch::kCPU});
  torch::optim::Adam optimizer(parallel.parameters(), 5e-3);
  const auto bits_of = [&](const torch::Tensor& batch) {
    return bits(parallel.forward(batch.narrow(1, 0, kLength)), batch.narrow(1, 1, kLength));
  };

  std::cout << text.size(0) << " characters\n" << std::fixed << std::setprecision(3);
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    double sum = 0;
    const auto batches = trained.index_select(0, torch::randperm(trained.size(0))).split(kBatch);
    for (const auto& batch : batches) {
      optimizer.zero_grad();
      const auto loss = bits_of(batch);
      loss.backward();
      optimizer.step();
      sum += loss.item<double>() * batch.size(0);
    }
    torch::NoGradGuard no_grad;
    std::cout << "epoch " << epoch << "  bits per character " << sum / trained.size(0)
              << "  on unseen text " << bits_of(tested).item<double>() << std::endl;
  }
  std::cout << write_on(net, "A replica ", 70) << '\n';  // the very module that was trained
}
