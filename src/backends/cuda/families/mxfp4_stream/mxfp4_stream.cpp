#include <algorithm>
#include <array>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_arguments.h"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_cost.h"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_launch_config.h"
#include "backends/cuda/families/own_families.h"
#include "backends/cuda/families/wgmma_moe/moe_permute.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/gpu/moe/moe_layer.h"
#include "backends/gpu/moe/moe_operands.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {

GEMMTUNE_FIELDS(Mxfp4StreamConfig, stage, warps, teams, strips, units, wide, all_units, tail, groups, blocks,
                bias, token_scales, token_unit, rows_apart, scales_apart, zeros_apart, sort, weight, group,
                zero_points, scale_type);

namespace {

/// Of x, which goes through no moe_permute then.
bool has_16_bits(const Problem& problem) { return bits(problem.x_type) == 16; }

/// What the kernel reads of a weight and its scales, and the launch.
void set_weight(const StreamLaunch& launch, const void* w, const void* scales, Mxfp4StreamArguments& values) {
  values.w = static_cast<const unsigned char*>(w);
  values.scales = static_cast<const unsigned char*>(scales);
  values.row_bytes = as_int(launch.row_bytes);
  values.pitch = as_int(launch.pitch);
  values.scale_row = as_int(launch.scale_row);
  values.scale_pitch = as_int(launch.scale_pitch);
  values.w_matrix = launch.weight_rows * launch.row_bytes;
  values.scale_matrix = launch.weight_rows * launch.scale_row;
  values.units = as_int(launch.units);
  values.features = as_int(launch.interleaved ? launch.weight_rows / 2 : launch.weight_rows);
  values.slabs = as_int(launch.slabs);
  values.zero_row = as_int(launch.zero_row);
  values.zero_pitch = as_int(launch.zero_pitch);
  values.zero_matrix = launch.weight_rows * launch.zero_row;
  values.chunk = as_int(launch.chunk);
  values.num_stages = as_int(launch.num_stages);
  values.num_slots = as_int(launch.num_slots);
  values.stage_bytes = as_int(launch.stage_bytes);
}

/// A launch that may start while the kernel before it still runs.
class StreamShape {
 public:
  StreamShape(const StreamLaunch& launch, const gpu::Limits& limits) {
    hopper_.dependent = true;
    shape_.grid[0] = static_cast<unsigned>(limits.multiprocessors * launch.blocks);
    shape_.threads = static_cast<unsigned>(launch.threads());
    shape_.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
  }
  Status launch(const gpu::Program& program, Mxfp4StreamArguments& values, Stream stream) const {
    gpu::LaunchShape shape = shape_;
    shape.extension = &hopper_;
    void* arguments[] = {&values};
    return program.launch(shape, arguments, stream);
  }

 private:
  HopperLaunch hopper_;
  gpu::LaunchShape shape_;
};

class MoeStreamKernel final : public gpu::JitKernel<StreamLaunches> {
 public:
  /// `programs`: of the stages, and where x is not bf16 what makes it that.
  MoeStreamKernel(gpu::Programs programs, gpu::MoeLayer layer, const Problem& problem,
                  const StreamLaunches& launches, const gpu::Limits& limits)
      : JitKernel(std::move(programs), problem, launches),
        layer_(std::move(layer)),
        shapes_{StreamShape(launches[0], limits), StreamShape(launches[1], limits)} {}
  std::size_t workspace_bytes() const override { return layer_.workspace_bytes(); }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    const std::int64_t x_row_bytes = bytes_of(problem_.x_type, operands.ldx);
    GEMMTUNE_RETURN_IF_ERROR(check_alignment(operands.x, x_row_bytes,
                                             {operands.w, operands.w_scale, operands.w2, operands.w2_scale,
                                              operands.w_zero_points, operands.w2_zero_points}));
    for (std::int64_t token = 0; token < problem_.m; token += layer_.round_tokens()) {
      const gpu::MoeRound round = layer_.round(operands, workspace, token);
      const void* x = round.operands.x;
      std::int64_t x_row = operands.ldx;
      if (programs_.size() > 2) {
        // Behind the hidden layer.
        void* const widened = static_cast<char*>(round.hidden) + round.pairs * problem_.n * 2;
        GEMMTUNE_RETURN_IF_ERROR(
            launch_moe_permute(*programs_[2], problem_, round, RowOrder::tokens, widened, stream));
        x = widened;
        x_row = permuted_row_bytes(problem_) / 2;
      }
      if (!launch_[0].sorts) GEMMTUNE_RETURN_IF_ERROR(layer_.route(round, stream));
      Mxfp4StreamArguments first{};
      set_weight(launch_[0], operands.w, operands.w_scale, first);
      set_tiles(round, first);
      first.x = static_cast<const unsigned short*>(x);
      first.x_row = x_row;
      first.x_scales = static_cast<const float*>(round.operands.x_scale);
      first.x_scale_step = operand_shapes(problem_).x.scale.row_block == 1 ? 1 : 0;
      first.to = round.hidden;
      first.to_row = problem_.n;
      first.weights = problem_.moe.doweight_stage1 ? round.operands.topk_weights : nullptr;
      first.position_of = round.position_of;
      first.bias = static_cast<const float*>(round.operands.bias);
      first.format = gpu::moe_format_of(operands.w_global_scale, operands.w_zero_points);
      GEMMTUNE_RETURN_IF_ERROR(shapes_[0].launch(*programs_[0], first, stream));
      Mxfp4StreamArguments second{};
      set_weight(launch_[1], operands.w2, operands.w2_scale, second);
      set_tiles(round, second);
      second.x = static_cast<const unsigned short*>(round.hidden);
      second.x_row = problem_.n;
      second.to = round.partials;
      second.bias = static_cast<const float*>(operands.bias2);
      second.to_row = problem_.k;
      second.format = gpu::moe_format_of(operands.w2_global_scale, operands.w2_zero_points);
      GEMMTUNE_RETURN_IF_ERROR(shapes_[1].launch(*programs_[1], second, stream));
      GEMMTUNE_RETURN_IF_ERROR(layer_.combine(round, stream));
    }
    return {};
  }

 private:
  void set_tiles(const gpu::MoeRound& round, Mxfp4StreamArguments& values) const {
    values.pair_of = round.pair_of;
    values.tiles = round.tiles;
    values.tile_count = round.tile_count;
    values.tiles_of = round.tiles_of;
    values.ids = round.operands.topk_ids;
    values.topk = problem_.moe.topk;
    values.pairs = as_int(round.pairs);
    values.experts = problem_.moe.experts;
  }

  gpu::MoeLayer layer_;
  std::array<StreamShape, 2> shapes_;
};

class Mxfp4StreamFamily final : public gpu::JitFamily<StreamLaunches> {
 public:
  Mxfp4StreamFamily(gpu::Runtime& runtime, const gpu::Limits& limits)
      : JitFamily(runtime, {.name = "mxfp4_stream", .tie_rank = 11}),
        limits_(limits),
        cost_(stream_cost(limits_)) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override {
    return default_stream_config(problem, limits_, cost_);
  }

 protected:
  StreamLaunches launch_config(const Problem& problem, const Config& config) const override {
    return stream_launches(problem, config, limits_);
  }
  void fill(gpu::LaunchSpace<StreamLaunches>& space) const override {
    space.add(stream_parameters(space.problem()));
    space.rule("fits", Rule::build, refuse_stream);
    refuse_slow(space, 2);
  }
  double cost(const Problem& problem, const StreamLaunches& launches) const override {
    return predicted_stream(problem, launches, limits_, cost_);
  }
  std::int64_t resources_of(const StreamLaunches& launches) const override {
    return launches[0].shared_bytes;
  }
  std::vector<gpu::Part> parts(const Problem& problem, const StreamLaunches& launches) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const StreamLaunches& launches) const override;
  std::string device_text() const override {
    return source_ + gpu::moe_layer_text() +
           moe_permute_source(default_problem(Operation::fused_moe), ColumnOrder::plain).text;
  }

 private:
  gpu::Source source_of(const Problem& problem, const StreamLaunch& launch) const;

  gpu::Limits limits_;
  StreamCost cost_;
  std::string source_ = gpu::include_line("backends/cuda/families/mxfp4_stream/mxfp4_stream.cu");
};

Status Mxfp4StreamFamily::accepts(const Problem& problem) const {
  if (!has_weight_format(problem))
    return refusal::refuse(refusal::types, "x {} with w {}, only with {}, and {} of groups",
                           to_string(problem.x_type), to_string(problem.w_type), to_string(DataType::f4_e2m1),
                           to_string(DataType::i4));
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_mixture(problem, gpu::Weights::plain, gpu::MoeQuantizations::all));
  if (!is_of_weights_alone(problem.moe.quant_type) && !widens_exactly(problem))
    return refusal::refuse(refusal::types, "x {} scaled by {}", to_string(problem.x_type),
                           to_string(problem.moe.quant_type));
  if (routed_pairs(problem) > max_stream_tokens * problem.moe.experts)
    return refusal::refuse(refusal::size, "{} tokens for {} experts, more than {} each",
                           routed_pairs(problem), problem.moe.experts, max_stream_tokens);
  GEMMTUNE_RETURN_IF_ERROR(accepts_strips(problem));
  GEMMTUNE_RETURN_IF_ERROR(accepts_addresses(problem));
  if (default_stream_config(problem, limits_, cost_).text().empty())
    return refusal::refuse(refusal::size, "k = {}: no strip of it fits into shared memory and registers",
                           std::max(problem.k, problem.n));
  return {};
}

/// What elements of x, of the weight and of the hidden layer are where they are multiplied.
DataType multiplied_type(const Problem& problem) {
  return problem.x_type == DataType::f16 ? DataType::f16 : DataType::bf16;
}

gpu::Source Mxfp4StreamFamily::source_of(const Problem& problem, const StreamLaunch& launch) const {
  const bool first = launch.stage == 1;
  const DataType output = first ? multiplied_type(problem) : problem.y_type;
  return {
      "mxfp4_stream",
      source_,
      {fmt::format("ELEMENT={}", gpu::element_code(multiplied_type(problem))),
       fmt::format("OUTPUT={}", gpu::element_code(output)), "L2_HINTS=0",
       gpu::config_define(Mxfp4StreamConfig{
           .stage = as_int(launch.stage),
           .warps = as_int(launch.warps),
           .teams = as_int(launch.teams),
           .strips = as_int(launch.strips),
           .units = as_int(launch.warp_units),
           .wide = launch.wide(),
           .all_units = as_int(launch.units),
           .tail = launch.tail(),
           .groups = as_int(launch.groups),
           .blocks = as_int(launch.blocks),
           .bias = problem.bias,
           .token_scales = first && scales_tokens(problem),
           .token_unit = static_cast<float>(first && !has_16_bits(problem) ? permuted_unit_of(problem) : 1),
           .rows_apart = launch.rows_apart(),
           .scales_apart = launch.scales_apart(),
           .zeros_apart = launch.zeros_apart(),
           .sort = launch.sorts,
           .weight = launch.weight.format,
           .group = as_int(launch.weight.group),
           .zero_points = launch.weight.zero_points,
           .scale_type = problem.y_type == DataType::f16 ? gpu::Element::f16 : gpu::Element::bf16}),
       fmt::format("GATED={}", launch.interleaved ? 1 : 0),
       fmt::format("ACTIVATION={}", first ? gpu::activation_code(problem.moe.activation) : 0)},
      "mxfp4_stream"};
}

std::vector<gpu::Part> Mxfp4StreamFamily::parts(const Problem& problem,
                                                const StreamLaunches& launches) const {
  std::vector<gpu::Part> parts;
  for (const StreamLaunch& launch : launches)
    parts.push_back({source_of(problem, launch), launch.shared_bytes});
  if (!has_16_bits(problem)) parts.push_back({moe_permute_source(problem, ColumnOrder::plain)});
  return parts;
}

Result<std::unique_ptr<Kernel>> Mxfp4StreamFamily::make_kernel(gpu::Programs programs, const Problem& problem,
                                                               const StreamLaunches& launches) const {
  const std::int64_t widened_bytes =  // of a pair
      has_16_bits(problem) ? 0 : ceil_div(permuted_row_bytes(problem), std::int64_t{problem.moe.topk});
  GEMMTUNE_TRY(auto layer, gpu::MoeLayer::make(runtime(), problem,
                                               {.block_m = launches[0].rows(),
                                                .hidden_bytes = problem.n * 2 + widened_bytes,
                                                .rounded_partials = true,
                                                .dependent = &starts_early()}));
  return std::make_unique<MoeStreamKernel>(std::move(programs), std::move(layer), problem, launches, limits_);
}

}  // namespace

std::unique_ptr<KernelFamily> make_mxfp4_stream_family(gpu::Runtime& runtime, const gpu::Limits& limits) {
  return std::make_unique<Mxfp4StreamFamily>(runtime, limits);
}

const gpu::FamilyEntry& mxfp4_stream_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mxfp4_stream",
               .rank = 36,
               .aliases = tunable_aliases,
               .fallback_rank = 34,
               .runs_untuned = [](const Problem& problem,
                                  std::string_view) { return runs_stream_untuned(problem); }},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_mxfp4_stream_family(context.runtime, context.runtime.limits());
      }};
  return entry;
}

}  // namespace gemmtune::cuda
