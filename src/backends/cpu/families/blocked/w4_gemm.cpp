#include "backends/cpu/families/blocked/w4_gemm.h"

#include <cstring>

namespace gemmtune::cpu {
namespace {

// Of AMX tiles and more than two panels of x: decoded elements stay in the inner cache while panels pass.
constexpr std::int64_t decoded_chunks = 32;
constexpr std::int64_t decoded_chunk_bytes = w4_tile_rows * chunk_elements * 2;

/// How the elements of a weight are stored. Requires 4 bits.
Nibble nibble_of(const MatrixShape& w) {
  if (w.type != DataType::i4) return Nibble::e2m1;
  return w.scale.zero_points ? Nibble::i4_zero_points : Nibble::i4;
}

}  // namespace

const W4Kernels* w4_kernels(const KernelSet& set, Isa isa, const BlockFormat& format) {
  if (set.at(isa) == nullptr || bits(format.w.type) != 4 || format.w.scale.type == ScaleType::none ||
      format.layout != WeightLayout::plain)
    return nullptr;
  const W4Set* kernels = set.w4[static_cast<std::size_t>(isa)];
  if (kernels == nullptr) return nullptr;
  if (format.x.type == DataType::i8) return &kernels->bytes;
  // bf16 holds neither fp16 nor float32.
  const bool wider = format.x.type == DataType::f16 || format.x.type == DataType::f32;
  return wider && set.at(isa)->bf16_compute ? nullptr : &kernels->floats;
}

const W4List& w4_tiles(const W4Kernels& kernels, const MatrixShape& w) {
  return kernels.tiles[static_cast<int>(nibble_of(w))];
}

std::string w4_sum_order(Isa isa) {
  return fmt::format("w4-{}-{}", isa == Isa::amx ? "chunks" : "lanes", to_string(isa));
}

double w4_microseconds(const KernelSet& set, const BlockFormat& format, std::int64_t rows,
                       const W4Tile& tile) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const W4Kernels& kernels = *w4_kernels(set, tile.isa, format);
  const std::int64_t row_lines = ceil_div(format.w.columns, kernels.line_elements);
  const double lines = real(round_up(format.w.rows, tile.nr)) * real(row_lines);
  // AMX tiles: w4_tile_rows chunks are decoded at once, and multiplied with each panel; then packing x. Fitted to a Xeon with
  // 512x4096 in the second cache (docs/lab/cpu_four_bit.md).
  if (kernels.amx != nullptr) {
    constexpr double decoding = 0.04;
    constexpr double panel = 0.036;
    constexpr double packing = 0.012;
    const double panels = real(ceil_div(rows, tile.mr));
    return lines / w4_tile_rows * (decoding + panel * panels) + packing * real(rows * row_lines);
  }
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
  // Cores with AMX tiles multiply pairs of bf16 in vectors slowly.
  const bool is_slow = tile.isa == Isa::avx512bf16 && set.level > tile.isa && format.x.type != DataType::i8;
  const double row = (is_slow ? 3 : 1) * real(products) + 1.5 + load * real(products) / real(tile.nr);
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
      amx_(kernels_.amx),
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

/// A row of x before it is packed, then its e4m3 scales; then the rows of a panel.
std::int64_t W4Gemm::plain_row_bytes() const {
  return 4 * (lines_ * kernels_.line_elements + chunk_elements +
              round_up(format_.x.scale.columns, chunk_elements)) +
         (amx_ == nullptr ? 0 : tile_.mr * row_bytes());
}

/// Scales of nr rows of w, then their zero points; of AMX tiles the scales of all columns.
std::int64_t W4Gemm::scale_bytes() const {
  if (amx_ != nullptr) return nr() * scale_stride_ * 4;
  return round_up(tile_.nr * scale_stride_ * 4 * (format_.w.scale.zero_points ? 2 : 1), 64);
}

/// Tiles of sums, then decoded chunks.
std::int64_t W4Gemm::tile_sums_bytes(std::int64_t rows) const {
  if (amx_ == nullptr) return 0;
  return row_tiles(rows).padded() * nr() * 4 + decoded_chunks * decoded_chunk_bytes;
}

std::int64_t W4Gemm::scratch_bytes(std::int64_t rows) const {
  const std::int64_t of_w = scale_bytes() + row_tiles(rows).padded() * nr() * 4 + tile_sums_bytes(rows);
  return round_up(std::max(plain_row_bytes(), of_w), 64);
}

void W4Gemm::pack(const BlockRows& rows, std::int64_t row, char* packed, char* scratch) const {
  if (amx_ != nullptr) return pack_panel(rows, row, packed, scratch);
  pack_row(rows, row, packed, scratch);
}

/// Rows that fill the last tile hold anything: each row of sums is of one row of x.
void W4Gemm::pack_row(const BlockRows& rows, std::int64_t row, char* packed, char* scratch) const {
  const RowTiles tiles = row_tiles(rows.count);
  const std::int64_t tile = row / tile_.mr;
  widen_row(rows, rows.index == nullptr ? row : rows.index[row], scratch);
  kernels_.pack({.x = scratch,
                 .lines = lines_,
                 .out = packed + tile * tile_.mr * row_bytes() + row % tile_.mr * kernels_.x_line_bytes,
                 .line_bytes = tiles.size(tile) * kernels_.x_line_bytes});
  put_factor(rows, row, packed);
}

/// Rows that are not there are zeros.
void W4Gemm::pack_panel(const BlockRows& rows, std::int64_t row, char* packed, char* scratch) const {
  const std::int64_t count = std::min(tile_.mr, rows.count - row);
  char* chunks = scratch + plain_row_bytes() - tile_.mr * row_bytes();
  for (std::int64_t i = 0; i < count; ++i) {
    widen_row(rows, rows.index == nullptr ? row + i : rows.index[row + i], scratch);
    kernels_.pack({.x = scratch,
                   .lines = lines_,
                   .out = chunks + i * row_bytes(),
                   .line_bytes = kernels_.x_line_bytes});
    put_factor(rows, row + i, packed);
  }
  isa_.pack_panel[static_cast<int>(Element::bf16)]({.rows = chunks,
                                                    .stride = row_bytes(),
                                                    .count = count,
                                                    .k = lines_ * kernels_.line_elements,
                                                    .chunks = lines_,
                                                    .out = packed + row * row_bytes()});
}

void W4Gemm::put_factor(const BlockRows& rows, std::int64_t row, char* packed) const {
  const ScaleShape& scale = format_.x.scale;
  const std::int64_t from = rows.index == nullptr ? row : rows.index[row];
  const void* factor = scale.global ? rows.global_scale
                       : scale.type == ScaleType::f32
                           ? static_cast<const float*>(rows.scale) + from * rows.scale_step
                           : nullptr;
  factors(packed, row_tiles(rows.count))[row] = factor == nullptr ? 1 : *static_cast<const float*>(factor);
}

void W4Gemm::pack_tile(const BlockRows& rows, std::int64_t tile, char* packed, char* scratch) const {
  const std::int64_t first = tile * tile_.mr;
  for (std::int64_t row = first; row < std::min(first + tile_.mr, rows.count); row += packed_rows())
    pack(rows, row, packed, scratch);
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
  if (type == DataType::i8 && amx_ == nullptr) {
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
    if (!scale.zero_points || amx_ != nullptr) continue;
    kernels_.widen_zero_points(
        {.from = weight.zero_points + at, .count = scale.columns, .to = zero_points + i * scale_stride_});
  }
}

W4Gemm::TileRows W4Gemm::tile_rows(const BlockWeight& weight, std::int64_t first, std::int64_t rows,
                                   float* scales) const {
  const ScaleShape& scale = format_.w.scale;
  const std::int64_t at = scale.index(first, 0);
  const auto* bytes = static_cast<const unsigned char*>(weight.scale) + at * bytes_of(scale.type);
  const Nibble nibble = nibble_of(format_.w);
  TileRows tiles{.tables = amx_->plain[static_cast<int>(nibble)]};
  if (scale.type == ScaleType::e4m3) return {W4Tables::by_half, amx_->e4m3, bytes, nullptr};
  if (scale.type == ScaleType::e8m0) {
    const E8m0Range range(format_.w.type);
    if (range.contains_all(bytes, rows * scale.columns))
      return {W4Tables::by_byte, amx_->e8m0, bytes, nullptr};
  } else if (scale.zero_points) {
    tiles.kind = W4Tables::by_byte;
    tiles.bytes = reinterpret_cast<const unsigned char*>(weight.zero_points) + at;
  }
  prepare_scales(weight, first, rows, reinterpret_cast<char*>(scales));
  tiles.scales = scales;
  return tiles;
}

/// Tiles of sums of `columns` columns from `first` on, behind the scales and the rows of sums in `scratch`, and from there into these.
/// Many panels of x meet a few chunks of all columns before the next ones.
void W4Gemm::sum_tiles(const TileWork& work, const Factors& factors, char* scratch) const {
  const auto& [rows, packed, weight, first, columns] = work;
  const MatrixShape& w = format_.w;
  const std::int64_t panels = row_tiles(rows).count();
  const std::int64_t stride = bytes_of(w.type, w.columns);
  auto* const scales = reinterpret_cast<float*>(scratch);
  auto* const sums = reinterpret_cast<float*>(scratch + scale_bytes());
  float* const tiles = sums + panels * tile_.mr * nr();
  char* const decoded = reinterpret_cast<char*>(tiles + panels * tile_.mr * nr());
  const std::int64_t group_chunks = std::max<std::int64_t>(w.scale.k_block / chunk_elements, 1);
  const bool has_groups = w.scale.columns > 1;
  const std::int64_t table_chunks = has_groups ? group_chunks : lines_;
  TileRows of_tiles[nr() / w4_tile_rows];
  for (std::int64_t row = 0; row < columns; row += tile_.nr)
    of_tiles[row / tile_.nr] =
        tile_rows(weight, first + row, std::min(tile_.nr, columns - row), scales + row * scale_stride_);
  const std::int64_t step = panels > 2 ? decoded_chunks : lines_;
  // From where a step reads the weight to where the next one does.
  const auto ahead = [&](std::int64_t chunk, std::int64_t row) {
    if (tile_.prefetch == 0) return std::int64_t{0};
    if (row + tile_.nr < work.columns) return tile_.nr * stride;
    const std::int64_t of_step = bytes_of(w.type, step * chunk_elements);
    if (chunk + step < lines_) return of_step - row * stride;
    return tile_.nr * stride - chunk / step * of_step;
  };
  for (std::int64_t chunk = 0; chunk < lines_; chunk += step)
    for (std::int64_t row = 0; row < columns; row += tile_.nr) {
      const TileRows& of = of_tiles[row / tile_.nr];
      const std::int64_t table = of.kind == W4Tables::by_half   ? 2 * chunk
                                 : of.kind == W4Tables::by_byte ? chunk / table_chunks
                                                                : 0;
      amx_->run[static_cast<int>(of.kind)](
          {.x = packed + chunk * tile_.mr * kernels_.x_line_bytes,
           .x_stride = tile_.mr * row_bytes(),
           .x_panels = panels,
           .w = static_cast<const char*>(weight.w) + (first + row) * stride +
                bytes_of(w.type, chunk * chunk_elements),
           .w_stride = stride,
           .rows = std::min(tile_.nr, columns - row),
           .bytes = stride - bytes_of(w.type, chunk * chunk_elements),
           .chunks = std::min(step, lines_ - chunk),
           .tables = of.tables,
           .bytes_of_tables = of.bytes == nullptr ? nullptr : of.bytes + table,
           .table_stride = w.scale.columns,
           .table_count = w.scale.columns - table,
           .table_chunks = table_chunks,
           .scales = of.scales != nullptr && has_groups ? of.scales + chunk / group_chunks : nullptr,
           .scale_stride = scale_stride_,
           .scale_chunks = group_chunks,
           .c = tiles + row * panels * tile_.mr,
           .accumulate = chunk > 0,
           .decoded = decoded,
           .prefetch = ahead(chunk, row)});
    }
  for (std::int64_t row = 0; row < columns; row += tile_.nr)
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const float* of = of_tiles[row / tile_.nr].scales;
      amx_->sums({.c = tiles + row * panels * tile_.mr + panel * tile_.mr * tile_.nr,
                  .factors = factors.of_rows + panel * tile_.mr,
                  .factor = factors.of_weight,
                  .row_scales = has_groups ? nullptr : of,
                  .scale_stride = scale_stride_,
                  .rows = std::min(tile_.mr, rows - panel * tile_.mr),
                  .out = sums + panel * tile_.mr * nr() + row,
                  .ldc = nr()});
    }
}

BlockSums W4Gemm::sums(std::int64_t rows, const char* packed, const BlockWeight& weight, std::int64_t first,
                       std::int64_t columns, char* scratch) const {
  const RowTiles tiles = row_tiles(rows);
  const std::int64_t stride = bytes_of(format_.w.type, format_.w.columns);
  auto* sums = reinterpret_cast<float*>(scratch + scale_bytes());
  const float of_weight =
      weight.global_scale == nullptr ? unit_ : unit_ * *static_cast<const float*>(weight.global_scale);
  const float* of_rows = factors(const_cast<char*>(packed), tiles);
  if (amx_ != nullptr) {
    sum_tiles({.rows = rows, .packed = packed, .weight = weight, .first = first, .columns = columns},
              {.of_rows = of_rows, .of_weight = of_weight}, scratch);
    return {
        .sums = sums, .ldt = nr(), .first_row = 0, .rows = rows, .first_column = first, .columns = columns};
  }
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
  for (std::int64_t m = 0; m < rows; ++m) {
    const float factor = of_rows[m] * of_weight;
    for (std::int64_t i = 0; i < columns; ++i) sums[m * nr() + i] *= factor;
  }
  return {.sums = sums, .ldt = nr(), .first_row = 0, .rows = rows, .first_column = first, .columns = columns};
}

}  // namespace gemmtune::cpu
