#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/tiled/tiled.h"
#include "problem/operands.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t max_tile_columns = 64;

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

class TiledKernel final : public Kernel {
 public:
  TiledKernel(const KernelSet& set, const Problem& problem, const TiledSettings& settings)
      : problem_(problem),
        settings_(settings),
        isa_(*set.at(settings.isa)),
        panel_(panel16_of(problem)),
        shapes_(operand_shapes(problem)),
        packed_(layout_of(problem) == WeightLayout::panel16),
        type_(static_cast<int>(element_of(problem.x_type))),
        parts_(settings.row_threads * settings.column_threads * settings.splits),
        k_parts_(settings.tree ? tree_parts(problem.k) : settings.splits),
        tree_(settings.isa, settings.tree ? k_parts_ : 1) {
    x_bytes_ = compute_bytes(isa_, problem.x_type);
    if (integer()) {
      one_x_scale_ = shapes_.x.scale.rows == 1;
      one_w_scale_ = shapes_.w.scale.rows == 1;
    }
    chunks_ = panel_.padded_k() / chunk_elements;
    kc_chunks_ = std::min(ceil_div(settings.kc, chunk_elements), ceil_div(chunks_, k_parts_));
    tile_panels_ = settings.nr / panel_columns;
    block_panels_ = std::max(settings.nc / settings.nr, std::int64_t{1}) * tile_panels_;
    one_k_block_ = kc_chunks_ >= ceil_div(chunks_, k_parts_);
    plan_rows();
    // One panel's block: bf16 pairs or widened float32 where it is packed here.
    block_stride_ = packed_ ? panel_.panel_bytes() : kc_chunks_ * chunk_elements * panel_columns * x_bytes_;
    const std::int64_t kept_rows = one_k_block_ ? settings.mr : rows_per_thread_ + settings.mr;
    sums_bytes_ = kept_rows * (one_k_block_ ? tile_panels_ : block_panels_) * panel_columns * 4;
    weight_bytes_ = packed_ ? 0 : block_panels_ * block_stride_;
    waiting_ = (rows_per_thread_ + settings.mr) * block_panels_ * panel_columns;
    scratch_bytes_ = round_up(sums_bytes_, 64) + round_up(weight_bytes_, 64) +
                     tree_.waiting() * round_up(waiting_ * 4, 64);
    const std::int64_t row_shares = rounds_together_ * settings.row_threads;
    starts_at_ = row_shares * thread_x_bytes();
    states_at_ = starts_at_ + (integer() ? round_up(row_shares * rows_per_thread_ * 4, 64) : 0);
    packed_x_bytes_ = states_at_ + round_up(row_shares * thread_tiles(), 64);
  }

  std::size_t workspace_bytes() const override {
    const std::int64_t partial = settings_.splits == 1 ? 0 : settings_.splits * problem_.m * problem_.n * 4;
    return static_cast<std::size_t>(packed_x_bytes_ + parts_ * scratch_bytes_ + partial);
  }
  WeightLayout weight_layout() const override {
    return packed_ ? WeightLayout::panel16 : WeightLayout::plain;
  }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    Executor& executor = executor_of(stream);
    const Call call{operands, static_cast<char*>(workspace), partials(workspace)};
    const std::int64_t round_rows = rows_per_thread_ * settings_.row_threads;
    for (std::int64_t first = 0; first < problem_.m; first += round_rows * rounds_together_) {
      const std::int64_t rounds = std::min(rounds_together_, ceil_div(problem_.m - first, round_rows));
      std::fill_n(states(call), rounds * settings_.row_threads * thread_tiles(), not_packed);
      run_on(executor, parts_, [&](std::int64_t part) {
        for (std::int64_t round = 0; round < rounds; ++round)
          compute_part(call, {first + round * round_rows, round * settings_.row_threads}, part);
      });
    }
    if (settings_.splits == 1) return {};
    reduce_splits({.partials = call.partials,
                   .parts = settings_.splits,
                   .m = problem_.m,
                   .n = problem_.n,
                   .store = isa_.store[static_cast<int>(element_of(problem_.y_type))],
                   .y_bytes = bytes_of(problem_.y_type, 1)},
                  operands, executor, parts_);
    return {};
  }

 private:
  struct Call {
    const Operands& operands;
    char* workspace;
    float* partials;
  };
  /// Rows that go through at once.
  struct Round {
    std::int64_t first = 0;        // row of x
    std::int64_t first_share = 0;  // of the shares of rows in the workspace
  };
  /// Of packed rows of x, a tile each.
  enum State : std::uint8_t { not_packed, being_packed, is_packed };
  /// What one part works on.
  struct Part {
    std::int64_t first_row = 0;
    RowTiles tiles;
    char* x = nullptr;        // packed rows (x_offset)
    int* start = nullptr;     // int8: where the rows' sums begin
    State* states = nullptr;  // of its tiles of rows
    std::int64_t split = 0;
    float* sums = nullptr;
    char* weights = nullptr;
    float* waiting = nullptr;  // sums of a tree
  };

  float* partials(void* workspace) const {
    return reinterpret_cast<float*>(static_cast<char*>(workspace) + packed_x_bytes_ +
                                    parts_ * scratch_bytes_);
  }

  /// Rows go through in rounds of row_threads · rows_per_thread_, which are even: a round's packed x fits a cache. As many rounds as
  /// fit into `together_bytes` share a parallel region. Threads then wait for each other once: beside other programs each wait
  /// takes turns of the scheduler.
  void plan_rows() {
    constexpr std::int64_t together_bytes = std::int64_t{8} << 20;
    const std::int64_t threads = settings_.row_threads;
    const std::int64_t rounds = ceil_div(problem_.m, std::max(settings_.mc, settings_.mr) * threads);
    rows_per_thread_ = round_up(ceil_div(problem_.m, rounds * threads), settings_.mr);
    rounds_together_ = std::clamp<std::int64_t>(together_bytes / (threads * thread_x_bytes()), 1, rounds);
  }

  bool integer() const { return problem_.x_type == DataType::i8; }
  /// int8: of a share of rows in the workspace.
  int* starts(const Call& call, std::int64_t share) const {
    return integer() ? reinterpret_cast<int*>(call.workspace + starts_at_) + share * rows_per_thread_
                     : nullptr;
  }
  State* states(const Call& call) const { return reinterpret_cast<State*>(call.workspace + states_at_); }

  /// A split of k, or a part of a tree: a range of chunks.
  Range k_part(std::int64_t part) const {
    return {share(chunks_, k_parts_, part), share(chunks_, k_parts_, part + 1)};
  }
  /// Visits the blocks of k, as ranges of chunks.
  template <typename Visit>
  void for_k_blocks(Visit&& visit) const {
    for (std::int64_t part = 0; part < k_parts_; ++part) {
      const Range k = k_part(part);
      for (std::int64_t at = k.begin; at < k.end; at += kc_chunks_)
        visit(Range{at, std::min(at + kc_chunks_, k.end)});
    }
  }
  /// Packed rows of a thread: block of k after block of k, so that what a block of weights meets lies
  /// together.
  std::int64_t x_offset(std::int64_t tile, Range chunks) const {
    return (rows_per_thread_ * chunks.begin + tile * settings_.mr * chunks.size()) * chunk_elements *
           x_bytes_;
  }
  std::int64_t thread_x_bytes() const { return rows_per_thread_ * panel_.padded_k() * x_bytes_; }
  std::int64_t thread_tiles() const { return rows_per_thread_ / settings_.mr; }

  /// Thread row's rows of the round that begins at `first`; none where m ends before.
  RowTiles rows_of(std::int64_t first, std::int64_t row) const {
    RowTiles tiles;
    tiles.rows = std::clamp<std::int64_t>(problem_.m - first - row * rows_per_thread_, 0, rows_per_thread_);
    tiles.mr = settings_.mr;
    const std::int64_t rest = tiles.rows - (tiles.count() - 1) * tiles.mr;
    tiles.last_mr = fitting(tiled_panels(isa_, problem_), rest, tile_panels_)->mr;
    return tiles;
  }

  void pack_tile(const Call& call, const Part& part, std::int64_t tile) const {
    const bool columns = shapes_.x.order == Order::column_major;
    const PackX pack = (columns ? isa_.pack_x_columns : isa_.pack_x)[type_];
    const std::int64_t row_step = shapes_.x.row_step(call.operands.ldx) * panel_.element_bytes;
    const std::int64_t k_step = shapes_.x.column_step(call.operands.ldx) * panel_.element_bytes;
    const std::int64_t first = part.first_row + tile * settings_.mr;
    int* start = integer() ? part.start + tile * settings_.mr : nullptr;
    if (integer()) std::fill_n(start, settings_.mr, 0);
    const char* x = static_cast<const char*>(call.operands.x) + first * row_step;
    for_k_blocks([&](Range chunks) {
      const std::int64_t k = chunks.begin * chunk_elements;
      pack({.x = x + k * k_step,
            .ldx = call.operands.ldx * panel_.element_bytes,
            .rows = part.tiles.valid(tile),
            .mr = part.tiles.size(tile),
            .k = std::min(problem_.k - k, chunks.size() * chunk_elements),
            .chunks = chunks.size(),
            .out = part.x + x_offset(tile, chunks),
            .start = start,
            .readable = problem_.m - first});
    });
  }

  /// Packs those of the part's tiles that no part has begun, the first ones `begin`, and waits for those that others have begun:
  /// their parts run and wait for nothing before these are packed.
  void take_rows(const Call& call, const Part& part, std::int64_t begin) const {
    const std::int64_t count = part.tiles.count();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t tile = (begin + i) % count;
      std::atomic_ref state(part.states[tile]);
      State expected = not_packed;
      if (state.load(std::memory_order_relaxed) != not_packed ||  // which many threads may ask at once
          !state.compare_exchange_strong(expected, being_packed, std::memory_order_relaxed))
        continue;
      pack_tile(call, part, tile);
      state.store(is_packed, std::memory_order_release);
    }
    for (std::int64_t tile = 0; tile < count; ++tile)
      while (std::atomic_ref(part.states[tile]).load(std::memory_order_acquire) != is_packed)
        std::this_thread::yield();
  }

  void compute_part(const Call& call, const Round& round, std::int64_t index) const {
    const std::int64_t row = index / settings_.splits % settings_.row_threads;
    const std::int64_t column = index / settings_.splits / settings_.row_threads;
    const std::int64_t row_share = round.first_share + row;
    Part part{.first_row = round.first + row * rows_per_thread_,
              .tiles = rows_of(round.first, row),
              .x = call.workspace + row_share * thread_x_bytes(),
              .start = starts(call, row_share),
              .states = states(call) + row_share * thread_tiles(),
              .split = index % settings_.splits};
    if (part.tiles.rows == 0) return;
    const std::int64_t sharers = settings_.column_threads * settings_.splits;
    take_rows(call, part, share(part.tiles.count(), sharers, column * settings_.splits + part.split));
    char* scratch = call.workspace + packed_x_bytes_ + index * scratch_bytes_;
    part.sums = reinterpret_cast<float*>(scratch);
    part.weights = scratch + round_up(sums_bytes_, 64);
    part.waiting = reinterpret_cast<float*>(part.weights + round_up(weight_bytes_, 64));
    const std::int64_t tiles = ceil_div(panel_.panels(), tile_panels_);
    const Range panels{
        share(tiles, settings_.column_threads, column) * tile_panels_,
        std::min(share(tiles, settings_.column_threads, column + 1) * tile_panels_, panel_.panels())};
    const Range k_parts = settings_.tree ? Range{0, k_parts_} : Range{part.split, part.split + 1};
    if (isa_.begin != nullptr) isa_.begin();
    for (std::int64_t p = panels.begin; p < panels.end; p += block_panels_)
      for (std::int64_t i = k_parts.begin; i < k_parts.end; ++i) {
        const Range k = k_part(i);
        for (std::int64_t chunk = k.begin; chunk < k.end; chunk += kc_chunks_)
          compute_block(call, part, {p, std::min(p + block_panels_, panels.end)},
                        {{chunk, std::min(chunk + kc_chunks_, k.end)},
                         chunk == k.begin,
                         chunk + kc_chunks_ >= k.end,
                         i});
      }
    if (isa_.end != nullptr) isa_.end();
  }

  struct Depth {
    Range chunks;
    bool first = false;  // block of a part of k
    bool last = false;
    std::int64_t k_part = 0;
  };

  /// All of the part's rows against one block of weights.
  void compute_block(const Call& call, const Part& part, Range panels, const Depth& depth) const {
    const char* weights = part.weights;
    if (packed_)
      weights = static_cast<const char*>(call.operands.w) + panels.begin * block_stride_ +
                depth.chunks.begin * (panel_.panel_bytes() / chunks_);
    else
      pack_weights(call, part, panels, depth.chunks);
    const std::int64_t padded = part.tiles.padded();
    for (std::int64_t p = panels.begin; p < panels.end; p += tile_panels_) {
      const std::int64_t width = std::min(tile_panels_, panels.end - p);
      const char* w = weights + (p - panels.begin) * block_stride_;
      alignas(64) float column_scales[max_tile_columns];
      if (integer() && depth.last)
        fill_column_scales(call, p * panel_columns, width * panel_columns, column_scales);
      const std::int64_t first_sum = (p - panels.begin) * panel_columns * padded;
      float* column = part.sums + (one_k_block_ ? 0 : first_sum);
      const PanelList& list = tiled_panels(isa_, problem_);
      const PanelKernel whole = find(list, part.tiles.mr, width)->run;
      const PanelKernel last = find(list, part.tiles.last_mr, width)->run;
      for (std::int64_t tile = 0; tile < part.tiles.count(); ++tile) {
        const std::int64_t tile_sum = tile * part.tiles.mr * width * panel_columns;
        float* sums = column + (one_k_block_ ? 0 : tile_sum);
        multiply(part, {tile + 1 < part.tiles.count() ? whole : last, w, width, tile, sums}, depth);
        if (!depth.last) continue;
        if (!settings_.tree || tree_.add(depth.k_part, sums, part.tiles.size(tile) * width * panel_columns,
                                         part.waiting + first_sum + tile_sum, round_up(waiting_, 16)))
          emit(call, part, {p * panel_columns, width, tile, sums, column_scales});
      }
    }
  }

  void pack_weights(const Call& call, const Part& part, Range panels, Range chunks) const {
    if (shapes_.w.order == Order::row_major) {
      for (std::int64_t p = panels.begin; p < panels.end; ++p)
        pack_panel(isa_.pack_panel[type_], call, p, chunks,
                   part.weights + (p - panels.begin) * block_stride_);
      return;
    }
    // Chunk by chunk: a row of memory holds all panels.
    const std::int64_t chunk_bytes = chunk_elements * panel_columns * x_bytes_;
    for (std::int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk)
      for (std::int64_t p = panels.begin; p < panels.end; ++p)
        pack_panel(isa_.pack_panel_columns[type_], call, p, {chunk, chunk + 1},
                   part.weights + (p - panels.begin) * block_stride_ + (chunk - chunks.begin) * chunk_bytes);
  }

  void pack_panel(PackPanel pack, const Call& call, std::int64_t panel, Range chunks, char* out) const {
    const std::int64_t leading = shapes_.w.line_elements();
    const std::int64_t row = panel * panel_columns;
    const std::int64_t k = chunks.begin * chunk_elements;
    const std::int64_t first = row * shapes_.w.row_step(leading) + k * shapes_.w.column_step(leading);
    pack({.rows = static_cast<const char*>(call.operands.w) + first * panel_.element_bytes,
          .stride = leading * panel_.element_bytes,
          .count = std::min(panel_columns + 0L, problem_.n - row),
          .k = std::min(problem_.k - k, chunks.size() * chunk_elements),
          .chunks = chunks.size(),
          .out = out});
  }

  struct Multiplication {
    PanelKernel kernel = nullptr;
    const char* w = nullptr;
    std::int64_t panels = 1;
    std::int64_t tile = 0;
    float* sums = nullptr;
  };

  void multiply(const Part& part, const Multiplication& what, const Depth& depth) const {
    what.kernel({.x = part.x + x_offset(what.tile, depth.chunks),
                 .w = what.w,
                 .w_stride = block_stride_,
                 .chunks = depth.chunks.size(),
                 .c = what.sums,
                 .accumulate = !depth.first,
                 .prefetch = settings_.prefetch != 0 && what.tile == 0 ? what.panels * block_stride_ : 0,
                 .prefetch_x = settings_.prefetch == 2 ? 4 : 0,
                 .start = integer() ? part.start + what.tile * part.tiles.mr : nullptr});
  }

  struct Finished {
    std::int64_t first_column = 0;
    std::int64_t panels = 1;
    std::int64_t tile = 0;
    float* sums = nullptr;
    const float* column_scales = nullptr;  // int8
  };

  /// int8: the scales of a tile's columns.
  void fill_column_scales(const Call& call, std::int64_t first, std::int64_t columns, float* out) const {
    const std::int64_t step = one_w_scale_ ? 0 : call.operands.w_scale_step;
    const auto* scales = static_cast<const float*>(call.operands.w_scale);
    for (std::int64_t i = 0; i < columns; ++i) out[i] = scales[std::min(first + i, problem_.n - 1) * step];
  }

  /// int8: a tile's sums in float32, times the scales of rows and columns.
  void scale(const Call& call, const Finished& what, std::int64_t row, std::int64_t rows) const {
    const std::int64_t step = one_x_scale_ ? 0 : call.operands.x_scale_step;
    decode_kernels(settings_.isa)
        .scale_integer({.tile = what.sums,
                        .out = what.sums,
                        .rows = rows,
                        .columns = what.panels * panel_columns,
                        .row_scale = static_cast<const float*>(call.operands.x_scale) + row * step,
                        .row_stride = step,
                        .column_scale = what.column_scales,
                        .add = false});
  }

  void emit(const Call& call, const Part& part, const Finished& what) const {
    const std::int64_t row = part.first_row + what.tile * part.tiles.mr;
    StoreArgs args{.tile = what.sums,
                   .ldt = what.panels * panel_columns,
                   .rows = part.tiles.valid(what.tile),
                   .columns = std::min(what.panels * panel_columns, problem_.n - what.first_column)};
    if (integer()) scale(call, what, row, args.rows);
    if (settings_.splits > 1) {
      args.y = call.partials + (part.split * problem_.m + row) * problem_.n + what.first_column;
      args.ldy = problem_.n;
      return isa_.store[static_cast<int>(Element::f32)](args);
    }
    const std::int64_t size = bytes_of(problem_.y_type, 1);
    if (problem_.bias) args.bias = static_cast<const char*>(call.operands.bias) + what.first_column * size;
    args.y = static_cast<char*>(call.operands.y) + (row * call.operands.ldy + what.first_column) * size;
    args.ldy = call.operands.ldy;
    isa_.store[static_cast<int>(element_of(problem_.y_type))](args);
  }

  Problem problem_;
  TiledSettings settings_;
  const IsaKernels& isa_;
  Panel16 panel_;
  OperandShapes shapes_;
  bool packed_ = false;
  int type_ = 0;
  std::int64_t parts_ = 1;
  std::int64_t k_parts_ = 1;  // splits, or parts of a tree
  TreeSums tree_;
  std::int64_t x_bytes_ = 4;
  bool one_x_scale_ = false;  // int8: for all rows
  bool one_w_scale_ = false;
  std::int64_t chunks_ = 0;
  std::int64_t kc_chunks_ = 0;
  std::int64_t tile_panels_ = 1;
  std::int64_t block_panels_ = 1;
  bool one_k_block_ = true;
  std::int64_t rows_per_thread_ = 0;
  std::int64_t rounds_together_ = 1;  // whose packed x the workspace holds
  std::int64_t block_stride_ = 0;     // bytes from panel to panel of a block of weights
  std::int64_t sums_bytes_ = 0;
  std::int64_t weight_bytes_ = 0;
  std::int64_t waiting_ = 0;  // floats of a block of weights that wait in a tree, at a level
  std::int64_t scratch_bytes_ = 0;
  std::int64_t starts_at_ = 0;       // int8: in the workspace, behind the packed rows
  std::int64_t states_at_ = 0;       // of tiles of rows
  std::int64_t packed_x_bytes_ = 0;  // with the starts and states
};

}  // namespace

const PanelList& tiled_panels(const IsaKernels& kernels, const Problem& problem) {
  const bool as_stored = kernels.bf16_compute || layout_of(problem) == WeightLayout::panel16;
  return kernels
      .panels[as_stored ? static_cast<int>(element_of(problem.x_type)) : static_cast<int>(Element::f32)];
}

std::unique_ptr<Kernel> make_tiled_kernel(const KernelSet& set, const Problem& problem,
                                          const TiledSettings& settings) {
  return std::make_unique<TiledKernel>(set, problem, settings);
}

}  // namespace gemmtune::cpu
