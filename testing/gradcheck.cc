// SPDX-License-Identifier: Apache-2.0
#include "testing/gradcheck.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/real.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <utility>

#include "testing/matchers.h"
#include "testing/random.h"

namespace lockstep::testing {
namespace {

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() &&
         (at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type()));
}

bool is_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble || tensor.scalar_type() == at::kComplexDouble;
}

at::Tensor dense_cpu(const at::Tensor& tensor) {
  at::Tensor dense = tensor.detach();
  if (dense.layout() != at::kStrided) {
    dense = dense.to_dense();
  }
  return dense.cpu().resolve_conj().resolve_neg();
}

// Fresh leaves with the inputs' values, strides and requires_grad.
std::vector<at::Tensor> leaves_like(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.defined() ? input.detach().clone().requires_grad_(input.requires_grad())
                                     : at::Tensor());
  }
  return leaves;
}

// Runs `function` with coordinate `c` of input `i` moved by `step`. A complex element is two
// coordinates. Outputs that no gradient can reach come back undefined.
std::vector<at::Tensor> run_moved(const TensorFunction& function,
                                  const std::vector<at::Tensor>& inputs, size_t i, int64_t c,
                                  double step) {
  std::vector<at::Tensor> leaves = leaves_like(inputs);
  {
    at::NoGradGuard no_grad;
    at::Tensor moved = dense_cpu(leaves[i]).contiguous().clone();
    (moved.is_complex() ? at::view_as_real(moved) : moved).view({-1}).select(0, c).add_(step);
    leaves[i].copy_(moved);
  }
  std::vector<at::Tensor> outputs = function(leaves);
  for (at::Tensor& output : outputs) {
    output = is_differentiable(output) ? dense_cpu(output) : at::Tensor();
  }
  return outputs;
}

// slopes[j]: derivative of output j along one coordinate of one input.
std::vector<at::Tensor> central_difference(const TensorFunction& function,
                                           const std::vector<at::Tensor>& inputs, size_t i,
                                           int64_t c, double eps) {
  std::vector<at::Tensor> slopes = run_moved(function, inputs, i, c, eps);
  const std::vector<at::Tensor> below = run_moved(function, inputs, i, c, -eps);
  for (size_t j = 0; j < slopes.size(); ++j) {
    if (slopes[j].defined()) {
      slopes[j] = (slopes[j] - below[j]) / (2 * eps);
    }
  }
  return slopes;
}

// One upstream gradient per output; undefined where none is passed.
struct Upstream {
  std::string name;
  std::vector<at::Tensor> gradients;
};

at::Tensor permuted_strides(const at::Tensor& tensor) {
  std::vector<int64_t> reversed;
  for (int64_t d = tensor.dim(); d-- > 0;) {
    reversed.push_back(d);
  }
  return tensor.permute(reversed).contiguous().permute(reversed);
}

std::vector<Upstream> make_upstreams(const std::vector<at::Tensor>& outputs, uint64_t seed) {
  Upstream random{"random", {}};
  Upstream permuted{"random with permuted strides", {}};
  Upstream expanded{"expanded", {}};
  for (size_t j = 0; j < outputs.size(); ++j) {
    if (!is_differentiable(outputs[j])) {
      random.gradients.emplace_back();
      permuted.gradients.emplace_back();
      expanded.gradients.emplace_back();
      continue;
    }
    const at::Tensor& output = outputs[j];
    const at::Tensor values =
        random_tensor(output.sizes(), seed * 1000003 + j, output.scalar_type()).to(output.device());
    random.gradients.push_back(values);
    permuted.gradients.push_back(permuted_strides(values));
    const at::Tensor one = at::ones({}, output.options().requires_grad(false).layout(at::kStrided));
    expanded.gradients.push_back(one.expand(output.sizes()));
  }
  std::vector<Upstream> all = {random, permuted, expanded};
  for (size_t j = 0; j < outputs.size() && outputs.size() > 1; ++j) {
    if (is_differentiable(outputs[j])) {
      Upstream single{"random for output " + std::to_string(j) + " alone",
                      std::vector<at::Tensor>(outputs.size())};
      single.gradients[j] = random.gradients[j];
      all.push_back(std::move(single));
    }
  }
  return all;
}

// autograd::grad that leaves out outputs without upstream or without history. The result has
// one entry per input; zeros where nothing arrives, or where the input requires no grad.
std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& outputs,
                                  const std::vector<at::Tensor>& upstream,
                                  const std::vector<at::Tensor>& inputs, bool create_graph) {
  std::vector<at::Tensor> roots, root_gradients, leaves;
  for (size_t j = 0; j < outputs.size(); ++j) {
    if (upstream[j].defined() && outputs[j].requires_grad()) {
      roots.push_back(outputs[j]);
      root_gradients.push_back(upstream[j]);
    }
  }
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) {
      leaves.push_back(input);
    }
  }
  std::vector<at::Tensor> found(leaves.size());
  if (!roots.empty()) {
    found = torch::autograd::grad(roots, leaves, root_gradients, /*retain_graph=*/true,
                                  create_graph, /*allow_unused=*/true);
  }
  std::vector<at::Tensor> result;
  size_t next = 0;
  for (const at::Tensor& input : inputs) {
    at::Tensor gradient;
    if (input.defined() && input.requires_grad()) {
      gradient = found[next++];
    }
    if (!gradient.defined() && input.defined()) {
      gradient = at::zeros_like(input.detach());
    }
    result.push_back(gradient);
  }
  return result;
}

::testing::AssertionResult check_inputs(const std::vector<at::Tensor>& inputs) {
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) {
      continue;
    }
    any = true;
    if (!is_double(inputs[i])) {
      return ::testing::AssertionFailure() << "input " << i << " is " << inputs[i].scalar_type()
                                           << ": numeric differences need double or complex double";
    }
  }
  if (!any) {
    return ::testing::AssertionFailure() << "no input requires grad: nothing was checked";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult gradcheck(const TensorFunction& function,
                                     const std::vector<at::Tensor>& inputs,
                                     const GradcheckOptions& options) {
  if (const auto fit = check_inputs(inputs); !fit) {
    return fit;
  }
  const at::AutoGradMode grad_mode(true);
  const std::vector<at::Tensor> leaves = leaves_like(inputs);
  const std::vector<at::Tensor> outputs = function(leaves);
  const std::vector<Upstream> upstreams = make_upstreams(outputs, options.seed);

  // numeric[u][i]: the gradient of input i under upstream u, as flat real coordinates.
  std::vector<std::vector<at::Tensor>> numeric(upstreams.size(),
                                               std::vector<at::Tensor>(inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) {
      continue;
    }
    const int64_t coordinates = inputs[i].numel() * (inputs[i].is_complex() ? 2 : 1);
    for (auto& per_input : numeric) {
      per_input[i] = at::zeros({coordinates}, at::kDouble);
    }
    for (int64_t c = 0; c < coordinates; ++c) {
      const auto slopes = central_difference(function, inputs, i, c, options.eps);
      for (size_t u = 0; u < upstreams.size(); ++u) {
        double total = 0;
        for (size_t j = 0; j < slopes.size(); ++j) {
          if (upstreams[u].gradients[j].defined()) {
            const at::Tensor upstream = dense_cpu(upstreams[u].gradients[j]);
            total += at::real((upstream.conj() * slopes[j]).sum()).item<double>();
          }
        }
        numeric[u][i].select(0, c).fill_(total);
      }
    }
  }

  for (size_t u = 0; u < upstreams.size(); ++u) {
    const auto found = gradients(outputs, upstreams[u].gradients, leaves, /*create_graph=*/false);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!numeric[u][i].defined()) {
        continue;
      }
      const at::Tensor expected =
          inputs[i].is_complex()
              ? at::view_as_complex(numeric[u][i].view({-1, 2})).view(inputs[i].sizes())
              : numeric[u][i].view(inputs[i].sizes());
      ::testing::StringMatchResultListener listener;
      if (!::testing::ExplainMatchResult(AllClose(expected, {options.rtol, options.atol}),
                                         dense_cpu(found[i]), &listener)) {
        return ::testing::AssertionFailure()
               << "upstream \"" << upstreams[u].name << "\": the gradient of input " << i
               << ", against numeric differences as expected, is one " << listener.str();
      }
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult gradgradcheck(const TensorFunction& function,
                                         const std::vector<at::Tensor>& inputs,
                                         const GradcheckOptions& options) {
  if (const auto fit = check_inputs(inputs); !fit) {
    return fit;
  }
  const at::AutoGradMode grad_mode(true);
  const std::vector<at::Tensor> outputs = function(leaves_like(inputs));
  std::vector<at::Tensor> arguments = inputs;
  for (size_t j = 0; j < outputs.size(); ++j) {
    const bool takes_upstream = is_differentiable(outputs[j]) && outputs[j].requires_grad();
    arguments.push_back(takes_upstream
                            ? random_tensor(outputs[j].sizes(), options.seed * 1000033 + 500 + j,
                                            outputs[j].scalar_type())
                                  .to(outputs[j].device())
                                  .requires_grad_()
                            : at::Tensor());
  }
  const size_t n = inputs.size();
  const auto gradient_function = [&function, n](const std::vector<at::Tensor>& all) {
    const std::vector<at::Tensor> points(all.begin(), all.begin() + n);
    const std::vector<at::Tensor> upstream(all.begin() + n, all.end());
    return gradients(function(points), upstream, points, /*create_graph=*/true);
  };
  return gradcheck(gradient_function, arguments, options);
}

}  // namespace lockstep::testing
