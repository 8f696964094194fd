#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/skinny/skinny.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t max_block_columns = 64;
constexpr std::int64_t max_tile_rows = skinny_max_m + 16;
constexpr std::int64_t max_deep_columns = 256;
constexpr std::int64_t max_x_copies_bytes = std::int64_t{8} << 20;

/// A block of output columns in the making: `columns` of them from `first`, the sums in c (leading dimension
/// ldc).
struct Block {
  std::int64_t first = 0;
  std::int64_t columns = 0;
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
        threads_(worthwhile_threads(problem, threads)),
        k_parts_(settings.tree ? tree_parts(problem.k) : settings.splits),
        tree_(settings.isa, settings.tree ? k_parts_ : 1) {
    tiles_.rows = problem.m;
    tiles_.mr = settings.mr;
    const std::int64_t rest = problem.m - (tiles_.count() - 1) * settings.mr;
    if (packed_)
      choose_panels(rest);
    else
      choose_rows(rest);
    chunks_ = panel_.padded_k() / chunk_elements;
    block_sums_ = problem.m * row_block_columns();
    kc_chunks_ = std::min(ceil_div(settings.kc, chunk_elements), chunks_);
    if (problem.m > skinny_max_m) own_sums_ = round_up(tiles_.padded(), 16) * row_block_columns();
    x_bytes_ = round_up(tiles_.padded(), x_as_panels_ ? 16 : 1) * panel_.padded_k() * compute_bytes(isa_);
    // A copy of x for each thread: none waits for the one that packs, nor reads what lies in another core's cache.
    columns_parts_ =
        std::clamp<std::int64_t>(threads_ / settings.splits, 1, ceil_div(problem.n, block_columns_));
    parts_ = columns_parts_ * settings.splits;
    if (own_sums_ == 0 && parts_ * round_up(x_bytes_, 64) <= max_x_copies_bytes) x_copies_ = parts_;
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(round_up(x_bytes_, 64) * x_copies_ + partial_bytes() +
                                    parts_ * (own_sums_ + tree_.waiting() * block_sums_) * 4);
  }
  WeightLayout weight_layout() const override {
    return packed_ ? WeightLayout::panel16 : WeightLayout::plain;
  }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Executor& executor = executor_of(stream);
    auto* x = static_cast<char*>(workspace);
    auto* partials = reinterpret_cast<float*>(x + round_up(x_bytes_, 64) * x_copies_);
    float* sums = partials + partial_bytes() / 4;
    float* waiting = sums + parts_ * own_sums_;
    const std::int64_t blocks = ceil_div(problem_.n, block_columns_);
    const bool each_packs = x_copies_ > 1 && executor.threads() > 1;
    if (!each_packs) pack_x(operands, x, executor);
    run_on(executor, parts_, [&](std::int64_t part) {
      const std::int64_t split = part / columns_parts_;
      const std::int64_t i = part % columns_parts_;
      char* const own_x = each_packs ? x + part * round_up(x_bytes_, 64) : x;
      if (each_packs) pack_tiles(operands, own_x, 0, x_tiles());
      if (isa_.begin != nullptr) isa_.begin();
      for (std::int64_t b = share(blocks, columns_parts_, i); b < share(blocks, columns_parts_, i + 1); ++b)
        compute_block(
            operands, own_x, b,
            {split, partials, sums + part * own_sums_, waiting + part * tree_.waiting() * block_sums_});
      if (isa_.end != nullptr) isa_.end();
    });
    if (settings_.splits == 1) return {};
    reduce_splits({.partials = partials,
                   .parts = settings_.splits,
                   .m = problem_.m,
                   .n = problem_.n,
                   .store = isa_.store[static_cast<int>(element_of(problem_.y_type))],
                   .y_bytes = bytes_of(problem_.y_type, 1)},
                  operands, executor, threads_);
    return {};
  }

 private:
  struct Split {
    std::int64_t index = 0;
    float* partials = nullptr;
    float* sums = nullptr;     // own_sums_
    float* waiting = nullptr;  // sums of a tree
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
    deepen_blocks();
  }

  /// Many rows of x that go by in blocks of k: they come from an outer cache once for each block of columns.
  void deepen_blocks() {
    if (problem_.m <= skinny_max_m || settings_.tree || settings_.kc >= problem_.k) return;
    while (block_columns_ < max_deep_columns && problem_.n >= 4 * threads_ * block_columns_)
      block_columns_ *= 2;
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
    deepen_blocks();
  }

  std::int64_t row_block_columns() const { return round_up(block_columns_, panel_columns); }
  std::int64_t partial_bytes() const {
    return settings_.splits == 1
               ? 0
               : settings_.splits * problem_.m * problem_.n * static_cast<std::int64_t>(sizeof(float));
  }

  /// Bytes of x packed for rows before row tile `tile`.
  std::int64_t x_offset(std::int64_t tile) const {
    return tile * tiles_.mr * panel_.padded_k() * compute_bytes(isa_);
  }

  void pack_x(const Operands& operands, char* x, Executor& executor) const {
    const std::int64_t count = x_tiles();
    // Packing is a copy of x; waking another thread costs more unless x is large.
    const std::int64_t parts = problem_.m * problem_.k < 32768 ? 1 : std::min<std::int64_t>(threads_, count);
    run_on(executor, parts, [&](std::int64_t part) {
      pack_tiles(operands, x, share(count, parts, part), share(count, parts, part + 1));
    });
  }

  std::int64_t x_tile_rows() const { return x_as_panels_ ? 16 : tiles_.mr; }
  std::int64_t x_tiles() const { return ceil_div(problem_.m, x_tile_rows()); }

  void pack_tiles(const Operands& operands, char* x, std::int64_t begin, std::int64_t end) const {
    const std::int64_t stride = operands.ldx * panel_.element_bytes;
    const auto* source = static_cast<const char*>(operands.x);
    const std::int64_t step = x_tile_rows();
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t rows = std::min(step, problem_.m - i * step);
      char* out = x + i * step * panel_.padded_k() * compute_bytes(isa_);
      if (x_as_panels_)
        isa_.pack_panel[type_]({source + i * step * stride, stride, rows, problem_.k, chunks_, out});
      else
        isa_.pack_x[type_](
            {source + i * step * stride, stride, rows, tiles_.size(i), problem_.k, chunks_, out});
    }
  }

  void compute_block(const Operands& operands, const char* x, std::int64_t b, Split split) const {
    alignas(64) float few[max_tile_rows * max_block_columns];
    float* const c = own_sums_ == 0 ? few : split.sums;
    Block block{.first = b * block_columns_, .columns = 0, .c = c, .ldc = 0};
    block.columns = std::min(block_columns_, problem_.n - block.first);
    block.ldc = packed_ ? round_up(block.columns, panel_columns) : row_block_columns();
    if (!settings_.tree) {
      multiply(operands, x, block, split.index);
    } else {
      for (std::int64_t part = 0; part < k_parts_; ++part) {
        multiply(operands, x, block, part);
        tree_.add(part, c, problem_.m * block.ldc, split.waiting, block_sums_);
      }
    }
    emit(operands, block, split);
  }

  /// A part of k.
  void multiply(const Operands& operands, const char* x, const Block& block, std::int64_t part) const {
    const Range k{share(chunks_, k_parts_, part), share(chunks_, k_parts_, part + 1)};
    if (packed_)
      multiply_panels(operands, x, block, k);
    else
      multiply_rows(operands, x, block, k);
  }

  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  /// Several tiles of AMX: each fetches some of the weights that come next, while it multiplies those in the inner cache.
  bool fetches_next() const {
    return isa_.rows_read_x_panels && settings_.prefetch != 0 && tiles_.count() > 1;
  }
  /// A row tile's share of the lines or rows of the weight that are fetched, `all` of them.
  Range fetched(std::int64_t tile, std::int64_t all) const {
    if (!fetches_next()) return {0, all};
    return {share(all, tiles_.count(), tile), share(all, tiles_.count(), tile + 1)};
  }

  void multiply_panels(const Operands& operands, const char* x, const Block& block, Range k) const {
    const std::int64_t chunk_bytes = panel_.panel_bytes() / chunks_;
    const char* w = static_cast<const char*>(operands.w) + block.first / panel_columns * panel_.panel_bytes();
    for (std::int64_t chunk = k.begin; chunk < k.end; chunk += kc_chunks_)
      for (std::int64_t column = 0; column < block.columns; column += settings_.nr) {
        const std::int64_t chunks = std::min(kc_chunks_, k.end - chunk);
        const std::int64_t panels = ceil_div(std::min(settings_.nr, block.columns - column), panel_columns);
        const char* from = w + column / panel_columns * panel_.panel_bytes() + chunk * chunk_bytes;
        // From these weights to the ones that are multiplied next.
        std::int64_t next = panels * panel_.panel_bytes();
        if (column + settings_.nr >= block.columns)
          next = chunk + chunks < k.end ? chunks * chunk_bytes - column / panel_columns * panel_.panel_bytes()
                                        : next - (chunk - k.begin) * chunk_bytes;
        for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
          const bool last = tile + 1 == tiles_.count();
          const std::int64_t mr = tiles_.size(tile);
          // The first row tile draws the weights from memory, the last one fetches what comes next.
          std::int64_t prefetch = tile == 0 ? settings_.prefetch : 0;
          if (settings_.prefetch != 0 && (fetches_next() || (last && tile != 0))) prefetch = next;
          const Range lines = fetched(tile, 16);
          panel_kernels_[last][panels](
              {.x = x + x_offset(tile) + chunk * chunk_elements * mr * compute_bytes(isa_),
               .w = from,
               .w_stride = panel_.panel_bytes(),
               .chunks = chunks,
               .c = block.c + column * tiles_.padded() + tile * tiles_.mr * panels * panel_columns,
               .accumulate = chunk != k.begin,
               .prefetch = prefetch,
               .prefetch_x = 0,
               .fetched_from = lines.begin,
               .fetched_to = lines.end});
        }
      }
  }

  void multiply_rows(const Operands& operands, const char* x, const Block& block, Range k) const {
    const std::int64_t stride = problem_.k * panel_.element_bytes;
    const std::int64_t x_stride = panel_.padded_k() * 16 * compute_bytes(isa_);
    const char* w = static_cast<const char*>(operands.w) + block.first * stride;
    for (std::int64_t chunk = k.begin; chunk < k.end; chunk += kc_chunks_)
      for (std::int64_t row = 0; row < block.columns; row += settings_.nr) {
        const std::int64_t chunks = std::min(kc_chunks_, k.end - chunk);
        const std::int64_t first_k = chunk * chunk_elements;
        const bool ends_block = row + settings_.nr >= block.columns;
        std::int64_t next = settings_.nr * stride;
        if (ends_block && chunk + chunks < k.end)
          next = chunks * chunk_elements * panel_.element_bytes - row * stride;
        for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
          const bool last = tile + 1 == tiles_.count();
          const std::int64_t mr = x_as_panels_ ? 16 : tiles_.size(tile);
          const Range rows = fetched(tile, settings_.nr);
          row_kernels_[last]({.x = x + x_offset(tile) + first_k * mr * compute_bytes(isa_),
                              .x_stride = x_stride,
                              .w = w + row * stride + first_k * panel_.element_bytes,
                              .w_stride = stride,
                              .rows = std::min(settings_.nr, block.columns - row),
                              .k = std::min(chunks * chunk_elements, problem_.k - first_k),
                              .c = block.c + tile * tiles_.mr * block.ldc + row,
                              .ldc = block.ldc,
                              .accumulate = chunk != k.begin,
                              .prefetch = fetches_next() ? next
                                          : tile == 0    ? settings_.prefetch
                                                         : 0,
                              .fetched_from = rows.begin,
                              .fetched_to = rows.end});
        }
      }
  }

  void emit(const Operands& operands, const Block& block, Split split) const {
    // Sums of panels are dense, nr columns at a time.
    const std::int64_t step = packed_ ? settings_.nr : block.columns;
    for (std::int64_t column = 0; column < block.columns; column += step) {
      const std::int64_t columns = std::min(step, block.columns - column);
      store(operands,
            {.tile = block.c + column * tiles_.padded(),
             .ldt = packed_ ? round_up(columns, panel_columns) : block.ldc,
             .rows = problem_.m,
             .columns = columns},
            block.first + column, split);
    }
  }

  void store(const Operands& operands, StoreArgs args, std::int64_t first, Split split) const {
    if (settings_.splits > 1) {
      args.y = split.partials + split.index * problem_.m * problem_.n + first;
      args.ldy = problem_.n;
      return isa_.store[static_cast<int>(Element::f32)](args);
    }
    const std::int64_t offset = first * bytes_of(problem_.y_type, 1);
    if (problem_.bias) args.bias = static_cast<const char*>(operands.bias) + offset;
    args.y = static_cast<char*>(operands.y) + offset;
    args.ldy = operands.ldy;
    isa_.store[static_cast<int>(element_of(problem_.y_type))](args);
  }

  Problem problem_;
  SkinnySettings settings_;
  const IsaKernels& isa_;
  Panel16 panel_;
  bool packed_ = false;
  int type_ = 0;
  std::int64_t threads_ = 1;
  RowTiles tiles_;
  bool x_as_panels_ = false;
  std::int64_t block_columns_ = 0;
  std::int64_t chunks_ = 0;
  std::int64_t kc_chunks_ = 0;
  std::int64_t x_bytes_ = 0;
  std::int64_t own_sums_ = 0;  // floats of a thread's block of many rows; few rows are on the stack
  std::int64_t columns_parts_ = 1;
  std::int64_t parts_ = 1;     // of the work: of columns and of k
  std::int64_t x_copies_ = 1;  // parts_, or one that all share
  std::int64_t k_parts_ = 1;   // splits, or parts of a tree
  TreeSums tree_;
  std::int64_t block_sums_ = 0;           // floats
  PanelKernel panel_kernels_[2][5] = {};  // [last row tile][panels]
  RowKernel row_kernels_[2] = {};         // [last row tile]
};

/// One group of rows of x after the other.
class RowGroups final : public Kernel {
 public:
  RowGroups(const KernelSet& set, const Problem& problem, const SkinnySettings& settings, int threads)
      : x_bytes_each_(bytes_of(problem.x_type, 1)), y_bytes_each_(bytes_of(problem.y_type, 1)) {
    rows_ = round_up(ceil_div(problem.m, ceil_div(problem.m, settings.rows)), skinny_max_m);
    Problem group = problem;
    for (std::int64_t first = 0; first < problem.m; first += rows_) {
      group.m = std::min(rows_, problem.m - first);
      groups_.push_back(std::make_unique<SkinnyKernel>(set, group, settings, threads));
    }
  }

  std::size_t workspace_bytes() const override {
    std::size_t most = 0;
    for (const auto& group : groups_) most = std::max(most, group->workspace_bytes());
    return most;
  }
  WeightLayout weight_layout() const override { return groups_.front()->weight_layout(); }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Operands group = operands;
    for (const auto& kernel : groups_) {
      GEMMTUNE_RETURN_IF_ERROR(kernel->run(group, workspace, stream));
      group.x = static_cast<const char*>(group.x) + rows_ * group.ldx * x_bytes_each_;
      group.y = static_cast<char*>(group.y) + rows_ * group.ldy * y_bytes_each_;
    }
    return {};
  }

 private:
  std::int64_t x_bytes_each_;
  std::int64_t y_bytes_each_;
  std::int64_t rows_ = 0;  // of each group but the last
  std::vector<std::unique_ptr<SkinnyKernel>> groups_;
};

}  // namespace

std::unique_ptr<Kernel> make_skinny_kernel(const KernelSet& set, const Problem& problem,
                                           const SkinnySettings& settings, int threads) {
  if (problem.m > settings.rows) return std::make_unique<RowGroups>(set, problem, settings, threads);
  return std::make_unique<SkinnyKernel>(set, problem, settings, threads);
}

}  // namespace gemmtune::cpu
