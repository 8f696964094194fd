// BlockGemm: rows of x and blocks of a weight on their way to the panel kernels.
#include <algorithm>
#include <array>
#include <cstring>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "numbers/minifloat.h"

namespace gemmtune::cpu {
namespace {

/// How a row packer or panel packer reads decoded or stored rows: the index of its table.
Element packer_of(DataType type, Compute compute) {
  if (wide(type)) return element_of(type);
  return compute == Compute::bf16 ? Element::bf16 : Element::f32;
}

}  // namespace

void BlockGemm::fill_factors(const MatrixShape& matrix, const void* scales, std::int64_t row,
                             const Depth& depth, std::int64_t step, float* out) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (std::size_t code = 0; code < all.size(); ++code)
      all[code] = f8_e4m3fn_to_f32(static_cast<std::uint8_t>(code));
    return all;
  }();
  const std::int64_t of_chunk = chunk_elements / matrix.scale.k_block;
  const std::int64_t first = depth.first * of_chunk;
  const std::int64_t count = depth.count * of_chunk;
  const std::int64_t there =
      row < matrix.rows ? std::clamp<std::int64_t>(matrix.scale.columns - first, 0, count) : 0;
  const auto* codes = static_cast<const std::uint8_t*>(scales) + row * matrix.scale.columns + first;
  for (std::int64_t i = 0; i < there; ++i) out[i * step] = values[codes[i]];
  for (std::int64_t i = there; i < count; ++i) out[i * step] = 1;
}

void BlockGemm::fill_zero_points(const Block& block, std::int64_t row, const Depth& depth, std::int64_t step,
                                 float* out) const {
  const ScaleShape& scale = format_.w.scale;
  const bool is_there = row < format_.w.rows;
  const std::int8_t* const of_row = block.weight->zero_points + (is_there ? scale.index(row, 0) : 0);
  const std::int64_t group_chunks = ceil_div(scale.k_block, chunk_elements);
  for (std::int64_t i = 0; i < depth.count;) {
    // Chunks behind the last group are filled as it is.
    const std::int64_t group = std::min((depth.first + i) / group_chunks, scale.columns - 1);
    const std::int64_t end = group + 1 == scale.columns
                                 ? depth.count
                                 : std::min((group + 1) * group_chunks - depth.first, depth.count);
    const float zero_point = is_there ? static_cast<float>(of_row[group]) : 0;
    for (; i < end; ++i) out[i * step] = zero_point;
  }
}

void BlockGemm::pack_scales(const BlockRows& rows, std::int64_t tile, float* out) const {
  const MatrixShape& x = format_.x;
  const auto* scales = static_cast<const float*>(rows.scale);
  for (std::int64_t i = 0; i < tile_.mr; ++i) {
    const std::int64_t at = tile * tile_.mr + i;
    const bool there = at < rows.count && scales_sums(x);
    const std::int64_t row = !there ? 0 : rows.index == nullptr ? at : rows.index[at];
    for (std::int64_t block = 0; block < scale_columns_; ++block) {
      float scale = 1;
      if (there) {
        scale = x.scale.global                    ? *static_cast<const float*>(rows.global_scale)
                : x.scale.columns > 1             ? scales[row * x.scale.columns + block]
                : x.scale.rows == 1 && x.rows > 1 ? scales[0]
                                                  : scales[row * rows.scale_step];
      }
      *out++ = scale;
    }
  }
}

void BlockGemm::pack_tile(const BlockRows& rows, std::int64_t tile, char* packed, char* scratch) const {
  const MatrixShape& x = format_.x;
  const RowTiles tiles = row_tiles(rows.count);
  const std::int64_t valid = tiles.valid(tile);
  const std::int64_t first = tile * tile_.mr;
  auto* scales = reinterpret_cast<float*>(packed + tiles.count() * tile_bytes()) + first * scale_columns_;
  pack_scales(rows, tile, scales);
  PackXArgs args{.x = static_cast<const char*>(rows.x) + first * rows.stride,
                 .ldx = rows.stride,
                 .rows = valid,
                 .mr = tiles.size(tile),
                 .k = x.columns,
                 .chunks = chunks_,
                 .out = nullptr};
  float* rests = x_e8m0_ ? x_rests(packed, tiles, tile) : nullptr;
  std::uint8_t* beyond = x_e8m0_ ? x_beyond(packed, tiles, tile) : nullptr;
  // Behind the decoded rows.
  auto* clamped = reinterpret_cast<std::uint8_t*>(scratch) + tile_.mr * chunks_ * chunk_elements * 4;
  if (x_e8m0_) std::memset(beyond, 0, static_cast<std::size_t>(chunks_));
  if (!wide(x.type) || rows.index != nullptr) {
    args.x = scratch;
    args.ldx = wide(x.type) ? bytes_of(x.type, x.columns) : chunks_ * chunk_elements * compute_bytes_;
    for (std::int64_t i = 0; i < valid; ++i) {
      const std::int64_t row = rows.index == nullptr ? first + i : rows.index[first + i];
      const char* from = static_cast<const char*>(rows.x) + row * rows.stride;
      char* to = scratch + i * args.ldx;
      if (wide(x.type)) {
        std::memcpy(to, from, static_cast<std::size_t>(args.ldx));
      } else {
        const auto has_element = [&](std::int64_t chunk) {
          const std::int64_t k = chunk * chunk_elements;
          return x_range_.any_element(
              from + bytes_of(x.type, k),
              bytes_of(x.type, std::min(x.columns - k, std::int64_t{chunk_elements})));
        };
        const unsigned char* codes = exponents_of(x, rows.scale, row);
        const auto note = [&](std::int64_t chunk) {
          if (beyond[chunk] == 0)
            for (std::int64_t each = 0; each < tile_.mr; ++each) rests[each * chunks_ + chunk] = 1;
          beyond[chunk] = 1;
          rests[i * chunks_ + chunk] = x_range_.rest(codes[chunk]);
        };
        float* factors = nullptr;
        if (decodes_scales(x)) {
          factors = reinterpret_cast<float*>(clamped);
          fill_factors(x, rows.scale, row, {0, chunks_}, 1, factors);
        }
        decode_.row[static_cast<int>(compute_)][static_cast<int>(stored_type(x.type))](
            {.from = from,
             .count = x.columns,
             .to = to,
             .exponents =
                 x_e8m0_ ? within_range(x_range_, codes, chunks_, clamped, has_element, note) : codes,
             .factors = factors});
      }
    }
  }
  if (reads_x_panels()) return pack_x_panels(args, packed + tile * tile_bytes(), packer_of(x.type, compute_));
  const PackX pack = compute_ == Compute::i16 ? decode_.pack_integer_x
                                              : isa_.pack_x[static_cast<int>(packer_of(x.type, compute_))];
  // Rows are decoded to what is packed, or of a type that is packed as it is.
  const std::int64_t element_bytes = wide(x.type) ? bytes_of(x.type, 1) : compute_bytes_;
  const auto* from = static_cast<const char*>(args.x);
  for (std::int64_t chunk = 0; chunk < chunks_; chunk += x_block_chunks_) {
    const std::int64_t k = chunk * chunk_elements;
    args.x = from + k * element_bytes;
    args.chunks = std::min(x_block_chunks_, chunks_ - chunk);
    args.k = std::min(x.columns - k, args.chunks * chunk_elements);
    args.out = packed + x_offset(tiles, tile, chunk);
    pack(args);
  }
}

/// A row tile as panels of 16 rows each, one after another.
void BlockGemm::pack_x_panels(const PackXArgs& rows, char* out, Element packer) const {
  for (std::int64_t row = 0; row < rows.mr; row += panel_columns)
    isa_.pack_panel[static_cast<int>(packer)]({.rows = static_cast<const char*>(rows.x) + row * rows.ldx,
                                               .stride = rows.ldx,
                                               .count = std::clamp<long>(rows.rows - row, 0, panel_columns),
                                               .k = rows.k,
                                               .chunks = chunks_,
                                               .out = out + row * chunks_ * chunk_elements * compute_bytes_});
}

/// 16 rows of a weight that is not in panels, decoded and then packed.
void BlockGemm::decode_rows_to_panel(const Block& block, std::int64_t panel, std::int64_t chunk,
                                     std::int64_t chunks, char* out) const {
  const MatrixShape& w = format_.w;
  const std::int64_t first = block.first + panel * panel_columns;
  const std::int64_t k = chunk * chunk_elements;
  const std::int64_t count = std::min(w.columns - k, chunks * chunk_elements);
  const std::int64_t row_bytes = bytes_of(w.type, w.columns);
  PackPanelArgs args{
      .rows = static_cast<const char*>(block.weight->w) + first * row_bytes + bytes_of(w.type, k),
      .stride = row_bytes,
      .count = std::min<std::int64_t>(panel_columns, w.rows - first),
      .k = count,
      .chunks = chunks,
      .out = out};
  const bool tiled = format_.layout == WeightLayout::aiter16x16;
  if (!tiled) prefetch_rows(block, panel, {chunk, chunks});
  const std::int64_t raw_bytes = bytes_of(w.type, chunks * chunk_elements);
  char* raw = block.row_scratch;
  if (tiled) {
    const Tile16 shape = tile16_of(w);
    constexpr std::int64_t step = Tile16::rows * Tile16::chunk_bytes;
    for (std::int64_t row = 0; row < args.count; ++row) {
      const char* from = static_cast<const char*>(block.weight->w) + shape.row_offset(first + row) +
                         bytes_of(w.type, k) / Tile16::chunk_bytes * step;
      for (std::int64_t at = 0; at < bytes_of(w.type, count); at += Tile16::chunk_bytes, from += step)
        std::memcpy(raw + row * raw_bytes + at, from, Tile16::chunk_bytes);
    }
    args.rows = raw;
    args.stride = raw_bytes;
  }
  if (!wide(w.type)) {
    char* decoded = raw + (tiled ? panel_columns * raw_bytes : 0);
    const std::int64_t stride = chunks * chunk_elements * compute_bytes_;
    for (std::int64_t row = 0; row < args.count; ++row) {
      const char* from = static_cast<const char*>(args.rows) + row * args.stride;
      const unsigned char* codes = exponents_of(w, block.weight->scale, first + row);
      if (codes != nullptr) codes += chunk;
      const auto has_element = [&](std::int64_t i) {
        const std::int64_t at = i * chunk_elements;
        return w_range_.any_element(from + bytes_of(w.type, at),
                                    bytes_of(w.type, std::min(count - at, std::int64_t{chunk_elements})));
      };
      const Depth depth{chunk, chunks};
      if (decodes_scales(w)) fill_factors(w, block.weight->scale, first + row, depth, 1, block.factors);
      if (w.scale.zero_points) fill_zero_points(block, first + row, depth, 1, block.zero_points);
      decode_.row[static_cast<int>(compute_)][static_cast<int>(stored_type(w.type))](
          {.from = from,
           .count = count,
           .to = decoded + row * stride,
           .exponents = !w_e8m0_ ? codes
                                 : within_range(w_range_, codes, chunks, block.clamped, has_element,
                                                [&](std::int64_t i) { block.beyond[i] = 1; }),
           .factors = decodes_scales(w) ? block.factors : nullptr,
           .zero_points = w.scale.zero_points ? block.zero_points : nullptr});
    }
    args.rows = decoded;
    args.stride = stride;
  }
  if (compute_ == Compute::i16) return decode_.pack_integer_panel(args);
  isa_.pack_panel[static_cast<int>(packer_of(w.type, compute_))](args);
}

/// Of plain rows what is packed after panel `panel` of the block at `depth`: pieces of rows, which lie too far apart for
/// the machine to fetch them ahead.
void BlockGemm::prefetch_rows(const Block& block, std::int64_t panel, const Depth& depth) const {
  const MatrixShape& w = format_.w;
  const bool same_depth = panel + 1 < block.panels;
  const std::int64_t chunk = same_depth ? depth.first : depth.first + depth.count;
  const std::int64_t k = chunk * chunk_elements;
  const std::int64_t first = block.first + (same_depth ? (panel + 1) * panel_columns : 0);
  const std::int64_t end = std::min(first + panel_columns, w.rows);
  const std::int64_t bytes =
      bytes_of(w.type, std::min(depth.count * chunk_elements, w.columns - k));  // none behind the last depth
  for (std::int64_t row = first; row < end; ++row) {
    const char* from = static_cast<const char*>(block.weight->w) + bytes_of(w.type, row * w.columns + k);
    for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
  }
}

/// The block's panels at `chunk` as the panel kernels read them, block_stride_ apart.
const char* BlockGemm::decode_weights(const Block& block, std::int64_t chunk, std::int64_t chunks) const {
  const MatrixShape& w = format_.w;
  const std::int64_t first_panel = block.first / panel_columns;
  const auto* stored = static_cast<const char*>(block.weight->w);
  const Panel16 shape = panel16_of(w);
  if (w_e8m0_) std::memset(block.beyond, 0, static_cast<std::size_t>(chunks));
  if (in_place_)
    return stored + first_panel * block_stride_ +
           chunk * chunk_elements * panel_columns * shape.element_bytes;
  for (std::int64_t panel = 0; panel < block.panels; ++panel) {
    char* out = block.panel_scratch + panel * block_stride_;
    if (format_.layout != WeightLayout::panel16) {
      decode_rows_to_panel(block, panel, chunk, chunks, out);
      continue;
    }
    const std::int64_t column = block.first + panel * panel_columns;
    DecodePanelArgs args{.from = stored + (first_panel + panel) * shape.panel_bytes() +
                                 bytes_of(w.type, chunk * chunk_elements) * panel_columns,
                         .chunks = chunks,
                         .to = out,
                         .exponents = exponents_of(w, block.weight->scale, column),
                         .exponent_stride = w.scale.columns,
                         .columns = std::min<std::int64_t>(panel_columns, w.rows - column)};
    if (args.exponents != nullptr) args.exponents += chunk;
    if (w_e8m0_) clamp_panel_exponents(block, args);
    for (std::int64_t i = 0; i < panel_columns; ++i) {
      const Depth depth{chunk, chunks};
      if (decodes_scales(w))
        fill_factors(w, block.weight->scale, column + i, depth, panel_columns, block.factors + i);
      if (w.scale.zero_points)
        fill_zero_points(block, column + i, depth, panel_columns, block.zero_points + i);
    }
    if (decodes_scales(w)) args.factors = block.factors;
    if (w.scale.zero_points) args.zero_points = block.zero_points;
    decode_.panel[static_cast<int>(compute_)][static_cast<int>(stored_type(w.type))](args);
  }
  return block.panel_scratch;
}

/// Replaces the scales by clamped ones where one of a chunk with an element is beyond the range.
void BlockGemm::clamp_panel_exponents(const Block& block, DecodePanelArgs& args) const {
  const MatrixShape& w = format_.w;
  const std::int64_t chunk_bytes = bytes_of(w.type, chunk_elements) * panel_columns;
  constexpr std::int64_t line_bytes = 64;  // of which a column has four
  bool all_within = true;
  for (std::int64_t i = 0; i < args.columns; ++i)
    all_within = w_range_.contains_all(args.exponents + i * args.exponent_stride, args.chunks) && all_within;
  if (all_within) return;
  bool any = false;
  for (std::int64_t i = 0; i < args.columns; ++i) {
    const unsigned char* codes = args.exponents + i * args.exponent_stride;
    std::uint8_t* clamped = block.clamped + i * args.chunks;
    const auto has_element = [&](std::int64_t at) {
      const char* from = static_cast<const char*>(args.from) + at * chunk_bytes + i * 4;
      bool found = false;
      for (std::int64_t line = 0; line < chunk_bytes; line += line_bytes)
        found = found || w_range_.any_element(from + line, 4);
      return found;
    };
    const auto note = [&](std::int64_t at) {
      block.beyond[at] = 1;
      any = true;
    };
    const unsigned char* used = within_range(w_range_, codes, args.chunks, clamped, has_element, note);
    if (used == codes) std::memcpy(clamped, codes, static_cast<std::size_t>(args.chunks));
  }
  if (!any) return;
  args.exponents = block.clamped;
  args.exponent_stride = args.chunks;
}

}  // namespace gemmtune::cpu
