#include "backends/cpu/families/blocked/w4_gemm.h"

#include <cstring>

namespace gemmtune::cpu {
namespace {

/// How the elements of a weight are stored. Requires 4 bits.
Nibble nibble_of(const MatrixShape& w) {
  if (w.type != DataType::i4) return Nibble::e2m1;
  return w.scale.zero_points ? Nibble::i4_zero_points : Nibble::i4;
}

}  // namespace

const W4Kernels* w4_kernels(const KernelSet& set, Isa isa, const BlockFormat& format) {
#if defined(GEMMTUNE_X86_KERNELS)
  if (set.at(isa) == nullptr || bits(format.w.type) != 4 || format.w.scale.type == ScaleType::none ||
      format.layout != WeightLayout::plain)
    return nullptr;
  const W4Set* kernels = isa == Isa::avx2         ? &avx2_w4_kernels
                         : isa == Isa::avx512     ? &avx512_w4_kernels
                         : isa == Isa::avx512bf16 ? &avx512bf16_w4_kernels
                                                  : nullptr;
  if (kernels == nullptr) return nullptr;
  if (format.x.type == DataType::i8) return &kernels->bytes;
  // bf16 holds neither fp16 nor float32.
  const bool wider = format.x.type == DataType::f16 || format.x.type == DataType::f32;
  return wider && set.at(isa)->bf16_compute ? nullptr : &kernels->floats;
#else
  (void)set, (void)isa, (void)format;
  return nullptr;
#endif
}

const W4List& w4_tiles(const W4Kernels& kernels, const MatrixShape& w) {
  return kernels.tiles[static_cast<int>(nibble_of(w))];
}

std::string w4_sum_order(Isa isa) { return fmt::format("w4-lanes-{}", to_string(isa)); }

double w4_microseconds(const KernelSet& set, const BlockFormat& format, std::int64_t rows,
                       const W4Tile& tile) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const W4Kernels& kernels = *w4_kernels(set, tile.isa, format);
  const std::int64_t row_lines = ceil_div(format.w.columns, kernels.line_elements);
  const double lines = real(round_up(format.w.rows, tile.nr)) * real(row_lines);
  // Instructions of a line: decoding and scales for each tile of rows; for each row its products, the scale and loads of
  // x, which rows of the weight share and which cost more if x does not stay in the inner cache. Two of 64 bytes a cycle of
  // a third of a nanosecond, or three of 32.
  constexpr double inner_cache = 40e3;
  constexpr double outer_load = 3.3;
  // A tile beyond the registers that the compiler makes use of: decoded elements, totals, for each row of the weight a sum and a
  // scale, the table and a load of x.
  constexpr double spilling = 1.4;
  const std::int64_t vector_elements = kernels.line_elements / lane_elements;
  const bool wide_vectors = vector_elements == 16;
  const std::int64_t registers = wide_vectors ? 28 : 16;
  const std::int64_t products = kernels.x_line_bytes / (vector_elements * 4);
  const double x_bytes = real(rows * row_lines * kernels.x_line_bytes);
  const double load = x_bytes <= inner_cache ? 1 : wide_vectors ? outer_load : outer_load / 2;
  const double decoding = real(2 * products + 4);
  const double row = real(products) + 1.5 + load * real(products) / real(tile.nr);
  const double spill = tile.nr * (products + tile.mr + 2) + 2 > registers ? spilling : 1;
  const double tile_rows = real(round_up(rows, tile.mr));
  return lines * (tile_rows / real(tile.mr) * decoding + tile_rows * row * spill) /
         (wide_vectors ? 6000 : 9000);
}

W4Gemm::W4Gemm(const KernelSet& set, const BlockFormat& format, const W4Tile& tile)
    : isa_(*set.at(tile.isa)),
      floats_(*set.at(std::min(tile.isa, Isa::avx512))),
      decode_(decode_kernels(tile.isa)),
      kernels_(*w4_kernels(set, tile.isa, format)),
      tiles_(w4_tiles(kernels_, format.w)),
      format_(format),
      tile_(tile),
      unit_(kernels_.units[static_cast<int>(nibble_of(format.w))]),
      lines_(ceil_div(format.w.columns, kernels_.line_elements)) {
  const std::int64_t group = format.w.scale.k_block;
  while (lane_elements << lane_shift_ < group && lane_elements << lane_shift_ < format.w.columns)
    ++lane_shift_;
  const std::int64_t line_lanes = lines_ * kernels_.line_elements / lane_elements;
  scale_stride_ = round_up((line_lanes >> lane_shift_) + 1 + w4_scale_padding, chunk_elements);
}

RowTiles W4Gemm::row_tiles(std::int64_t rows) const {
  RowTiles tiles{.rows = rows, .mr = tile_.mr};
  tiles.last_mr = fitting(tiles_, rows - (tiles.count() - 1) * tile_.mr, tile_.nr)->mr;
  return tiles;
}

std::int64_t W4Gemm::packed_bytes(std::int64_t rows) const {
  return round_up(row_tiles(rows).padded() * (row_bytes() + std::int64_t{sizeof(float)}), 64);
}

/// A row of x before it is packed, then its e4m3 scales.
std::int64_t W4Gemm::plain_row_bytes() const {
  return 4 * (lines_ * kernels_.line_elements + chunk_elements +
              round_up(format_.x.scale.columns, chunk_elements));
}

/// Scales of nr rows of w, then their zero points.
std::int64_t W4Gemm::scale_bytes() const {
  return round_up(tile_.nr * scale_stride_ * 4 * (format_.w.scale.zero_points ? 2 : 1), 64);
}

std::int64_t W4Gemm::scratch_bytes(std::int64_t rows) const {
  const std::int64_t of_w = scale_bytes() + row_tiles(rows).padded() * nr() * 4;
  return round_up(std::max(plain_row_bytes(), of_w), 64);
}

/// Rows that fill the last tile hold anything: each row of sums is of one row of x.
void W4Gemm::pack_row(const BlockRows& rows, std::int64_t row, char* packed, char* scratch) const {
  const RowTiles tiles = row_tiles(rows.count);
  const std::int64_t tile = row / tile_.mr;
  const std::int64_t from = rows.index == nullptr ? row : rows.index[row];
  widen_row(rows, from, scratch);
  kernels_.pack({.x = scratch,
                 .lines = lines_,
                 .out = packed + tile * tile_.mr * row_bytes() + row % tile_.mr * kernels_.x_line_bytes,
                 .line_bytes = tiles.size(tile) * kernels_.x_line_bytes});
  const ScaleShape& scale = format_.x.scale;
  const void* factor = scale.global ? rows.global_scale
                       : scale.type == ScaleType::f32
                           ? static_cast<const float*>(rows.scale) + from * rows.scale_step
                           : nullptr;
  factors(packed, tiles)[row] = factor == nullptr ? 1 : *static_cast<const float*>(factor);
}

void W4Gemm::pack_tile(const BlockRows& rows, std::int64_t tile, char* packed, char* scratch) const {
  const std::int64_t first = tile * tile_.mr;
  for (std::int64_t row = first; row < std::min(first + tile_.mr, rows.count); ++row)
    pack_row(rows, row, packed, scratch);
}

/// A row of x in the compute type, zeros up to the end of the last line.
void W4Gemm::widen_row(const BlockRows& rows, std::int64_t row, char* out) const {
  const DataType type = format_.x.type;
  const std::int64_t k = format_.x.columns;
  const std::int64_t elements = lines_ * kernels_.line_elements;
  const char* from = static_cast<const char*>(rows.x) + row * rows.stride;
  if (bits(type) >= 16) {
    isa_.pack_x[static_cast<int>(element_of(type))](
        {.x = from, .ldx = 0, .rows = 1, .mr = 1, .k = k, .chunks = elements / chunk_elements, .out = out});
    return;
  }
  std::int64_t element_bytes = 1;
  if (type == DataType::i8) {
    std::memcpy(out, from, static_cast<std::size_t>(k));
  } else {
    element_bytes = compute_bytes(isa_);
    const Compute compute = isa_.bf16_compute ? Compute::bf16 : Compute::f32;
    const ScaleShape& scale = format_.x.scale;
    float* factors = nullptr;
    if (scale.type == ScaleType::e4m3) {
      factors = reinterpret_cast<float*>(out) + elements + chunk_elements;
      widen_scales(scale.type, static_cast<const char*>(rows.scale) + row * scale.columns, scale.columns,
                   factors);
    }
    decode_.row[static_cast<int>(compute)][static_cast<int>(stored_type(type))](
        {.from = from, .count = k, .to = out, .exponents = nullptr, .factors = factors});
  }
  std::memset(out + k * element_bytes, 0, static_cast<std::size_t>((elements - k) * element_bytes));
}

/// `count` scales as float32; writes at most a multiple of 32.
void W4Gemm::widen_scales(ScaleType type, const void* from, std::int64_t count, float* out) const {
  if (type == ScaleType::e4m3) {
    kernels_.widen_e4m3({.from = from, .count = count, .to = out});
  } else if (type == ScaleType::e8m0) {
    kernels_.widen_e8m0({.from = from, .count = count, .to = out});
  } else if (type == ScaleType::f32) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
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

/// Scales and zero points of rows [first, first + rows) of w as the kernels read them; those of rows that kernels prefetch are
/// prefetched. What is behind a row's last is finite.
void W4Gemm::prepare_scales(const BlockWeight& weight, std::int64_t first, std::int64_t rows,
                            char* out) const {
  const ScaleShape& scale = format_.w.scale;
  auto* scales = reinterpret_cast<float*>(out);
  auto* zero_points = reinterpret_cast<std::uint32_t*>(scales + tile_.nr * scale_stride_);
  const std::int64_t rows_ahead = ceil_div(tile_.prefetch, bytes_of(format_.w.type, format_.w.columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t at = scale.index(first + i, 0);
    const char* from = static_cast<const char*>(weight.scale) + at * bytes_of(scale.type);
    for (std::int64_t line = 0; line < scale.columns * bytes_of(scale.type); line += 64)
      __builtin_prefetch(from + rows_ahead * scale.columns * bytes_of(scale.type) + line);
    widen_scales(scale.type, from, scale.columns, scales + i * scale_stride_);
    if (!scale.zero_points) continue;
    kernels_.widen_zero_points(
        {.from = weight.zero_points + at, .count = scale.columns, .to = zero_points + i * scale_stride_});
  }
}

BlockSums W4Gemm::sums(std::int64_t rows, const char* packed, const BlockWeight& weight, std::int64_t first,
                       std::int64_t columns, char* scratch) const {
  const RowTiles tiles = row_tiles(rows);
  const std::int64_t stride = bytes_of(format_.w.type, format_.w.columns);
  auto* sums = reinterpret_cast<float*>(scratch + scale_bytes());
  const W4Kernel kernels[] = {find(tiles_, tile_.mr, tile_.nr)->run,
                              find(tiles_, tiles.last_mr, tile_.nr)->run};
  const auto* scales = reinterpret_cast<const float*>(scratch);
  W4Args args{.x = nullptr,
              .w = nullptr,
              .w_stride = stride,
              .rows = 0,
              .bytes = stride,
              .scales = scales,
              .zero_points = reinterpret_cast<const unsigned*>(scales) + tile_.nr * scale_stride_,
              .scale_stride = scale_stride_,
              .lane_shift = lane_shift_,
              .c = nullptr,
              .ldc = nr(),
              .prefetch = 0};
  std::memset(scratch, 0, static_cast<std::size_t>(scale_bytes()));
  for (std::int64_t row = 0; row < columns; row += tile_.nr) {
    args.w = static_cast<const char*>(weight.w) + (first + row) * stride;
    args.rows = std::min(tile_.nr, columns - row);
    prepare_scales(weight, first + row, args.rows, scratch);
    for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
      args.x = packed + tile * tile_.mr * row_bytes();
      args.c = sums + tile * tile_.mr * nr() + row;
      // The first rows of x draw the weight from memory.
      args.prefetch = tile == 0 ? tile_.prefetch : 0;
      kernels[tile + 1 == tiles.count()](args);
    }
  }
  const float of_weight =
      weight.global_scale == nullptr ? unit_ : unit_ * *static_cast<const float*>(weight.global_scale);
  const float* of_rows = factors(const_cast<char*>(packed), tiles);
  for (std::int64_t m = 0; m < rows; ++m) {
    const float factor = of_rows[m] * of_weight;
    for (std::int64_t i = 0; i < columns; ++i) sums[m * nr() + i] *= factor;
  }
  return {.sums = sums, .ldt = nr(), .first_row = 0, .rows = rows, .first_column = first, .columns = columns};
}

}  // namespace gemmtune::cpu
