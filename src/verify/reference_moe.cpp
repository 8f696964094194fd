// y[t] = Σ over t's experts e: r · (w2[e] · h + bias2[e]), with h = act(gate) · up of w1[e] · x[t] + bias1[e], or act of that
// where w1 has no gate. With doweight_stage1 the routing weight r scales w1[e] · x[t] + bias1[e], both halves, before
// the activation, and not the sum.
#include "verify/reference_moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "problem/mixture_routes.h"
#include "verify/product.h"

namespace gemmtune {
namespace {

/// `up`: 1 without a gate.
double activate(Activation activation, double gate, double up) {
  if (activation == Activation::silu) return gate / (1 + std::exp(-gate)) * up;
  if (activation == Activation::gelu) return 0.5 * gate * (1 + std::erf(gate / std::sqrt(2.0))) * up;
  if (activation != Activation::swiglu) return gate * up;
  const double clamped = std::min(gate, swiglu_limit);
  return clamped / (1 + std::exp(-swiglu_alpha * clamped)) *
         (std::clamp(up, -swiglu_limit, swiglu_limit) + 1);
}

/// A token's place in the result, and its routing weight for one expert.
struct Route {
  std::int64_t row = 0;  // among the rows that are computed
  std::int64_t token = 0;
  double weight = 0;
};

class Mixture {
 public:
  Mixture(const Problem& problem, const HostOperands& operands, int threads)
      : problem_(problem), operands_(operands), shapes_(operand_shapes(problem)), threads_(threads) {}

  /// y of the tokens, [tokens, model_dim], with Σ r·(|w2|·|h| + |bias2|) as magnitudes.
  void compute(std::span<const std::int64_t> tokens, Reference& reference) const {
    const auto values = tokens.size() * static_cast<std::size_t>(problem_.k);
    reference.values.assign(values, 0);
    reference.magnitudes.assign(values, 0);
    std::vector<std::vector<Route>> routes(static_cast<std::size_t>(problem_.moe.experts));
    const MixtureRoutes given(problem_.moe, operands_.topk_ids.data(), operands_.topk_weights.data());
    for (std::size_t row = 0; row < tokens.size(); ++row)
      for (std::int64_t slot = 0; slot < problem_.moe.topk; ++slot) {
        const std::int64_t pair = tokens[row] * problem_.moe.topk + slot;
        routes[static_cast<std::size_t>(given.expert(pair))].push_back(
            {static_cast<std::int64_t>(row), tokens[row], static_cast<double>(given.weight(pair))});
      }
    for (std::size_t expert = 0; expert < routes.size(); ++expert)
      if (!routes[expert].empty()) add_expert(static_cast<std::int64_t>(expert), routes[expert], reference);
  }

 private:
  void add_expert(std::int64_t expert, const std::vector<Route>& routes, Reference& reference) const {
    const DoubleMatrix hidden = stage1(expert, routes);
    const DequantizedMatrix w2(shapes_.w2, operands_.w2, operands_.w2_scale, expert);
    const auto count = static_cast<std::int64_t>(routes.size());
    const std::int64_t columns = problem_.k;
    std::vector<double> values(static_cast<std::size_t>(count * columns));
    std::vector<double> magnitudes(values.size());
    const std::vector<double> bias = bias_of(shapes_.bias2, operands_.bias2, expert);
    multiply_selected({hidden, w2, problem_.n, bias}, {indices(count), indices(columns)},
                      {values.data(), magnitudes.data(), columns, 1}, threads_);
    for (std::int64_t i = 0; i < count; ++i) {
      const Route& route = routes[static_cast<std::size_t>(i)];
      const double weight = problem_.moe.doweight_stage1 ? 1 : route.weight;
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto from = static_cast<std::size_t>(i * columns + column);
        const auto to = static_cast<std::size_t>(route.row * columns + column);
        reference.values[to] += weight * values[from];
        reference.magnitudes[to] += weight * magnitudes[from];
      }
    }
  }

  /// h of each route, [routes, inter_dim].
  DoubleMatrix stage1(std::int64_t expert, const std::vector<Route>& routes) const {
    const DequantizedMatrix x(shapes_.x, operands_.x, operands_.x_scale, 0);
    const DequantizedMatrix w1(shapes_.w, operands_.w, operands_.w_scale, expert);
    std::vector<std::int64_t> tokens;
    for (const Route& route : routes) tokens.push_back(route.token);
    const std::int64_t columns = shapes_.w.rows;
    std::vector<double> values(routes.size() * static_cast<std::size_t>(columns));
    std::vector<double> magnitudes(values.size());
    const std::vector<double> bias = bias_of(shapes_.bias, operands_.bias, expert);
    multiply_selected({x, w1, problem_.k, bias}, {tokens, indices(columns)},
                      {values.data(), magnitudes.data(), columns, 1}, threads_);
    DoubleMatrix hidden(static_cast<std::int64_t>(routes.size()), problem_.n);
    for (std::size_t i = 0; i < routes.size(); ++i) {
      const double weight = problem_.moe.doweight_stage1 ? routes[i].weight : 1;
      const double* gate = values.data() + i * static_cast<std::size_t>(columns);
      for (std::int64_t j = 0; j < problem_.n; ++j) {
        const double up = problem_.moe.gated ? weight * gate[problem_.n + j] : 1;
        hidden.at(static_cast<std::int64_t>(i), j) = activate(problem_.moe.activation, weight * gate[j], up);
      }
    }
    return hidden;
  }

  /// Of one expert; empty without a bias.
  static std::vector<double> bias_of(const MatrixShape& shape, const std::vector<std::byte>& bytes,
                                     std::int64_t expert) {
    if (shape.count == 0) return {};
    std::vector<float> single(static_cast<std::size_t>(shape.columns));
    traits(shape.type).widen(bytes, expert * shape.columns, single);
    return {single.begin(), single.end()};
  }

  static std::vector<std::int64_t> indices(std::int64_t count) {
    std::vector<std::int64_t> list(static_cast<std::size_t>(count));
    std::iota(list.begin(), list.end(), 0);
    return list;
  }

  const Problem& problem_;
  const HostOperands& operands_;
  OperandShapes shapes_;
  int threads_;
};

/// The tokens that are computed: the first, the last, and others at random.
std::vector<std::int64_t> sampled_tokens(const Problem& problem, const ReferenceOptions& options) {
  const std::size_t wanted = sampled_token_count(problem, options);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(problem.m));
  std::iota(tokens.begin(), tokens.end(), 0);
  if (wanted == tokens.size()) return tokens;
  Random random(options.seed);
  std::swap(tokens[1], tokens.back());
  for (std::size_t i = 2; i < wanted; ++i) std::swap(tokens[i], tokens[i + random.below(tokens.size() - i)]);
  tokens.resize(wanted);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace

std::size_t sampled_token_count(const Problem& problem, const ReferenceOptions& options) {
  const double a_token = flops(problem) / static_cast<double>(problem.m);
  const auto affordable = static_cast<std::int64_t>(options.max_complete_flops / a_token);
  const std::int64_t wanted = std::max({options.sampled_rows, affordable, std::int64_t{2}});
  return static_cast<std::size_t>(std::min(problem.m, wanted));
}

Result<Reference> moe_reference(const Problem& problem, const HostOperands& operands,
                                const ReferenceOptions& options) {
  const Activation activation = problem.moe.activation;
  if (activation == Activation::situv2 || (activation == Activation::swiglu && !problem.moe.gated))
    return Status::unsupported("no reference for the activation {}{}", to_string(activation),
                               problem.moe.gated ? "" : " without a gate");
  Reference reference;
  const std::vector<std::int64_t> tokens = sampled_tokens(problem, options);
  reference.complete = static_cast<std::int64_t>(tokens.size()) == problem.m;
  if (!reference.complete) reference.rows = tokens;
  Mixture(problem, operands, std::max(1, options.threads)).compute(tokens, reference);
  return reference;
}

}  // namespace gemmtune
