// The layouts of a weight [N, K] in memory. The layout belongs to the weight, not to a kernel: a model holds
// one copy and calls it with many M.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gemmtune {

enum class WeightLayout {
  any,         // not decided yet: a problem whose weight may still be packed (bpreshuffle in a shape list)
  plain,       // row-major [N, K], as a checkpoint holds it
  panel16,     // ours: see below
  onednn,      // what oneDNN's matmul asks for (opaque bytes, made and read by the onednn family)
  aiter16x16,  // AITER's shuffle_weight(w, (16, 16)): see Tile16
  tile64x128,  // ours, for GPUs: see Tile64
  fragment64,  // ours, of weights of 4 bits on GPUs: see Fragment64
};

std::span<const WeightLayout> all_weight_layouts();
std::string_view to_string(WeightLayout layout);
std::optional<WeightLayout> parse_weight_layout(std::string_view text);

/// panel16: [ceil(N/16)][Kp/pair][16][pair] elements, pair = 2 for 2-byte bf16, 1 for fp16 and fp32 and
/// 4 for bytes (int8, fp8; of fp4 a byte, which holds two elements, counts as one element here), Kp =
/// K rounded up to 32; columns past N and steps past K are zero. One panel holds 16 output features over all
/// of K contiguously, so a kernel reads it front to back; for bf16 each run of 32 k is one 1 KiB AMX B tile
/// and one row of 16 pairs is one operand of vdpbf16ps.
struct Panel16 {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t element_bytes = 2;
  std::int64_t pair = 2;

  static constexpr std::int64_t columns = 16;
  static constexpr std::int64_t k_multiple = 32;
  std::int64_t panels() const { return (n + columns - 1) / columns; }
  std::int64_t padded_k() const { return (k + k_multiple - 1) / k_multiple * k_multiple; }
  std::int64_t panel_bytes() const { return padded_k() * columns * element_bytes; }
  std::int64_t bytes() const { return panels() * panel_bytes(); }
};

/// Plain [N, K] into panel16 and back. `destination` holds shape.bytes() (n·k·element_bytes for the inverse);
/// source and destination must not overlap.
void pack_panel16(const Panel16& shape, const void* plain, void* destination);
void unpack_panel16(const Panel16& shape, const void* packed, void* destination);

/// aiter16x16: [N/16][K·bytes/16][16][16 bytes]: tiles of 16 rows by 16 bytes of K, one after another along
/// K. As AITER has it, N must be a multiple of 16 and K of 32 elements (two tiles of 8-bit elements; of fp4,
/// bytes are counted).
struct Tile16 {
  std::int64_t n = 0;
  std::int64_t k = 0;  // elements of element_bytes
  std::int64_t element_bytes = 1;

  static constexpr std::int64_t rows = 16;
  static constexpr std::int64_t chunk_bytes = 16;
  static constexpr std::int64_t k_multiple = 32;
  bool fits() const { return n % rows == 0 && k % k_multiple == 0; }
  std::int64_t row_bytes() const { return k * element_bytes; }
  std::int64_t bytes() const { return n * row_bytes(); }
  /// Where row `row`'s first chunk begins; the next ones follow every rows · chunk_bytes.
  std::int64_t row_offset(std::int64_t row) const {
    return row / rows * rows * row_bytes() + row % rows * chunk_bytes;
  }
};

/// tile64x128: [ceil(N/64)][P][64][128 bytes]: tiles of 64 rows by 128 bytes of K, 8 KiB each, one after
/// another along K; P = the chunks of 128 bytes in a row, rounded up to a multiple of 4; rows past N and
/// bytes past K are zero. Within row r of a tile, the 16 bytes at 16·c stand at 16·(c ^ (r mod 8)): as
/// Hopper's TMA writes a matrix to shared memory with its swizzle of 128 bytes (PTX ISA, "Swizzling
/// modes"), so that a plain copy of a tile is what its tensor core reads. A tile, with the c of each place:
///
///     row 0   | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |      row 8 is as row 0, and so on
///     row 1   | 1 | 0 | 3 | 2 | 5 | 4 | 7 | 6 |
///     row 2   | 2 | 3 | 0 | 1 | 6 | 7 | 4 | 5 |
///     ...
///     row 7   | 7 | 6 | 5 | 4 | 3 | 2 | 1 | 0 |
struct Tile64 {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t element_bytes = 2;

  static constexpr std::int64_t rows = 64;
  static constexpr std::int64_t chunk_bytes = 128;
  static constexpr std::int64_t unit_bytes = 16;
  static constexpr std::int64_t chunk_multiple = 4;
  std::int64_t row_bytes() const { return k * element_bytes; }
  std::int64_t tiles() const { return (n + rows - 1) / rows; }
  std::int64_t row_chunks() const {
    constexpr std::int64_t step = chunk_bytes * chunk_multiple;
    return (row_bytes() + step - 1) / step * chunk_multiple;
  }
  std::int64_t bytes() const { return tiles() * row_chunks() * rows * chunk_bytes; }
  /// Where byte `at` of row `row` stands.
  std::int64_t offset(std::int64_t row, std::int64_t at) const {
    const std::int64_t tile = row / rows * row_chunks() + at / chunk_bytes;
    const std::int64_t unit = (at % chunk_bytes / unit_bytes) ^ (row % 8);
    return (tile * rows + row % rows) * chunk_bytes + unit * unit_bytes + at % unit_bytes;
  }
};

/// Plain [N, K] into tile64x128 and back. Source and destination must not overlap.
void pack_tile64(const Tile64& shape, const void* plain, void* destination);
void unpack_tile64(const Tile64& shape, const void* packed, void* destination);

/// fragment64: a weight of 4 bits as the registers of a warp group hold it for Hopper's tensor core: [ceil(N/64)][ceil(K/64)][128][16
/// bytes]: tiles of 64 rows by 64 of k, 16 bytes a thread. Rows past N and elements past K are zero. Thread t of a tile has rows
/// r = t / 32 · 16 + t % 32 / 4 and r + 8; word j of its 16 bytes is of k from 16·j on, eight elements: with c = t % 4 · 2 the pairs
/// (r, c), (r + 8, c), (r, c + 8), (r + 8, c + 8), each of the elements at k and k + 1, which stand in the word's lower and upper half. In a half
/// the pairs have, of fp4, their signs at the bits 15, 12, 14, 13 and their magnitudes at the bits from 6, 3, 0, 9 on; of int4 their
/// bits from 0, 4, 8, 12 on.
///
///     tile, 16 k of word j      c = 0  2  4  6   8 10 12 14      half of a word of fp4: s, m of pairs 0 to 3
///       row 0 of a warp         t = 0  1  2  3   0  1  2  3        bit 15 14 13 12 | 11..9 | 8..6 | 5..3 | 2..0
///       row 1                       4  5  6  7   4  5  6  7            s0 s2 s3 s1 |   m3  |  m0  |  m1  |  m2
///       ...
///       row 8                       0  1  2  3   0  1  2  3
struct Fragment64 {
  std::int64_t n = 0;
  std::int64_t k = 0;

  static constexpr std::int64_t side = 64;
  static constexpr std::int64_t tile_bytes = side * side / 2;
  static constexpr std::int64_t unit_bytes = 16;
  std::int64_t tiles() const { return (n + side - 1) / side; }
  std::int64_t k_tiles() const { return (k + side - 1) / side; }
  std::int64_t bytes() const { return tiles() * k_tiles() * tile_bytes; }
};

/// Plain [N, K] into aiter16x16 and back. Require shape.fits(); source and destination must not overlap.
void shuffle_tile16(const Tile16& shape, const void* plain, void* destination);
void unshuffle_tile16(const Tile16& shape, const void* shuffled, void* destination);

}  // namespace gemmtune
