// W4Gemm: rows of x times rows of a plain 4-bit weight. Each byte of the weight is read once, front to back, and decoded in
// registers, or into AMX tiles (microkernels/w4.h). The families `skinny_w4` and `moe` are loops around it; `moe` uses it as it uses BlockGemm.
#pragma once

#include <cstdint>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "backends/cpu/microkernels/w4.h"

namespace gemmtune::cpu {

struct W4Tile {
  Isa isa = Isa::scalar;
  std::int64_t mr = 1;        // rows of x in registers
  std::int64_t nr = 1;        // rows of the weight at once
  std::int64_t prefetch = 0;  // bytes ahead in each of them
};
/// What hides the latency of memory. AMX tiles fetch the rows that follow instead, or with 0 none.
inline constexpr std::int64_t default_w4_prefetch = 8192;

/// The kernels of a level for x and w of a format; null where it has none.
const W4Kernels* w4_kernels(const KernelSet& set, Isa isa, const BlockFormat& format);
/// Their register tiles for the weight. Requires 4-bit elements.
const W4List& w4_tiles(const W4Kernels& kernels, const MatrixShape& w);
/// The order of sums (KernelFamily::sum_order): a total for each lane of a line, along k; then the lanes in one order.
std::string w4_sum_order(Isa isa);
/// Microseconds of one thread for `rows` rows of x with the whole weight, if that comes from memory at no cost. Requires w4_kernels().
double w4_microseconds(const KernelSet& set, const BlockFormat& format, std::int64_t rows,
                       const W4Tile& tile);

/// Immutable; any number of threads may use it at once.
class W4Gemm {
 public:
  /// Requires a register tile that the level has for the format.
  W4Gemm(const KernelSet& set, const BlockFormat& format, const W4Tile& tile);

  const IsaKernels& isa() const { return isa_; }
  std::int64_t mr() const { return tile_.mr; }
  /// Columns of one multiply().
  static constexpr std::int64_t nr() { return 64; }
  /// Tiles of mr rows.
  RowTiles row_tiles(std::int64_t rows) const;
  /// Memory for packed rows, 64-byte aligned: elements, then a factor each.
  std::int64_t packed_bytes(std::int64_t rows) const;
  /// Memory of one thread for packing and for multiplying at most `rows` rows.
  std::int64_t scratch_bytes(std::int64_t rows) const;

  /// Rows of x that are packed at once: one, or a panel.
  std::int64_t packed_rows() const { return amx_ == nullptr ? 1 : tile_.mr; }
  /// Packs rows [row, row + packed_rows()) as far as they exist into their place in `packed` (packed_bytes(rows.count)); `row` is a
  /// multiple of packed_rows().
  void pack(const BlockRows& rows, std::int64_t row, char* packed, char* scratch) const;
  /// The rows of tile `tile`.
  void pack_tile(const BlockRows& rows, std::int64_t tile, char* packed, char* scratch) const;

  /// Sums of all `rows` packed rows with `columns` columns from `first` on, at most nr().
  BlockSums sums(std::int64_t rows, const char* packed, const BlockWeight& weight, std::int64_t first,
                 std::int64_t columns, char* scratch) const;
  /// The same of columns [first, first + nr), as far as they exist: emit(BlockSums) once.
  template <typename Emit>
  void multiply(std::int64_t rows, const char* packed, const BlockWeight& weight, std::int64_t first,
                char* scratch, Emit&& emit) const {
    emit(sums(rows, packed, weight, first, std::min(nr(), format_.w.rows - first), scratch));
  }

 private:
  /// Of a row of x.
  std::int64_t row_bytes() const { return lines_ * kernels_.x_line_bytes; }
  std::int64_t plain_row_bytes() const;
  std::int64_t scale_bytes() const;
  float* factors(char* packed, const RowTiles& tiles) const {
    return reinterpret_cast<float*>(packed + tiles.padded() * row_bytes());
  }
  void pack_row(const BlockRows& rows, std::int64_t row, char* packed, char* scratch) const;
  void pack_panel(const BlockRows& rows, std::int64_t row, char* packed, char* scratch) const;
  void put_factor(const BlockRows& rows, std::int64_t row, char* packed) const;
  void widen_row(const BlockRows& rows, std::int64_t row, char* out) const;
  void widen_scales(ScaleType type, const void* from, std::int64_t count, float* out) const;
  void prepare_scales(const BlockWeight& weight, std::int64_t first, std::int64_t rows, char* out) const;
  // Of AMX tiles: what w4_tile_rows rows of the weight are decoded and scaled by, and rows of sums.
  struct TileRows {
    W4Tables kind = W4Tables::one;
    const void* tables = nullptr;
    const unsigned char* bytes = nullptr;  // of tables
    const float* scales = nullptr;         // in scratch
  };
  struct TileWork {
    std::int64_t rows;
    const char* packed;
    const BlockWeight& weight;
    std::int64_t first;
    std::int64_t columns;
  };
  struct Factors {
    const float* of_rows;
    float of_weight;
  };
  TileRows tile_rows(const BlockWeight& weight, std::int64_t first, std::int64_t rows, float* scales) const;
  void sum_tiles(const TileWork& work, const Factors& factors, char* scratch) const;
  std::int64_t tile_sums_bytes(std::int64_t rows) const;

  const IsaKernels& isa_;
  const IsaKernels& floats_;  // of float32, for scales of 16 bits
  const DecodeKernels& decode_;
  const W4Kernels& kernels_;
  const W4List& tiles_;
  const W4TileKernels* amx_;
  BlockFormat format_;
  W4Tile tile_;
  float unit_;                   // what sums are counted in
  std::int64_t lines_ = 0;       // of a row of w
  std::int64_t lane_shift_ = 0;  // 2^lane_shift lanes of a line share a scale
  std::int64_t scale_stride_ = 0;
};

}  // namespace gemmtune::cpu
