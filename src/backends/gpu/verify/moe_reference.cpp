// A reference of its own down to the sort, which the host does: kernels that it checks share the conversions of numbers
// alone with it.
#include <algorithm>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/moe/moe_layer.h"
#include "backends/gpu/moe/moe_operands.h"
#include "backends/gpu/verify/device_reference.h"
#include "backends/gpu/verify/moe_reference_arguments.h"
#include "base/rounding.h"
#include "problem/mixture_routes.h"
#include "problem/operands.h"
#include "verify/output_check.h"

namespace gemmtune::gpu {

namespace {

constexpr int tile_positions = 64;
constexpr std::int64_t tile_columns = 64;  // of w
constexpr std::int64_t max_grid_tiles = 65535;
constexpr std::size_t round_memory_share = 8;  // a round of tokens takes an eighth of what is free,
constexpr std::int64_t max_round_bytes = std::int64_t{4} << 30;  // and not more than this
constexpr std::int64_t max_round_pairs = std::int64_t{1} << 24;

/// Tokens that are computed together: their pairs sorted by expert, within an expert in their order. Empty slots have no
/// position.
struct SortedRound {
  std::vector<MoeReferenceTile> tiles;
  std::vector<int> token_of;  // by position: among all tokens
  std::vector<double> weights;
  std::vector<int> position_of;  // [tokens of the round, topk]; −1 of empty slots
};

SortedRound sorted_round(const MoeShape& moe, const MixtureRoutes& routes, std::int64_t first,
                         std::int64_t tokens) {
  const std::int64_t first_pair = first * moe.topk;
  const auto pairs = static_cast<std::size_t>(tokens * moe.topk);
  std::vector<int> position(static_cast<std::size_t>(moe.experts) + 1);  // of each expert's next pair
  const auto is_empty = [&](std::size_t pair) {
    return routes.expert(first_pair + static_cast<std::int64_t>(pair)) == empty_slot;
  };
  const auto expert_of = [&](std::size_t pair) {
    return static_cast<std::size_t>(routes.expert(first_pair + static_cast<std::int64_t>(pair)));
  };
  for (std::size_t pair = 0; pair < pairs; ++pair)
    if (!is_empty(pair)) ++position[expert_of(pair) + 1];
  for (std::size_t expert = 1; expert < position.size(); ++expert) position[expert] += position[expert - 1];
  SortedRound round;
  for (std::int32_t expert = 0; expert < moe.experts; ++expert) {
    const int end = position[static_cast<std::size_t>(expert) + 1];
    for (int at = position[static_cast<std::size_t>(expert)]; at < end; at += tile_positions)
      round.tiles.push_back({expert, at, std::min(tile_positions, end - at)});
  }
  round.token_of.resize(pairs);
  round.weights.resize(pairs);
  round.position_of.resize(pairs);
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const std::int64_t all = first_pair + static_cast<std::int64_t>(pair);
    round.position_of[pair] = -1;
    if (is_empty(pair)) continue;
    const int at = position[expert_of(pair)]++;
    round.position_of[pair] = at;
    round.token_of[static_cast<std::size_t>(at)] = static_cast<int>(all / moe.topk);
    round.weights[static_cast<std::size_t>(at)] = static_cast<double>(routes.weight(all));
  }
  return round;
}

class MoeReference final : public DeviceReference {
 public:
  MoeReference(Device& device, const Problem& problem, std::vector<std::shared_ptr<Program>> programs)
      : device_(device),
        problem_(problem),
        shapes_(operand_shapes(problem)),
        programs_(std::move(programs)) {}

  Status compute(const Operands& operands, double* values, float* magnitudes) const override {
    const auto given = static_cast<std::size_t>(given_pairs(problem_));
    std::vector<std::int32_t> ids(given);
    std::vector<float> weights(given);
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_out(ids.data(), operands.topk_ids, given * sizeof(std::int32_t)));
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_out(weights.data(), operands.topk_weights, given * sizeof(float)));
    const MixtureRoutes routes(problem_.moe, ids.data(), weights.data());
    GEMMTUNE_RETURN_IF_ERROR(routes.check(problem_.m));
    const std::int64_t step = round_tokens();
    for (std::int64_t first = 0; first < problem_.m; first += step) {
      const std::int64_t tokens = std::min(step, problem_.m - first);
      GEMMTUNE_RETURN_IF_ERROR(compute_round(operands, sorted_round(problem_.moe, routes, first, tokens),
                                             values + first * problem_.k, magnitudes + first * problem_.k));
    }
    return {};
  }

 private:
  std::int64_t round_tokens() const {
    const std::int64_t pair = problem_.n * 8 + problem_.k * 12;
    const auto share = static_cast<std::int64_t>(device_.free_memory_bytes() / round_memory_share);
    const std::int64_t pairs = std::min(std::min(max_round_bytes, share) / pair, max_round_pairs);
    return std::max<std::int64_t>(1, pairs / problem_.moe.topk);
  }

  /// The values in device memory.
  template <typename Value>
  Result<std::unique_ptr<Buffer>> put(const std::vector<Value>& values) const {
    // There are no tiles where all slots are empty.
    GEMMTUNE_TRY(auto buffer,
                 device_.allocate(std::max<std::size_t>(values.size(), 1) * sizeof(Value), Placement::plain));
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_in(buffer->data(), values.data(), values.size() * sizeof(Value)));
    return buffer;
  }

  Status compute_round(const Operands& operands, const SortedRound& round, double* values,
                       float* magnitudes) const {
    const auto pairs = static_cast<std::int64_t>(round.position_of.size());
    const auto room = [&](std::int64_t bytes) {
      return device_.allocate(static_cast<std::size_t>(bytes), Placement::plain);
    };
    const auto tiles = put(round.tiles);
    const auto token_of = put(round.token_of);
    const auto weights = put(round.weights);
    const auto position_of = put(round.position_of);
    const auto hidden = room(pairs * problem_.n * 8);
    const auto partials = room(pairs * problem_.k * 8);
    const auto partial_magnitudes = room(pairs * problem_.k * 4);
    for (const auto* buffer :
         {&tiles, &token_of, &weights, &position_of, &hidden, &partials, &partial_magnitudes})
      if (!buffer->ok()) return buffer->status();
    const auto* routing_weights = static_cast<const double*>((*weights)->data());
    const bool early = problem_.moe.doweight_stage1;
    MoeReferenceArguments first{static_cast<const unsigned char*>(operands.x),
                                static_cast<const unsigned char*>(operands.w),
                                moe_scales_of(shapes_.x.scale, operands.x_scale),
                                moe_scales_of(shapes_.w.scale, operands.w_scale),
                                static_cast<double*>((*hidden)->data()),
                                nullptr,
                                static_cast<const int*>((*token_of)->data()),
                                early ? routing_weights : nullptr,
                                static_cast<const float*>(operands.bias),
                                static_cast<const MoeReferenceTile*>((*tiles)->data()),
                                operands.ldx,
                                problem_.k,
                                problem_.n,
                                swiglu_limit,
                                swiglu_alpha,
                                hidden_floor(problem_),
                                static_cast<int>(round.tiles.size()),
                                moe_format_of(operands.w_global_scale, operands.w_zero_points)};
    if (!round.tiles.empty()) GEMMTUNE_RETURN_IF_ERROR(launch_stage(0, first, shapes_.w.rows));
    MoeReferenceArguments second = first;
    second.x = static_cast<const unsigned char*>((*hidden)->data());
    second.w = static_cast<const unsigned char*>(operands.w2);
    second.w_scales = moe_scales_of(shapes_.w2.scale, operands.w2_scale);
    second.format = moe_format_of(operands.w2_global_scale, operands.w2_zero_points);
    second.values = static_cast<double*>((*partials)->data());
    second.magnitudes = static_cast<float*>((*partial_magnitudes)->data());
    second.weights = early ? nullptr : routing_weights;
    second.bias = operands.bias2;
    second.ldx = second.k = problem_.n;
    second.columns = problem_.k;
    if (!round.tiles.empty()) GEMMTUNE_RETURN_IF_ERROR(launch_stage(1, second, shapes_.w2.rows));
    MoeReferenceSumArguments sums{
        second.values, second.magnitudes, static_cast<const int*>((*position_of)->data()), values, magnitudes,
        problem_.k,    problem_.moe.topk};
    LaunchShape shape;
    shape.threads = 256;
    shape.grid[0] = static_cast<unsigned>(pairs / problem_.moe.topk);
    void* arguments[] = {&sums};
    GEMMTUNE_RETURN_IF_ERROR(programs_[2]->launch(shape, arguments, {}));
    return device_.synchronize();  // before the buffers go
  }

  /// Tiles of `rows` rows of w.
  Status launch_stage(std::size_t stage, MoeReferenceArguments& values, std::int64_t rows) const {
    LaunchShape shape;
    shape.threads = 256;
    // A tile of a w1 with gate has 32 rows of either half.
    const std::int64_t halves = rows / values.columns;
    shape.grid[0] = static_cast<unsigned>(ceil_div(values.columns, tile_columns / halves));
    shape.grid[1] = static_cast<unsigned>(std::min<std::int64_t>(values.tile_count, max_grid_tiles));
    void* arguments[] = {&values};
    return programs_[stage]->launch(shape, arguments, {});
  }

  Device& device_;
  Problem problem_;
  OperandShapes shapes_;
  std::vector<std::shared_ptr<Program>> programs_;  // as moe_reference_sources() has them
};

Source stage_source(const Problem& problem, int stage) {
  const OperandShapes shapes = operand_shapes(problem);
  const ScaleShape& w_scale = stage == 1 ? shapes.w.scale : shapes.w2.scale;
  Source source{"moe_reference",
                include_line("backends/gpu/verify/moe_reference.cu"),
                {"ELEMENT=2", "OUTPUT=0", fmt::format("STAGE={}", stage),
                 fmt::format("GATED={}", stage == 1 && problem.moe.gated ? 1 : 0),
                 fmt::format("ACTIVATION={}", stage == 1 ? activation_code(problem.moe.activation) : 0),
                 fmt::format("X_TYPE={}", stage == 1 ? moe_type_code(problem.x_type) : 0),
                 fmt::format("X_SCALES={}", stage == 1 ? moe_scale_code(shapes.x.scale.type) : 0)},
                "moe_reference"};
  for (std::string& define : moe_weight_defines(problem.w_type, w_scale))
    source.defines.push_back(std::move(define));
  return source;
}

}  // namespace

std::vector<Source> moe_reference_sources(const Problem& problem) {
  return {stage_source(problem, 1),
          stage_source(problem, 2),
          {"moe_reference_sum",
           include_line("backends/gpu/verify/moe_reference_sum.cu"),
           {},
           "moe_reference_sum"}};
}

Result<std::unique_ptr<DeviceReference>> make_moe_reference(Runtime& runtime, Device& device,
                                                            const Problem& problem) {
  Problem plain = problem;  // the weights of a reference are
  plain.weight_layout = WeightLayout::plain;
  GEMMTUNE_RETURN_IF_ERROR(accepts_mixture(plain, Weights::plain, MoeQuantizations::all));
  if (moe_type_code(problem.x_type) < 0 || moe_type_code(problem.w_type) < 0)
    return refusal::refuse(refusal::types, "x {} with w {} is not taken", to_string(problem.x_type),
                           to_string(problem.w_type));
  GEMMTUNE_TRY(auto programs, load_all(runtime, moe_reference_sources(problem)));
  return std::make_unique<MoeReference>(device, problem, std::move(programs));
}

}  // namespace gemmtune::gpu
