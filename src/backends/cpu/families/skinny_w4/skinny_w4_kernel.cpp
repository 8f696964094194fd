#include "backends/cpu/families/blocked/blocked.h"
#include "backends/cpu/families/skinny_w4/skinny_w4.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t min_elements_per_thread = 32768;
// Packed x of these stays in the second cache while the weight passes.
constexpr std::int64_t max_block_rows = 128;

class SkinnyW4Kernel final : public Kernel {
 public:
  SkinnyW4Kernel(const KernelSet& set, const Problem& problem, const W4Tile& tile, int threads)
      : problem_(problem),
        gemm_(set, format_of(problem), tile),
        threads_(worthwhile_threads(problem, threads)),
        nr_(tile.nr),
        block_rows_(std::min(problem.m, max_block_rows)),
        scratch_at_(gemm_.packed_bytes(block_rows_)),
        scratch_bytes_(gemm_.scratch_bytes(block_rows_)) {}

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(scratch_at_ + threads_ * scratch_bytes_);
  }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    const ScaleShape scale = operand_shapes(problem_).x.scale;
    const std::int64_t scale_step =
        scale.type == ScaleType::f32 ? operands.x_scale_step : scale.columns;  // elements
    for (std::int64_t first = 0; first < problem_.m; first += block_rows_) {
      Operands block = operands;
      block.x = behind(operands.x, bytes_of(problem_.x_type, first * operands.ldx));
      block.x_scale = behind(operands.x_scale, first * scale_step * bytes_of(scale.type));
      block.y = static_cast<char*>(operands.y) + bytes_of(problem_.y_type, first * operands.ldy);
      multiply(block, std::min(block_rows_, problem_.m - first), static_cast<char*>(workspace),
               executor_of(stream));
    }
    return {};
  }

 private:
  static const void* behind(const void* first, std::int64_t bytes) {
    return first == nullptr ? nullptr : static_cast<const char*>(first) + bytes;
  }

  /// `m` rows of x, from the operands' first one on.
  void multiply(const Operands& operands, std::int64_t m, char* packed, Executor& executor) const {
    const auto scratch = [&](std::int64_t part) { return packed + scratch_at_ + part * scratch_bytes_; };
    const BlockRows rows{.x = operands.x,
                         .stride = bytes_of(problem_.x_type, operands.ldx),
                         .scale = operands.x_scale,
                         .scale_step = operands.x_scale_step,
                         .global_scale = operands.x_global_scale,
                         .count = m};
    const std::int64_t steps = ceil_div(m, gemm_.packed_rows());
    const std::int64_t packers = m * problem_.k < min_elements_per_thread ? 1 : std::min(threads_, steps);
    run_on(executor, packers, [&](std::int64_t part) {
      for (std::int64_t i = share(steps, packers, part); i < share(steps, packers, part + 1); ++i)
        gemm_.pack(rows, i * gemm_.packed_rows(), packed, scratch(part));
    });
    const BlockWeight weight{.w = operands.w,
                             .scale = operands.w_scale,
                             .global_scale = operands.w_global_scale,
                             .zero_points = static_cast<const std::int8_t*>(operands.w_zero_points)};
    const std::int64_t groups = ceil_div(problem_.n, nr_);
    const std::int64_t parts = std::min(threads_, groups);
    run_on(executor, parts, [&](std::int64_t part) {
      if (gemm_.isa().begin != nullptr) gemm_.isa().begin();
      const std::int64_t end = std::min(share(groups, parts, part + 1) * nr_, problem_.n);
      for (std::int64_t first = share(groups, parts, part) * nr_; first < end; first += gemm_.nr())
        store(operands,
              gemm_.sums(m, packed, weight, first, std::min(gemm_.nr(), end - first), scratch(part)));
      if (gemm_.isa().end != nullptr) gemm_.isa().end();
    });
  }

  void store(const Operands& operands, const BlockSums& sums) const {
    const std::int64_t size = bytes_of(problem_.y_type, 1);
    gemm_.isa().store[static_cast<int>(element_of(problem_.y_type))](
        {.tile = sums.sums,
         .ldt = sums.ldt,
         .rows = sums.rows,
         .columns = sums.columns,
         .bias = problem_.bias ? static_cast<const char*>(operands.bias) + sums.first_column * size : nullptr,
         .y = static_cast<char*>(operands.y) + sums.first_column * size,
         .ldy = operands.ldy});
  }

  Problem problem_;
  W4Gemm gemm_;
  std::int64_t threads_;
  std::int64_t nr_;
  std::int64_t block_rows_;
  std::int64_t scratch_at_;
  std::int64_t scratch_bytes_;  // of one thread
};

}  // namespace

std::unique_ptr<Kernel> make_skinny_w4_kernel(const KernelSet& set, const Problem& problem,
                                              const W4Tile& tile, int threads) {
  return std::make_unique<SkinnyW4Kernel>(set, problem, tile, threads);
}

}  // namespace gemmtune::cpu
