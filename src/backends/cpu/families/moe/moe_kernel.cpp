#include <cmath>

#include "backends/cpu/families/blocked/w4_gemm.h"
#include "backends/cpu/families/moe/moe.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t round_budget = std::int64_t{256} << 20;

float gelu(float value) { return 0.5F * value * (1 + std::erf(value * 0.70710678F)); }

/// Gemm: BlockGemm, or W4Gemm for rows of 4-bit weights as they lie.
template <typename Gemm>
class MoeKernel final : public Kernel {
 public:
  /// `tile`: what Gemm is made of.
  template <typename Tile>
  MoeKernel(const KernelSet& set, const Problem& problem, const MoeSettings& settings, const Tile& tile,
            int threads)
      : problem_(problem),
        settings_(settings),
        shapes_(operand_shapes(problem)),
        formats_(moe_formats(set, settings.tile.isa, problem)),
        kernels_(decode_kernels(settings.tile.isa)),
        first_(set, formats_.first, tile),
        second_(set, formats_.second, tile),
        threads_(worthwhile_threads(problem, threads)) {
    settings_.block_m = std::min(settings_.block_m, round_up(problem.m, first_.mr()));
    hidden_bytes_ = bytes_of(formats_.second.x.type, 1);
    first_packed_ = first_.packed_bytes(settings_.block_m);
    second_packed_ = second_.packed_bytes(settings_.block_m);
    // Tokens go through in rounds, so that what lies between the stages stays bounded.
    const std::int64_t a_pair =
        problem.k * 4 + problem.n * hidden_bytes_ + (first_packed_ + second_packed_) / settings_.block_m;
    tokens_ = std::clamp<std::int64_t>(round_budget / (a_pair * problem.moe.topk), 1, problem.m);
    lay_out();
  }

  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(workspace_bytes_); }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    GEMMTUNE_RETURN_IF_ERROR(
        MixtureRoutes(problem_.moe, operands.topk_ids, operands.topk_weights).check(problem_.m));
    Executor& executor = executor_of(stream);
    for (std::int64_t first = 0; first < problem_.m; first += tokens_) {
      const std::int64_t given = first * problem_.moe.routed_topk();
      Call call{operands,
                {problem_.moe, operands.topk_ids + given, operands.topk_weights + given},
                static_cast<char*>(workspace),
                first,
                std::min(tokens_, problem_.m - first),
                0};
      call.blocks = sort_tokens(problem_.moe, call.routes, call.tokens, settings_.block_m, order(call));
      if (settings_.one_stage) {
        one_stage(call, executor);
      } else {
        two_stages(call, executor);
      }
      sum_experts(call, executor);
    }
    return {};
  }

 private:
  struct Call {
    const Operands& operands;
    MixtureRoutes routes;  // of the call's tokens
    char* workspace;
    std::int64_t first_token;
    std::int64_t tokens;
    std::int64_t blocks;
  };
  /// One block with the memory of the two multiplications' rows.
  struct Job {
    MoeBlock block;
    char* first_rows;
    char* second_rows;
  };

  void lay_out() {
    const std::int64_t pairs = tokens_ * problem_.moe.topk;
    const std::int64_t blocks = max_blocks(pairs, problem_.moe.experts, settings_.block_m);
    const auto take = [&](std::int64_t bytes) {
      const std::int64_t at = workspace_bytes_;
      workspace_bytes_ += round_up(bytes, 64);
      return at;
    };
    order_at_ = take(3 * pairs * 4 + (std::int64_t{problem_.moe.experts} + 1) * 4 +
                     blocks * static_cast<std::int64_t>(sizeof(MoeBlock)));
    hidden_at_ = take(pairs * problem_.n * hidden_bytes_);
    results_at_ = take(pairs * problem_.k * 4);
    rows_at_ = take((settings_.one_stage ? threads_ : blocks) * (first_packed_ + second_packed_));
    scratch_bytes_ =
        round_up(std::max(first_.scratch_bytes(settings_.block_m), second_.scratch_bytes(settings_.block_m)),
                 64) +
        round_up(settings_.block_m * first_.nr() * 4, 64);
    scratch_at_ = take(threads_ * scratch_bytes_);
  }

  MoeOrder order(const Call& call) const {
    const std::int64_t pairs = tokens_ * problem_.moe.topk;
    MoeOrder order;
    order.pair_of = reinterpret_cast<std::int32_t*>(call.workspace + order_at_);
    order.token_of = order.pair_of + pairs;
    order.position_of = order.token_of + pairs;
    order.counts = order.position_of + pairs;
    order.blocks = reinterpret_cast<MoeBlock*>(order.counts + std::int64_t{problem_.moe.experts} + 1);
    return order;
  }

  Job job(const Call& call, std::int64_t block, std::int64_t place) const {
    char* rows = call.workspace + rows_at_ + place * (first_packed_ + second_packed_);
    return {order(call).blocks[block], rows, rows + first_packed_};
  }
  char* scratch(const Call& call, std::int64_t part) const {
    return call.workspace + scratch_at_ + part * scratch_bytes_;
  }
  char* hidden(const Call& call, std::int64_t position) const {
    return call.workspace + hidden_at_ + position * problem_.n * hidden_bytes_;
  }
  float* results(const Call& call, std::int64_t position) const {
    return reinterpret_cast<float*>(call.workspace + results_at_) + position * problem_.k;
  }

  void two_stages(const Call& call, Executor& executor) const {
    const std::int64_t tiles = ceil_div(settings_.block_m, first_.mr());
    each(call, executor, {tiles, 1},
         [&](const Job& job, std::int64_t tile, char* memory) { pack_first(call, job, tile, memory); });
    each(call, executor, {ceil_div(problem_.n, first_.nr()), first_.nr()},
         [&](const Job& job, std::int64_t column, char* memory) { first_stage(call, job, column, memory); });
    each(call, executor, {tiles, 1},
         [&](const Job& job, std::int64_t tile, char* memory) { pack_second(call, job, tile, memory); });
    each(call, executor, {ceil_div(problem_.k, second_.nr()), second_.nr()},
         [&](const Job& job, std::int64_t column, char* memory) { second_stage(call, job, column, memory); });
  }

  struct Steps {
    std::int64_t count;
    std::int64_t width;  // step i begins at i · width
  };

  /// do_step(job, beginning, scratch) for every block and step, in even shares.
  template <typename DoStep>
  void each(const Call& call, Executor& executor, const Steps& steps, DoStep&& do_step) const {
    const std::int64_t items = call.blocks * steps.count;
    const std::int64_t parts = std::min(threads_, items);
    run_on(executor, parts, [&](std::int64_t part) {
      begin();
      for (std::int64_t i = share(items, parts, part); i < share(items, parts, part + 1); ++i) {
        const std::int64_t block = i / steps.count;
        do_step(job(call, block, block), i % steps.count * steps.width, scratch(call, part));
      }
      end();
    });
  }

  void one_stage(const Call& call, Executor& executor) const {
    const std::int64_t parts = std::min(threads_, call.blocks);
    run_on(executor, parts, [&](std::int64_t part) {
      char* memory = scratch(call, part);
      begin();
      for (std::int64_t block = share(call.blocks, parts, part); block < share(call.blocks, parts, part + 1);
           ++block) {
        const Job work = job(call, block, part);
        const std::int64_t tiles = ceil_div(std::int64_t{work.block.count}, first_.mr());
        for (std::int64_t tile = 0; tile < tiles; ++tile) pack_first(call, work, tile, memory);
        for (std::int64_t column = 0; column < problem_.n; column += first_.nr())
          first_stage(call, work, column, memory);
        for (std::int64_t tile = 0; tile < tiles; ++tile) pack_second(call, work, tile, memory);
        for (std::int64_t column = 0; column < problem_.k; column += second_.nr())
          second_stage(call, work, column, memory);
      }
      end();
    });
  }

  void begin() const {
    if (first_.isa().begin != nullptr) first_.isa().begin();
  }
  void end() const {
    if (first_.isa().end != nullptr) first_.isa().end();
  }

  void pack_first(const Call& call, const Job& job, std::int64_t tile, char* memory) const {
    if (tile * first_.mr() >= job.block.count) return;
    const Operands& operands = call.operands;
    const ScaleShape& scale = shapes_.x.scale;
    const bool whole = scale.rows == 1 && problem_.m > 1;
    const std::int64_t scale_size = bytes_of(scale.type);
    const std::int64_t first_scale = whole ? 0 : call.first_token * scale.columns * scale_size;
    const BlockRows rows{.x = static_cast<const char*>(operands.x) +
                              bytes_of(problem_.x_type, call.first_token * operands.ldx),
                         .stride = bytes_of(problem_.x_type, operands.ldx),
                         .scale = operands.x_scale == nullptr
                                      ? nullptr
                                      : static_cast<const char*>(operands.x_scale) + first_scale,
                         .scale_step = 1,
                         .index = order(call).token_of + job.block.first,
                         .count = job.block.count};
    first_.pack_tile(rows, tile, job.first_rows, memory);
  }

  void pack_second(const Call& call, const Job& job, std::int64_t tile, char* memory) const {
    if (tile * second_.mr() >= job.block.count) return;
    const BlockRows rows{.x = hidden(call, job.block.first),
                         .stride = problem_.n * hidden_bytes_,
                         .scale = nullptr,
                         .scale_step = 1,
                         .index = nullptr,
                         .count = job.block.count};
    second_.pack_tile(rows, tile, job.second_rows, memory);
  }

  /// The weight of an expert. `all`: of all of them, as operands have it.
  static BlockWeight weight_of(const MatrixShape& shape, const BlockWeight& all, std::int32_t expert) {
    const auto behind = [expert](const void* first, std::int64_t bytes_each) {
      return first == nullptr ? nullptr : static_cast<const char*>(first) + expert * bytes_each;
    };
    const ScaleShape& scale = shape.scale;
    BlockWeight one = all;
    one.w = behind(all.w, bytes_of(shape.type, shape.rows * shape.columns));
    one.scale = behind(all.scale, scale.bytes());
    one.global_scale = behind(all.global_scale, scale.global_bytes());
    if (all.zero_points != nullptr) one.zero_points = all.zero_points + expert * scale.zero_point_bytes();
    return one;
  }
  BlockWeight w1_of(const Operands& operands, std::int32_t expert) const {
    return weight_of(shapes_.w,
                     {.w = operands.w,
                      .scale = operands.w_scale,
                      .global_scale = operands.w_global_scale,
                      .zero_points = static_cast<const std::int8_t*>(operands.w_zero_points)},
                     expert);
  }
  BlockWeight w2_of(const Operands& operands, std::int32_t expert) const {
    return weight_of(shapes_.w2,
                     {.w = operands.w2,
                      .scale = operands.w2_scale,
                      .global_scale = operands.w2_global_scale,
                      .zero_points = static_cast<const std::int8_t*>(operands.w2_zero_points)},
                     expert);
  }

  /// Columns [column, column + nr) of the hidden layer of a block.
  void first_stage(const Call& call, const Job& job, std::int64_t column, char* memory) const {
    const BlockWeight w1 = w1_of(call.operands, job.block.expert);
    auto* gates = reinterpret_cast<float*>(memory + scratch_bytes_) -
                  round_up(settings_.block_m * first_.nr() * 4, 64) / 4;
    if (!problem_.moe.gated) {
      first_.multiply(job.block.count, job.first_rows, w1, column, memory, [&](const BlockSums& sums) {
        put_hidden(call, job, sums, {column, nullptr});
      });
      return;
    }
    first_.multiply(job.block.count, job.first_rows, w1, column, memory, [&](const BlockSums& sums) {
      for (std::int64_t row = 0; row < sums.rows; ++row)
        std::copy_n(sums.sums + row * sums.ldt, sums.columns, gates + (sums.first_row + row) * first_.nr());
    });
    first_.multiply(job.block.count, job.first_rows, w1, problem_.n + column, memory,
                    [&](const BlockSums& sums) {
                      put_hidden(call, job, sums, {column, gates});
                    });
  }

  struct HiddenColumns {
    std::int64_t first;
    float* gates;  // null: the sums are what is activated
  };

  void put_hidden(const Call& call, const Job& job, const BlockSums& sums,
                  const HiddenColumns& columns) const {
    const std::int64_t count = std::min(sums.columns, problem_.n - columns.first);
    for (std::int64_t row = 0; row < sums.rows; ++row) {
      const std::int64_t position = job.block.first + sums.first_row + row;
      const float weight =
          problem_.moe.doweight_stage1 ? call.routes.weight(order(call).pair_of[position]) : 1;
      float* up = columns.gates == nullptr ? nullptr : sums.sums + row * sums.ldt;
      // Activated where they lie: nothing reads the gates (or sums) afterwards.
      float* gate = columns.gates == nullptr ? sums.sums + row * sums.ldt
                                             : columns.gates + (sums.first_row + row) * first_.nr();
      if (problem_.bias) {
        const float* bias =
            static_cast<const float*>(call.operands.bias) + job.block.expert * shapes_.w.rows + columns.first;
        add(bias, count, gate);
        if (up != nullptr) add(bias + problem_.n, count, up);
      }
      activate({.gate = gate, .up = up, .weight = weight, .count = count, .out = gate});
      first_.isa().store[static_cast<int>(element_of(formats_.second.x.type))](
          {.tile = gate,
           .ldt = count,
           .rows = 1,
           .columns = count,
           .y = hidden(call, position) + columns.first * hidden_bytes_,
           .ldy = problem_.n});
    }
  }

  void add(const float* values, std::int64_t count, float* sums) const {
    kernels_.add_row({.row = values, .factor = 1, .count = count, .sum = sums, .add = true});
  }

  void activate(const ActivateArgs& args) const {
    if (problem_.moe.activation == Activation::silu) return kernels_.silu(args);
    if (problem_.moe.activation == Activation::swiglu) return kernels_.swiglu(args);
    for (std::int64_t i = 0; i < args.count; ++i) {
      const float gate = args.gate[i] * args.weight;
      const float value = problem_.moe.activation == Activation::gelu ? gelu(gate) : gate;
      args.out[i] = args.up == nullptr ? value : value * (args.up[i] * args.weight);
    }
  }

  void second_stage(const Call& call, const Job& job, std::int64_t column, char* memory) const {
    const BlockWeight w2 = w2_of(call.operands, job.block.expert);
    second_.multiply(job.block.count, job.second_rows, w2, column, memory, [&](const BlockSums& sums) {
      for (std::int64_t row = 0; row < sums.rows; ++row) {
        float* to = results(call, job.block.first + sums.first_row + row) + sums.first_column;
        std::copy_n(sums.sums + row * sums.ldt, sums.columns, to);
        if (problem_.bias)
          add(call.operands.bias2 + job.block.expert * problem_.k + sums.first_column, sums.columns, to);
      }
    });
  }

  /// y of every token: the sum over its slots that have an expert, in their order.
  void sum_experts(const Call& call, Executor& executor) const {
    const Store store = first_.isa().store[static_cast<int>(element_of(problem_.y_type))];
    const std::int64_t parts = std::min(threads_, call.tokens);
    run_on(executor, parts, [&](std::int64_t part) {
      for (std::int64_t token = share(call.tokens, parts, part); token < share(call.tokens, parts, part + 1);
           ++token) {
        const std::int32_t* positions = order(call).position_of + token * problem_.moe.topk;
        // The row of its first slot, which an empty slot has too.
        float* sum = results(call, positions[0] < 0 ? -1 - positions[0] : positions[0]);
        if (positions[0] < 0) std::fill_n(sum, problem_.k, 0.0F);
        const auto weight = [&](std::int64_t slot) {
          return problem_.moe.doweight_stage1 ? 1.0F : call.routes.weight(token * problem_.moe.topk + slot);
        };
        for (std::int64_t slot = 0; slot < problem_.moe.topk; ++slot) {
          if (positions[slot] < 0) continue;
          kernels_.add_row({.row = results(call, positions[slot]),
                            .factor = weight(slot),
                            .count = problem_.k,
                            .sum = sum,
                            .add = slot > 0});
        }
        const std::int64_t at = (call.first_token + token) * call.operands.ldy;
        store({.tile = sum,
               .ldt = problem_.k,
               .rows = 1,
               .columns = problem_.k,
               .y = static_cast<char*>(call.operands.y) + bytes_of(problem_.y_type, at),
               .ldy = call.operands.ldy});
      }
    });
  }

  Problem problem_;
  MoeSettings settings_;
  OperandShapes shapes_;
  MoeFormats formats_;
  const DecodeKernels& kernels_;
  Gemm first_;
  Gemm second_;
  std::int64_t threads_;
  std::int64_t tokens_ = 1;  // of a round
  std::int64_t hidden_bytes_ = 2;
  std::int64_t first_packed_ = 0;
  std::int64_t second_packed_ = 0;
  std::int64_t workspace_bytes_ = 0;
  std::int64_t order_at_ = 0;
  std::int64_t hidden_at_ = 0;
  std::int64_t results_at_ = 0;
  std::int64_t rows_at_ = 0;
  std::int64_t scratch_at_ = 0;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_moe_kernel(const KernelSet& set, const Problem& problem,
                                        const MoeSettings& settings, int threads) {
  const BlockTile& tile = settings.tile;
  if (tile.rows && bits(problem.w_type) == 4) {
    const W4Tile rows{.isa = tile.isa, .mr = tile.mr, .nr = tile.nr, .prefetch = default_w4_prefetch};
    return std::make_unique<MoeKernel<W4Gemm>>(set, problem, settings, rows, threads);
  }
  return std::make_unique<MoeKernel<BlockGemm>>(set, problem, settings, tile, threads);
}

}  // namespace gemmtune::cpu
