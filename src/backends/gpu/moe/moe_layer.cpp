#include "backends/gpu/moe/moe_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/moe/moe_combine_arguments.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::gpu {

namespace {

constexpr std::int64_t round_budget = std::int64_t{1} << 30;  // bytes of workspace
constexpr std::int64_t max_experts = 8192;                    // their counts lie in 32 KiB of shared memory
constexpr std::int64_t max_pairs_per_round = std::int64_t{1} << 24;
constexpr std::int64_t max_dimension_of_kernels = std::int64_t{1} << 30;
constexpr std::int64_t combine_columns = 2048;  // of a block
constexpr std::int64_t wave_lanes = 64;         // the sort's blocks are of whole waves, of any GPU
// Of the sort of many pairs, which has two kernels and two numbers of each expert in shared memory.
constexpr std::int64_t few_pairs = 16384;
constexpr std::int64_t place_threads = 256;
constexpr std::int64_t max_chunks = 256;  // each block reads the counts of all
constexpr std::int64_t buffer_alignment = 256;

/// Pairs of a chunk of the sort.
std::int64_t chunk_of(std::int64_t pairs) { return round_up(ceil_div(pairs, max_chunks), place_threads); }
std::int64_t chunks_of(std::int64_t pairs) { return ceil_div(pairs, chunk_of(pairs)); }

/// Of so many pairs or fewer: fewer may have more chunks, which are smaller then.
std::int64_t max_chunks_of(std::int64_t pairs) {
  return std::min(max_chunks, ceil_div(pairs, place_threads));
}

char* at(void* workspace, std::int64_t offset) { return static_cast<char*>(workspace) + offset; }

/// The share of a normal distribution of whole numbers that is above `limit`.
double above(double limit, double mean, double deviation) {
  return 0.5 * std::erfc((limit + 0.5 - mean) / (deviation * std::sqrt(2.0)));
}

}  // namespace

std::int64_t max_moe_tiles(std::int64_t pairs, std::int64_t experts, std::int64_t block_m) {
  return std::min(pairs, pairs / block_m + std::min(pairs, experts));
}

ExpectedTiles expected_moe_tiles(const Problem& problem, std::int64_t block_m) {
  const auto experts = static_cast<double>(problem.moe.experts);
  const auto rows = static_cast<double>(problem.m);
  const double share = std::min(1.0, static_cast<double>(problem.moe.topk) / experts);
  const double mean = rows * share;
  const double deviation = std::sqrt(mean * (1 - share)) + 1e-9;
  ExpectedTiles found;
  found.experts = found.tiles = experts * (1 - std::pow(1 - share, rows));
  for (std::int64_t most = block_m; most < problem.m; most += block_m) {
    const double more = experts * above(static_cast<double>(most), mean, deviation);
    if (more < 1e-3 && static_cast<double>(most) > mean) break;
    found.tiles += more;
  }
  return found;
}

std::string refuse_sort(const Problem& problem, std::int64_t threads, std::int64_t scratch_bytes) {
  const std::int64_t pairs = routed_pairs(problem);
  if (problem.moe.shared_experts > 0) return "blocks that sort know no shared experts";
  if (pairs > std::min<std::int64_t>(max_sorted_pairs, sorted_pairs_of_thread * threads))
    return "more pairs of token and expert than a block sorts";
  if ((ceil_div(pairs, std::int64_t{32}) + 1) * problem.moe.experts * 4 > scratch_bytes)
    return "more experts than a block has shared memory to sort for";
  return {};
}

bool sorts_in_blocks(const Problem& problem) {
  constexpr std::int64_t most = 256;
  constexpr std::int64_t threads = 256;
  constexpr std::int64_t scratch_bytes = 64 * 1024;
  return routed_pairs(problem) <= most && refuse_sort(problem, threads, scratch_bytes).empty();
}

int activation_code(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return 1;
    case Activation::gelu:
      return 2;
    case Activation::swiglu:
      return 3;
    default:
      return 0;
  }
}

Status accepts_mixture(const Problem& problem, Weights weights, MoeQuantizations quantizations) {
  if (!is_mixture(problem))
    return refusal::refuse(refusal::operation, "{} is not taken, only fused_moe",
                           to_string(form_of(problem)));
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  const WeightLayout layout = problem.weight_layout;
  const bool shuffled = layout == WeightLayout::aiter16x16 || layout == WeightLayout::any;
  if (layout != WeightLayout::plain && (weights != Weights::shuffled_too || !shuffled))
    return refusal::refuse(refusal::layout, "{}, only plain{}", to_string(layout),
                           weights == Weights::shuffled_too ? " and aiter16x16" : "");
  if (is_of_weights_alone(problem.moe.quant_type) && quantizations == MoeQuantizations::aiters)
    return refusal::refuse(refusal::types, "w scaled by {} is not taken", to_string(problem.moe.quant_type));
  GEMMTUNE_RETURN_IF_ERROR(refusal::check_activation(problem));
  if (problem.moe.experts > max_experts)
    return refusal::refuse(refusal::size, "{} experts, at most {}", problem.moe.experts, max_experts);
  if (std::max({problem.m, 2 * problem.n, problem.k}) > max_dimension_of_kernels)
    return refusal::refuse(refusal::size, "{} x {} x {}, at most {} each", problem.m, problem.n, problem.k,
                           max_dimension_of_kernels);
  return {};
}

std::array<Source, 4> moe_layer_sources(const Problem& problem, const MoeBuffers& buffers) {
  const std::string dependent = fmt::format("DEPENDENT={}", buffers.dependent != nullptr ? 1 : 0);
  const auto of_sort = [&](const char* name) {
    return Source{name, include_line(fmt::format("backends/gpu/moe/{}.cu", name)), {dependent}, name};
  };
  return {of_sort("moe_route"), of_sort("moe_count"), of_sort("moe_place"),
          Source{"moe_combine",
                 include_line("backends/gpu/moe/moe_combine.cu"),
                 {dependent, fmt::format("ELEMENT={}", element_code(problem.y_type)),
                  fmt::format("OUTPUT={}", element_code(problem.y_type)),
                  fmt::format("PARTIALS={}", buffers.rounded_partials ? 1 : 0),
                  fmt::format("BIAS={}", problem.bias ? 1 : 0)},
                 "moe_combine"}};
}

std::string moe_layer_text() {
  std::string text;
  for (const Source& source : moe_layer_sources(default_problem(Operation::fused_moe), {}))
    text += source.text;
  return text;
}

Result<MoeLayer> MoeLayer::make(Runtime& runtime, const Problem& problem, const MoeBuffers& buffers) {
  MoeLayer layer;
  layer.problem_ = problem;
  layer.buffers_ = buffers;
  const std::int64_t partial_bytes =
      problem.k * (buffers.rounded_partials ? bytes_of(problem.y_type, 1) : std::int64_t{4});
  const std::int64_t pair_bytes = buffers.hidden_bytes + buffers.hidden_scale_bytes + partial_bytes;
  const std::int64_t topk = problem.moe.topk;
  const std::int64_t most = std::max<std::int64_t>(1, max_pairs_per_round / topk);
  layer.tokens_ = std::min(std::clamp<std::int64_t>(round_budget / (pair_bytes * topk), 1, problem.m), most);
  const std::int64_t pairs = layer.tokens_ * topk;
  layer.max_tiles_ = max_moe_tiles(pairs, problem.moe.experts, buffers.block_m);
  const bool many = pairs > few_pairs && problem.moe.experts <= max_experts / 2;
  const auto sources = moe_layer_sources(problem, buffers);
  for (const auto& [source, program] :
       {std::pair{&sources[0], many ? nullptr : &layer.route_},
        std::pair{&sources[1], many ? &layer.count_ : nullptr},
        std::pair{&sources[2], many ? &layer.place_ : nullptr}, std::pair{&sources[3], &layer.combine_}}) {
    if (program == nullptr) continue;
    GEMMTUNE_TRY(*program, runtime.load(*source));
  }
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t offset = layer.workspace_bytes_;
    layer.workspace_bytes_ += round_up(bytes, buffer_alignment);
    return offset;
  };
  layer.pair_of_at_ = take(pairs * 4);
  layer.position_of_at_ = take(pairs * 4);
  layer.tiles_at_ = take(layer.max_tiles_ * static_cast<std::int64_t>(sizeof(MoeTile)));
  layer.tiles_of_at_ = take(problem.moe.experts * std::int64_t{4});
  layer.tile_count_at_ = take(3 * 4);
  layer.chunk_counts_at_ = take(many ? max_chunks_of(pairs) * problem.moe.experts * 4 : 0);
  layer.hidden_at_ = take(pairs * buffers.hidden_bytes);
  layer.hidden_scales_at_ = take(pairs * buffers.hidden_scale_bytes);
  layer.partials_at_ = take(pairs * partial_bytes);
  if (problem.moe.shared_experts > 0) layer.weights_at_ = take(pairs * 4);
  return layer;
}

MoeRound MoeLayer::round(const Operands& operands, void* workspace, std::int64_t first_token) const {
  const MatrixShape x = operand_shapes(problem_).x;
  // Of a scale of the whole tensor there is one, whatever the token.
  const bool scales_by_row = x.scale.type != ScaleType::none && x.scale.row_block == 1;
  const std::int64_t scale_bytes = x.scale.type == ScaleType::f32 ? 4 : 1;
  const std::int64_t topk = problem_.moe.topk;
  MoeRound round;
  round.tokens = std::min(tokens_, problem_.m - first_token);
  round.pairs = round.tokens * topk;
  round.max_tiles = max_moe_tiles(round.pairs, problem_.moe.experts, buffers_.block_m);
  Operands& own = round.operands;
  own = operands;
  own.x = static_cast<const char*>(operands.x) + bytes_of(problem_.x_type, first_token * operands.ldx);
  if (operands.x_scale != nullptr && scales_by_row)
    own.x_scale = static_cast<const char*>(operands.x_scale) + first_token * x.scale.columns * scale_bytes;
  own.topk_ids += first_token * problem_.moe.routed_topk();
  round.given_weights = operands.topk_weights + first_token * problem_.moe.routed_topk();
  if (problem_.moe.shared_experts > 0) round.weights = reinterpret_cast<float*>(at(workspace, weights_at_));
  own.topk_weights = round.weights != nullptr ? round.weights : round.given_weights;
  own.y = static_cast<char*>(operands.y) + bytes_of(problem_.y_type, first_token * operands.ldy);
  round.pair_of = reinterpret_cast<int*>(at(workspace, pair_of_at_));
  round.position_of = reinterpret_cast<int*>(at(workspace, position_of_at_));
  round.tiles = reinterpret_cast<MoeTile*>(at(workspace, tiles_at_));
  round.tile_count = reinterpret_cast<int*>(at(workspace, tile_count_at_));
  round.tiles_of = reinterpret_cast<int*>(at(workspace, tiles_of_at_));
  round.chunk_counts = reinterpret_cast<int*>(at(workspace, chunk_counts_at_));
  round.hidden = at(workspace, hidden_at_);
  round.hidden_scales = at(workspace, hidden_scales_at_);
  round.partials = at(workspace, partials_at_);
  return round;
}

Status MoeLayer::route(const MoeRound& round, Stream stream) const {
  MoeRouteArguments values{round.operands.topk_ids,
                           round.pair_of,
                           round.position_of,
                           round.tiles,
                           round.tile_count,
                           round.tiles_of,
                           round.given_weights,
                           round.weights,
                           round.chunk_counts,
                           static_cast<int>(round.pairs),
                           problem_.moe.experts,
                           static_cast<int>(buffers_.block_m),
                           problem_.moe.topk,
                           problem_.moe.shared_experts,
                           static_cast<int>(chunk_of(round.pairs)),
                           static_cast<int>(chunks_of(round.pairs))};
  LaunchShape shape;
  shape.shared_bytes = static_cast<std::size_t>(problem_.moe.experts) * 4;
  shape.extension = buffers_.dependent;
  void* arguments[] = {&values};
  if (route_ != nullptr) {
    shape.grid[0] = static_cast<unsigned>(problem_.moe.experts);
    shape.threads =
        static_cast<unsigned>(std::clamp<std::int64_t>(round_up(round.pairs, wave_lanes), wave_lanes, 1024));
    return route_->launch(shape, arguments, stream);
  }
  shape.grid[0] = static_cast<unsigned>(values.chunks);
  shape.threads = static_cast<unsigned>(place_threads);
  GEMMTUNE_RETURN_IF_ERROR(count_->launch(shape, arguments, stream));
  // Blocks without a chunk have tiles alone.
  constexpr std::int64_t groups_per_block = place_threads / 32;
  shape.grid[0] = static_cast<unsigned>(
      std::max<std::int64_t>(values.chunks, ceil_div(std::int64_t{problem_.moe.experts}, groups_per_block)));
  shape.shared_bytes *= 2;
  return place_->launch(shape, arguments, stream);
}

Status MoeLayer::combine(const MoeRound& round, Stream stream) const {
  const Operands& o = round.operands;
  const std::int64_t y_bytes = bytes_of(problem_.y_type, 1);
  const auto addresses = reinterpret_cast<std::uintptr_t>(o.y) | reinterpret_cast<std::uintptr_t>(o.bias2);
  const bool vectors = problem_.k % 8 == 0 && o.ldy * y_bytes % 16 == 0 && addresses % 16 == 0;
  MoeCombineArguments values{round.partials,
                             round.position_of,
                             problem_.moe.doweight_stage1 ? nullptr : o.topk_weights,
                             o.y,
                             problem_.k,
                             o.ldy,
                             problem_.moe.topk,
                             vectors ? 1 : 0,
                             o.bias2,
                             o.topk_ids,
                             problem_.moe.routed_topk(),
                             problem_.moe.routed_experts()};
  LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(round.tokens);
  shape.grid[1] = static_cast<unsigned>(ceil_div(problem_.k, combine_columns));
  shape.threads = 256;
  shape.extension = buffers_.dependent;
  void* arguments[] = {&values};
  return combine_->launch(shape, arguments, stream);
}

}  // namespace gemmtune::gpu
