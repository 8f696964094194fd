#include <algorithm>

#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/skinny/skinny.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t max_block_columns = 64;
constexpr std::int64_t max_tile_rows = skinny_max_m + 16;
constexpr std::int64_t max_deep_columns = 256;
constexpr std::int64_t max_x_copy_bytes = std::int64_t{1} << 20;  // it stays in the inner cache

/// A block of output columns in the making: `columns` of them from `first`, the sums in c (leading dimension
/// ldc). The block of this part that follows begins at `next`; no_column: none does.
constexpr std::int64_t no_column = -1;
struct Block {
  std::int64_t first = 0;
  std::int64_t columns = 0;
  std::int64_t next = no_column;
  float* c = nullptr;
  std::int64_t ldc = 0;
};

class SkinnyKernel final : public Kernel {
 public:
  SkinnyKernel(const KernelSet& set, const Problem& problem, const SkinnySettings& settings, int threads)
      : problem_(problem),
        settings_(settings),
        isa_(*set.at(settings.isa)),
        panel_(panel16_of(problem)),
        packed_(layout_of(problem) == WeightLayout::panel16),
        type_(static_cast<int>(element_of(problem.x_type))),
        grid_(skinny_grid(problem, settings, threads)),
        k_parts_(settings.tree ? tree_parts(problem.k) : settings.splits),
        tree_(settings.isa, settings.tree ? k_parts_ : 1) {
    tiles_.rows = problem.m;
    tiles_.mr = settings.mr;
    const std::int64_t rest = problem.m - (tiles_.count() - 1) * settings.mr;
    if (packed_)
      choose_panels(rest);
    else
      choose_rows(rest);
    deepen_blocks();
    chunks_ = panel_.padded_k() / chunk_elements;
    kc_chunks_ = std::min(ceil_div(settings.kc, chunk_elements), chunks_);
    const std::int64_t group_rows = std::min(grid_.group_tiles * settings.mr, tiles_.padded());
    block_sums_ = group_rows * round_up(block_columns_, panel_columns);
    if (problem.m > skinny_max_m)
      own_sums_ = round_up(group_rows, 16) * round_up(block_columns_, panel_columns);
    // A copy of x for each part: none waits for the one that packs, nor reads what lies in another core's cache.
    x_bytes_ = x_bytes(group_rows);
    const std::int64_t all = x_bytes(tiles_.padded());
    packs_alone_ = x_bytes_ <= max_x_copy_bytes || parts() * x_bytes_ <= all;
    if (!packs_alone_) x_bytes_ = all;
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(x_bytes_ * (packs_alone_ ? parts() : 1) + partial_bytes() +
                                    parts() * (own_sums_ + tree_.waiting() * block_sums_) * 4);
  }
  WeightLayout weight_layout() const override {
    return packed_ ? WeightLayout::panel16 : WeightLayout::plain;
  }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Executor& executor = executor_of(stream);
    auto* x = static_cast<char*>(workspace);
    auto* partials = reinterpret_cast<float*>(x + x_bytes_ * (packs_alone_ ? parts() : 1));
    float* sums = partials + partial_bytes() / 4;
    float* waiting = sums + parts() * own_sums_;
    if (!packs_alone_) pack_x(operands, x, executor);
    // One thread packs x once, for all columns.
    const std::int64_t column_parts = executor.threads() == 1 ? 1 : grid_.column_parts;
    run_on(executor, settings_.splits * grid_.row_parts * column_parts, [&](std::int64_t index) {
      const std::int64_t column = index % column_parts;
      const std::int64_t row = index / column_parts % grid_.row_parts;
      const std::int64_t columns = ceil_div(problem_.n, grid_.unit);
      const Part part{
          .tiles = {share(tiles_.count(), grid_.row_parts, row),
                    share(tiles_.count(), grid_.row_parts, row + 1)},
          .columns = {share(columns, column_parts, column) * grid_.unit,
                      std::min(share(columns, column_parts, column + 1) * grid_.unit, problem_.n)},
          .split = index / column_parts / grid_.row_parts,
          .x = packs_alone_ ? x + index * x_bytes_ : x,
          .partials = partials,
          .sums = sums + index * own_sums_,
          .waiting = waiting + index * tree_.waiting() * block_sums_};
      if (isa_.begin != nullptr) isa_.begin();
      for (std::int64_t group = 0; group < grid_.groups; ++group) compute_group(operands, part, group);
      if (isa_.end != nullptr) isa_.end();
    });
    if (settings_.splits == 1) return {};
    reduce_splits({.partials = partials,
                   .parts = settings_.splits,
                   .m = problem_.m,
                   .n = problem_.n,
                   .store = isa_.store[static_cast<int>(element_of(problem_.y_type))],
                   .y_bytes = bytes_of(problem_.y_type, 1)},
                  operands, executor, grid_.row_parts * grid_.column_parts * settings_.splits);
    return {};
  }

 private:
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  /// What is computed at once: some row tiles of x, some columns, a split of k.
  struct Part {
    Range tiles;
    Range columns;
    std::int64_t split = 0;
    char* x = nullptr;  // packed: the part's own, or all of it
    float* partials = nullptr;
    float* sums = nullptr;     // own_sums_
    float* waiting = nullptr;  // sums of a tree
  };
  /// Rows of a part that go by while the weight is read once.
  struct Group {
    std::int64_t first_row = 0;
    RowTiles tiles;
    const char* x = nullptr;
  };

  void choose_panels(std::int64_t rest) {
    const std::int64_t panels = settings_.nr / panel_columns;
    const PanelList& list = isa_.panels[type_];
    tiles_.last_mr = fitting(list, rest, panels)->mr;
    for (std::int64_t p = 1; p <= panels; ++p) {
      panel_kernels_[0][p] = find(list, tiles_.mr, p)->run;
      panel_kernels_[1][p] = find(list, tiles_.last_mr, p)->run;
    }
    block_columns_ = settings_.nr;
  }

  /// Many rows of x that go by in blocks of k: they come from an outer cache once for each block of columns.
  void deepen_blocks() {
    if (problem_.m <= skinny_max_m || settings_.tree || settings_.kc >= problem_.k) return;
    const std::int64_t columns = ceil_div(problem_.n, grid_.column_parts);
    const std::int64_t blocks = ceil_div(columns, max_deep_columns);
    block_columns_ = std::max(block_columns_, round_up(ceil_div(columns, blocks), settings_.nr));
  }

  void choose_rows(std::int64_t rest) {
    const RowList& list = isa_.rows[type_];
    tiles_.last_mr = fitting(list, rest, settings_.nr)->mr;
    row_kernels_[0] = find(list, tiles_.mr, settings_.nr)->run;
    row_kernels_[1] = find(list, tiles_.last_mr, settings_.nr)->run;
    // A tree goes through all of k for as few rows of the weight as there are streams.
    block_columns_ = settings_.tree ? settings_.nr
                                    : std::max(settings_.nr, max_block_columns / settings_.nr * settings_.nr);
    x_as_panels_ = isa_.rows_read_x_panels;
  }

  std::int64_t parts() const { return settings_.splits * grid_.row_parts * grid_.column_parts; }
  std::int64_t partial_bytes() const {
    return settings_.splits == 1
               ? 0
               : settings_.splits * problem_.m * problem_.n * static_cast<std::int64_t>(sizeof(float));
  }

  /// Bytes of so many rows of packed x.
  std::int64_t x_offset(std::int64_t rows) const { return rows * panel_.padded_k() * compute_bytes(isa_); }
  std::int64_t x_bytes(std::int64_t rows) const {
    return round_up(x_offset(round_up(rows, x_as_panels_ ? 16 : 1)), 64);
  }

  void pack_x(const Operands& operands, char* x, Executor& executor) const {
    const std::int64_t count = tiles_.count();
    // Packing is a copy of x; waking another thread costs more unless x is large.
    const std::int64_t parts = problem_.m * problem_.k < 32768 ? 1 : std::min(this->parts(), count);
    run_on(executor, parts, [&](std::int64_t part) {
      const std::int64_t first = share(count, parts, part);
      pack_tiles(operands, {first, share(count, parts, part + 1)}, x + x_offset(first * tiles_.mr));
    });
  }

  /// x of these row tiles, to `x`.
  void pack_tiles(const Operands& operands, Range tiles, char* x) const {
    const std::int64_t stride = operands.ldx * panel_.element_bytes;
    const auto* source = static_cast<const char*>(operands.x);
    const std::int64_t step = x_as_panels_ ? 16 : tiles_.mr;
    const std::int64_t first = tiles.begin * tiles_.mr / step;
    const std::int64_t end = ceil_div(std::min(tiles.end * tiles_.mr, problem_.m), step);
    for (std::int64_t i = first; i < end; ++i) {
      const std::int64_t rows = std::min(step, problem_.m - i * step);
      char* out = x + x_offset((i - first) * step);
      if (x_as_panels_)
        isa_.pack_panel[type_]({source + i * step * stride, stride, rows, problem_.k, chunks_, out});
      else
        isa_.pack_x[type_](
            {source + i * step * stride, stride, rows, tiles_.size(i), problem_.k, chunks_, out});
    }
  }

  void compute_group(const Operands& operands, const Part& part, std::int64_t index) const {
    const std::int64_t count = part.tiles.end - part.tiles.begin;
    const Range tiles{part.tiles.begin + share(count, grid_.groups, index),
                      part.tiles.begin + share(count, grid_.groups, index + 1)};
    if (tiles.begin == tiles.end) return;
    const bool last = tiles.end == tiles_.count();
    const std::int64_t first_row = tiles.begin * tiles_.mr;
    const Group group{.first_row = first_row,
                      .tiles = {.rows = std::min(tiles.end * tiles_.mr, problem_.m) - first_row,
                                .mr = tiles_.mr,
                                .last_mr = last ? tiles_.last_mr : tiles_.mr},
                      .x = packs_alone_ ? part.x : part.x + x_offset(first_row)};
    if (packs_alone_) pack_tiles(operands, tiles, part.x);
    for (std::int64_t first = part.columns.begin; first < part.columns.end; first += block_columns_) {
      const std::int64_t end = std::min(first + block_columns_, part.columns.end);
      const std::int64_t again = index + 1 < grid_.groups ? part.columns.begin : no_column;
      compute_block(operands, group, {first, end}, end < part.columns.end ? end : again, part);
    }
  }

  void compute_block(const Operands& operands, const Group& group, Range columns, std::int64_t next,
                     const Part& part) const {
    alignas(64) float few[max_tile_rows * max_block_columns];
    Block block{.first = columns.begin,
                .columns = columns.end - columns.begin,
                .next = next,
                .c = own_sums_ == 0 ? few : part.sums,
                .ldc = 0};
    block.ldc = round_up(packed_ ? block.columns : block_columns_, panel_columns);
    if (!settings_.tree) {
      multiply(operands, group, block, part.split);
    } else {
      for (std::int64_t k = 0; k < k_parts_; ++k) {
        multiply(operands, group, block, k);
        tree_.add(k, block.c, group.tiles.rows * block.ldc, part.waiting, block_sums_);
      }
    }
    emit(operands, group, block, part);
  }

  /// A part of k.
  void multiply(const Operands& operands, const Group& group, const Block& block, std::int64_t part) const {
    const Range k{share(chunks_, k_parts_, part), share(chunks_, k_parts_, part + 1)};
    if (packed_)
      multiply_panels(operands, group, block, k);
    else
      multiply_rows(operands, group, block, k);
  }

  /// Several tiles of AMX: each fetches some of the weights that come next, while it multiplies those in the inner cache.
  bool fetches_next(const RowTiles& tiles) const {
    return isa_.rows_read_x_panels && settings_.prefetch != 0 && tiles.count() > 1;
  }
  /// A row tile's share of the lines or rows of the weight that are fetched, `all` of them.
  Range fetched(const RowTiles& tiles, std::int64_t tile, std::int64_t all) const {
    if (!fetches_next(tiles)) return {0, all};
    return {share(all, tiles.count(), tile), share(all, tiles.count(), tile + 1)};
  }

  /// From the weights of `chunks` and the columns from block.first + `column` on to the ones that are multiplied next, in bytes of a column and
  /// of a chunk; 0: none are.
  std::int64_t bytes_to_next(const Block& block, std::int64_t column, Range chunks, Range k,
                             std::int64_t column_bytes, std::int64_t chunk_bytes) const {
    if (column + settings_.nr < block.columns) return settings_.nr * column_bytes;
    if (chunks.end < k.end) return (chunks.end - chunks.begin) * chunk_bytes - column * column_bytes;
    if (block.next == no_column) return 0;
    return (block.next - block.first - column) * column_bytes - (chunks.begin - k.begin) * chunk_bytes;
  }

  void multiply_panels(const Operands& operands, const Group& group, const Block& block, Range k) const {
    const RowTiles& tiles = group.tiles;
    const std::int64_t chunk_bytes = panel_.panel_bytes() / chunks_;
    const char* w = static_cast<const char*>(operands.w) + block.first / panel_columns * panel_.panel_bytes();
    for (std::int64_t chunk = k.begin; chunk < k.end; chunk += kc_chunks_)
      for (std::int64_t column = 0; column < block.columns; column += settings_.nr) {
        const std::int64_t chunks = std::min(kc_chunks_, k.end - chunk);
        const std::int64_t panels = ceil_div(std::min(settings_.nr, block.columns - column), panel_columns);
        const char* from = w + column / panel_columns * panel_.panel_bytes() + chunk * chunk_bytes;
        const std::int64_t next = bytes_to_next(block, column, {chunk, chunk + chunks}, k,
                                                panel_.panel_bytes() / panel_columns, chunk_bytes);
        for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
          const bool last = tile + 1 == tiles.count();
          const std::int64_t mr = tiles.size(tile);
          // The first row tile draws the weights from memory, the last one fetches what comes next.
          std::int64_t prefetch = tile == 0 ? settings_.prefetch : 0;
          if (settings_.prefetch != 0 && (fetches_next(tiles) || (last && tile != 0))) prefetch = next;
          const Range lines = fetched(tiles, tile, 16);
          panel_kernels_[mr != tiles_.mr][panels](
              {.x = group.x + x_offset(tile * tiles_.mr) + chunk * chunk_elements * mr * compute_bytes(isa_),
               .w = from,
               .w_stride = panel_.panel_bytes(),
               .chunks = chunks,
               .c = block.c + column * tiles.padded() + tile * tiles_.mr * panels * panel_columns,
               .accumulate = chunk != k.begin,
               .prefetch = prefetch,
               .prefetch_x = 0,
               .fetched_from = lines.begin,
               .fetched_to = lines.end});
        }
      }
  }

  void multiply_rows(const Operands& operands, const Group& group, const Block& block, Range k) const {
    const RowTiles& tiles = group.tiles;
    const std::int64_t stride = problem_.k * panel_.element_bytes;
    const std::int64_t x_stride = panel_.padded_k() * 16 * compute_bytes(isa_);
    const char* w = static_cast<const char*>(operands.w) + block.first * stride;
    for (std::int64_t chunk = k.begin; chunk < k.end; chunk += kc_chunks_)
      for (std::int64_t row = 0; row < block.columns; row += settings_.nr) {
        const std::int64_t chunks = std::min(kc_chunks_, k.end - chunk);
        const std::int64_t first_k = chunk * chunk_elements;
        const std::int64_t next = bytes_to_next(block, row, {chunk, chunk + chunks}, k, stride,
                                                chunk_elements * panel_.element_bytes);
        for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
          const std::int64_t mr = x_as_panels_ ? 16 : tiles.size(tile);
          const Range rows = fetched(tiles, tile, settings_.nr);
          row_kernels_[tiles.size(tile) != tiles_.mr](
              {.x = group.x + x_offset(tile * tiles_.mr) + first_k * mr * compute_bytes(isa_),
               .x_stride = x_stride,
               .w = w + row * stride + first_k * panel_.element_bytes,
               .w_stride = stride,
               .rows = std::min(settings_.nr, block.columns - row),
               .k = std::min(chunks * chunk_elements, problem_.k - first_k),
               .c = block.c + tile * tiles_.mr * block.ldc + row,
               .ldc = block.ldc,
               .accumulate = chunk != k.begin,
               .goes_on = chunk + chunks < k.end,
               .prefetch = fetches_next(tiles) ? next
                           : tile == 0         ? settings_.prefetch
                                               : 0,
               .fetched_from = rows.begin,
               .fetched_to = rows.end});
        }
      }
  }

  void emit(const Operands& operands, const Group& group, const Block& block, const Part& part) const {
    // Sums of panels are dense, nr columns at a time. A row tile after the other, so that lines of a row of y meet each other in the cache.
    const std::int64_t step = packed_ ? settings_.nr : block.columns;
    const RowTiles& tiles = group.tiles;
    for (std::int64_t tile = 0; tile < tiles.count(); ++tile)
      for (std::int64_t column = 0; column < block.columns; column += step) {
        const std::int64_t columns = std::min(step, block.columns - column);
        const std::int64_t ldt = packed_ ? round_up(columns, panel_columns) : block.ldc;
        store(operands,
              {.tile = block.c + column * tiles.padded() + tile * tiles_.mr * ldt,
               .ldt = ldt,
               .rows = tiles.valid(tile),
               .columns = columns},
              group.first_row + tile * tiles_.mr, block.first + column, part);
      }
  }

  void store(const Operands& operands, StoreArgs args, std::int64_t row, std::int64_t column,
             const Part& part) const {
    if (settings_.splits > 1) {
      args.y = part.partials + (part.split * problem_.m + row) * problem_.n + column;
      args.ldy = problem_.n;
      return isa_.store[static_cast<int>(Element::f32)](args);
    }
    const std::int64_t each = bytes_of(problem_.y_type, 1);
    if (problem_.bias) args.bias = static_cast<const char*>(operands.bias) + column * each;
    args.y = static_cast<char*>(operands.y) + (row * operands.ldy + column) * each;
    args.ldy = operands.ldy;
    isa_.store[static_cast<int>(element_of(problem_.y_type))](args);
  }

  Problem problem_;
  SkinnySettings settings_;
  const IsaKernels& isa_;
  Panel16 panel_;
  bool packed_ = false;
  int type_ = 0;
  SkinnyGrid grid_;
  RowTiles tiles_;
  bool x_as_panels_ = false;
  std::int64_t block_columns_ = 0;
  std::int64_t chunks_ = 0;
  std::int64_t kc_chunks_ = 0;
  std::int64_t x_bytes_ = 0;   // packed: of a part, or of all rows
  bool packs_alone_ = false;   // each part its own x
  std::int64_t own_sums_ = 0;  // floats of a part's block of many rows; few rows are on the stack
  std::int64_t k_parts_ = 1;   // splits, or parts of a tree
  TreeSums tree_;
  std::int64_t block_sums_ = 0;           // floats
  PanelKernel panel_kernels_[2][5] = {};  // [last row tile][panels]
  RowKernel row_kernels_[2] = {};         // [last row tile]
};

/// Tiles of 32 x 32 that a thread multiplies, and what else takes as long: packing of eight rows of x, and reading of 16 columns of weights from
/// an outer cache, once for each group of rows (docs/lab/cpu_tiled.md).
double busiest_part(double rows, double columns, double groups) {
  return rows * columns / 1024 + rows / 8 + columns * groups / 16;
}

}  // namespace

SkinnyGrid skinny_grid(const Problem& problem, const SkinnySettings& settings, int threads) {
  SkinnyGrid grid;
  const bool many = problem.m > skinny_max_m;
  // Few rows wait for the weights: each panel counts.
  grid.unit = layout_of(problem) == WeightLayout::panel16 && !many ? panel_columns : settings.nr;
  const std::int64_t tiles = ceil_div(problem.m, settings.mr);
  const std::int64_t columns = ceil_div(problem.n, grid.unit);
  const std::int64_t most = std::max<std::int64_t>(worthwhile_threads(problem, threads) / settings.splits, 1);
  double least = 0;
  for (std::int64_t row_parts = 1; row_parts <= (many ? std::min(most, tiles) : 1); ++row_parts) {
    const std::int64_t column_parts = std::min(most / row_parts, columns);
    const std::int64_t rows = std::min(ceil_div(tiles, row_parts) * settings.mr, problem.m);
    const double work = busiest_part(static_cast<double>(rows),
                                     static_cast<double>(ceil_div(columns, column_parts) * grid.unit),
                                     static_cast<double>(ceil_div(rows, settings.rows)));
    if (least != 0 && work >= least) continue;
    least = work;
    grid.row_parts = row_parts;
    grid.column_parts = column_parts;
  }
  const std::int64_t part_tiles = ceil_div(tiles, grid.row_parts);
  grid.groups = ceil_div(part_tiles * settings.mr, settings.rows);
  grid.group_tiles = ceil_div(part_tiles, grid.groups);
  return grid;
}

std::unique_ptr<Kernel> make_skinny_kernel(const KernelSet& set, const Problem& problem,
                                           const SkinnySettings& settings, int threads) {
  return std::make_unique<SkinnyKernel>(set, problem, settings, threads);
}

}  // namespace gemmtune::cpu
