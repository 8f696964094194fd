#include <algorithm>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/own_families.h"
#include "backends/cuda/families/wgmma/wgmma_launch_config.h"
#include "backends/cuda/families/wgmma_moe/moe_permute.h"
#include "backends/cuda/families/wgmma_moe/moe_quantize_arguments.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_arguments.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_cost.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe_launch_config.h"
#include "backends/cuda/tensor_map.h"
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

GEMMTUNE_FIELDS(WgmmaMoeConfig, stage, fp4, token_scales, token_unit, block_rows, block_tokens, staged_tokens,
                quantizes, min_width, consumer_warpgroups, k_atoms, cluster, sort, blocks, producer_registers,
                consumer_registers, bias, weighted, weight, group, zero_points, scales, scaled);

namespace {

constexpr std::int64_t groups_per_block = 16;  // of moe_quantize

/// The hidden layer goes through stage 2 in fp8.
bool quantizes_hidden(const Problem& problem) { return problem.w_type == DataType::f8_e4m3fn; }
/// Elements of a row of the hidden layer that share a scale.
std::int64_t hidden_group(const Problem& problem) {
  return scales_by_block(problem) ? scale_block : problem.n;
}

gpu::Source quantize_source() {
  return {"moe_quantize",
          gpu::include_line("backends/cuda/families/wgmma_moe/moe_quantize.cu"),
          {"DEPENDENT=1"},
          "moe_quantize"};
}

/// Instruction<WIDTH> for each number of tokens that the stage's instructions have.
std::string instructions_text(DataType element, const WgmmaMoeStage& stage) {
  std::string text = "template <int WIDTH> struct Instruction;\n";
  for (std::int64_t width = stage.min_width(); width <= stage.tokens; width += width_step) {
    if (stage.fp4) {
      text += wgmma_of_registers_macros(width, element) +
              fmt::format(
                  "template <> struct Instruction<{}> {{\n"
                  "  static __device__ __forceinline__ void multiply(float* d, const unsigned (&a)[4], "
                  "unsigned long long b) {{ WGMMA(d, a, b); }}\n"
                  "  static __device__ __forceinline__ void fence(float* d) {{ FENCE_ACCUMULATORS(d); }}\n"
                  "}};\n#undef WGMMA\n#undef FENCE_ACCUMULATORS\n",
                  width);
      continue;
    }
    text += wgmma_macros(element, width) +
            fmt::format(
                "template <> struct Instruction<{}> {{\n"
                "  static __device__ __forceinline__ void first(float* d, unsigned long long a, unsigned "
                "long long b) {{ WGMMA_FIRST(d, a, b); }}\n"
                "  static __device__ __forceinline__ void multiply(float* d, unsigned long long a, unsigned "
                "long long b, int scale_d) {{ WGMMA(d, a, b, scale_d); }}\n"
                "  static __device__ __forceinline__ void fence(float* d) {{ FENCE_ACCUMULATORS(d); }}\n"
                "}};\n#undef WGMMA\n#undef WGMMA_FIRST\n#undef FENCE_ACCUMULATORS\n",
                width);
  }
  return text;
}

ColumnOrder column_order(const Problem& problem) {
  return problem.w_type == DataType::i4 ? ColumnOrder::permuted_within_32 : ColumnOrder::permuted;
}

using Stages = std::array<WgmmaMoeStage, 2>;

/// Whether a kernel of its own is between the stages.
bool has_quantize(const Problem& problem, const Stages& stages) {
  return quantizes_hidden(problem) && !stages[0].quantizes;
}

gpu::MoeBuffers buffers_of(const Problem& problem, const WgmmaMoeStage& first) {
  const bool quantized = quantizes_hidden(problem);
  std::int64_t hidden_bytes = problem.n * (quantized ? 3 : 2);  // in bf16, then in fp8
  // Of a weight of 4 bits, and behind all pairs' hidden layer the permuted rows of the tokens, of each pair where they are sorted.
  if (first.fp4)
    hidden_bytes = first.columns * 2 +
                   (first.sorts ? ceil_div(first.k_bytes, std::int64_t{problem.moe.topk}) : first.k_bytes);
  return {.block_m = first.sorted_tokens(),
          .hidden_bytes = hidden_bytes,
          .hidden_scale_bytes = quantized ? ceil_div(problem.n, hidden_group(problem)) * 4 : 0,
          .rounded_partials = true,
          .dependent = &starts_early()};
}

class WgmmaMoeKernel final : public gpu::JitKernel<Stages> {
 public:
  /// `programs`: of the stages, and one more of an fp8 kernel between them or, of a weight of 4 bits, in front of them.
  WgmmaMoeKernel(const CudaDriver& driver, gpu::Programs programs, gpu::MoeLayer layer,
                 const Problem& problem, const Stages& stages)
      : JitKernel(std::move(programs), problem, stages),
        driver_(driver),
        layer_(std::move(layer)),
        shapes_(operand_shapes(problem)) {
    for (const std::size_t i : {0U, 1U}) {
      const WgmmaMoeStage& stage = stages[i];
      extensions_[i].dependent = true;
      extensions_[i].cluster = static_cast<unsigned>(stage.cluster);
      launches_[i].threads = static_cast<unsigned>(stage.threads());
      launches_[i].shared_bytes = static_cast<std::size_t>(stage.shared_bytes);
      launches_[i].extension = &extensions_[i];
      const std::int64_t items = layer_.max_tiles() * stage.column_tiles;
      std::int64_t at_once = driver.properties().limits.multiprocessors * stage.blocks_per_multiprocessor;
      if (stage.cluster > 1) {
        at_once /= stage.cluster;
        if (const int known = driver.clusters_at_once(programs_[i]->loaded(), launches_[i]); known > 0)
          at_once = known;
      }
      launches_[i].grid[0] = static_cast<unsigned>(std::min(items, at_once) * stage.cluster);
    }
  }
  std::size_t workspace_bytes() const override { return layer_.workspace_bytes(); }

  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    const std::int64_t x_row_bytes = bytes_of(problem_.x_type, operands.ldx);
    if (x_row_bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(operands.x) % 16 != 0)
      return Status::unsupported("x needs pointers and rows at multiples of 16 bytes: {}, rows of {} bytes",
                                 operands.x, x_row_bytes);
    WgmmaMoeArguments first{};
    WgmmaMoeArguments second{};
    GEMMTUNE_RETURN_IF_ERROR(encode_weight(launch_[0], operands.w, first.w));
    GEMMTUNE_RETURN_IF_ERROR(encode_weight(launch_[1], operands.w2, second.w));
    for (std::int64_t token = 0; token < problem_.m; token += layer_.round_tokens()) {
      const gpu::MoeRound round = layer_.round(operands, workspace, token);
      set_common(launch_[0], round, first);
      first.x = static_cast<const unsigned char*>(round.operands.x);
      first.x_row_bytes = x_row_bytes;
      const bool sorted = !launch_[0].sorts;
      if (sorted) GEMMTUNE_RETURN_IF_ERROR(layer_.route(round, stream));
      if (has_weight_format(problem_)) {
        auto* const permuted =
            static_cast<unsigned char*>(round.hidden) + round.pairs * launch_[0].columns * 2;
        GEMMTUNE_RETURN_IF_ERROR(launch_moe_permute(
            *programs_[2], problem_, round, sorted ? RowOrder::sorted : RowOrder::tokens, permuted, stream));
        first.x = permuted;
        first.x_row_bytes = launch_[0].k_bytes;
        if (sorted) GEMMTUNE_RETURN_IF_ERROR(encode_tokens(launch_[0], permuted, round.pairs, first.hidden));
      }
      first.to = round.hidden;
      first.weights = problem_.moe.doweight_stage1 ? round.operands.topk_weights : nullptr;
      first.bias = static_cast<const float*>(round.operands.bias);
      first.x_scales = static_cast<const float*>(round.operands.x_scale);
      set_weight_scales(shapes_.w.scale, round.operands.w_scale, first);
      first.format = gpu::moe_format_of(round.operands.w_global_scale, round.operands.w_zero_points);
      first.x_scale_step = as_int(shapes_.x.scale.row_block == 1 ? shapes_.x.scale.columns : 0);
      first.x_scale_k_step = 1;
      void* hidden = round.hidden;
      if (quantizes_hidden(problem_))
        hidden = static_cast<char*>(round.hidden) + round.pairs * problem_.n * 2;
      if (launch_[0].quantizes) {
        first.to = hidden;
        first.to_scales = static_cast<float*>(round.hidden_scales);
      }
      GEMMTUNE_RETURN_IF_ERROR(enqueue(0, launches_[0], first, stream));
      if (has_quantize(problem_, launch_)) GEMMTUNE_RETURN_IF_ERROR(quantize(round, hidden, stream));
      set_common(launch_[1], round, second);
      second.to = round.partials;
      second.x_scales = static_cast<const float*>(round.hidden_scales);
      set_weight_scales(shapes_.w2.scale, round.operands.w2_scale, second);
      second.format = gpu::moe_format_of(round.operands.w2_global_scale, round.operands.w2_zero_points);
      second.x_scale_step = 1;
      second.x_scale_k_step = round.pairs;
      GEMMTUNE_RETURN_IF_ERROR(encode_tokens(launch_[1], hidden, round.pairs, second.hidden));
      GEMMTUNE_RETURN_IF_ERROR(enqueue(1, launches_[1], second, stream));
      GEMMTUNE_RETURN_IF_ERROR(layer_.combine(round, stream));
    }
    return {};
  }

 private:
  /// Of a tile of w1: where elements of k are permuted within 128, features of each 32.
  static std::int64_t boxes_of(const WgmmaMoeStage& stage) {
    return stage.fp4 && !stage.weight.is_grouped() ? 4 : stage.cluster;
  }
  /// [experts, rows, k] in boxes of a tile's rows; an interleaved one as [experts, groups, halves, 8, k].
  Status encode_weight(const WgmmaMoeStage& stage, const void* data, api::TensorMap& map) const {
    const std::int64_t experts = problem_.moe.experts;
    const std::int64_t row = stage.weight_row_bytes;
    const int element_bytes = stage.fp4 ? 1 : bits(problem_.w_type) / 8;
    const std::int64_t k = row / element_bytes;
    if (!stage.interleaved) {
      const std::int64_t boxes = stage.stage == 1 ? boxes_of(stage) : stage.cluster;
      const ArrayBox::Dimension dimensions[] = {
          {k, 0, 0}, {stage.weight_rows, row, stage.rows / boxes}, {experts, stage.weight_rows * row, 1}};
      return encode(driver_.functions(), ArrayBox{data, element_bytes, dimensions}, map);
    }
    const std::int64_t groups = stage.rows / boxes_of(stage) / 16;
    const ArrayBox::Dimension dimensions[] = {{k, 0, 0},
                                              {8, row, 8},
                                              {2, problem_.n * row, 2},
                                              {problem_.n / 8, 8 * row, groups},
                                              {experts, stage.weight_rows * row, 1}};
    return encode(driver_.functions(), ArrayBox{data, element_bytes, dimensions}, map);
  }

  /// Sorted rows of tokens or of the hidden layer.
  Status encode_tokens(const WgmmaMoeStage& stage, const void* data, std::int64_t pairs,
                       api::TensorMap& map) const {
    const int element_bytes = stage.fp4 ? 2 : bits(problem_.x_type) / 8;
    return encode(driver_.functions(),
                  MatrixBox{data, element_bytes, pairs, stage.k_bytes / element_bytes, stage.k_bytes,
                            stage.box_tokens()},
                  map);
  }

  void set_common(const WgmmaMoeStage& stage, const gpu::MoeRound& round, WgmmaMoeArguments& values) const {
    values.ids = round.operands.topk_ids;
    values.position_of = round.position_of;
    values.pairs = as_int(round.pairs);
    values.experts = problem_.moe.experts;
    values.pair_of = round.pair_of;
    values.tiles = round.tiles;
    values.tile_count = round.tile_count;
    values.tiles_of = round.tiles_of;
    values.topk = problem_.moe.topk;
    values.k_bytes = as_int(stage.k_bytes);
    values.k_tiles = as_int(stage.k_tiles);
    values.columns = as_int(stage.columns);
    values.column_tiles = as_int(stage.column_tiles);
    values.num_stages = as_int(stage.num_stages);
    values.storage_bytes = as_int(stage.storage_bytes);
    values.k_units = as_int(stage.k_bytes / (fp4_unit * 2));
    values.features = as_int(stage.interleaved ? stage.weight_rows / 2 : stage.weight_rows);
  }

  static void set_weight_scales(const ScaleShape& shape, const void* scales, WgmmaMoeArguments& values) {
    values.w_scales = static_cast<const float*>(scales);
    values.w_scale_matrix = shape.elements();
    values.w_scale_rows = as_int(shape.row_block);
    values.w_scale_columns = as_int(shape.columns);
    const std::uintptr_t together = static_cast<std::uintptr_t>(shape.columns * bytes_of(shape.type)) |
                                    reinterpret_cast<std::uintptr_t>(scales);
    values.w_scale_alignment = together % 4 == 0 ? 4 : together % 2 == 0 ? 2 : 1;
  }

  Status quantize(const gpu::MoeRound& round, void* to, Stream stream) const {
    const std::int64_t group = hidden_group(problem_);
    MoeQuantizeArguments values{static_cast<const unsigned short*>(round.hidden),
                                static_cast<unsigned char*>(to),
                                static_cast<float*>(round.hidden_scales),
                                as_int(round.pairs),
                                as_int(problem_.n),
                                as_int(group)};
    gpu::LaunchShape shape;
    shape.grid[0] =
        static_cast<unsigned>(ceil_div(round.pairs * ceil_div(problem_.n, group), groups_per_block));
    shape.threads = 256;
    shape.extension = &starts_early();
    return enqueue(2, shape, values, stream);
  }

  const CudaDriver& driver_;
  gpu::MoeLayer layer_;
  OperandShapes shapes_;
  std::array<HopperLaunch, 2> extensions_;
  std::array<gpu::LaunchShape, 2> launches_;  // point at extensions_
};

class WgmmaMoeFamily final : public gpu::JitFamily<Stages> {
 public:
  WgmmaMoeFamily(gpu::Runtime& runtime, const CudaDriver& driver)
      : JitFamily(runtime, {.name = "wgmma_moe", .tie_rank = 12}),
        driver_(driver),
        limits_(hopper_limits(runtime, driver)),
        cost_(wgmma_moe_cost(limits_)) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override {
    return default_wgmma_moe_config(problem, limits_, cost_);
  }
  /// What quantizes the hidden layer as well, or rounds elements of the weights, is in the lower class.
  Accuracy accuracy(const Problem& problem, const Config& config) const override {
    return quantizes_hidden(problem) || config.number("scaled", 0) != 0 ? Accuracy::tensor_core
                                                                        : Accuracy::fp32;
  }
  /// Both products go through k in its order, and a token's experts through its slots; what a tile holds beside a token does not matter. Hidden
  /// elements that another kernel quantizes are rounded to bf16 before.
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const Stages stages = launch_config(problem, config);
    return stages[0].scaled                ? "wgmma_moe, scaled"
           : has_quantize(problem, stages) ? "wgmma_moe, hidden elements in bf16"
                                           : "wgmma_moe";
  }

 protected:
  Stages launch_config(const Problem& problem, const Config& config) const override {
    return wgmma_moe_stages(problem, config, limits_);
  }
  void fill(gpu::LaunchSpace<Stages>& space) const override;
  double cost(const Problem& problem, const Stages& stages) const override {
    return predicted_wgmma_moe(problem, stages, limits_, cost_);
  }
  std::int64_t resources_of(const Stages& stages) const override { return stages[0].shared_bytes; }
  std::vector<gpu::Part> parts(const Problem& problem, const Stages& stages) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const Stages& stages) const override;
  std::string device_text() const override {
    return source_ + wgmma_macros(DataType::bf16, 16) + wgmma_of_registers_macros(16) +
           quantize_source().text +
           moe_permute_source(default_problem(Operation::fused_moe), ColumnOrder::permuted).text +
           gpu::moe_layer_text();
  }

 private:
  gpu::Source stage_source(const Problem& problem, const WgmmaMoeStage& stage) const;

  const CudaDriver& driver_;
  HopperLimits limits_;
  WgmmaMoeCost cost_;
  std::string source_ = gpu::include_line("backends/cuda/families/wgmma_moe/wgmma_moe.cu");
};

Status WgmmaMoeFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_mixture(problem, gpu::Weights::plain, gpu::MoeQuantizations::all));
  const DataType type = problem.w_type;
  if (has_weight_format(problem)) {
    if (!is_of_weights_alone(problem.moe.quant_type) && !widens_exactly(problem))
      return refusal::refuse(refusal::types, "x {} scaled by {} with w {}", to_string(problem.x_type),
                             to_string(problem.moe.quant_type), to_string(type));
    const WeightTraits weight = weight_traits(problem);
    if (weight.format == WeightFormat::int4 && !weight.is_grouped())
      return refusal::refuse(refusal::types, "w {} with a scale a row, only of groups", to_string(type));
  } else if (problem.x_type != type ||
             (type != DataType::bf16 && type != DataType::f16 && type != DataType::f8_e4m3fn))
    return refusal::refuse(refusal::types,
                           "x {} with w {}, only bf16, fp16 and fp8 e4m3fn of both, x of bf16 or fewer bits "
                           "with {}, and {} of groups",
                           to_string(problem.x_type), to_string(type), to_string(DataType::f4_e2m1),
                           to_string(DataType::i4));
  const QuantType quantization = problem.moe.quant_type;
  if (quantizes_hidden(problem) && (quantization == QuantType::none || quantization == QuantType::per_1x32))
    return refusal::refuse(refusal::types, "{} scaled by {}", to_string(type), to_string(quantization));
  return accepts_weight_rows(problem);
}

std::string refuse_sort(const Problem& problem, const Stages& stages) {
  for (const WgmmaMoeStage& stage : stages) {
    if (!stage.sorts) continue;
    if (std::string refused = gpu::refuse_sort(problem, stage.threads(), stage.storage_bytes);
        !refused.empty())
      return refused;
  }
  return {};
}

/// A tile is of one expert, which has each token once.
std::string refuse_half_empty(const Problem& problem, const Stages& stages) {
  const std::int64_t tokens = stages[0].tokens;
  return tokens > 16 && tokens >= 2 * round_up(problem.m, std::int64_t{16})
             ? "bm leaves half of the tile empty"
             : "";
}

void WgmmaMoeFamily::fill(gpu::LaunchSpace<Stages>& space) const {
  space.add(wgmma_moe_parameters(space.problem()));
  space.rule("fits", Rule::build,
             [](const Problem& problem, const Config& config, const Stages& stages) -> std::string {
               std::string refused;
               if (!has_weight_format(problem)) refused = refuse_block_k(config, problem.w_type);
               for (const WgmmaMoeStage& stage : stages)
                 if (refused.empty()) refused = refuse_wgmma_moe(stage);
               return refused;
             });
  space.rule("sort", Rule::build, refuse_sort);
  space.add(Constraint{"wg",
                       [](const Config& config) -> std::string {
                         const bool both = config.number("bn") == 64 && config.number("bo") == 64;
                         return both && config.number("wg") > 1 ? "wg means the same as 1" : "";
                       },
                       Rule::search});
  space.rule("bm", Rule::search, refuse_half_empty);
  refuse_slow(space, 3);
}

WgmmaMoeConfig config_of(const Problem& problem, const WgmmaMoeStage& stage) {
  const bool first = stage.stage == 1;
  return {.stage = as_int(stage.stage),
          .fp4 = stage.fp4,
          .token_scales = first && stage.fp4 && scales_tokens(problem),
          .token_unit = static_cast<float>(first && stage.fp4 ? permuted_unit_of(problem) : 1),
          .block_rows = as_int(stage.rows),
          .block_tokens = as_int(stage.tokens),
          .staged_tokens = as_int(stage.staged_tokens()),
          .quantizes = stage.quantizes,
          .min_width = as_int(stage.min_width()),
          .consumer_warpgroups = as_int(stage.warpgroups),
          .k_atoms = as_int(stage.k_atoms),
          .cluster = as_int(stage.cluster),
          .sort = stage.sorts,
          .blocks = as_int(stage.blocks_per_multiprocessor),
          .producer_registers = as_int(stage.producer_registers()),
          .consumer_registers = as_int(stage.consumer_registers()),
          .bias = first && problem.bias,
          .weighted = first && problem.moe.doweight_stage1,
          .weight = stage.weight.format,
          .group = as_int(stage.weight.group),
          .zero_points = stage.weight.zero_points,
          .scales = problem.y_type == DataType::f16 ? gpu::Element::f16 : gpu::Element::bf16,
          .scaled = stage.scaled};
}

gpu::Source WgmmaMoeFamily::stage_source(const Problem& problem, const WgmmaMoeStage& stage) const {
  const bool first = stage.stage == 1;
  const bool quantized = quantizes_hidden(problem);
  // Other tokens of a weight of 4 bits become bf16.
  const DataType element = stage.fp4 && bits(problem.x_type) < 16 ? DataType::bf16 : problem.x_type;
  gpu::Source source{"wgmma_moe", instructions_text(element, stage) + source_, {}, "wgmma_moe"};
  const DataType hidden = quantized ? DataType::bf16 : element;
  source.defines = {
      fmt::format("ELEMENT={}", gpu::element_code(element)),
      fmt::format("OUTPUT={}", gpu::element_code(first ? hidden : problem.y_type)),
      fmt::format("SCALES={}", gpu::scale_code(!quantized                 ? QuantType::none
                                               : scales_by_block(problem) ? QuantType::per_1x128
                                                                          : QuantType::per_token)),
      "L2_HINTS=0",
      fmt::format("GATED={}", first && problem.moe.gated ? 1 : 0),
      fmt::format("ACTIVATION={}", first ? gpu::activation_code(problem.moe.activation) : 0),
      gpu::config_define(config_of(problem, stage))};
  return source;
}

std::vector<gpu::Part> WgmmaMoeFamily::parts(const Problem& problem, const Stages& stages) const {
  std::vector<gpu::Part> parts;
  for (const WgmmaMoeStage& stage : stages)
    parts.push_back({stage_source(problem, stage), stage.shared_bytes});
  if (has_quantize(problem, stages)) parts.push_back({quantize_source()});
  if (has_weight_format(problem)) parts.push_back({moe_permute_source(problem, column_order(problem))});
  return parts;
}

Result<std::unique_ptr<Kernel>> WgmmaMoeFamily::make_kernel(gpu::Programs programs, const Problem& problem,
                                                            const Stages& stages) const {
  GEMMTUNE_TRY(auto layer, gpu::MoeLayer::make(runtime(), problem, buffers_of(problem, stages[0])));
  return std::make_unique<WgmmaMoeKernel>(driver_, std::move(programs), std::move(layer), problem, stages);
}

}  // namespace

std::unique_ptr<KernelFamily> make_wgmma_moe_family(gpu::Runtime& runtime, const CudaDriver& driver) {
  return std::make_unique<WgmmaMoeFamily>(runtime, driver);
}

const gpu::FamilyEntry& wgmma_moe_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "wgmma_moe", .rank = 55, .aliases = tunable_aliases, .fallback_rank = 55},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_wgmma_moe_family(context.runtime, driver_of(context));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
