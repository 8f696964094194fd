#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "backends/cpu/families/blocked/blocked.h"
#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/reference/operand.h"
#include "backends/refusal.h"
#include "base/saturating.h"
#include "problem/mixture_routes.h"

namespace gemmtune::cpu {
namespace {

struct ReferenceOperands {
  ReferenceOperand x;
  ReferenceOperand w;
  ReferenceOperand w2;
};

ReferenceOperand dense(const MatrixShape& shape, const void* elements, const void* scales) {
  return {.shape = shape,
          .elements = elements,
          .scales = scales,
          .leading = shape.line_elements(),
          .batch_stride = shape.rows * shape.columns};
}

ReferenceOperands read_operands(const Problem& problem, const Operands& operands) {
  const OperandShapes shapes = operand_shapes(problem);
  ReferenceOperands all{dense(shapes.x, operands.x, operands.x_scale),
                        dense(shapes.w, operands.w, operands.w_scale),
                        dense(shapes.w2, operands.w2, operands.w2_scale)};
  all.x.leading = operands.ldx;
  all.x.batch_stride = operands.x_batch_stride;
  all.x.scale_step = operands.x_scale_step;
  all.w.scale_step = operands.w_scale_step;
  all.x.global_scale = operands.x_global_scale;
  all.w.global_scale = operands.w_global_scale;
  all.w.zero_points = operands.w_zero_points;
  all.w2.global_scale = operands.w2_global_scale;
  all.w2.zero_points = operands.w2_zero_points;
  all.w.layout = block_layout(problem);
  return all;
}

using Numbers = std::array<double, ReferenceOperand::max_read>;

/// Σ over k of x[row] · w[column].
double dot(const ReferenceOperand& x, std::int64_t row, const ReferenceOperand& w, std::int64_t matrix,
           std::int64_t column) {
  double sum = 0;
  const std::int64_t x_matrix = x.shape.count > 1 ? matrix : 0;
  Numbers from_x;
  Numbers from_w;
  for (std::int64_t k = 0; k < x.shape.columns; k += ReferenceOperand::max_read) {
    const auto count = static_cast<std::size_t>(std::min(x.shape.columns - k, ReferenceOperand::max_read));
    x.read(x_matrix, row, k, std::span(from_x).first(count));
    w.read(matrix, column, k, std::span(from_w).first(count));
    for (std::size_t i = 0; i < count; ++i) sum += from_x[i] * from_w[i];
  }
  return sum;
}

/// `up`: 1 without a gate.
double activate(Activation activation, double gate, double up) {
  if (activation == Activation::silu) return gate / (1 + std::exp(-gate)) * up;
  if (activation == Activation::gelu) return 0.5 * gate * (1 + std::erf(gate / std::sqrt(2.0))) * up;
  if (activation != Activation::swiglu) return gate * up;
  const double clamped = std::min<double>(gate, swiglu_limit);
  return clamped / (1 + std::exp(-swiglu_alpha * clamped)) *
         (std::clamp<double>(up, -swiglu_limit, swiglu_limit) + 1);
}

class ReferenceKernel final : public Kernel {
 public:
  explicit ReferenceKernel(const Problem& problem) : problem_(problem) {}

  std::size_t workspace_bytes() const override {
    if (!is_mixture(problem_)) return 0;
    // The family refuses what is larger than a tensor; until then the product must not wrap.
    return static_cast<std::size_t>(
        saturating_product({routed_pairs(problem_), problem_.n, std::int64_t{sizeof(double)}}));
  }
  WeightLayout weight_layout() const override { return block_layout(problem_); }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Executor& executor = executor_of(stream);
    if (is_mixture(problem_)) {
      GEMMTUNE_RETURN_IF_ERROR(routes_of(operands).check(problem_.m));
      run_mixture(operands, static_cast<double*>(workspace), executor);
    } else {
      run_dense(operands, executor);
    }
    return {};
  }

 private:
  void run_dense(const Operands& operands, Executor& executor) const {
    const ReferenceOperands all = read_operands(problem_, operands);
    const std::int64_t parts =
        std::min<std::int64_t>(worthwhile_threads(problem_, executor.threads()), problem_.n);
    run_on(executor, parts, [&](std::int64_t part) {
      for (std::int64_t n = share(problem_.n, parts, part); n < share(problem_.n, parts, part + 1); ++n)
        for (std::int64_t batch = 0; batch < problem_.batch; ++batch)
          for (std::int64_t m = 0; m < problem_.m; ++m) {
            auto sum = static_cast<float>(dot(all.x, m, all.w, batch, n));
            if (problem_.bias) sum += static_cast<float>(load_element(problem_.y_type, operands.bias, n));
            store_element(problem_.y_type, operands.y, batch * operands.y_batch_stride + m * operands.ldy + n,
                          static_cast<double>(sum));
          }
    });
  }

  MixtureRoutes routes_of(const Operands& operands) const {
    return {problem_.moe, operands.topk_ids, operands.topk_weights};
  }

  /// hidden [pairs, inter_dim]: float64, as all here.
  void run_mixture(const Operands& operands, double* hidden, Executor& executor) const {
    const ReferenceOperands all = read_operands(problem_, operands);
    const MoeShape& moe = problem_.moe;
    const MixtureRoutes routes = routes_of(operands);
    const std::int64_t parts = std::min<std::int64_t>(executor.threads(), routed_pairs(problem_));
    run_on(executor, parts, [&](std::int64_t part) {
      const std::int64_t end = share(routed_pairs(problem_), parts, part + 1);
      for (std::int64_t pair = share(routed_pairs(problem_), parts, part); pair < end; ++pair) {
        const std::int64_t expert = routes.expert(pair);
        if (expert == empty_slot) continue;
        const double weight = moe.doweight_stage1 ? static_cast<double>(routes.weight(pair)) : 1;
        for (std::int64_t i = 0; i < problem_.n; ++i) {
          const auto sum = [&](std::int64_t row) {
            const double bias =
                problem_.bias ? load_element(DataType::f32, operands.bias, expert * all.w.shape.rows + row)
                              : 0;
            return weight * (dot(all.x, pair / moe.topk, all.w, expert, row) + bias);
          };
          const double gate = sum(i);
          const double up = moe.gated ? sum(problem_.n + i) : 1;
          hidden[pair * problem_.n + i] = activate(moe.activation, gate, up);
        }
      }
    });
    const std::int64_t columns = problem_.k;
    const std::int64_t column_parts = std::min<std::int64_t>(executor.threads(), columns);
    run_on(executor, column_parts, [&](std::int64_t part) {
      for (std::int64_t n = share(columns, column_parts, part); n < share(columns, column_parts, part + 1);
           ++n)
        for (std::int64_t token = 0; token < problem_.m; ++token)
          store_element(problem_.y_type, operands.y, token * operands.ldy + n,
                        sum_experts(all, operands, hidden, {token, n}));
    });
  }

  struct Place {
    std::int64_t token;
    std::int64_t column;
  };

  double sum_experts(const ReferenceOperands& all, const Operands& operands, const double* hidden,
                     const Place& place) const {
    double sum = 0;
    const MixtureRoutes routes = routes_of(operands);
    for (std::int64_t slot = 0; slot < problem_.moe.topk; ++slot) {
      const std::int64_t pair = place.token * problem_.moe.topk + slot;
      const std::int64_t expert = routes.expert(pair);
      if (expert == empty_slot) continue;
      double product =
          problem_.bias ? static_cast<double>(operands.bias2[expert * problem_.k + place.column]) : 0;
      const double* const of_pair = hidden + pair * problem_.n;
      Numbers from_w2;
      for (std::int64_t first = 0; first < problem_.n; first += ReferenceOperand::max_read) {
        const auto count = static_cast<std::size_t>(std::min(problem_.n - first, ReferenceOperand::max_read));
        all.w2.read(expert, place.column, first, std::span(from_w2).first(count));
        for (std::size_t i = 0; i < count; ++i)
          product += of_pair[first + static_cast<std::int64_t>(i)] * from_w2[i];
      }
      sum += problem_.moe.doweight_stage1 ? product : product * static_cast<double>(routes.weight(pair));
    }
    return sum;
  }

  Problem problem_;
};

class ReferenceFamily final : public LeafFamily {
 public:
  std::string_view name() const override { return "reference"; }
  int tie_rank() const override { return 100; }
  Status accepts(const Problem& problem) const override {
    GEMMTUNE_RETURN_IF_ERROR(accepts_blocked(problem, refusal::Orders::any_input));
    GEMMTUNE_RETURN_IF_ERROR(refusal::check_activation(problem));
    if (is_mixture(problem) && problem.weight_layout != WeightLayout::plain)
      return refusal::refuse(refusal::layout, "{} is not taken, only plain",
                             to_string(problem.weight_layout));
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    return is_packed(problem) ? block_layout(problem) : WeightLayout::panel16;
  }

  Space space(const Problem& problem) const override {
    Space space;
    add_layout_parameter(to_string(block_layout(problem)), space);
    return space;
  }

  Config default_config(const Problem& problem) const override {
    Config config;
    config.set("w", std::string(to_string(block_layout(problem))));
    return config;
  }

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config&) const override {
    return std::make_unique<ReferenceKernel>(problem);
  }

  double predicted_microseconds(const Problem& problem, const Config&) const override {
    return flops(problem) / 1e3;
  }
};

}  // namespace

std::unique_ptr<KernelFamily> make_reference_family(Isa) { return std::make_unique<ReferenceFamily>(); }

}  // namespace gemmtune::cpu
