#include "backends/gpu/families/simt_moe/simt_moe.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/simt_moe/simt_moe_arguments.h"
#include "backends/gpu/jit/compiled_family.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/moe/moe_layer.h"
#include "backends/gpu/moe/moe_operands.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::gpu {
namespace {

constexpr std::int64_t columns_per_block = 64;
constexpr std::int64_t max_tile_blocks = 65535;

MoeBuffers buffers_of(const Problem& problem, std::int64_t block_m) {
  return {.block_m = block_m, .hidden_bytes = problem.n * 4};
}

class SimtMoeKernel final : public Kernel {
 public:
  SimtMoeKernel(std::array<std::shared_ptr<Program>, 2> stages, MoeLayer layer, const Problem& problem)
      : stages_(std::move(stages)),
        layer_(std::move(layer)),
        problem_(problem),
        shapes_(operand_shapes(problem)) {}
  std::size_t workspace_bytes() const override { return layer_.workspace_bytes(); }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
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
                             static_cast<const float*>(o.bias)};
      GEMMTUNE_RETURN_IF_ERROR(launch(0, first, round, stream));
      SimtMoeArguments second = first;
      second.x = reinterpret_cast<const unsigned char*>(hidden);
      second.w = static_cast<const unsigned char*>(o.w2);
      second.w_scales = moe_scales_of(shapes_.w2.scale, o.w2_scale);
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
    void* arguments[] = {&values};
    return stages_[stage]->launch(shape, arguments, stream);
  }

  std::array<std::shared_ptr<Program>, 2> stages_;
  MoeLayer layer_;
  Problem problem_;
  OperandShapes shapes_;
};

class SimtMoeFamily final : public CompiledFamily {
 public:
  explicit SimtMoeFamily(Runtime& runtime) : runtime_(runtime) {}

  std::string_view name() const override { return "simt_moe"; }
  std::string identity() const override {
    std::string text = source_;
    for (const Source& source : moe_layer_sources(default_problem(Operation::fused_moe), {}))
      text += source.text;
    return fmt::format("simt_moe r1 source {}", text_hash(text));
  }
  int tie_rank() const override { return 31; }
  Status accepts(const Problem& problem) const override {
    GEMMTUNE_RETURN_IF_ERROR(accepts_mixture(problem));
    if (moe_type_code(problem.x_type) < 0 || moe_type_code(problem.w_type) < 0)
      return refusal::refuse(refusal::types, "x {} with w {} is not taken", to_string(problem.x_type),
                             to_string(problem.w_type));
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }

  Space space(const Problem& problem) const override {
    Space space;
    space.add(Parameter{
        .key = "bm", .values = {"16", "64"}, .absent = "16", .meaning = "block_m: pairs of a tile"});
    space.add(Constraint{"bm",
                         [m = problem.m](const Config& config) -> std::string {
                           return config.number("bm") > 16 && m <= 16
                                      ? "bm leaves most rows of the tile empty"
                                      : "";
                         },
                         Rule::search});
    return space;
  }
  Config default_config(const Problem& problem) const override {
    Config config;
    config.set("bm", std::int64_t{routed_pairs(problem) <= 32 * problem.moe.experts ? 16 : 64});
    return config;
  }
  Source source(const Problem& problem, const Config& config) const override {
    return stage_source(problem, config, 1);
  }
  std::vector<Source> sources(const Problem& problem, const Config& config) const override {
    return {stage_source(problem, config, 1), stage_source(problem, config, 2)};
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    std::array<std::shared_ptr<Program>, 2> stages;
    for (const int stage : {1, 2}) {
      auto program = runtime_.load(stage_source(problem, config, stage));
      if (!program.ok()) return program.status();
      stages[static_cast<std::size_t>(stage) - 1] = std::move(*program);
    }
    auto layer = MoeLayer::make(runtime_, problem, buffers_of(problem, config.number("bm")));
    if (!layer.ok()) return layer.status();
    return std::unique_ptr<Kernel>(
        std::make_unique<SimtMoeKernel>(std::move(stages), std::move(*layer), problem));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    // 5 TFLOP/s for all rows of the tiles.
    const auto pairs = static_cast<double>(routed_pairs(problem));
    const auto tiles =
        static_cast<double>(max_moe_tiles(routed_pairs(problem), problem.moe.experts, config.number("bm")));
    return 20 + flops(problem) / pairs * tiles * static_cast<double>(config.number("bm")) / 5e6;
  }
  std::string_view thread_pool() const override { return "gpu"; }

 private:
  Source stage_source(const Problem& problem, const Config& config, int stage) const {
    const OperandShapes shapes = operand_shapes(problem);
    const ScaleShape& w_scale = stage == 1 ? shapes.w.scale : shapes.w2.scale;
    Source source{"simt_moe", source_, {}, "simt_moe"};
    source.defines = {"ELEMENT=2",
                      "OUTPUT=0",
                      fmt::format("STAGE={}", stage),
                      fmt::format("BLOCK_M={}", config.number("bm")),
                      fmt::format("W_TYPE={}", moe_type_code(problem.w_type)),
                      fmt::format("W_SCALES={}", moe_scale_code(w_scale.type)),
                      fmt::format("X_TYPE={}", stage == 1 ? moe_type_code(problem.x_type) : 0),
                      fmt::format("X_SCALES={}", stage == 1 ? moe_scale_code(shapes.x.scale.type) : 0),
                      fmt::format("GATED={}", stage == 1 && problem.moe.gated ? 1 : 0),
                      fmt::format("BIAS={}", stage == 1 && problem.bias ? 1 : 0),
                      fmt::format("ACTIVATION={}", stage == 1 ? activation_code(problem.moe.activation) : 0)};
    return source;
  }

  Runtime& runtime_;
  std::string source_ = include_line("backends/gpu/families/simt_moe/simt_moe.cu");
};

}  // namespace

std::unique_ptr<KernelFamily> make_simt_moe_family(Runtime& runtime) {
  return std::make_unique<SimtMoeFamily>(runtime);
}

}  // namespace gemmtune::gpu
