// BlockGemm: rows of x times blocks of one weight, for operands of any type and scale. Small types are
// decoded while they are packed; panel kernels then see float32, bf16 or int16 only. The families
// `quantized`, `batched` and `moe` are loops around it.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/cpu/families/blocked/e8m0_range.h"
#include "backends/cpu/families/kernel_set.h"
#include "backends/cpu/microkernels/decode.h"
#include "problem/operands.h"

namespace gemmtune::cpu {

/// The register tile, and the depth and the width of a block of decoded weights.
struct BlockTile {
  Isa isa = Isa::scalar;
  std::int64_t mr = 1;
  std::int64_t nr = 16;
  std::int64_t kc = 512;  // elements
  std::int64_t nc = 0;    // columns; those of a register tile where it has more
  bool rows = false;      // dot products with the weight's rows as they lie, which are not packed
};

/// Types, scales and layout of one multiplication x [rows, k] · w [n, k]ᵀ; counts of the shapes are not
/// looked at.
struct BlockFormat {
  MatrixShape x;
  MatrixShape w;
  WeightLayout layout = WeightLayout::plain;
};

/// The decoders of a level.
const DecodeKernels& decode_kernels(Isa isa);
/// Not decoded before it is packed.
inline bool wide(DataType type) { return bits(type) >= 16; }
/// What they call a type of at most 8 bits.
Stored stored_type(DataType type);
/// Both are int8 and the sums fit into int32.
bool integer_sums(const BlockFormat& format);
/// What the panel kernels multiply at this level; nullopt where the level has no kernels for the format.
std::optional<Compute> compute_type(const KernelSet& set, Isa isa, const BlockFormat& format);
/// The register tiles of a level; requires a compute type.
const PanelList& block_panels(const KernelSet& set, Isa isa, const BlockFormat& format);
/// The register tiles of a level for rows of the weight as they lie; empty where they cannot be read so: the
/// weight is not plain, has scales or is of another type than the products.
RowList block_rows(const KernelSet& set, Isa isa, const BlockFormat& format);
/// The register tiles of a level for rows of the weight as they lie: those of block_rows() or, for 4-bit weights beside x
/// without scales, of w4_tiles(). Their numbers of rows of x and of the weight.
struct RowsTile {
  std::int64_t mr;
  std::int64_t nr;
};
std::vector<RowsTile> rows_tiles(const KernelSet& set, Isa isa, const BlockFormat& format);
bool has_rows_tile(const KernelSet& set, Isa isa, const BlockFormat& format, std::int64_t mr,
                   std::int64_t nr);
/// The fewest rows of x of such a tile that holds `rows`; the most where none does; 0: there is none of this nr.
std::int64_t fitting_rows_tile(const KernelSet& set, Isa isa, const BlockFormat& format, std::int64_t rows,
                               std::int64_t nr);
/// The order of sums (KernelFamily::sum_order): along k in one chain, or one for each scale of k; of rows of 4-bit weights that of
/// W4Gemm. Empty, no promise: dot products along other rows as they lie; x with e8m0 scales, because a chunk whose scale is beyond the range is summed apart for all rows of a
/// register tile. Requires a compute type and a tile that the level has.
std::string block_sum_order(const KernelSet& set, const BlockFormat& format, const BlockTile& tile);
/// The levels worth trying, the preferred one first.
std::vector<Isa> block_levels(const KernelSet& set, const BlockFormat& format);
/// Bytes of one weight matrix [n, k] in the layout, and the shape that panel16 and aiter16x16 have for its
/// type.
std::int64_t layout_bytes(const MatrixShape& w, WeightLayout layout);
Panel16 panel16_of(const MatrixShape& w);
Tile16 tile16_of(const MatrixShape& w);
/// All matrices of a weight into panel16 or aiter16x16, and back. Require check_layout().
void pack_matrices(const MatrixShape& w, WeightLayout layout, const void* plain, void* packed);
void unpack_matrices(const MatrixShape& w, WeightLayout layout, const void* packed, void* plain);
/// ok, or why a weight cannot be in the layout.
Status check_layout(const MatrixShape& w, WeightLayout layout);

/// The e8m0 scales of a row; null where the operand has none.
const unsigned char* exponents_of(const MatrixShape& matrix, const void* scales, std::int64_t row);

/// Float scales of rows, columns or blocks of k, and those of tensors, are applied to sums; e8m0 and e4m3 ones to elements.
bool scales_sums(const MatrixShape& matrix);

/// Rows of x before they are packed: row i is `index[i]`, or i where there is no index.
struct BlockRows {
  const void* x = nullptr;
  std::int64_t stride = 0;  // bytes from row to row
  const void* scale = nullptr;
  std::int64_t scale_step = 1;  // of float32 scales of whole rows: from row to row
  const void* global_scale = nullptr;
  const std::int32_t* index = nullptr;
  std::int64_t count = 0;
};

/// One weight matrix.
struct BlockWeight {
  const void* w = nullptr;
  const void* scale = nullptr;
  std::int64_t scale_step = 1;  // of float32 scales of whole rows
  const void* global_scale = nullptr;
  const std::int8_t* zero_points = nullptr;  // as the scales
};

/// Sums of one register tile, scaled: rows × columns of them, rows ldt floats apart.
struct BlockSums {
  float* sums = nullptr;  // the receiver may write over them
  std::int64_t ldt = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
};

/// Immutable; any number of threads may use it at once.
class BlockGemm {
 public:
  /// Requires a compute type and a register tile that is among block_panels(), or block_rows() for a tile of
  /// rows.
  BlockGemm(const KernelSet& set, const BlockFormat& format, const BlockTile& tile);

  const IsaKernels& isa() const { return isa_; }
  std::int64_t mr() const { return tile_.mr; }
  /// Columns of one multiply().
  std::int64_t nr() const { return block_columns_; }
  std::int64_t columns() const { return format_.w.rows; }
  /// Tiles of mr rows.
  RowTiles row_tiles(std::int64_t rows) const;
  /// Memory for packed rows, 64-byte aligned: elements, then scales.
  std::int64_t packed_bytes(std::int64_t rows) const;
  /// Memory of one thread for packing and for multiplying at most `rows` rows.
  std::int64_t scratch_bytes(std::int64_t rows) const;

  /// Packs row tile `tile` of `rows` into its place in `packed` (packed_bytes(rows.count)).
  void pack_tile(const BlockRows& rows, std::int64_t tile, char* packed, char* scratch) const;

  /// Sums of all `rows` packed rows with columns [first, first + nr) (first a multiple of nr):
  /// emit(BlockSums) for each register tile.
  template <typename Emit>
  void multiply(std::int64_t rows, const char* packed, const BlockWeight& weight, std::int64_t first,
                char* scratch, Emit&& emit) const {
    const Block block = accumulate(rows, packed, weight, first, scratch);
    for (std::int64_t column = 0; column < block.panels; column += tile_panels_)
      for (std::int64_t tile = 0; tile < block.tiles.count(); ++tile) emit(finish(block, {column, tile}));
  }

 private:
  struct Block {
    RowTiles tiles;
    std::int64_t first = 0;    // column
    std::int64_t columns = 0;  // that are there
    std::int64_t panels = 0;
    float* sums = nullptr;
    const char* packed = nullptr;
    const BlockWeight* weight = nullptr;
    char* panel_scratch = nullptr;
    char* row_scratch = nullptr;
    float* tile_sums = nullptr;      // of one scale of k, and of the one before
    float* column_scales = nullptr;  // [scales of k in kc][panels · 16], or of the whole of k
    // Of weights with scales or zero points that decoding applies (DecodePanelArgs):
    float* factors = nullptr;      // [chunks in kc][2][16], or of one row
    float* zero_points = nullptr;  // [chunks in kc][16], or of one row
    // Of weights with e8m0 scales:
    std::uint8_t* beyond = nullptr;   // [chunks in kc]: 1: a column's scale is beyond the range
    std::uint8_t* clamped = nullptr;  // [16][chunks in kc]: scales of a panel
  };
  /// A register tile of a block: its first panel in the block, its row tile.
  struct Place {
    std::int64_t panel;
    std::int64_t tile;
  };
  /// Chunks of 32 elements of k.
  struct Depth {
    std::int64_t first;
    std::int64_t count;
  };

  Block accumulate(std::int64_t rows, const char* packed, const BlockWeight& weight, std::int64_t first,
                   char* scratch) const;
  void multiply_rows(const Block& block) const;
  BlockSums finish(const Block& block, const Place& place) const;
  void multiply_tile(const Block& block, const Place& place, const char* w, const Depth& depth) const;
  /// The chunks from `at` on of the block at `depth`, whose e8m0 scales are within the range; `args` begin there.
  void multiply_within(const Block& block, const Place& place, const PanelArgs& args, const Depth& depth,
                       std::int64_t at) const;
  /// The same of chunks beyond the range: one by one.
  void multiply_beyond(const Block& block, const Place& place, const PanelArgs& args, const Depth& depth,
                       std::int64_t at) const;
  void scale_sums(const Block& block, const Place& place, std::int64_t first, std::int64_t i,
                  const float* sums) const;
  /// The scales of a row of w or of x, `count` chunks; `clamped` with room for them where one is beyond the range of a chunk with an element that is not
  /// zero: `note(chunk)` for each.
  template <typename HasElement, typename Note>
  static const unsigned char* within_range(const E8m0Range& range, const unsigned char* codes,
                                           std::int64_t count, std::uint8_t* clamped,
                                           HasElement&& has_element, Note&& note) {
    if (range.contains_all(codes, count)) return codes;
    for (std::int64_t i = 0; i < count; ++i) {
      clamped[i] = codes[i];
      if (range.contains(codes[i]) || !has_element(i)) continue;
      clamped[i] = range.clamped(codes[i]);
      note(i);
    }
    return clamped;
  }
  void fill_column_scales(const Block& block, std::int64_t k_block, float* out) const;
  const char* decode_weights(const Block& block, std::int64_t chunk, std::int64_t chunks) const;
  /// What decoding multiplies elements by, and what it subtracts first, of a row of w or x, `step` floats apart. Factors are
  /// the e4m3 scales; those of missing elements are 1 and 0.
  static void fill_factors(const MatrixShape& matrix, const void* scales, std::int64_t row,
                           const Depth& depth, std::int64_t step, float* out);
  void fill_zero_points(const Block& block, std::int64_t row, const Depth& depth, std::int64_t step,
                        float* out) const;
  bool decodes_scales(const MatrixShape& matrix) const { return matrix.scale.type == ScaleType::e4m3; }
  void clamp_panel_exponents(const Block& block, DecodePanelArgs& args) const;
  void decode_rows_to_panel(const Block& block, std::int64_t panel, std::int64_t chunk, std::int64_t chunks,
                            char* out) const;
  void prefetch_rows(const Block& block, std::int64_t panel, const Depth& depth) const;
  const float* row_scales(const Block& block, std::int64_t tile) const;
  float* sums_of(const Block& block, const Place& place) const;
  /// Panels of the register tile.
  std::int64_t width(const Block& block, const Place& place) const {
    return std::min(tile_panels_, block.panels - place.panel);
  }
  std::int64_t padded_rows(std::int64_t rows) const { return ceil_div(rows, tile_.mr) * tile_.mr; }
  /// Where a row tile's chunks from `chunk` on lie in packed rows: block of k after block of k, so that what
  /// a block of weights meets lies together. `chunk` begins a block, or lies within one of a tile of `mr`
  /// rows.
  std::int64_t x_offset(const RowTiles& tiles, std::int64_t tile, std::int64_t chunk) const;
  void pack_scales(const BlockRows& rows, std::int64_t tile, float* out) const;
  void pack_x_panels(const PackXArgs& rows, char* out, Element packer) const;
  /// Of rows as they lie: AMX tiles multiply them by x in panels.
  bool reads_x_panels() const { return tile_.rows && isa_.rows_read_x_panels; }
  std::int64_t x_chunk_bytes(const Block& block, const Place& place) const {
    return chunk_elements * block.tiles.size(place.tile) * compute_bytes_;
  }
  std::int64_t w_chunk_bytes() const {
    return chunk_elements * panel_columns *
           (in_place_ ? panel16_of(format_.w).element_bytes : compute_bytes_);
  }
  bool packs_nothing() const { return in_place_ || tile_.rows; }
  std::int64_t tile_bytes() const { return tile_.mr * chunks_ * chunk_elements * compute_bytes_; }
  std::int64_t row_scratch_bytes() const;
  std::int64_t sums_bytes(std::int64_t rows) const;
  std::int64_t column_scales_bytes() const;
  std::int64_t factor_bytes() const;
  std::int64_t beyond_bytes() const;
  /// Behind the scales of packed rows, of x with e8m0 scales: for each row what the sum of each chunk is multiplied by, which only chunks beyond the range
  /// have; then for each tile which chunks these are.
  float* x_rests(char* packed, const RowTiles& tiles, std::int64_t tile) const;
  std::uint8_t* x_beyond(char* packed, const RowTiles& tiles, std::int64_t tile) const;

  const IsaKernels& isa_;
  const DecodeKernels& decode_;
  BlockFormat format_;
  BlockTile tile_;
  Compute compute_;
  const PanelList& panels_;
  RowList rows_;
  std::int64_t compute_bytes_ = 4;
  std::int64_t chunks_ = 0;  // of 32 elements, of k
  std::int64_t kc_chunks_ = 1;
  std::int64_t x_block_chunks_ = 1;  // of packed rows
  std::int64_t tile_panels_ = 1;
  std::int64_t block_columns_ = 16;
  std::int64_t scale_columns_ = 1;  // float32 scales of a packed row
  bool x_e8m0_ = false;
  bool w_e8m0_ = false;
  E8m0Range x_range_;
  E8m0Range w_range_;
  bool in_place_ = false;                      // the packed weight is what panel kernels read
  bool scaled_by_block_ = false;               // scales of blocks of k are applied to sums
  std::int64_t scale_chunks_ = scaled_chunks;  // that share such a scale
  bool scaled_at_end_ = false;
  std::int64_t block_stride_ = 0;  // bytes from panel to panel of decoded weights
};

}  // namespace gemmtune::cpu
