#include <algorithm>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/gpu/moe/moe_layer.h"
#include "backends/hip/families/compute_unit.h"
#include "backends/hip/families/mfma_moe/mfma_moe_arguments.h"
#include "backends/hip/families/mfma_moe/mfma_moe_launch_config.h"
#include "backends/hip/families/mfma_moe/mfma_moe_quantize_arguments.h"
#include "backends/hip/families/own_families.h"
#include "backends/refusal.h"
#include "base/fields.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::hip {

GEMMTUNE_FIELDS(MfmaMoeConfig, number, gated, bias, weighted, scales);

namespace {

constexpr std::int64_t blocks_per_unit = 16;  // of the grid: blocks walk over what is more
constexpr std::int64_t groups_per_block = 4;  // of mfma_moe_quantize
constexpr std::int64_t max_quantize_blocks = std::int64_t{1} << 20;

using Stages = std::array<MfmaMoeStage, 2>;

/// Elements of a row of the hidden layer that share a scale.
std::int64_t hidden_group(const Problem& problem) {
  return scales_by_block(problem) ? scale_block : problem.n;
}

gpu::Source quantize_source(const Problem& problem) {
  return {"mfma_moe_quantize",
          gpu::include_line("backends/hip/families/mfma_moe/mfma_moe_quantize.cu"),
          {fmt::format("ELEMENT={}", gpu::element_code(problem.w_type)), "OUTPUT=2"},
          "mfma_moe_quantize"};
}

gpu::MoeBuffers buffers_of(const Problem& problem, std::int64_t block_m) {
  const bool quantized = quantizes_hidden(problem);
  return {.block_m = block_m,
          .hidden_bytes = problem.n * (quantized ? 3 : 2),  // in bf16, then quantized
          .hidden_scale_bytes = quantized ? ceil_div(problem.n, hidden_group(problem)) * 4 : 0,
          .rounded_partials = true};
}

class MfmaMoeKernel final : public gpu::JitKernel<Stages> {
 public:
  /// `programs`: of the stages, and for 8-bit operands the one between them.
  MfmaMoeKernel(gpu::Programs programs, gpu::MoeLayer layer, const Problem& problem, const Stages& stages,
                const ComputeUnit& unit)
      : JitKernel(std::move(programs), problem, stages),
        layer_(std::move(layer)),
        shapes_(operand_shapes(problem)),
        xcds_(unit.xcds) {
    for (const std::size_t i : {0U, 1U}) {
      const std::int64_t works = layer_.max_tiles() * stages[i].column_tiles;
      // Whole rounds of the dies, so that a block's works are all of one die.
      const std::int64_t most = round_up(unit.units * blocks_per_unit, unit.xcds);
      launches_[i].grid[0] = static_cast<unsigned>(std::min(works, most));
      launches_[i].threads = static_cast<unsigned>(wave_lanes * stages[i].tile.waves);
      launches_[i].shared_bytes = static_cast<std::size_t>(stages[i].tile.shared_bytes);
    }
  }
  std::size_t workspace_bytes() const override { return layer_.workspace_bytes(); }
  WeightLayout weight_layout() const override {
    return is_packed(problem_) ? WeightLayout::aiter16x16 : WeightLayout::plain;
  }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    const auto address = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
    if (is_packed(problem_) && (address(operands.w) | address(operands.w2)) % 16 != 0)
      return Status::unsupported("mfma_moe needs shuffled weights at multiples of 16 bytes");
    for (std::int64_t token = 0; token < problem_.m; token += layer_.round_tokens()) {
      const gpu::MoeRound round = layer_.round(operands, workspace, token);
      GEMMTUNE_RETURN_IF_ERROR(layer_.route(round, stream));
      const Operands& o = round.operands;
      MfmaMoeArguments first = arguments_of(launch_[0], round, o.w, shapes_.w.scale, o.w_scale);
      first.x = static_cast<const unsigned char*>(o.x);
      first.x_line_bytes = bytes_of(problem_.x_type, o.ldx);
      first.to = round.hidden;
      first.weights = o.topk_weights;
      first.bias = static_cast<const float*>(o.bias);
      first.x_scales = static_cast<const float*>(o.x_scale);
      first.x_scale_step = as_int(shapes_.x.scale.row_block == 1 ? shapes_.x.scale.columns : 0);
      first.x_scale_k_step = 1;
      GEMMTUNE_RETURN_IF_ERROR(enqueue(0, launches_[0], first, stream));
      const void* hidden = round.hidden;
      if (quantizes_hidden(problem_)) {
        hidden = static_cast<const char*>(round.hidden) + round.pairs * problem_.n * 2;
        GEMMTUNE_RETURN_IF_ERROR(quantize(round, const_cast<void*>(hidden), stream));
      }
      MfmaMoeArguments second = arguments_of(launch_[1], round, o.w2, shapes_.w2.scale, o.w2_scale);
      second.x = static_cast<const unsigned char*>(hidden);
      second.x_line_bytes = second.k_bytes;
      second.to = round.partials;
      second.x_scales = static_cast<const float*>(round.hidden_scales);
      second.x_scale_step = 1;
      second.x_scale_k_step = round.pairs;
      GEMMTUNE_RETURN_IF_ERROR(enqueue(1, launches_[1], second, stream));
      GEMMTUNE_RETURN_IF_ERROR(layer_.combine(round, stream));
    }
    return {};
  }

 private:
  MfmaMoeArguments arguments_of(const MfmaMoeStage& stage, const gpu::MoeRound& round, const void* w,
                                const ScaleShape& scale, const void* scales) const {
    MfmaMoeArguments values{};
    values.w = static_cast<const unsigned char*>(w);
    values.pair_of = round.pair_of;
    values.tiles = round.tiles;
    values.tile_count = round.tile_count;
    values.tiles_of = round.tiles_of;
    values.w_scales = static_cast<const float*>(scales);
    values.k_bytes = bytes_of(problem_.w_type, stage.expert.k);
    values.w_matrix_bytes = stage.expert.n * values.k_bytes;
    values.w_scale_matrix = scale.elements();
    values.w_scale_rows = as_int(scale.row_block);
    values.w_scale_columns = as_int(scale.columns);
    values.topk = problem_.moe.topk;
    values.columns = as_int(stage.columns);
    values.column_tiles = as_int(stage.column_tiles);
    values.xcds = as_int(xcds_);
    return values;
  }

  Status quantize(const gpu::MoeRound& round, void* to, Stream stream) const {
    const std::int64_t group = hidden_group(problem_);
    MfmaMoeQuantizeArguments values{static_cast<const unsigned short*>(round.hidden),
                                    static_cast<unsigned char*>(to),
                                    static_cast<float*>(round.hidden_scales),
                                    round.pairs,
                                    as_int(problem_.n),
                                    as_int(group)};
    gpu::LaunchShape shape;
    shape.grid[0] = static_cast<unsigned>(
        std::min(ceil_div(round.pairs * ceil_div(problem_.n, group), groups_per_block), max_quantize_blocks));
    shape.threads = 256;
    return enqueue(2, shape, values, stream);
  }

  gpu::MoeLayer layer_;
  OperandShapes shapes_;
  std::int64_t xcds_;
  std::array<gpu::LaunchShape, 2> launches_;
};

class MfmaMoeFamily final : public gpu::JitFamily<Stages> {
 public:
  explicit MfmaMoeFamily(gpu::Runtime& runtime)
      : JitFamily(runtime, {.name = "mfma_moe", .tie_rank = 12, .packed = WeightLayout::aiter16x16}),
        unit_(compute_unit(runtime.architecture(), runtime.limits())) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;
  /// What quantizes the hidden layer as well is in the lower class.
  Accuracy accuracy(const Problem& problem, const Config&) const override {
    return quantizes_hidden(problem) ? Accuracy::tensor_core : Accuracy::fp32;
  }

 protected:
  Stages launch_config(const Problem& problem, const Config& config) const override {
    return mfma_moe_stages(problem, config, runtime().architecture());
  }
  void fill(gpu::LaunchSpace<Stages>& space) const override;
  /// The bounds of the performance model: rank kernels, do not state their time.
  double cost(const Problem& problem, const Stages& stages) const override {
    return predicted_mfma_moe(problem, stages, unit_);
  }
  std::int64_t resources_of(const Stages& stages) const override { return stages[0].tile.shared_bytes; }
  std::vector<gpu::Part> parts(const Problem& problem, const Stages& stages) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const Stages& stages) const override;
  std::string device_text() const override {
    return source_ + quantize_source(default_problem(Operation::fused_moe)).text + gpu::moe_layer_text();
  }

 private:
  gpu::Source stage_source(const Problem& problem, const MfmaMoeStage& stage) const;

  ComputeUnit unit_;
  std::string source_ = gpu::include_line("backends/hip/families/mfma_moe/mfma_moe.cu");
};

Status MfmaMoeFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_mixture(problem, gpu::Weights::shuffled_too));
  const DataType type = problem.w_type;
  const bool has_type = type == DataType::bf16 || type == DataType::f16 || type == DataType::i8 ||
                        (type == DataType::f8_e4m3fnuz && fp8_of(runtime().architecture()) == gpu::Fp8::fnuz);
  if (problem.x_type != type || !has_type)
    return refusal::refuse(refusal::types, "x {} with w {}, only bf16, fp16, int8{} of both",
                           to_string(problem.x_type), to_string(type),
                           fp8_of(runtime().architecture()) == gpu::Fp8::fnuz ? " and fp8 e4m3fnuz" : "");
  const QuantType quantization = problem.moe.quant_type;
  const bool no_scales = quantization == QuantType::none || quantization == QuantType::per_1x32;
  if (quantizes_hidden(problem) && (no_scales || (type == DataType::i8 && scales_by_block(problem))))
    return refusal::refuse(refusal::types, "{} scaled by {}", to_string(type), to_string(quantization));
  for (const auto& [name, elements] : {std::pair{"k", problem.k}, std::pair{"n", problem.n}}) {
    if (bytes_of(type, elements) < 16)
      return refusal::refuse(refusal::reduction, "{} = {} {}, at least 16 bytes", name, elements,
                             to_string(type));
    if (elements % 4 != 0)
      return refusal::refuse(refusal::alignment, "{} = {} is no multiple of 4", name, elements);
  }
  if (scales_by_block(problem) && problem.moe.gated && problem.n % 16 != 0)
    return refusal::refuse(refusal::alignment,
                           "gate and up of n = {} rows with scales of 128, no multiple of 16", problem.n);
  if (is_packed(problem) && (problem.n % 32 != 0 || problem.k % 32 != 0))
    return refusal::refuse(refusal::layout, "aiter16x16 of {} x {}: n or k is no multiple of 32", problem.n,
                           problem.k);
  return {};
}

/// A tile is of one expert, which has each token once.
std::string refuse_half_empty_tile(const Problem& problem, const Stages& stages) {
  const std::int64_t tokens = stages[0].tile.block_m;
  return tokens > 16 && tokens >= 2 * round_up(problem.m, std::int64_t{16})
             ? "bm leaves half of the tile empty"
             : "";
}

void MfmaMoeFamily::fill(gpu::LaunchSpace<Stages>& space) const {
  space.add(std::vector<Parameter>{
      {"bm", {"16", "32", "64", "128"}, "16", "block_m: tokens of one expert in a tile"},
      {"bn",
       {"32", "64", "128", "256"},
       "128",
       "block_n: rows of w1 in a tile, of a gated one half of them of the gate"},
      {"bo", {"32", "64", "128", "256"}, "64", "block_n of the second stage: rows of w2 in a tile"},
      {"bk", {"64", "128", "256"}, "128", "block_k, in bytes"},
      {"nw", {"1", "2", "4", "8"}, "4", "waves of a block"},
      {"mi", {"16", "32"}, "16", "rows of the MFMA instruction (matrix_instr_nonkdim)"},
      {"nb", {"1", "2"}, "1", "tiles in LDS"},
      {"eu", {"0", "2"}, "0", "waves_per_eu; 0: the compiler decides", NumberRange{0, 8}}});
  const auto most = static_cast<std::int64_t>(runtime().limits().shared_bytes_per_block);
  space.rule("fits", Rule::build, [most](const Stages& stages) {
    std::string refused = refuse_mfma_moe(stages[0], most);
    return refused.empty() ? refuse_mfma_moe(stages[1], most) : refused;
  });
  space.rule("bm", Rule::search, refuse_half_empty_tile);
  refuse_slow(space, 3);
}

// As many tokens as an expert has on the average; with few of them narrow tiles of w2, which make more blocks.
Config MfmaMoeFamily::default_config(const Problem& problem) const {
  const double experts = gpu::expected_moe_tiles(problem, 16).experts;
  const double tokens = static_cast<double>(routed_pairs(problem)) / experts;
  const std::int64_t block_m = tokens <= 16 ? 16 : tokens <= 32 ? 32 : tokens <= 96 ? 64 : 128;
  // Scales of blocks double the accumulators.
  const std::int64_t large = scales_by_block(problem) ? 64 : 128;
  return {{"bm", block_m},
          {"bn", block_m >= 64 ? large : 128},
          {"bo", block_m >= 64 ? large : 64},
          {"bk", 128},
          {"nw", 4},
          {"mi", 16},
          {"nb", 1},
          {"eu", 0}};
}

gpu::Source MfmaMoeFamily::stage_source(const Problem& problem, const MfmaMoeStage& stage) const {
  const bool first = stage.number == 1;
  const bool quantized = quantizes_hidden(problem);
  const DataType result = !first ? problem.y_type : quantized ? DataType::bf16 : problem.w_type;
  const MfmaMoeConfig config{.number = stage.number,
                             .gated = stage.gated,
                             .bias = first && problem.bias,
                             .weighted = first && problem.moe.doweight_stage1,
                             .scales = !quantized                 ? gpu::Scales::none
                                       : scales_by_block(problem) ? gpu::Scales::blocks
                                                                  : gpu::Scales::rows};
  return {"mfma_moe",
          source_,
          {mfma_define(stage.tile), gpu::config_define(config, "STAGE"),
           fmt::format("ELEMENT={}", gpu::element_code(problem.w_type)),
           fmt::format("OUTPUT={}", gpu::element_code(result)), "SCALES=0",
           fmt::format("GATED={}", stage.gated ? 1 : 0),
           fmt::format("ACTIVATION={}", first ? gpu::activation_code(problem.moe.activation) : 0)},
          "mfma_moe"};
}

std::vector<gpu::Part> MfmaMoeFamily::parts(const Problem& problem, const Stages& stages) const {
  std::vector<gpu::Part> parts;
  for (const MfmaMoeStage& stage : stages)
    parts.push_back({stage_source(problem, stage), stage.tile.shared_bytes});
  if (quantizes_hidden(problem)) parts.push_back({quantize_source(problem)});
  return parts;
}

Result<std::unique_ptr<Kernel>> MfmaMoeFamily::make_kernel(gpu::Programs programs, const Problem& problem,
                                                           const Stages& stages) const {
  GEMMTUNE_TRY(auto layer,
               gpu::MoeLayer::make(runtime(), problem, buffers_of(problem, stages[0].tile.block_m)));
  return std::make_unique<MfmaMoeKernel>(std::move(programs), std::move(layer), problem, stages, unit_);
}

}  // namespace

std::unique_ptr<KernelFamily> make_mfma_moe_family(gpu::Runtime& runtime) {
  return std::make_unique<MfmaMoeFamily>(runtime);
}

const gpu::FamilyEntry& mfma_moe_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mfma_moe", .rank = 55, .aliases = tunable_aliases, .fallback_rank = 55},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!has_mfma(context.runtime.architecture())) return nullptr;
        return make_mfma_moe_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::hip
