#include "backends/cpu/families/blocked/blocked.h"
#include "backends/refusal.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t packed_budget = std::int64_t{64} << 20;

class BlockedKernel final : public Kernel {
 public:
  BlockedKernel(const KernelSet& set, const Problem& problem, const BlockedSettings& settings, int threads)
      : problem_(problem),
        gemm_(set, format_of(problem), settings.tile),
        shapes_(operand_shapes(problem)),
        threads_(worthwhile_threads(problem, threads)) {
    const std::int64_t wanted = std::max(settings.mc, gemm_.mr());
    const std::int64_t blocks = ceil_div(problem.m, wanted);
    rows_ = std::min(round_up(ceil_div(problem.m, blocks), gemm_.mr()), round_up(problem.m, gemm_.mr()));
    row_blocks_ = ceil_div(problem.m, rows_);
    groups_ = row_blocks_ * problem.batch;
    packed_bytes_ = gemm_.packed_bytes(rows_);
    round_ = std::clamp<std::int64_t>(packed_budget / packed_bytes_, 1, groups_);
    weight_bytes_ = layout_bytes(shapes_.w, block_layout(problem));
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(round_ * packed_bytes_ + threads_ * gemm_.scratch_bytes(rows_));
  }
  WeightLayout weight_layout() const override { return block_layout(problem_); }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Executor& executor = executor_of(stream);
    auto* packed = static_cast<char*>(workspace);
    for (std::int64_t first = 0; first < groups_; first += round_) {
      const std::int64_t count = std::min(round_, groups_ - first);
      const Call call{operands, packed, packed + round_ * packed_bytes_, first};
      pack(call, count, executor);
      const std::int64_t items = count * column_tiles();
      const std::int64_t parts = std::min(threads_, items);
      run_on(executor, parts, [&](std::int64_t part) { compute(call, part, parts, items); });
    }
    return {};
  }

 private:
  struct Call {
    const Operands& operands;
    char* packed;
    char* scratch;
    std::int64_t first_group;
  };

  std::int64_t column_tiles() const { return ceil_div(problem_.n, gemm_.nr()); }
  std::int64_t first_row(std::int64_t group) const { return group % row_blocks_ * rows_; }
  std::int64_t rows_of(std::int64_t group) const { return std::min(rows_, problem_.m - first_row(group)); }

  const void* scale_at(const void* scales, const ScaleShape& shape, std::int64_t element) const {
    if (scales == nullptr || shape.type == ScaleType::none) return nullptr;
    return static_cast<const char*>(scales) + element * bytes_of(shape.type);
  }

  BlockRows rows_source(const Call& call, std::int64_t group) const {
    const Operands& operands = call.operands;
    const std::int64_t batch = group / row_blocks_;
    const ScaleShape& scale = shapes_.x.scale;
    const bool whole = scale.rows == 1 && problem_.m > 1;  // one scale for the tensor
    const std::int64_t row = first_row(group);
    const std::int64_t first_scale =
        whole || operands.x_scale_step == 0 ? 0 : batch * scale.elements() + row * scale.columns;
    return {.x = static_cast<const char*>(operands.x) +
                 bytes_of(problem_.x_type, batch * operands.x_batch_stride + row * operands.ldx),
            .stride = bytes_of(problem_.x_type, operands.ldx),
            .scale = scale_at(operands.x_scale, scale, first_scale),
            .scale_step = operands.x_scale_step,
            .global_scale = operands.x_global_scale,
            .index = nullptr,
            .count = rows_of(group)};
  }

  void pack(const Call& call, std::int64_t count, Executor& executor) const {
    const std::int64_t tiles = ceil_div(rows_, gemm_.mr());
    const std::int64_t items = count * tiles;
    const std::int64_t parts = problem_.m * problem_.k < 32768 ? 1 : std::min(threads_, items);
    run_on(executor, parts, [&](std::int64_t part) {
      char* scratch = call.scratch + part * gemm_.scratch_bytes(rows_);
      for (std::int64_t i = share(items, parts, part); i < share(items, parts, part + 1); ++i) {
        const BlockRows rows = rows_source(call, call.first_group + i / tiles);
        if (i % tiles * gemm_.mr() >= rows.count) continue;
        gemm_.pack_tile(rows, i % tiles, call.packed + i / tiles * packed_bytes_, scratch);
      }
    });
  }

  void compute(const Call& call, std::int64_t part, std::int64_t parts, std::int64_t items) const {
    char* scratch = call.scratch + part * gemm_.scratch_bytes(rows_);
    if (gemm_.isa().begin != nullptr) gemm_.isa().begin();
    for (std::int64_t i = share(items, parts, part); i < share(items, parts, part + 1); ++i) {
      const std::int64_t group = call.first_group + i / column_tiles();
      const std::int64_t batch = group / row_blocks_;
      const ScaleShape& scale = shapes_.w.scale;
      const bool whole = call.operands.w_scale_step == 0;
      const BlockWeight weight{
          .w = static_cast<const char*>(call.operands.w) + batch * weight_bytes_,
          .scale = scale_at(call.operands.w_scale, scale, whole ? 0 : batch * scale.elements()),
          .scale_step = call.operands.w_scale_step,
          .global_scale = call.operands.w_global_scale,
          .zero_points = static_cast<const std::int8_t*>(call.operands.w_zero_points)};
      gemm_.multiply(rows_of(group), call.packed + i / column_tiles() * packed_bytes_, weight,
                     i % column_tiles() * gemm_.nr(), scratch,
                     [&](const BlockSums& sums) { store(call.operands, group, sums); });
    }
    if (gemm_.isa().end != nullptr) gemm_.isa().end();
  }

  void store(const Operands& operands, std::int64_t group, const BlockSums& sums) const {
    const std::int64_t size = bytes_of(problem_.y_type, 1);
    const std::int64_t row = first_row(group) + sums.first_row;
    const std::int64_t at =
        group / row_blocks_ * operands.y_batch_stride + row * operands.ldy + sums.first_column;
    StoreArgs args{.tile = sums.sums,
                   .ldt = sums.ldt,
                   .rows = sums.rows,
                   .columns = sums.columns,
                   .y = static_cast<char*>(operands.y) + at * size,
                   .ldy = operands.ldy};
    if (problem_.bias) args.bias = static_cast<const char*>(operands.bias) + sums.first_column * size;
    gemm_.isa().store[static_cast<int>(element_of(problem_.y_type))](args);
  }

  Problem problem_;
  BlockGemm gemm_;
  OperandShapes shapes_;
  std::int64_t threads_;
  std::int64_t rows_ = 0;  // of a group: a block of rows of one batch
  std::int64_t row_blocks_ = 1;
  std::int64_t groups_ = 1;
  std::int64_t round_ = 1;  // groups whose rows are packed at a time
  std::int64_t packed_bytes_ = 0;
  std::int64_t weight_bytes_ = 0;  // of one batch
};

}  // namespace

WeightLayout block_layout(const Problem& problem) {
  return problem.weight_layout == WeightLayout::any ? WeightLayout::panel16 : problem.weight_layout;
}

BlockFormat format_of(const Problem& problem) {
  const OperandShapes shapes = operand_shapes(problem);
  return {shapes.x, shapes.w, block_layout(problem)};
}

Status accepts_blocked(const Problem& problem, refusal::Orders taken) {
  GEMMTUNE_RETURN_IF_ERROR(refusal::check_order(problem, taken));
  for (const DataType type : {problem.x_type, problem.w_type})
    if (traits(type).to_f32 == nullptr)
      return refusal::refuse(refusal::types, "x {} and w {} are not taken", to_string(problem.x_type),
                             to_string(problem.w_type));
  return check_layout(operand_shapes(problem).w, block_layout(problem));
}

std::unique_ptr<Kernel> make_blocked_kernel(const KernelSet& set, const Problem& problem,
                                            const BlockedSettings& settings, int threads) {
  return std::make_unique<BlockedKernel>(set, problem, settings, threads);
}

}  // namespace gemmtune::cpu
