#include <cstring>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "backends/cpu/families/skinny_w4/skinny_w4.h"
#include "numbers/minifloat.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t block_rows = 64;  // of w, whose sums are stored together
constexpr std::int64_t min_elements_per_thread = 32768;

class SkinnyW4Kernel final : public Kernel {
 public:
  SkinnyW4Kernel(const KernelSet& set, const Problem& problem, const SkinnyW4Settings& settings, int threads)
      : problem_(problem),
        kernels_(*w4_kernels(set, settings.isa, problem)),
        isa_(*set.at(settings.isa)),
        floats_(*set.at(std::min(settings.isa, Isa::avx512))),
        decode_(decode_kernels(settings.isa)),
        shapes_(operand_shapes(problem)),
        format_(nibble_of(problem)),
        prefetch_(settings.prefetch),
        threads_(worthwhile_threads(problem, threads)),
        nr_(settings.nr) {
    tiles_.rows = problem.m;
    tiles_.mr = settings.mr;
    tiles_.last_mr = fitting(kernels_, format_, problem.m - (tiles_.count() - 1) * settings.mr, nr_)->mr;
    lines_ = ceil_div(problem.k, kernels_.line_elements);
    const std::int64_t group = shapes_.w.scale.k_block;
    while (lane_elements << lane_shift_ < group && lane_elements << lane_shift_ < problem.k) ++lane_shift_;
    const std::int64_t line_lanes = lines_ * kernels_.line_elements / lane_elements;
    scale_stride_ = round_up((line_lanes >> lane_shift_) + 1 + w4_scale_padding, chunk_elements);
    lay_out();
  }

  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(workspace_bytes_); }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Executor& executor = executor_of(stream);
    const Call call{operands, static_cast<char*>(workspace)};
    const std::int64_t packers =
        problem_.m * problem_.k < min_elements_per_thread ? 1 : std::min(threads_, problem_.m);
    run_on(executor, packers, [&](std::int64_t part) {
      for (std::int64_t row = share(problem_.m, packers, part); row < share(problem_.m, packers, part + 1);
           ++row)
        pack_row(call, row, part);
    });
    const std::int64_t groups = ceil_div(problem_.n, nr_);
    const std::int64_t parts = std::min(threads_, groups);
    run_on(executor, parts, [&](std::int64_t part) {
      const std::int64_t end = std::min(share(groups, parts, part + 1) * nr_, problem_.n);
      std::memset(scratch(call, part), 0, static_cast<std::size_t>(scale_bytes()));
      for (std::int64_t row = share(groups, parts, part) * nr_; row < end; row += block_rows)
        multiply_block(call, row, std::min(block_rows, end - row), part);
    });
    return {};
  }

 private:
  struct Call {
    const Operands& operands;
    char* workspace;
  };

  void lay_out() {
    const auto take = [&](std::int64_t bytes) {
      const std::int64_t at = workspace_bytes_;
      workspace_bytes_ += round_up(bytes, 64);
      return at;
    };
    take(tiles_.padded() * row_bytes());
    scratch_at_ = take(0);
    // A row of x before it is packed, with its scales; or the scales of nr rows of w and the sums of a block.
    const std::int64_t of_x = 4 * (lines_ * kernels_.line_elements + chunk_elements) + x_factor_bytes();
    const std::int64_t of_w = scale_bytes() + tiles_.padded() * block_rows * 4;
    scratch_bytes_ = round_up(std::max(of_x, of_w), 64);
    take(threads_ * scratch_bytes_);
  }

  /// Of packed x.
  std::int64_t row_bytes() const { return lines_ * kernels_.x_line_bytes; }
  std::int64_t x_factor_bytes() const { return 4 * round_up(shapes_.x.scale.columns, chunk_elements); }
  /// Scales of nr rows of w, then their zero points.
  std::int64_t scale_bytes() const {
    return round_up(nr_ * scale_stride_ * 4 * (shapes_.w.scale.zero_points ? 2 : 1), 64);
  }
  char* scratch(const Call& call, std::int64_t part) const {
    return call.workspace + scratch_at_ + part * scratch_bytes_;
  }
  char* packed_tile(const Call& call, std::int64_t tile) const {
    return call.workspace + tile * tiles_.mr * row_bytes();
  }

  /// Rows that fill the last tile hold anything: each row of y is of one row of x.
  void pack_row(const Call& call, std::int64_t row, std::int64_t part) const {
    const std::int64_t tile = row / tiles_.mr;
    char* plain = scratch(call, part);
    widen_row(call, row, plain);
    kernels_.pack({.x = plain,
                   .lines = lines_,
                   .out = packed_tile(call, tile) + row % tiles_.mr * kernels_.x_line_bytes,
                   .line_bytes = tiles_.size(tile) * kernels_.x_line_bytes});
  }

  /// A row of x in the compute type, zeros up to the end of the last line.
  void widen_row(const Call& call, std::int64_t row, char* out) const {
    const DataType type = problem_.x_type;
    const std::int64_t elements = lines_ * kernels_.line_elements;
    const char* from = static_cast<const char*>(call.operands.x) + bytes_of(type, row * call.operands.ldx);
    if (bits(type) == 16) {
      isa_.pack_x[static_cast<int>(element_of(type))]({.x = from,
                                                       .ldx = 0,
                                                       .rows = 1,
                                                       .mr = 1,
                                                       .k = problem_.k,
                                                       .chunks = elements / chunk_elements,
                                                       .out = out});
      return;
    }
    std::int64_t element_bytes = 1;
    if (type == DataType::i8) {
      std::memcpy(out, from, static_cast<std::size_t>(problem_.k));
    } else {
      element_bytes = compute_bytes(isa_);
      const Compute compute = isa_.bf16_compute ? Compute::bf16 : Compute::f32;
      const ScaleShape& scale = shapes_.x.scale;
      float* factors = nullptr;
      if (scale.type == ScaleType::e4m3) {
        factors = reinterpret_cast<float*>(out + 4 * (elements + chunk_elements));
        widen_scales(scale.type, static_cast<const char*>(call.operands.x_scale) + row * scale.columns,
                     scale.columns, factors);
      }
      decode_.row[static_cast<int>(compute)][static_cast<int>(stored_type(type))](
          {.from = from, .count = problem_.k, .to = out, .exponents = nullptr, .factors = factors});
    }
    std::memset(out + problem_.k * element_bytes, 0,
                static_cast<std::size_t>((elements - problem_.k) * element_bytes));
  }

  /// `count` scales as float32; writes a multiple of 32.
  void widen_scales(ScaleType type, const void* from, std::int64_t count, float* out) const {
    if (type == ScaleType::e4m3) {
      decode_.row[static_cast<int>(Compute::f32)][static_cast<int>(Stored::f8_e4m3fn)](
          {.from = from, .count = count, .to = out, .exponents = nullptr});
    } else if (type == ScaleType::e8m0) {
      const auto* codes = static_cast<const std::uint8_t*>(from);
      for (std::int64_t i = 0; i < count; ++i) out[i] = e8m0_to_f32(codes[i]);
    } else {
      const Element element = type == ScaleType::bf16 ? Element::bf16 : Element::f16;
      floats_.pack_x[static_cast<int>(element)]({.x = from,
                                                 .ldx = 0,
                                                 .rows = 1,
                                                 .mr = 1,
                                                 .k = count,
                                                 .chunks = ceil_div(count, chunk_elements),
                                                 .out = out});
    }
  }

  /// Scales and zero points of rows [first, first + rows) of w as the kernels read them. What is behind a row's last stays 0.
  void prepare_scales(const Call& call, std::int64_t first, std::int64_t rows, char* out) const {
    const ScaleShape& scale = shapes_.w.scale;
    auto* scales = reinterpret_cast<float*>(out);
    auto* zero_points = reinterpret_cast<std::uint32_t*>(scales + nr_ * scale_stride_);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t at = (first + i) * scale.columns;
      widen_scales(scale.type, static_cast<const char*>(call.operands.w_scale) + at * bytes_of(scale.type),
                   scale.columns, scales + i * scale_stride_);
      if (!scale.zero_points) continue;
      const auto* points = static_cast<const std::int8_t*>(call.operands.w_zero_points) + at;
      for (std::int64_t group = 0; group < scale.columns; ++group)
        zero_points[i * scale_stride_ + group] = static_cast<std::uint32_t>(points[group] + 8) * 0x01010101U;
    }
  }

  void multiply_block(const Call& call, std::int64_t first, std::int64_t rows, std::int64_t part) const {
    char* scales = scratch(call, part);
    auto* sums = reinterpret_cast<float*>(scales + scale_bytes());
    const std::int64_t stride = bytes_of(problem_.w_type, problem_.k);
    for (std::int64_t row = 0; row < rows; row += nr_) {
      const std::int64_t there = std::min(nr_, rows - row);
      prepare_scales(call, first + row, there, scales);
      for (std::int64_t tile = 0; tile < tiles_.count(); ++tile)
        find(kernels_, format_, tiles_.size(tile), nr_)
            ->run({.x = packed_tile(call, tile),
                   .w = static_cast<const char*>(call.operands.w) + (first + row) * stride,
                   .w_stride = stride,
                   .rows = there,
                   .bytes = stride,
                   .scales = reinterpret_cast<const float*>(scales),
                   .zero_points = reinterpret_cast<const unsigned*>(scales) + nr_ * scale_stride_,
                   .scale_stride = scale_stride_,
                   .lane_shift = lane_shift_,
                   .c = sums + tile * tiles_.mr * block_rows + row,
                   .ldc = block_rows,
                   // The first rows of x draw the weights from memory.
                   .prefetch = tile == 0 ? prefetch_ : 0});
    }
    store(call, first, rows, sums);
  }

  /// Scales of rows and tensors, then bias and rounding.
  void store(const Call& call, std::int64_t first, std::int64_t rows, float* sums) const {
    const Operands& operands = call.operands;
    const auto number = [](const void* at) { return at == nullptr ? 1.0F : *static_cast<const float*>(at); };
    const float of_tensors = kernels_.units[static_cast<int>(format_)] * number(operands.x_global_scale) *
                             number(operands.w_global_scale);
    const bool of_rows = shapes_.x.scale.type == ScaleType::f32;
    for (std::int64_t m = 0; m < problem_.m; ++m) {
      const float factor =
          of_rows ? static_cast<const float*>(operands.x_scale)[m * operands.x_scale_step] * of_tensors
                  : of_tensors;
      for (std::int64_t i = 0; i < rows; ++i) sums[m * block_rows + i] *= factor;
    }
    const std::int64_t size = bytes_of(problem_.y_type, 1);
    isa_.store[static_cast<int>(element_of(problem_.y_type))](
        {.tile = sums,
         .ldt = block_rows,
         .rows = problem_.m,
         .columns = rows,
         .bias = problem_.bias ? static_cast<const char*>(operands.bias) + first * size : nullptr,
         .y = static_cast<char*>(operands.y) + first * size,
         .ldy = operands.ldy});
  }

  Problem problem_;
  const W4Kernels& kernels_;
  const IsaKernels& isa_;
  const IsaKernels& floats_;  // of float32, for scales of 16 bits
  const DecodeKernels& decode_;
  OperandShapes shapes_;
  Nibble format_;
  std::int64_t prefetch_;
  std::int64_t threads_;
  std::int64_t nr_;
  RowTiles tiles_;
  std::int64_t lines_ = 0;       // of a row of w
  std::int64_t lane_shift_ = 0;  // 2^lane_shift lanes of a line share a scale
  std::int64_t scale_stride_ = 0;
  std::int64_t scratch_at_ = 0;
  std::int64_t scratch_bytes_ = 0;  // of one thread
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_skinny_w4_kernel(const KernelSet& set, const Problem& problem,
                                              const SkinnyW4Settings& settings, int threads) {
  return std::make_unique<SkinnyW4Kernel>(set, problem, settings, threads);
}

}  // namespace gemmtune::cpu
