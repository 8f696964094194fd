#include "backends/cpu/families/blocked/block_gemm.h"
#include "backends/cpu/families/streaming/streaming.h"
#include "numbers/minifloat.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t max_block_columns = 64;
/// Rows of x that one block of columns meets before its sums are stored.
constexpr std::int64_t rows_at_once = 256;
constexpr std::int64_t min_elements_per_thread = 32768;
/// fp4 elements are counted in halves, in x and in w.
constexpr float f4_unit = 0.25F;
constexpr std::int64_t scale_bytes = 16;  // of fp4, that share a scale

bool is_block_scaled(Streamed type) {
  return type == Streamed::f8_e4m3fn_block || type == Streamed::f8_e4m3fnuz_block;
}

class StreamingKernel final : public Kernel {
 public:
  StreamingKernel(const KernelSet& set, const Problem& problem, const StreamingSettings& settings,
                  int threads)
      : problem_(problem),
        kernels_(*set.stream_at(settings.isa)),
        isa_(*set.at(settings.isa)),
        type_(*streamed_type(problem)),
        shapes_(operand_shapes(problem)),
        panel_(panel16_of(shapes_.w)),
        store_(isa_.store[static_cast<int>(element_of(problem.y_type))]),
        decode_(decode_kernels(settings.isa)),
        prefetch_(settings.prefetch),
        threads_(worthwhile_threads(problem, threads)) {
    tiles_.rows = problem.m;
    tiles_.mr = settings.mr;
    panels_ = settings.nr / panel_columns;
    tiles_.last_mr = fitting(kernels_, type_, problem.m - (tiles_.count() - 1) * settings.mr, panels_)->mr;
    steps_ = panel_.padded_k() / step_bytes;
    const std::int64_t step_elements = type_ == Streamed::f4_e2m1 ? 2 * step_bytes : step_bytes;
    kc_steps_ = std::min(round_up(ceil_div(settings.kc, step_elements), steps_of_scale), steps_);
    row_step_bytes_ = type_ == Streamed::i8 ? integer_x_bytes
                      : packs_f4_scales()   ? wide_x_bytes
                                            : decoded_x_bytes;
    if (type_ == Streamed::f4_e2m1) scales_ = steps_ * scales_of_step;
    if (is_block_scaled(type_)) scales_ = ceil_div(steps_, steps_of_scale);
    tiles_at_once_ = std::min(std::max<std::int64_t>(rows_at_once / settings.mr, 1), tiles_.count());
    lay_out();
  }

  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(workspace_bytes_); }
  WeightLayout weight_layout() const override { return WeightLayout::panel16; }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Executor& executor = executor_of(stream);
    Call call{operands, static_cast<char*>(workspace)};
    if (packs_f4_scales()) call.x_beyond = x_is_beyond(operands);
    pack(call, executor);
    const std::int64_t blocks = ceil_div(panel_.panels(), panels_);
    const std::int64_t parts = std::min(threads_, blocks);
    run_on(executor, parts, [&](std::int64_t part) {
      if (isa_.begin != nullptr) isa_.begin();
      for (std::int64_t b = share(blocks, parts, part); b < share(blocks, parts, part + 1); ++b)
        compute_block(call, b, part);
      if (isa_.end != nullptr) isa_.end();
    });
    return {};
  }

 private:
  struct Call {
    const Operands& operands;
    char* workspace;
    bool x_beyond = false;  // with packs_f4_scales(): bf16 does not hold all of x
    char* x() const { return workspace; }
  };
  /// Columns in the making.
  struct Block {
    std::int64_t first_panel;
    std::int64_t panels;
    std::int64_t first_tile;  // of rows
    std::int64_t last_tile;
    float* c;
    const float* w_scales;  // as the kernels read them, of all of k
    std::int64_t ldc() const { return panels * panel_columns; }
    std::int64_t first_column() const { return first_panel * panel_columns; }
  };

  void lay_out() {
    const std::int64_t rows = tiles_.padded();
    const auto take = [&](std::int64_t bytes) {
      const std::int64_t at = workspace_bytes_;
      workspace_bytes_ += round_up(bytes, 64);
      return at;
    };
    take(rows * steps_ * row_step_bytes_);
    start_at_ = take(rows * std::max<std::int64_t>(scales_, 1) * 4);
    x_scales_at_ = take(rows * scales_ * 4);
    w_scale_bytes_ =
        type_ == Streamed::f4_e2m1 && !packs_f4_scales() ? panels_ * scales_ * panel_columns * 4 : 0;
    w_scales_at_ = take(threads_ * w_scale_bytes_);
    sums_at_ = take(threads_ * sums_bytes());
  }

  std::int64_t sums_bytes() const { return tiles_at_once_ * tiles_.mr * panels_ * panel_columns * 4; }
  std::int64_t x_offset(std::int64_t tile) const { return tile * tiles_.mr * steps_ * row_step_bytes_; }
  /// Of tile `tile` from scale `scale` on, in start and in x's scales.
  std::int64_t scale_offset(std::int64_t tile, std::int64_t scale) const {
    return tile * tiles_.mr * std::max<std::int64_t>(scales_, 1) + scale * tiles_.size(tile);
  }
  int* start(const Call& call) const { return reinterpret_cast<int*>(call.workspace + start_at_); }
  float* x_scales(const Call& call) const { return reinterpret_cast<float*>(call.workspace + x_scales_at_); }

  void pack(const Call& call, Executor& executor) const {
    const bool worth_threads = problem_.m * problem_.k >= min_elements_per_thread;
    // int8 packs one number for all of k beside the elements, so its steps stay together.
    const std::int64_t cuts =
        worth_threads && type_ != Streamed::i8 && tiles_.count() < threads_ ? std::min(threads_, steps_) : 1;
    const std::int64_t items = tiles_.count() * cuts;
    const std::int64_t parts = worth_threads ? std::min(threads_, items) : 1;
    run_on(executor, parts, [&](std::int64_t part) {
      for (std::int64_t i = share(items, parts, part); i < share(items, parts, part + 1); ++i)
        pack_steps(call, i / cuts, share(steps_, cuts, i % cuts), share(steps_, cuts, i % cuts + 1));
    });
    if (scales_ == 0 || packs_f4_scales()) return;
    for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) pack_scales(call, tile);
  }

  void pack_steps(const Call& call, std::int64_t tile, std::int64_t begin, std::int64_t end) const {
    const std::int64_t stride = bytes_of(problem_.x_type, call.operands.ldx);
    const std::int64_t mr = tiles_.size(tile);
    const std::int64_t scale = type_ == Streamed::f4_e2m1 ? begin * scales_of_step : 0;
    kernels_.pack[static_cast<int>(type_)](
        {.x = static_cast<const char*>(call.operands.x) + tile * tiles_.mr * stride + begin * step_bytes,
         .stride = stride,
         .rows = tiles_.valid(tile),
         .mr = mr,
         .bytes = bytes_of(problem_.x_type, problem_.k) - begin * step_bytes,
         .steps = end - begin,
         .out = call.x() + x_offset(tile) + begin * mr * row_step_bytes_,
         .start = start(call) + scale_offset(tile, scale),
         .exponents = packs_f4_scales() ? x_exponents(call, tile * tiles_.mr) + scale : nullptr,
         .exponent_stride = shapes_.x.scale.columns});
  }

  bool packs_f4_scales() const { return type_ == Streamed::f4_e2m1 && kernels_.scales_packed_f4; }
  const unsigned char* x_exponents(const Call& call, std::int64_t row) const {
    return static_cast<const unsigned char*>(call.operands.x_scale) + row * shapes_.x.scale.columns;
  }

  /// x's scales of a tile as float32 [scale][mr].
  void pack_scales(const Call& call, std::int64_t tile) const {
    const std::int64_t mr = tiles_.size(tile);
    float* out = x_scales(call) + scale_offset(tile, 0);
    const std::int64_t there = shapes_.x.scale.columns;
    for (std::int64_t m = 0; m < mr; ++m) {
      const std::int64_t row = (tile * tiles_.mr + std::min(m, tiles_.valid(tile) - 1)) * there;
      for (std::int64_t scale = 0; scale < scales_; ++scale) {
        const std::int64_t at = row + std::min(scale, there - 1);
        out[scale * mr + m] = type_ == Streamed::f4_e2m1
                                  ? e8m0_to_f32(x_exponents(call, 0)[at]) * f4_unit
                                  : static_cast<const float*>(call.operands.x_scale)[at];
      }
    }
  }

  void compute_block(const Call& call, std::int64_t index, std::int64_t part) const {
    const std::int64_t first = index * panels_;
    const std::int64_t last = std::min(first + panels_, panel_.panels());
    auto* c = reinterpret_cast<float*>(call.workspace + sums_at_ + part * sums_bytes());
    // There are kernels for one panel at every height, not for three: an end goes panel by panel.
    const std::int64_t step = last - first == panels_ ? panels_ : 1;
    if (type_ == Streamed::f4_e2m1) fetch_scales(call, last * panel_columns);
    for (std::int64_t panel = first; panel < last; panel += step) {
      Block block{panel, step, 0, 0, c, nullptr};
      block.w_scales = w_scales(call, block, part);
      for (; block.first_tile < tiles_.count(); block.first_tile = block.last_tile) {
        block.last_tile = std::min(block.first_tile + tiles_at_once_, tiles_.count());
        if (packs_f4_scales() && (call.x_beyond || w_is_beyond(call, block))) {
          multiply_slowly(call, block);
        } else {
          multiply(call, block);
        }
        emit(call, block);
      }
    }
  }

  bool x_is_beyond(const Operands& operands) const {
    const std::int64_t scales = shapes_.x.scale.columns;
    const std::int64_t stride = bytes_of(problem_.x_type, operands.ldx);
    const auto* codes = static_cast<const std::uint8_t*>(operands.x_scale);
    for (std::int64_t row = 0; row < problem_.m; ++row, codes += scales) {
      if (range_.contains_all(codes, scales)) continue;
      const char* from = static_cast<const char*>(operands.x) + row * stride;
      for (std::int64_t i = 0; i < scales; ++i)
        if (!range_.contains(codes[i]) && range_.any_element(from + i * scale_bytes, scale_bytes))
          return true;
    }
    return false;
  }

  bool w_is_beyond(const Call& call, const Block& block) const {
    const std::int64_t scales = shapes_.w.scale.columns;
    const std::int64_t end = std::min(block.first_column() + block.ldc(), problem_.n);
    for (std::int64_t column = block.first_column(); column < end; ++column) {
      const auto* codes = static_cast<const std::uint8_t*>(call.operands.w_scale) + column * scales;
      if (range_.contains_all(codes, scales)) continue;
      for (std::int64_t i = 0; i < scales; ++i) {
        if (range_.contains(codes[i])) continue;
        for (std::int64_t byte = i * scale_bytes; byte < (i + 1) * scale_bytes; byte += 4)
          if (range_.any_element(w_bytes(call, column, byte), 4)) return true;
      }
    }
    return false;
  }

  /// Four bytes of k of a column, from a multiple of four on.
  const char* w_bytes(const Call& call, std::int64_t column, std::int64_t byte) const {
    return static_cast<const char*>(call.operands.w) + column / panel_columns * panel_.panel_bytes() +
           byte * panel_columns + column % panel_columns * 4;
  }

  /// MXFP4 with scales that the elements as bf16 do not hold: no model has them, and every number has its place in float64.
  void multiply_slowly(const Call& call, const Block& block) const {
    const std::int64_t scales = shapes_.w.scale.columns;
    const std::int64_t stride = bytes_of(problem_.x_type, call.operands.ldx);
    const auto* w_codes = static_cast<const std::uint8_t*>(call.operands.w_scale);
    const std::int64_t end = std::min(block.first_column() + block.ldc(), problem_.n);
    for (std::int64_t row = block.first_tile * tiles_.mr; row < rows_of(block) + block.first_tile * tiles_.mr;
         ++row) {
      const auto* x = static_cast<const std::uint8_t*>(call.operands.x) + row * stride;
      float* to = block.c + (row - block.first_tile * tiles_.mr) * block.ldc();
      for (std::int64_t column = block.first_column(); column < end; ++column) {
        double sum = 0;
        for (std::int64_t i = 0; i < scales; ++i) {
          const double scale = static_cast<double>(e8m0_to_f32(x_exponents(call, row)[i])) *
                               static_cast<double>(e8m0_to_f32(w_codes[column * scales + i]));
          double products = 0;
          for (std::int64_t byte = i * scale_bytes; byte < (i + 1) * scale_bytes; ++byte) {
            const auto w = static_cast<std::uint8_t>(w_bytes(call, column, byte / 4 * 4)[byte % 4]);
            for (const int half : {0, 4})
              products += static_cast<double>(e2m1_to_f32(static_cast<std::uint8_t>(x[byte] >> half & 15))) *
                          static_cast<double>(e2m1_to_f32(static_cast<std::uint8_t>(w >> half & 15)));
          }
          sum += products * scale;
        }
        to[column - block.first_column()] = static_cast<float>(sum);
      }
    }
  }

  /// Those of the next columns from `column` on: they lie apart from the weights, a short piece each time.
  void fetch_scales(const Call& call, std::int64_t column) const {
    const std::int64_t count = shapes_.w.scale.columns;
    const auto* scales = static_cast<const char*>(call.operands.w_scale);
    const std::int64_t end = std::min(column + panels_ * panel_columns, problem_.n) * count;
    for (std::int64_t at = column * count; at < end; at += 64) __builtin_prefetch(scales + at);
  }

  /// Weight scales as the kernels read them.
  const float* w_scales(const Call& call, const Block& block, std::int64_t part) const {
    if (is_block_scaled(type_)) {
      const ScaleShape& scale = shapes_.w.scale;
      return static_cast<const float*>(call.operands.w_scale) +
             block.first_column() / scale.row_block * scale.columns;
    }
    if (type_ != Streamed::f4_e2m1 || packs_f4_scales()) return nullptr;
    auto* out = reinterpret_cast<float*>(call.workspace + w_scales_at_ + part * w_scale_bytes_);
    const std::int64_t count = shapes_.w.scale.columns;
    for (std::int64_t p = 0; p < block.panels; ++p) {
      const std::int64_t column = block.first_column() + p * panel_columns;
      float* scales = out + p * scales_ * panel_columns;
      kernels_.scales({.exponents = static_cast<const unsigned char*>(call.operands.w_scale) + column * count,
                       .stride = count,
                       .rows = std::min<std::int64_t>(panel_columns, problem_.n - column),
                       .count = count,
                       .out = scales});
      std::fill(scales + count * panel_columns, scales + scales_ * panel_columns, 1.0F);
    }
    return out;
  }

  void multiply(const Call& call, const Block& block) const {
    for (std::int64_t step = 0; step < steps_; step += kc_steps_)
      for (std::int64_t tile = block.first_tile; tile < block.last_tile; ++tile)
        multiply_tile(call, block, tile, step);
  }

  /// The scale of k that a step begins with.
  std::int64_t scale_of(std::int64_t step) const {
    if (scales_ == 0) return 0;
    return is_block_scaled(type_) ? step / steps_of_scale : step * scales_of_step;
  }

  void multiply_tile(const Call& call, const Block& block, std::int64_t tile, std::int64_t step) const {
    const std::int64_t mr = tiles_.size(tile);
    const std::int64_t bytes = panel_.panel_bytes();
    const std::int64_t scale = scale_of(step);
    const std::int64_t w_scale = type_ == Streamed::f4_e2m1 ? scale * panel_columns : scale;
    StreamScaleArgs exponents{};
    if (packs_f4_scales()) {
      exponents.stride = shapes_.w.scale.columns;
      exponents.exponents = static_cast<const unsigned char*>(call.operands.w_scale) +
                            block.first_column() * exponents.stride + scale;
      exponents.rows = problem_.n - block.first_column();
      exponents.count = exponents.stride - scale;
    }
    find(kernels_, type_, mr, block.panels)
        ->run({.x = call.x() + x_offset(tile) + step * mr * row_step_bytes_,
               .w = static_cast<const char*>(call.operands.w) + block.first_panel * bytes +
                    step * step_bytes * panel_columns,
               .w_stride = bytes,
               .steps = std::min(kc_steps_, steps_ - step),
               .c = block.c + (tile - block.first_tile) * tiles_.mr * block.ldc(),
               .accumulate = step > 0,
               // The first rows draw the weights from memory.
               .prefetch = tile == 0 ? prefetch_ : 0,
               .start = start(call) + scale_offset(tile, scale),
               .x_scales = x_scales(call) + scale_offset(tile, scale),
               .w_scales = block.w_scales == nullptr ? nullptr : block.w_scales + w_scale,
               .w_scale_stride = scales_ * panel_columns,
               .w_exponents = &exponents});
  }

  /// Scales of whole rows and columns.
  void scale(const Call& call, const Block& block) const {
    alignas(64) float column_scales[max_block_columns];
    const auto* w_scale = static_cast<const float*>(call.operands.w_scale);
    const std::int64_t x_step = shapes_.x.scale.rows == 1 ? 0 : call.operands.x_scale_step;
    const std::int64_t w_step = shapes_.w.scale.rows == 1 ? 0 : call.operands.w_scale_step;
    for (std::int64_t i = 0; i < block.ldc(); ++i)
      column_scales[i] = w_scale[std::min(block.first_column() + i, problem_.n - 1) * w_step];
    const Scale apply = type_ == Streamed::i8 ? decode_.scale_integer : decode_.scale;
    apply({.tile = block.c,
           .out = block.c,
           .rows = rows_of(block),
           .columns = block.ldc(),
           .row_scale =
               static_cast<const float*>(call.operands.x_scale) + block.first_tile * tiles_.mr * x_step,
           .row_stride = x_step,
           .column_scale = column_scales,
           .add = false});
  }

  std::int64_t rows_of(const Block& block) const {
    return std::min(block.last_tile * tiles_.mr, problem_.m) - block.first_tile * tiles_.mr;
  }

  void emit(const Call& call, const Block& block) const {
    if (scales_ == 0) scale(call, block);
    const std::int64_t size = bytes_of(problem_.y_type, 1);
    const std::int64_t at = block.first_tile * tiles_.mr * call.operands.ldy + block.first_column();
    StoreArgs args{.tile = block.c,
                   .ldt = block.ldc(),
                   .rows = rows_of(block),
                   .columns = std::min(block.ldc(), problem_.n - block.first_column()),
                   .y = static_cast<char*>(call.operands.y) + at * size,
                   .ldy = call.operands.ldy};
    if (problem_.bias) args.bias = static_cast<const char*>(call.operands.bias) + block.first_column() * size;
    store_(args);
  }

  Problem problem_;
  const StreamKernels& kernels_;
  const IsaKernels& isa_;
  Streamed type_;
  E8m0Range range_{DataType::f4_e2m1};
  OperandShapes shapes_;
  Panel16 panel_;
  Store store_;
  const DecodeKernels& decode_;
  std::int64_t prefetch_;
  std::int64_t threads_;
  RowTiles tiles_;
  std::int64_t panels_ = 1;  // at once
  std::int64_t steps_ = 0;   // of k
  std::int64_t tiles_at_once_ = 1;
  std::int64_t sums_at_ = 0;
  std::int64_t kc_steps_ = 1;
  std::int64_t scales_ = 0;  // of k; 0: rows and columns have one each
  std::int64_t row_step_bytes_ = 0;
  std::int64_t start_at_ = 0;
  std::int64_t x_scales_at_ = 0;
  std::int64_t w_scales_at_ = 0;
  std::int64_t w_scale_bytes_ = 0;  // of one thread
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_streaming_kernel(const KernelSet& set, const Problem& problem,
                                              const StreamingSettings& settings, int threads) {
  return std::make_unique<StreamingKernel>(set, problem, settings, threads);
}

}  // namespace gemmtune::cpu
