#include <algorithm>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/families/own_families.h"
#include "backends/gpu/families/simt/simt_launch_config.h"
#include "backends/gpu/families/simt_moe/simt_moe_arguments.h"
#include "backends/gpu/moe/moe_layer.h"
#include "backends/gpu/moe/moe_operands.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::gpu {
namespace {

constexpr std::int64_t columns_per_block = 64;
constexpr std::int64_t max_tile_blocks = 65535;

class SimtMoeKernel final : public JitKernel<SimtLaunchConfig> {
 public:
  SimtMoeKernel(Programs stages, MoeLayer layer, const Problem& problem, const SimtLaunchConfig& launch)
      : JitKernel(std::move(stages), problem, launch),
        layer_(std::move(layer)),
        shapes_(operand_shapes(problem)) {}
  std::size_t workspace_bytes() const override { return layer_.workspace_bytes(); }
  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    for (std::int64_t token = 0; token < problem_.m; token += layer_.round_tokens()) {
      const MoeRound round = layer_.round(operands, workspace, token);
      GEMMTUNE_RETURN_IF_ERROR(layer_.route(round, stream));
      const Operands& o = round.operands;
      auto* hidden = static_cast<float*>(round.hidden);
      SimtMoeArguments first{static_cast<const unsigned char*>(o.x),
                             static_cast<const unsigned char*>(o.w),
                             moe_scales_of(shapes_.x.scale, o.x_scale),
                             moe_scales_of(shapes_.w.scale, o.w_scale),
                             hidden,
                             round.pair_of,
                             round.tiles,
                             round.tile_count,
                             problem_.moe.doweight_stage1 ? o.topk_weights : nullptr,
                             o.ldx,
                             problem_.k,
                             problem_.n,
                             problem_.moe.topk,
                             static_cast<const float*>(o.bias),
                             moe_format_of(o.w_global_scale, o.w_zero_points)};
      GEMMTUNE_RETURN_IF_ERROR(launch(0, first, round, stream));
      SimtMoeArguments second = first;
      second.x = reinterpret_cast<const unsigned char*>(hidden);
      second.w = static_cast<const unsigned char*>(o.w2);
      second.w_scales = moe_scales_of(shapes_.w2.scale, o.w2_scale);
      second.format = moe_format_of(o.w2_global_scale, o.w2_zero_points);
      second.to = static_cast<float*>(round.partials);
      second.weights = nullptr;
      second.ldx = second.k = problem_.n;
      second.columns = problem_.k;
      GEMMTUNE_RETURN_IF_ERROR(launch(1, second, round, stream));
      GEMMTUNE_RETURN_IF_ERROR(layer_.combine(round, stream));
    }
    return {};
  }

 private:
  Status launch(std::size_t stage, SimtMoeArguments& values, const MoeRound& round, Stream stream) const {
    LaunchShape shape;
    shape.threads = 256;
    shape.grid[0] = static_cast<unsigned>(ceil_div<std::int64_t>(values.columns, columns_per_block));
    shape.grid[1] = static_cast<unsigned>(std::min(round.max_tiles, max_tile_blocks));
    return enqueue(stage, shape, values, stream);
  }

  MoeLayer layer_;
  OperandShapes shapes_;
};

std::string stage_text() { return include_line("backends/gpu/families/simt_moe/simt_moe.cu"); }

class SimtMoeFamily final : public JitFamily<SimtLaunchConfig> {
 public:
  explicit SimtMoeFamily(Runtime& runtime) : JitFamily(runtime, {.name = "simt_moe", .tie_rank = 31}) {}

  Status accepts(const Problem& problem) const override {
    GEMMTUNE_RETURN_IF_ERROR(accepts_mixture(problem, Weights::plain, MoeQuantizations::all));
    if (moe_type_code(problem.x_type) < 0 || moe_type_code(problem.w_type) < 0)
      return refusal::refuse(refusal::types, "x {} with w {} is not taken", to_string(problem.x_type),
                             to_string(problem.w_type));
    return {};
  }
  Config default_config(const Problem& problem) const override {
    Config config;
    config.set("bm", std::int64_t{routed_pairs(problem) <= 32 * problem.moe.experts ? 16 : 64});
    return config;
  }
  /// A thread adds one product of an element after the other, and a token's experts are added in the order of its slots.
  std::string sum_order(const Problem&, const Config&) const override { return "simt_moe"; }

 protected:
  SimtLaunchConfig launch_config(const Problem&, const Config& config) const override {
    return {.block_m = config.number("bm", 16)};
  }
  void fill(LaunchSpace<SimtLaunchConfig>& space) const override {
    space.add({"bm", {"16", "64"}, "16", "block_m: pairs of a tile"});
    space.rule("bm", Rule::search, refuse_empty_rows);
  }
  /// 5 TFLOP/s for all rows of the tiles.
  double cost(const Problem& problem, const SimtLaunchConfig& launch) const override {
    const auto pairs = static_cast<double>(routed_pairs(problem));
    const auto tiles =
        static_cast<double>(max_moe_tiles(routed_pairs(problem), problem.moe.experts, launch.block_m));
    return 20 + flops(problem) / pairs * tiles * static_cast<double>(launch.block_m) / 5e6;
  }
  std::vector<Part> parts(const Problem& problem, const SimtLaunchConfig& launch) const override {
    return {{stage_source(problem, launch, 1)}, {stage_source(problem, launch, 2)}};
  }
  Result<std::unique_ptr<Kernel>> make_kernel(Programs stages, const Problem& problem,
                                              const SimtLaunchConfig& launch) const override {
    GEMMTUNE_TRY(auto layer, MoeLayer::make(runtime(), problem,
                                            {.block_m = launch.block_m, .hidden_bytes = problem.n * 4}));
    return std::make_unique<SimtMoeKernel>(std::move(stages), std::move(layer), problem, launch);
  }
  std::string device_text() const override { return stage_text() + moe_layer_text(); }

 private:
  Source stage_source(const Problem& problem, const SimtLaunchConfig& launch, int stage) const {
    const OperandShapes shapes = operand_shapes(problem);
    const ScaleShape& w_scale = stage == 1 ? shapes.w.scale : shapes.w2.scale;
    Source source{"simt_moe", stage_text(), {}, "simt_moe"};
    source.defines = {"ELEMENT=2",
                      "OUTPUT=0",
                      fmt::format("STAGE={}", stage),
                      fmt::format("BLOCK_M={}", launch.block_m),
                      fmt::format("X_TYPE={}", stage == 1 ? moe_type_code(problem.x_type) : 0),
                      fmt::format("X_SCALES={}", stage == 1 ? moe_scale_code(shapes.x.scale.type) : 0),
                      fmt::format("GATED={}", stage == 1 && problem.moe.gated ? 1 : 0),
                      fmt::format("BIAS={}", stage == 1 && problem.bias ? 1 : 0),
                      fmt::format("ACTIVATION={}", stage == 1 ? activation_code(problem.moe.activation) : 0)};
    for (std::string& define : moe_weight_defines(problem.w_type, w_scale))
      source.defines.push_back(std::move(define));
    return source;
  }
};

}  // namespace

std::unique_ptr<KernelFamily> make_simt_moe_family(Runtime& runtime) {
  return std::make_unique<SimtMoeFamily>(runtime);
}

const FamilyEntry& simt_moe_entry() {
  static const FamilyEntry entry{
      .info = {.name = "simt_moe", .rank = 60, .fallback_rank = 60},
      .make = [](const FamilyContext& context) { return make_simt_moe_family(context.runtime); }};
  return entry;
}

}  // namespace gemmtune::gpu
