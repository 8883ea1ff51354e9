// SPDX-License-Identifier: Apache-2.0
#include "parallel/batch_dependence.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include <typeinfo>

namespace lockstep::parallel::internal {
namespace {

namespace nn = torch::nn;

constexpr const char* kNormalises = "normalises by its batch";
constexpr const char* kStatistics = "keeps statistics of its batch";
constexpr const char* kDraws = "draws random numbers";
constexpr const char* kWritesRows = "shortens the rows it looks up, which replicas do apart";

// The layer as one of Layers, or null.
template <class Layer, class Visitor>
const char* visit_as(const nn::Module& module, const Visitor& visitor) {
  const auto* layer = dynamic_cast<const Layer*>(&module);
  return layer == nullptr ? nullptr : visitor(*layer);
}

// What `visitor` says of the module as the first of Layers that it is; null if it is none.
template <class... Layers, class Visitor>
const char* visit(const nn::Module& module, const Visitor& visitor) {
  const char* reason = nullptr;
  static_cast<void>(((reason = visit_as<Layers>(module, visitor)) || ...));
  return reason;
}

const char* batch_norm(const nn::Module& module) {
  return visit<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl>(
      module, [](const auto& norm) {
        const bool by_batch = norm.is_training() || !norm.options.track_running_stats();
        return by_batch ? kNormalises : nullptr;
      });
}

const char* instance_norm(const nn::Module& module) {
  return visit<nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl>(
      module, [](const auto& norm) {
        const bool keeps = norm.is_training() && norm.options.track_running_stats();
        return keeps ? kStatistics : nullptr;
      });
}

const char* dropout(const nn::Module& module) {
  return visit<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl, nn::AlphaDropoutImpl,
               nn::FeatureAlphaDropoutImpl>(module, [](const auto& layer) {
    return layer.is_training() && layer.options.p() > 0 ? kDraws : nullptr;
  });
}

const char* attention(const nn::Module& module) {
  return visit<nn::MultiheadAttentionImpl>(module, [](const auto& layer) {
    return layer.is_training() && layer.options.dropout() > 0 ? kDraws : nullptr;
  });
}

// Dropout lies between layers: a single one has none.
const char* recurrent(const nn::Module& module) {
  return visit<nn::RNNImpl, nn::LSTMImpl, nn::GRUImpl>(module, [](const auto& layer) {
    const auto& options = layer.options_base;
    const bool drops = options.dropout() > 0 && options.num_layers() > 1;
    return layer.is_training() && drops ? kDraws : nullptr;
  });
}

const char* rrelu(const nn::Module& module) {
  return visit<nn::RReLUImpl>(
      module, [](const auto& layer) { return layer.is_training() ? kDraws : nullptr; });
}

// It draws in eval mode too. Given samples are one for each row of the whole batch.
const char* fractional_pool(const nn::Module& module) {
  return visit<nn::FractionalMaxPool2dImpl, nn::FractionalMaxPool3dImpl>(
      module, [](const auto&) { return kDraws; });
}

const char* embedding(const nn::Module& module) {
  return visit<nn::EmbeddingImpl, nn::EmbeddingBagImpl>(module, [](const auto& layer) {
    return layer.options.max_norm().has_value() ? kWritesRows : nullptr;
  });
}

const char* reason_of(const nn::Module& module) {
  for (const auto rule : {batch_norm, instance_norm, dropout, attention, recurrent, rrelu,
                          fractional_pool, embedding}) {
    if (const char* reason = rule(module)) {
      return reason;
    }
  }
  return nullptr;
}

std::optional<BatchDependence> find(const nn::Module& module, const std::string& path) {
  if (const char* reason = reason_of(module)) {
    return BatchDependence{path, c10::demangle(typeid(module).name()), reason};
  }
  for (const auto& child : module.named_children()) {
    const std::string child_path = path.empty() ? child.key() : path + "." + child.key();
    if (auto found = find(*child.value(), child_path)) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<BatchDependence> find_batch_dependence(const nn::Module& module) {
  return find(module, "");
}

void check_batch_independent(const char* name, const nn::Module& module) {
  const auto found = find_batch_dependence(module);
  TORCH_CHECK(!found, "[", name, "] DevicePolicy::kAutomatic would let the clock change results: ",
              found->path.empty() ? "the module" : "'" + found->path + "'", " (", found->type, ") ",
              found->reason,
              "; choose kReplicas or kOneDevice, or set "
              "DataParallelOptions::allow_automatic_to_change_results");
}

}  // namespace lockstep::parallel::internal
