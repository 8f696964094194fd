// y[t] = Σ over t's experts e: r · (w2[e] · h + bias2[e]), with h = act(gate) · up of w1[e] · x[t] + bias1[e], or act of that
// where w1 has no gate. With doweight_stage1 the routing weight r scales w1[e] · x[t] + bias1[e], both halves, before
// the activation, and not the sum.
#include "verify/reference_moe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "problem/mixture_routes.h"
#include "verify/output_check.h"
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

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The hidden layer of the routes of one expert, and of each route what a kernel's own hidden layer may be.
struct Hidden {
  DoubleMatrix values;
  std::vector<bool> may_overflow;  // the type in which it is stored
  std::vector<bool> is_unknown;    // its float32 sums may pass their range
};

/// What is known of the numbers of one expert.
struct ExpertNumbers {
  bool makes_nan = false;  // of every result
  bool is_finite = true;
  double norm1 = 0;  // the largest of a row of w1
  double bias1 = 0;
  double norm2 = 0;
  double bias2 = 0;
};

class Mixture {
 public:
  Mixture(const Problem& problem, const HostOperands& operands, const ReferenceOptions& options)
      : problem_(problem),
        operands_(operands),
        shapes_(operand_shapes(problem)),
        threads_(std::max(1, options.threads)),
        any_numbers_(options.any_numbers) {}

  /// y of the tokens, [tokens, model_dim], with Σ r·(|w2|·(|h| + hidden_floor()) + |bias2|) as magnitudes.
  void compute(std::span<const std::int64_t> tokens, Reference& reference) const {
    const auto values = tokens.size() * static_cast<std::size_t>(problem_.k);
    reference.values.assign(values, 0);
    reference.magnitudes.assign(values, 0);
    if (any_numbers_) reference.reaches.assign(values, 0);
    std::vector<std::vector<Route>> routes(static_cast<std::size_t>(problem_.moe.experts));
    const MixtureRoutes given(problem_.moe, operands_.topk_ids.data(), operands_.topk_weights.data());
    for (std::size_t row = 0; row < tokens.size(); ++row)
      for (std::int64_t slot = 0; slot < problem_.moe.topk; ++slot) {
        const std::int64_t pair = tokens[row] * problem_.moe.topk + slot;
        if (given.expert(pair) == empty_slot) continue;
        routes[static_cast<std::size_t>(given.expert(pair))].push_back(
            {static_cast<std::int64_t>(row), tokens[row], static_cast<double>(given.weight(pair))});
      }
    for (std::size_t expert = 0; expert < routes.size(); ++expert)
      if (!routes[expert].empty()) add_expert(static_cast<std::int64_t>(expert), routes[expert], reference);
  }

  /// Of every token: a row's norm bounds its results.
  std::vector<LineNumbers> token_lines() const {
    std::vector<ExpertNumbers> experts;
    for (std::int64_t expert = 0; expert < problem_.moe.experts; ++expert)
      experts.push_back(numbers_of_expert(expert));
    const DequantizedMatrix x(shapes_.x, {operands_.x, operands_.x_scale}, 0);
    const MixtureRoutes routes(problem_.moe, operands_.topk_ids.data(), operands_.topk_weights.data());
    std::vector<double> buffer(static_cast<std::size_t>(problem_.k));
    std::vector<LineNumbers> lines;
    for (std::int64_t token = 0; token < problem_.m; ++token) {
      const LineNumbers given = numbers_of(x, token, buffer);
      LineNumbers line;
      // A float32 hidden layer may be of an infinite scale, or of none.
      const bool scales_decide = scales_pass_float(given.scales, {});
      line.has_nan = given.has_nan && !scales_decide;
      if (given.has_infinity || scales_decide) line.norm = infinity;
      for (std::int64_t slot = 0; slot < problem_.moe.topk; ++slot) {
        const std::int64_t pair = token * problem_.moe.topk + slot;
        const ExpertNumbers& expert = experts[static_cast<std::size_t>(routes.expert(pair))];
        line.has_nan = line.has_nan || expert.makes_nan;
        line.norm += result_bound(reach_of(given.norm, given.scales, {}), expert,
                                  static_cast<double>(routes.weight(pair)));
      }
      lines.push_back(line);
    }
    return lines;
  }

 private:
  MatrixBytes w1_bytes() const {
    return {operands_.w, operands_.w_scale, operands_.w_global_scale, operands_.w_zero_points};
  }
  MatrixBytes w2_bytes() const {
    return {operands_.w2, operands_.w2_scale, operands_.w2_global_scale, operands_.w2_zero_points};
  }

  ExpertNumbers numbers_of_expert(std::int64_t expert) const {
    ExpertNumbers numbers;
    const auto read = [&](const MatrixShape& shape, const MatrixBytes& weights, double& norm) {
      const DequantizedMatrix w(shape, weights, expert);
      bool has_nan = false;
      for (const LineNumbers& line : lines_of(w, shape.rows, shape.columns, threads_)) {
        const bool scales_decide = scales_pass_float(line.scales, {});
        has_nan = has_nan || (line.has_nan && !scales_decide);
        if (line.has_nan || line.has_infinity || scales_decide) numbers.is_finite = false;
        norm = std::max(norm, reach_of(line.norm, line.scales, {}));
      }
      return has_nan;
    };
    const auto read_bias = [&](const MatrixShape& shape, const std::vector<std::byte>& bytes, double& size) {
      bool has_nan = false;
      for (const double value : bias_of(shape, bytes, expert)) {
        has_nan = has_nan || std::isnan(value);
        if (!std::isfinite(value)) numbers.is_finite = false;
        size = std::fmax(size, std::fabs(value));
      }
      return has_nan;
    };
    const bool nan1 = read(shapes_.w, w1_bytes(), numbers.norm1);
    const bool nan_bias1 = read_bias(shapes_.bias, operands_.bias, numbers.bias1);
    numbers.makes_nan = nan1 || nan_bias1;
    read(shapes_.w2, w2_bytes(), numbers.norm2);
    read_bias(shapes_.bias2, operands_.bias2, numbers.bias2);
    return numbers;
  }

  /// What no result of a token passes by one route; infinite where it may be no number, or where the hidden layer may be none.
  double result_bound(double x_norm, const ExpertNumbers& expert, double weight) const {
    if (!expert.is_finite || !std::isfinite(weight)) return infinity;
    const double early = problem_.moe.doweight_stage1 ? std::fabs(weight) : 1;
    const double late = problem_.moe.doweight_stage1 ? 1 : std::fabs(weight);
    const double gate = early * (x_norm * expert.norm1 + expert.bias1);
    const double hidden = gate * std::max(1.0, problem_.moe.gated ? gate + 1 : 1);
    if (gate > max_float || hidden > hidden_limit()) return infinity;
    return late * (std::sqrt(static_cast<double>(problem_.n)) * hidden * expert.norm2 + expert.bias2);
  }

  /// Of the type in which a kernel may store the hidden layer.
  double hidden_limit() const {
    const bool half = problem_.x_type == DataType::f16 || problem_.y_type == DataType::f16;
    return half ? 65504 : max_float;
  }

  void add_expert(std::int64_t expert, const std::vector<Route>& routes, Reference& reference) const {
    const Hidden hidden = stage1(expert, routes);
    const DequantizedMatrix w2(shapes_.w2, w2_bytes(), expert);
    const auto count = static_cast<std::int64_t>(routes.size());
    const std::int64_t columns = problem_.k;
    std::vector<double> values(static_cast<std::size_t>(count * columns));
    std::vector<double> magnitudes(values.size());
    const std::vector<double> bias = bias_of(shapes_.bias2, operands_.bias2, expert);
    std::vector<double> reaches(any_numbers_ ? values.size() : 0);
    multiply_selected(
        {hidden.values, w2, problem_.n, bias, hidden_floor(problem_)}, {indices(count), indices(columns)},
        {values.data(), magnitudes.data(), any_numbers_ ? reaches.data() : nullptr, columns, 1}, threads_);
    for (std::int64_t i = 0; i < count; ++i) {
      const Route& route = routes[static_cast<std::size_t>(i)];
      const double weight = problem_.moe.doweight_stage1 ? 1 : route.weight;
      const bool unknown = hidden.is_unknown[static_cast<std::size_t>(i)];
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto from = static_cast<std::size_t>(i * columns + column);
        const auto to = static_cast<std::size_t>(route.row * columns + column);
        reference.values[to] += weight * values[from];
        reference.magnitudes[to] += unknown ? infinity : std::fabs(weight) * magnitudes[from];
        if (!any_numbers_) continue;
        const bool order_decides =
            unknown || std::isinf(weight) || hidden.may_overflow[static_cast<std::size_t>(i)];
        reference.reaches[to] += order_decides ? infinity : std::fabs(weight) * reaches[from];
      }
    }
  }

  /// h of each route, [routes, inter_dim].
  Hidden stage1(std::int64_t expert, const std::vector<Route>& routes) const {
    const DequantizedMatrix x(shapes_.x, {operands_.x, operands_.x_scale}, 0);
    const DequantizedMatrix w1(shapes_.w, w1_bytes(), expert);
    std::vector<std::int64_t> tokens;
    for (const Route& route : routes) tokens.push_back(route.token);
    const std::int64_t columns = shapes_.w.rows;
    std::vector<double> values(routes.size() * static_cast<std::size_t>(columns));
    std::vector<double> magnitudes(values.size());
    std::vector<double> reaches(any_numbers_ ? values.size() : 0);
    const std::vector<double> bias = bias_of(shapes_.bias, operands_.bias, expert);
    multiply_selected({x, w1, problem_.k, bias}, {tokens, indices(columns)},
                      {values.data(), magnitudes.data(), any_numbers_ ? reaches.data() : nullptr, columns, 1},
                      threads_);
    Hidden hidden{DoubleMatrix(static_cast<std::int64_t>(routes.size()), problem_.n),
                  std::vector<bool>(routes.size()), std::vector<bool>(routes.size())};
    for (std::size_t i = 0; i < routes.size(); ++i) {
      const double weight = problem_.moe.doweight_stage1 ? routes[i].weight : 1;
      const double* gate = values.data() + i * static_cast<std::size_t>(columns);
      for (std::int64_t j = 0; j < problem_.n; ++j) {
        const double up = problem_.moe.gated ? weight * gate[problem_.n + j] : 1;
        const double value = activate(problem_.moe.activation, weight * gate[j], up);
        hidden.values.at(static_cast<std::int64_t>(i), j) = value;
        if (std::isfinite(value) && std::fabs(value) > hidden_limit()) hidden.may_overflow[i] = true;
      }
      if (any_numbers_) {
        const double* reach = reaches.data() + i * static_cast<std::size_t>(columns);
        for (std::int64_t j = 0; j < columns; ++j)
          // NaN is NaN in every order of sums, but not in every order of scales.
          if (std::isinf(reach[j]) || (std::fabs(weight) * reach[j] > max_float && !std::isnan(gate[j])))
            hidden.is_unknown[i] = true;
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
  bool any_numbers_;
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
  std::ranges::sort(tokens);
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
  const Mixture mixture(problem, operands, options);
  mixture.compute(tokens, reference);
  if (options.any_numbers && !reference.complete) reference.x_lines = mixture.token_lines();
  return reference;
}

}  // namespace gemmtune
