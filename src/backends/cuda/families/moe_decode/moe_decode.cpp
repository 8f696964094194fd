#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/hopper_strip.h"
#include "backends/cuda/families/moe_decode/moe_decode_arguments.h"
#include "backends/cuda/families/moe_decode/moe_decode_cost.h"
#include "backends/cuda/families/moe_decode/moe_decode_launch_config.h"
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

GEMMTUNE_FIELDS(MoeDecodeConfig, hidden, warps, teams, hidden_teams, row_bytes, slab, hidden_bytes,
                hidden_slab, entries, stage_bytes, slots, tiles, grid, weighted, bias, strips, tokens_fp8,
                hidden_ahead, pitch, scale_pitch, zero_pitch, hidden_pitch, hidden_scale_pitch,
                hidden_zero_pitch, weight, group, zero_points);

namespace {

constexpr std::int64_t hidden_alignment = 256;  // bytes

/// Of the grid's barrier, in front of the hidden layer.
std::int64_t counter_bytes(const MoeDecodeLaunch& launch) {
  return round_up(launch.counters * 4, hidden_alignment);
}

/// gpu::scale_code() up to 3; −1: others. What is stored of per_128x128 is as of per_1x128.
int decode_scales(const Problem& problem) {
  if (problem.moe.quant_type == QuantType::per_128x128) return 3;
  const int code = gpu::scale_code(problem);
  return code <= 3 ? code : -1;
}

class MoeDecodeKernel final : public gpu::JitKernel<MoeDecodeLaunch> {
 public:
  MoeDecodeKernel(gpu::Programs programs, const Problem& problem, const MoeDecodeLaunch& launch)
      : JitKernel(std::move(programs), problem, launch), shapes_(operand_shapes(problem)) {
    extension_.dependent = true;
    extension_.cooperative = true;
    shape_.grid[0] = static_cast<unsigned>(launch.grid);
    shape_.threads = static_cast<unsigned>(launch.threads());
    shape_.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
    shape_.extension = &extension_;
  }
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(counter_bytes(launch_) +
                                    routed_pairs(problem_) * problem_.m * problem_.n * 2);
  }

  Status run(const Operands& o, void* workspace, Stream stream) const override {
    const std::int64_t x_row_bytes = bytes_of(problem_.x_type, problem_.m == 1 ? problem_.k : o.ldx);
    GEMMTUNE_RETURN_IF_ERROR(check_alignment(o.x, x_row_bytes, {o.w, o.w2}));
    if (launch_.strips)
      GEMMTUNE_RETURN_IF_ERROR(
          check_alignment(o.x, x_row_bytes, {o.w_scale, o.w2_scale, o.w_zero_points, o.w2_zero_points}));
    MoeDecodeArguments values{};
    values.w = static_cast<const unsigned char*>(o.w);
    values.w2 = static_cast<const unsigned char*>(o.w2);
    values.x = static_cast<const unsigned char*>(o.x);
    values.ids = o.topk_ids;
    values.weights = o.topk_weights;
    values.x_scales = static_cast<const float*>(o.x_scale);
    values.w_scales = static_cast<const float*>(o.w_scale);
    values.w2_scales = static_cast<const float*>(o.w2_scale);
    values.bias = static_cast<const float*>(o.bias);
    values.bias2 = o.bias2;
    values.counters = static_cast<unsigned*>(workspace);
    values.hidden = reinterpret_cast<unsigned short*>(static_cast<char*>(workspace) + counter_bytes(launch_));
    values.y = o.y;
    values.ldy = o.ldy;
    values.x_row_bytes = x_row_bytes;
    values.w_scale_matrix = shapes_.w.scale.elements();
    values.w2_scale_matrix = shapes_.w2.scale.elements();
    values.x_scale_columns = as_int(shapes_.x.scale.row_block == 1 ? shapes_.x.scale.columns : 0);
    values.w_scale_columns = as_int(shapes_.w.scale.columns);
    values.w2_scale_columns = as_int(shapes_.w2.scale.columns);
    values.tokens = as_int(problem_.m);
    values.topk = problem_.moe.topk;
    values.shared = problem_.moe.shared_experts;
    values.experts = problem_.moe.experts;
    values.features = as_int(problem_.n);
    values.rows = as_int(problem_.k);
    values.groups = as_int(launch_.groups);
    values.num_stages = as_int(launch_.num_stages);
    values.format = gpu::moe_format_of(o.w_global_scale, o.w_zero_points);
    values.format2 = gpu::moe_format_of(o.w2_global_scale, o.w2_zero_points);
    return enqueue(0, shape_, values, stream);
  }

 private:
  OperandShapes shapes_;
  HopperLaunch extension_;
  gpu::LaunchShape shape_;  // points at extension_
};

class MoeDecodeFamily final : public gpu::JitFamily<MoeDecodeLaunch> {
 public:
  explicit MoeDecodeFamily(gpu::Runtime& runtime)
      : JitFamily(runtime, {.name = "moe_decode", .tie_rank = 11}),
        limits_(runtime.limits()),
        cost_(moe_decode_cost(limits_)) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override {
    return default_moe_decode_config(problem, limits_, cost_);
  }

 protected:
  MoeDecodeLaunch launch_config(const Problem& problem, const Config& config) const override {
    return moe_decode_launch(problem, config, limits_);
  }
  void fill(gpu::LaunchSpace<MoeDecodeLaunch>& space) const override {
    space.add(moe_decode_parameters(space.problem()));
    space.rule("fits", Rule::build, refuse_moe_decode);
  }
  double cost(const Problem& problem, const MoeDecodeLaunch& launch) const override {
    return predicted_moe_decode(problem, launch, cost_);
  }
  std::vector<gpu::Part> parts(const Problem& problem, const MoeDecodeLaunch& launch) const override {
    return {{source_of(problem, launch), launch.shared_bytes}};
  }
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const MoeDecodeLaunch& launch) const override {
    return std::make_unique<MoeDecodeKernel>(std::move(programs), problem, launch);
  }
  std::string device_text() const override { return source_; }

 private:
  gpu::Source source_of(const Problem& problem, const MoeDecodeLaunch& launch) const;

  gpu::Limits limits_;
  MoeDecodeCost cost_;
  std::string source_ = gpu::include_line("backends/cuda/families/moe_decode/moe_decode.cu");
};

Status accepts_types(const Problem& problem) {
  const DataType type = problem.w_type;
  if (has_weight_format(problem)) {
    // Of x of 16 bits NVFP4 and int4 weights have either.
    const bool fp8_tokens =
        problem.x_type == DataType::f8_e4m3fn && widens_exactly(problem) && scales_tokens(problem);
    if (problem.x_type == DataType::bf16 || fp8_tokens || is_of_weights_alone(problem.moe.quant_type))
      return {};
    return refusal::refuse(refusal::types, "x {} scaled by {} with w {}, only bf16 and fp8 of a scale each",
                           to_string(problem.x_type), to_string(problem.moe.quant_type), to_string(type));
  }
  if (problem.x_type != type ||
      (type != DataType::bf16 && type != DataType::f16 && type != DataType::f8_e4m3fn))
    return refusal::refuse(
        refusal::types,
        "x {} scaled by {} with w {}, only bf16, fp16 and fp8 e4m3fn of both, and {}, {} of groups",
        to_string(problem.x_type), to_string(problem.moe.quant_type), to_string(type),
        to_string(DataType::f4_e2m1), to_string(DataType::i4));
  const int scales = decode_scales(problem);
  if ((scales == 0) != (bits(type) == 16) || scales < 0)
    return refusal::refuse(refusal::types, "{} scaled by {}", to_string(type),
                           to_string(problem.moe.quant_type));
  return {};
}

Status MoeDecodeFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_mixture(problem, gpu::Weights::plain, gpu::MoeQuantizations::all));
  GEMMTUNE_RETURN_IF_ERROR(accepts_types(problem));
  if (!limits_.cooperative_launches)
    return refusal::refuse(refusal::device,
                           "its blocks would not all be resident: this process has a part of the device, or "
                           "no cooperative launches");
  if (problem.m > max_decode_tokens)
    return refusal::refuse(refusal::size, "m = {}, at most {}", problem.m, max_decode_tokens);
  if (routed_pairs(problem) > max_decode_pairs)
    return refusal::refuse(refusal::size, "{} pairs of token and expert, at most {}", routed_pairs(problem),
                           max_decode_pairs);
  if (has_weight_format(problem)) GEMMTUNE_RETURN_IF_ERROR(accepts_strips(problem));
  GEMMTUNE_RETURN_IF_ERROR(accepts_weight_rows(problem));
  if (default_moe_decode_config(problem, limits_, cost_).text().empty())
    return refusal::refuse(refusal::size, "k = {}: more of x than registers", problem.k);
  return {};
}

/// What the hidden layer is stored as, and what elements of 4 bits become.
DataType hidden_type(const Problem& problem) {
  return problem.x_type == DataType::f16 ? DataType::f16 : DataType::bf16;
}

MoeDecodeConfig config_of(const Problem& problem, const MoeDecodeLaunch& launch) {
  const StripRows w1(problem.k, launch.weight);
  const StripRows w2(problem.n, launch.weight);
  return {.hidden = hidden_type(problem) == DataType::f16 ? gpu::Element::f16 : gpu::Element::bf16,
          .warps = as_int(launch.warps),
          .teams = as_int(launch.teams),
          .hidden_teams = as_int(launch.hidden_teams),
          .row_bytes = as_int(launch.row_bytes),
          .slab = as_int(launch.slab),
          .hidden_bytes = as_int(launch.hidden_bytes),
          .hidden_slab = as_int(launch.hidden_slab),
          .entries = as_int(launch.entries),
          .stage_bytes = as_int(launch.stage_bytes),
          .slots = as_int(launch.slots),
          .tiles = as_int(launch.tiles),
          .grid = as_int(launch.grid),
          .weighted = problem.moe.doweight_stage1,
          .bias = problem.bias,
          .strips = launch.strips,
          .tokens_fp8 = launch.strips && bits(problem.x_type) == 8,
          .hidden_ahead = launch.hidden_ahead(),
          .pitch = launch.strips ? as_int(w1.pitch) : 0,
          .scale_pitch = launch.strips ? as_int(w1.scale_pitch) : 0,
          .zero_pitch = launch.strips ? as_int(w1.zero_pitch) : 0,
          .hidden_pitch = launch.strips ? as_int(w2.pitch) : 0,
          .hidden_scale_pitch = launch.strips ? as_int(w2.scale_pitch) : 0,
          .hidden_zero_pitch = launch.strips ? as_int(w2.zero_pitch) : 0,
          .weight = launch.weight.format,
          .group = as_int(launch.weight.group),
          .zero_points = launch.weight.zero_points};
}

gpu::Source MoeDecodeFamily::source_of(const Problem& problem, const MoeDecodeLaunch& launch) const {
  gpu::Source source{
      "moe_decode",
      source_,
      {fmt::format("ELEMENT={}", gpu::element_code(launch.strips ? hidden_type(problem) : problem.x_type)),
       fmt::format("OUTPUT={}", gpu::element_code(problem.y_type)),
       fmt::format("SCALES={}", launch.strips ? 0 : decode_scales(problem)),
       fmt::format("L2_HINTS={}", launch.strips ? 0 : 1), fmt::format("GATED={}", problem.moe.gated ? 1 : 0),
       fmt::format("ACTIVATION={}", gpu::activation_code(problem.moe.activation)),
       gpu::config_define(config_of(problem, launch))},
      "moe_decode"};
  return source;
}

}  // namespace

std::unique_ptr<KernelFamily> make_moe_decode_family(gpu::Runtime& runtime) {
  return std::make_unique<MoeDecodeFamily>(runtime);
}

const gpu::FamilyEntry& moe_decode_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "moe_decode",
               .rank = 54,
               .aliases = tunable_aliases,
               .fallback_rank = 31,
               .runs_untuned = [](const Problem& problem,
                                  std::string_view) { return runs_decode_untuned(problem); }},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_moe_decode_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::cuda
