#include "backends/cpu/families/blocked/block_gemm.h"

#include "numbers/bfloat16.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t row_columns = 64;  // of rows as they lie
constexpr std::int64_t depth_chunks =
    4;  // a block of k is a multiple of: 128 elements, the largest of a scale
// Of rows as they lie: half of an inner cache of 48 KiB, and what hides the latency of memory.
constexpr std::int64_t inner_cache_x_bytes = 24 << 10;
constexpr std::int64_t rows_ahead_bytes = 8 << 10;
// AMX tiles: of x, which comes from the second cache.
constexpr std::int64_t x_chunks_ahead = 4;

constexpr std::int64_t max_tile_columns = 64;  // of a register tile

bool has_block_scales(const MatrixShape& matrix) {
  return scales_sums(matrix) && !matrix.scale.global && matrix.scale.columns > 1;
}

bool scaled_by_block(const BlockFormat& format) {
  return has_block_scales(format.x) || has_block_scales(format.w);
}

E8m0Range e8m0_range(const BlockFormat& format, DataType type) {
  return scaled_by_block(format) ? E8m0Range::before_float_scales(type) : E8m0Range(type);
}

}  // namespace

bool scales_sums(const MatrixShape& matrix) {
  const ScaleType type = matrix.scale.type;
  return type == ScaleType::f32 || type == ScaleType::bf16 || type == ScaleType::f16 || matrix.scale.global;
}

const unsigned char* exponents_of(const MatrixShape& matrix, const void* scales, std::int64_t row) {
  if (matrix.scale.type != ScaleType::e8m0) return nullptr;
  return static_cast<const unsigned char*>(scales) + row * matrix.scale.columns;
}

BlockGemm::BlockGemm(const KernelSet& set, const BlockFormat& format, const BlockTile& tile)
    : isa_(*set.at(tile.isa)),
      decode_(decode_kernels(tile.isa)),
      format_(format),
      tile_(tile),
      compute_(*compute_type(set, tile.isa, format)),
      panels_(block_panels(set, tile.isa, format)),
      rows_(tile.rows ? block_rows(set, tile.isa, format) : RowList{nullptr, 0}),
      x_e8m0_(format.x.scale.type == ScaleType::e8m0),
      w_e8m0_(format.w.scale.type == ScaleType::e8m0),
      x_range_(e8m0_range(format, format.x.type)),
      w_range_(e8m0_range(format, format.w.type)),
      scaled_by_block_(scaled_by_block(format)) {
  compute_bytes_ = compute_ == Compute::f32 ? 4 : 2;
  chunks_ = ceil_div(format.x.columns, chunk_elements);
  const std::int64_t tile_columns = tile.rows ? row_columns : tile.nr;
  block_columns_ = tile.rows ? row_columns : std::max(tile.nc / tile.nr, std::int64_t{1}) * tile.nr;
  tile_panels_ = tile_columns / panel_columns;
  // One block of k may also be the whole of it: then the scales are applied once, like any other.
  scaled_at_end_ =
      !scaled_by_block_ && (scales_sums(format.x) || scales_sums(format.w) || compute_ == Compute::i16);
  kc_chunks_ = std::min(round_up(ceil_div(tile.kc, chunk_elements), depth_chunks), chunks_);
  x_block_chunks_ = tile.rows ? chunks_ : kc_chunks_;
  if (has_block_scales(format.w)) scale_chunks_ = format.w.scale.k_block / chunk_elements;
  if (scaled_by_block_) scale_columns_ = ceil_div(chunks_, scale_chunks_);
  in_place_ = format.layout == WeightLayout::panel16 && bits(format.w.type) >= 16;
  block_stride_ = in_place_ ? panel16_of(format.w).panel_bytes()
                            : kc_chunks_ * chunk_elements * panel_columns * compute_bytes_;
}

RowTiles BlockGemm::row_tiles(std::int64_t rows) const {
  RowTiles tiles;
  tiles.rows = rows;
  tiles.mr = tile_.mr;
  const std::int64_t rest = rows - (tiles.count() - 1) * tile_.mr;
  tiles.last_mr = tile_.rows ? fitting(rows_, rest, tile_.nr)->mr : fitting(panels_, rest, tile_panels_)->mr;
  return tiles;
}

std::int64_t BlockGemm::packed_bytes(std::int64_t rows) const {
  const std::int64_t tiles = ceil_div(rows, tile_.mr);
  const std::int64_t beyond = x_e8m0_ ? tiles * (tile_.mr * chunks_ * 4 + chunks_) : 0;
  return round_up(tiles * tile_bytes() + tiles * tile_.mr * scale_columns_ * 4 + beyond, 64);
}

/// Rows that are decoded before they are packed: mr of x over all of k, or 16 of w over a block of it, as
/// stored and decoded.
std::int64_t BlockGemm::row_scratch_bytes() const {
  const std::int64_t x = tile_.mr * chunks_;
  const std::int64_t w = panel_columns * kc_chunks_;
  return round_up(std::max(x, w) * chunk_elements * 8, 64);
}

std::int64_t BlockGemm::sums_bytes(std::int64_t rows) const {
  return round_up((padded_rows(rows) * block_columns_ + 2 * tile_.mr * tile_panels_ * panel_columns) * 4, 64);
}

std::int64_t BlockGemm::column_scales_bytes() const {
  const std::int64_t k_blocks = scaled_by_block_ ? ceil_div(kc_chunks_, scale_chunks_) : 1;
  return k_blocks * block_columns_ * 4;
}

std::int64_t BlockGemm::factor_bytes() const {
  const std::int64_t factors = decodes_scales(format_.w) ? 2 : 0;
  const std::int64_t zero_points = format_.w.scale.zero_points ? 1 : 0;
  return round_up((factors + zero_points) * kc_chunks_ * panel_columns * 4, 64);
}

std::int64_t BlockGemm::scratch_bytes(std::int64_t rows) const {
  const std::int64_t panels = packs_nothing() ? 0 : block_columns_ / panel_columns * block_stride_;
  return sums_bytes(rows) + round_up(panels, 64) + row_scratch_bytes() + column_scales_bytes() +
         beyond_bytes() + factor_bytes();
}

std::int64_t BlockGemm::beyond_bytes() const {
  return w_e8m0_ ? round_up((1 + panel_columns) * kc_chunks_, 64) : 0;
}

float* BlockGemm::x_rests(char* packed, const RowTiles& tiles, std::int64_t tile) const {
  auto* scales = reinterpret_cast<float*>(packed + tiles.count() * tile_bytes());
  return scales + tiles.count() * tile_.mr * scale_columns_ + tile * tile_.mr * chunks_;
}

std::uint8_t* BlockGemm::x_beyond(char* packed, const RowTiles& tiles, std::int64_t tile) const {
  return reinterpret_cast<std::uint8_t*>(x_rests(packed, tiles, tiles.count())) + tile * chunks_;
}

std::int64_t BlockGemm::x_offset(const RowTiles& tiles, std::int64_t tile, std::int64_t chunk) const {
  const std::int64_t block = chunk / x_block_chunks_ * x_block_chunks_;
  const std::int64_t depth = std::min(x_block_chunks_, chunks_ - block);
  const std::int64_t rows_before = tiles.count() * tile_.mr * block + tile * tile_.mr * depth;
  return (rows_before + tiles.size(tile) * (chunk - block)) * chunk_elements * compute_bytes_;
}

void BlockGemm::fill_column_scales(const Block& block, std::int64_t k_block, float* out) const {
  const ScaleShape& scale = format_.w.scale;
  const void* scales = block.weight->scale;
  const std::int64_t count = block.panels * panel_columns;
  if (scale.global || !scales_sums(format_.w)) {
    std::fill_n(out, count, scale.global ? *static_cast<const float*>(block.weight->global_scale) : 1.0F);
    return;
  }
  const bool of_blocks = scale.columns > 1 || scale.row_block > 1;
  const std::int64_t step = of_blocks ? scale.columns : block.weight->scale_step;
  const std::int64_t first = scale.columns > 1 ? k_block : 0;
  // The type is decided once, not for each scale: weights of 4 bits have one for every 32 elements.
  const auto fill = [&](auto read) {
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = read(std::min(block.first + i, format_.w.rows - 1) / scale.row_block * step + first);
  };
  if (scale.type == ScaleType::bf16)
    fill([&](std::int64_t at) { return bf16_to_f32(static_cast<const std::uint16_t*>(scales)[at]); });
  else if (scale.type == ScaleType::f16)
    fill([&](std::int64_t at) { return f16_to_f32(static_cast<const std::uint16_t*>(scales)[at]); });
  else
    fill([&](std::int64_t at) { return static_cast<const float*>(scales)[at]; });
}

const float* BlockGemm::row_scales(const Block& block, std::int64_t tile) const {
  const char* scales = block.packed + block.tiles.count() * tile_bytes();
  return reinterpret_cast<const float*>(scales) + tile * tile_.mr * scale_columns_;
}

float* BlockGemm::sums_of(const Block& block, const Place& place) const {
  const std::int64_t padded = block.tiles.count() * tile_.mr;
  return block.sums + (place.panel * padded + place.tile * tile_.mr * width(block, place)) * panel_columns;
}

void BlockGemm::multiply_tile(const Block& block, const Place& place, const char* w,
                              const Depth& depth) const {
  PanelArgs args{.x = block.packed + x_offset(block.tiles, place.tile, depth.first),
                 .w = w + place.panel * block_stride_,
                 .w_stride = block_stride_,
                 .chunks = depth.count,
                 .c = sums_of(block, place),
                 .accumulate = depth.first > 0,
                 .prefetch = 0,
                 .prefetch_x = isa_.rows_read_x_panels ? x_chunks_ahead : 0};
  if (!x_e8m0_ && !w_e8m0_) return multiply_within(block, place, args, depth, 0);
  const std::uint8_t* of_x =
      x_e8m0_ ? x_beyond(const_cast<char*>(block.packed), block.tiles, place.tile) + depth.first : nullptr;
  // Scales of a block of k are for all its chunks: they go the same way.
  const std::int64_t step = scaled_by_block_ ? scale_chunks_ : 1;
  const auto is_beyond = [&](std::int64_t first) {
    for (std::int64_t chunk = first; chunk < std::min(first + step, depth.count); ++chunk)
      if ((w_e8m0_ && block.beyond[chunk] != 0) || (x_e8m0_ && of_x[chunk] != 0)) return true;
    return false;
  };
  for (std::int64_t at = 0; at < depth.count; at += args.chunks) {
    const bool beyond = is_beyond(at);
    std::int64_t end = at + step;
    while (end < depth.count && is_beyond(end) == beyond) end += step;
    args.chunks = std::min(end, depth.count) - at;
    if (beyond) {
      multiply_beyond(block, place, args, depth, at);
    } else {
      multiply_within(block, place, args, depth, at);
    }
    args.x = static_cast<const char*>(args.x) + args.chunks * x_chunk_bytes(block, place);
    args.w = static_cast<const char*>(args.w) + args.chunks * w_chunk_bytes();
    args.accumulate = true;
  }
}

void BlockGemm::multiply_within(const Block& block, const Place& place, const PanelArgs& args,
                                const Depth& depth, std::int64_t at) const {
  const PanelKernel kernel = find(panels_, block.tiles.size(place.tile), width(block, place))->run;
  if (!scaled_by_block_) return kernel(args);
  const std::int64_t first = at / scale_chunks_;
  const ScaledPanelEntry* scaled =
      scale_chunks_ != scaled_chunks
          ? nullptr
          : find(isa_.scaled_panels, block.tiles.size(place.tile), width(block, place));
  if (scaled != nullptr)
    return scaled->run(
        {.panel = args,
         .row_scales = row_scales(block, place.tile) + (depth.first + at) / scale_chunks_,
         .row_stride = scale_columns_,
         .column_scales = block.column_scales + (first * block.panels + place.panel) * panel_columns,
         .column_stride = block.panels * panel_columns});
  const std::int64_t x_step = scale_chunks_ * x_chunk_bytes(block, place);
  const std::int64_t w_step = scale_chunks_ * w_chunk_bytes();
  const std::int64_t count = ceil_div(args.chunks, scale_chunks_);
  // Sums are scaled a block later, beside the next block's products.
  for (std::int64_t i = 0; i <= count; ++i) {
    float* const sums[] = {block.tile_sums, block.tile_sums + tile_.mr * tile_panels_ * panel_columns};
    if (i < count) {
      PanelArgs one = args;
      one.x = static_cast<const char*>(args.x) + i * x_step;
      one.w = static_cast<const char*>(args.w) + i * w_step;
      one.chunks = std::min(scale_chunks_, args.chunks - i * scale_chunks_);
      one.c = sums[i % 2];
      one.accumulate = false;
      kernel(one);
    }
    if (i > 0) scale_sums(block, place, depth.first / scale_chunks_, first + i - 1, sums[(i - 1) % 2]);
  }
}

void BlockGemm::multiply_beyond(const Block& block, const Place& place, const PanelArgs& args,
                                const Depth& depth, std::int64_t at) const {
  const PanelKernel kernel = find(panels_, block.tiles.size(place.tile), width(block, place))->run;
  constexpr float unscaled = 1;
  alignas(64) float columns[max_tile_columns];
  const std::int64_t count = width(block, place) * panel_columns;
  char* packed = const_cast<char*>(block.packed);
  PanelArgs one = args;
  one.chunks = 1;
  one.c = block.tile_sums;
  one.accumulate = false;
  for (std::int64_t i = 0; i < args.chunks; ++i) {
    const std::int64_t chunk = depth.first + at + i;
    const float* scales =
        !scaled_by_block_
            ? nullptr
            : block.column_scales + ((at + i) / scale_chunks_ * block.panels + place.panel) * panel_columns;
    for (std::int64_t c = 0; c < count; ++c) {
      const std::int64_t column = block.first + place.panel * panel_columns + c;
      columns[c] = scales == nullptr ? unscaled : scales[c];
      if (w_e8m0_ && column < format_.w.rows)
        columns[c] *= w_range_.rest(exponents_of(format_.w, block.weight->scale, column)[chunk]);
    }
    ScaleArgs scale{.tile = block.tile_sums,
                    .out = sums_of(block, place),
                    .rows = block.tiles.valid(place.tile),
                    .columns = count,
                    .row_scale = &unscaled,
                    .row_stride = 0,
                    .column_scale = columns,
                    .add = args.accumulate || i > 0};
    if (x_e8m0_ && x_beyond(packed, block.tiles, place.tile)[chunk] != 0) {
      scale.row_scale = x_rests(packed, block.tiles, place.tile) + chunk;
      scale.row_stride = chunks_;
    } else if (scaled_by_block_) {
      scale.row_scale = row_scales(block, place.tile) + chunk / scale_chunks_;
      scale.row_stride = scale_columns_;
    }
    kernel(one);
    decode_.scale(scale);
    one.x = static_cast<const char*>(one.x) + x_chunk_bytes(block, place);
    one.w = static_cast<const char*>(one.w) + w_chunk_bytes();
  }
}

/// Of block `i` from `first` on, counted in scales of k; `i` is that of block.column_scales.
void BlockGemm::scale_sums(const Block& block, const Place& place, std::int64_t first, std::int64_t i,
                           const float* sums) const {
  decode_.scale({.tile = sums,
                 .out = sums_of(block, place),
                 .rows = block.tiles.valid(place.tile),
                 .columns = width(block, place) * panel_columns,
                 .row_scale = row_scales(block, place.tile) + first + i,
                 .row_stride = scale_columns_,
                 .column_scale = block.column_scales + (i * block.panels + place.panel) * panel_columns,
                 .add = first + i > 0});
}

BlockGemm::Block BlockGemm::accumulate(std::int64_t rows, const char* packed, const BlockWeight& weight,
                                       std::int64_t first, char* scratch) const {
  Block block;
  block.tiles = row_tiles(rows);
  block.first = first;
  block.columns = std::min(block_columns_, format_.w.rows - first);
  block.panels = ceil_div(block.columns, panel_columns);
  block.packed = packed;
  block.weight = &weight;
  block.sums = reinterpret_cast<float*>(scratch);
  block.tile_sums = block.sums + padded_rows(rows) * block_columns_;
  block.panel_scratch = scratch + sums_bytes(rows);
  block.row_scratch = block.panel_scratch +
                      (packs_nothing() ? 0 : round_up(block_columns_ / panel_columns * block_stride_, 64));
  block.column_scales = reinterpret_cast<float*>(block.row_scratch + row_scratch_bytes());
  block.beyond = reinterpret_cast<std::uint8_t*>(block.column_scales) + column_scales_bytes();
  block.clamped = block.beyond + kc_chunks_;
  block.factors = reinterpret_cast<float*>(block.beyond + beyond_bytes());
  block.zero_points = block.factors + (decodes_scales(format_.w) ? 2 * kc_chunks_ * panel_columns : 0);
  if (tile_.rows) {
    multiply_rows(block);
    return block;
  }
  for (std::int64_t chunk = 0; chunk < chunks_; chunk += kc_chunks_) {
    const Depth depth{chunk, std::min(kc_chunks_, chunks_ - chunk)};
    const char* w = decode_weights(block, depth.first, depth.count);
    for (std::int64_t at = 0; scaled_by_block_ && at < depth.count; at += scale_chunks_)
      fill_column_scales(block, (chunk + at) / scale_chunks_,
                         block.column_scales + at / scale_chunks_ * block.panels * panel_columns);
    for (std::int64_t panel = 0; panel < block.panels; panel += tile_panels_)
      for (std::int64_t tile = 0; tile < block.tiles.count(); ++tile)
        multiply_tile(block, {panel, tile}, w, depth);
  }
  if (scaled_at_end_) fill_column_scales(block, 0, block.column_scales);
  return block;
}

/// All row tiles meet a few rows of the weight before the next ones are read. Of each row a piece is taken
/// for which x's stays in the inner cache; the first row tile draws it from memory and fetches the rows that
/// follow.
void BlockGemm::multiply_rows(const Block& block) const {
  const std::int64_t stride = bytes_of(format_.w.type, format_.w.columns);
  const char* w = static_cast<const char*>(block.weight->w) + block.first * stride;
  const std::int64_t x_bytes = block.tiles.count() * tile_bytes();
  const std::int64_t pieces = ceil_div(x_bytes, inner_cache_x_bytes);
  const std::int64_t piece = round_up(ceil_div(chunks_, pieces), depth_chunks);
  const std::int64_t ahead = ceil_div(rows_ahead_bytes, tile_.nr * bytes_of(format_.w.type, piece * 32));
  const bool panels = reads_x_panels();
  const std::int64_t at_once = block.tiles.count() == 1 && !panels ? block.columns : tile_.nr;
  const std::int64_t x_stride = panels ? chunks_ * chunk_elements * panel_columns * compute_bytes_ : 0;
  const RowKernel kernels[] = {find(rows_, tile_.mr, tile_.nr)->run,
                               find(rows_, block.tiles.last_mr, tile_.nr)->run};
  for (std::int64_t chunk = 0; chunk < chunks_; chunk += piece) {
    const std::int64_t k = chunk * chunk_elements;
    const std::int64_t count = std::min(piece * chunk_elements, format_.w.columns - k);
    const char* from = w + bytes_of(format_.w.type, k);
    for (std::int64_t row = 0; row < block.columns; row += at_once)
      for (std::int64_t tile = 0; tile < block.tiles.count(); ++tile)
        kernels[tile + 1 == block.tiles.count()](
            {.x = block.packed + tile * tile_bytes() +
                  k * (panels ? panel_columns : block.tiles.size(tile)) * compute_bytes_,
             .x_stride = x_stride,
             .w = from + row * stride,
             .w_stride = stride,
             .rows = std::min(at_once, block.columns - row),
             .k = count,
             .c = sums_of(block, {0, tile}) + row,
             .ldc = block.panels * panel_columns,
             .accumulate = chunk > 0,
             .goes_on = chunk + piece < chunks_,
             .prefetch = tile == 0 ? ahead * tile_.nr * stride : 0});
  }
}

BlockSums BlockGemm::finish(const Block& block, const Place& place) const {
  float* sums = sums_of(block, place);
  const std::int64_t ldt = width(block, place) * panel_columns;
  const std::int64_t first_column = place.panel * panel_columns;
  if (scaled_at_end_) {
    const Scale scale = compute_ == Compute::i16 ? decode_.scale_integer : decode_.scale;
    scale({.tile = sums,
           .out = sums,
           .rows = block.tiles.valid(place.tile),
           .columns = ldt,
           .row_scale = row_scales(block, place.tile),
           .row_stride = scale_columns_,
           .column_scale = block.column_scales + first_column,
           .add = false});
  }
  return {.sums = sums,
          .ldt = ldt,
          .first_row = place.tile * tile_.mr,
          .rows = block.tiles.valid(place.tile),
          .first_column = block.first + first_column,
          .columns = std::min(ldt, block.columns - first_column)};
}

}  // namespace gemmtune::cpu
