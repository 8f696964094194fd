#include <algorithm>
#include <functional>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/hip/families/compute_unit.h"
#include "backends/hip/families/mfma/mfma_arguments.h"
#include "backends/hip/families/mfma/mfma_launch_config.h"
#include "backends/hip/families/own_families.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::hip {
namespace {

constexpr std::int64_t max_workspace = std::int64_t{1} << 30;  // bytes of partial sums
// Of a column-major operand: offsets within the 256 lines of a tile, and few more, have 31 bits.
constexpr std::int64_t max_line_bytes = std::int64_t{1} << 22;

class MfmaKernel final : public gpu::JitKernel<MfmaLaunchConfig> {
 public:
  /// `programs`: with split-K the second one is the reduction.
  MfmaKernel(gpu::Programs programs, const Problem& problem, const MfmaLaunchConfig& launch,
             std::int64_t xcds)
      : JitKernel(std::move(programs), problem, launch),
        xcds_(xcds),
        w_line_bytes_(bytes_of(problem.w_type, operand_shapes(problem).w.line_elements())) {
    shape_.threads = static_cast<unsigned>(wave_lanes * launch.waves);
    shape_.grid[0] = static_cast<unsigned>(launch.tiles());
    shape_.grid[1] = static_cast<unsigned>(launch.split_k);
    shape_.grid[2] = reduction_shape_.grid[2] = static_cast<unsigned>(launch.batches);
    shape_.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
    reduction_shape_.threads = 256;
    reduction_shape_.grid[0] = static_cast<unsigned>(
        std::min<std::int64_t>(ceil_div(problem.m * problem.n, 256), std::int64_t{1} << 20));
  }
  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(launch_.workspace_bytes); }
  WeightLayout weight_layout() const override {
    return launch_.shuffled ? WeightLayout::aiter16x16 : WeightLayout::plain;
  }

  Status run(const Operands& o, void* workspace, Stream stream) const override {
    MfmaArguments values{};
    values.x = static_cast<const unsigned char*>(o.x);
    values.w = static_cast<const unsigned char*>(o.w);
    values.bias = o.bias;
    values.scales = gpu::scales_of(problem_, o);
    values.y = o.y;
    values.partials = workspace;
    values.x_line_bytes = bytes_of(problem_.x_type, o.ldx);
    values.w_line_bytes = w_line_bytes_;
    values.k_bytes = problem_.k * launch_.element_bits / 8;
    values.ldy = o.ldy;
    values.x_batch_step = launch_.batches > 1 ? bytes_of(problem_.x_type, o.x_batch_stride) : 0;
    values.w_batch_step = bytes_of(problem_.w_type, problem_.n * problem_.k);
    values.y_batch_step = o.y_batch_stride;
    values.m = as_int(problem_.m);
    values.n = as_int(problem_.n);
    values.split_k = as_int(launch_.split_k);
    values.tiles_m = as_int(launch_.tiles_m);
    values.tiles_n = as_int(launch_.tiles_n);
    values.group_m = as_int(launch_.group_m);
    values.xcds = as_int(launch_.by_die ? xcds_ : 1);
    const auto address = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
    if (launch_.direct && ((address(o.x) | address(o.w) |
                            static_cast<std::uintptr_t>(values.x_line_bytes | values.x_batch_step)) &
                           3) != 0)
      return Status::unsupported("mfma with dl1 needs pointers, rows and batches at multiples of 4 bytes");
    if (launch_.x_columns && values.x_line_bytes > max_line_bytes)
      return Status::unsupported("mfma needs columns of x at most {} bytes apart, not {}", max_line_bytes,
                                 values.x_line_bytes);
    if (launch_.shuffled && address(o.w) % 16 != 0)
      return Status::unsupported("mfma needs a shuffled weight at a multiple of 16 bytes");
    GEMMTUNE_RETURN_IF_ERROR(enqueue(0, shape_, values, stream));
    return programs_.size() > 1 ? enqueue(1, reduction_shape_, values, stream) : Status();
  }

 private:
  std::int64_t xcds_;
  std::int64_t w_line_bytes_;
  gpu::LaunchShape shape_;
  gpu::LaunchShape reduction_shape_;
};

class MfmaFamily final : public gpu::JitFamily<MfmaLaunchConfig> {
 public:
  explicit MfmaFamily(gpu::Runtime& runtime)
      : JitFamily(runtime, {.name = "mfma", .tie_rank = 12, .packed = WeightLayout::aiter16x16}),
        unit_(compute_unit(runtime.architecture(), runtime.limits())) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;

 protected:
  MfmaLaunchConfig launch_config(const Problem& problem, const Config& config) const override {
    return mfma_launch_config(problem, config, runtime().architecture());
  }
  void fill(gpu::LaunchSpace<MfmaLaunchConfig>& space) const override;
  /// The bound of the performance model: ranks kernels, does not state their time.
  double cost(const Problem& problem, const MfmaLaunchConfig& launch) const override {
    return model_of(problem, launch, unit_).microseconds();
  }
  std::int64_t resources_of(const MfmaLaunchConfig& launch) const override {
    return launch.shared_bytes + launch.workspace_bytes;
  }
  std::vector<gpu::Part> parts(const Problem& problem, const MfmaLaunchConfig& launch) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const MfmaLaunchConfig& launch) const override {
    return std::make_unique<MfmaKernel>(std::move(programs), problem, launch, unit_.xcds);
  }
  std::string device_text() const override { return source_ + reduce_; }

 private:
  std::string refuse_staging(const Problem& problem, const MfmaLaunchConfig& launch) const;
  std::string refuse_wasted_order(const MfmaLaunchConfig& launch) const;

  ComputeUnit unit_;
  std::string source_ = gpu::include_line("backends/hip/families/mfma/mfma.cu");
  std::string reduce_ = gpu::include_line("backends/hip/families/mfma/mfma_reduce.cu");
};

Status MfmaFamily::accepts(const Problem& problem) const {
  const std::string& architecture = runtime().architecture();
  const bool decodes = problem.operation == Operation::a8w4;
  GEMMTUNE_RETURN_IF_ERROR(
      gpu::accepts_on_tensor_cores(problem, {.weights = gpu::Weights::shuffled_too,
                                             .orders = refusal::Orders::any_input,
                                             .row_scales = true,
                                             .block_scales = true,
                                             .int8 = true,
                                             .fp8 = decodes ? gpu::Fp8::both : fp8_of(architecture),
                                             .fp4 = true,
                                             .batches = true}));
  if (problem.operation == Operation::a16w4 && problem.x_type != DataType::bf16)
    return refusal::refuse(refusal::types, "{} activations: a scaled fp4 weight has the range of bf16",
                           to_string(problem.x_type));
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_sizes(problem));
  for (const MatrixShape& matrix : {operand_shapes(problem).x, operand_shapes(problem).w})
    if (matrix.order == Order::column_major && bytes_of(matrix.type, matrix.line_elements()) > max_line_bytes)
      return refusal::refuse(refusal::size, "columns of {} elements, at most {} bytes",
                             matrix.line_elements(), max_line_bytes);
  if (bytes_of(problem.x_type, problem.k) < 16)
    return refusal::refuse(refusal::reduction, "{} {}, at least 16 bytes", problem.k,
                           to_string(problem.x_type));
  if (is_packed(problem) && !gpu::shuffled_tiles_of(problem).fits())
    return refusal::refuse(refusal::layout, "aiter16x16 of {} x {}: n is no multiple of 16 or k none of {}",
                           problem.n, problem.k, gpu::shuffled_k_multiple(problem));
  return {};
}

std::string MfmaFamily::refuse_staging(const Problem& problem, const MfmaLaunchConfig& launch) const {
  if (launch.direct && launch.decoded) return "dl1 cannot decode fp4 elements";
  if (launch.scaled && launch.kpack != 2) return "kp1 is half of a scaled instruction's operand";
  if (launch.decoded && launch.shuffled && launch.block_k < launch.fragment_bytes())
    return "bk is less than what lanes read of a shuffled fp4 weight";
  if (launch.direct && (launch.x_columns || launch.w_columns))
    return "dl1 cannot transpose a column-major operand";
  if (launch.direct && launch.buffers == 1) return "dl1 needs two buffers";
  if (launch.direct && launch.pad != 0) return "dl1 cannot pad rows of LDS";
  if (launch.direct && bytes_of(problem.x_type, problem.k) % 4 != 0) return "dl1 needs k in whole 4 bytes";
  // Each load of a wave is a row, whose address is in scalar registers.
  const std::int64_t rows = launch.block_m + (launch.shuffled ? 0 : launch.block_n);
  if (launch.direct && launch.block_k == 256 && rows / launch.waves > 16)
    return "dl1 with bk 256 has more rows than a wave has scalar registers";
  if (launch.shuffled && launch.kpack != 2) return "kp1 cannot read a shuffled weight";
  if (launch.shared_bytes > static_cast<std::int64_t>(runtime().limits().shared_bytes_per_block))
    return "tile needs more LDS than a block may have";
  return {};
}

std::string refuse_mfma_split(const MfmaLaunchConfig& launch) {
  if (launch.split_k > launch.k_tiles) return "sk is more than the k tiles";
  if (launch.workspace_bytes > max_workspace) return "sk needs more than 1 GiB of workspace";
  return {};
}

/// Rules of tune_gemm, with ours where its own are of its compiler.
std::string refuse_mfma_waste(const Problem& problem, const MfmaLaunchConfig& launch) {
  if (launch.rows == 32 && (problem.m < 32 || problem.n < 32)) return "mi 32 is more than the rows there are";
  if (problem.m <= launch.rows && launch.block_m != launch.rows)
    return "bm is more than the instruction's rows";
  if (launch.block_m > 16 && launch.block_m > 2 * problem.m)
    return "bm is more than twice the rows there are";
  if (launch.block_n > 16 && launch.block_n > 2 * problem.n)
    return "bn is more than twice the rows there are";
  const bool large = problem.m >= 2048 && problem.n >= 2048;
  if (large && (launch.block_m < 64 || launch.block_n < 64)) return "tile is small for a large problem";
  if (large && launch.waves < 4) return "nw is small for a large problem";
  if (launch.block_m < 64 && problem.m > 4 * launch.block_m) return "bm reads the weight too often";
  if (launch.block_n < 32 && problem.n > 1024) return "bn reads x too often";
  if (launch.pad != 0 && lds_read_conflicts(launch) > 1)
    return "pad has bank conflicts where swizzled rows have none";
  if (launch.waves > 4 && launch.accumulators() < 16) return "nw 8 is for large tiles";
  return {};
}

std::string MfmaFamily::refuse_wasted_order(const MfmaLaunchConfig& launch) const {
  if (launch.split_k > 1 && launch.blocks() > 4 * unit_.units) return "sk makes too many blocks";
  if (launch.split_k > 1 && launch.k_tiles < 4 * launch.split_k)
    return "sk leaves a block less than four k tiles";
  if (launch.group_m > 1 && launch.tiles_m < launch.group_m && launch.group_m != 8)
    return "gm is more than the tiles";
  if (launch.group_m == 1 && launch.tiles_m == 1) return "gm 1 is gm 8 of one row of tiles";
  if (!launch.by_die && unit_.xcds == 1) return "xcd 0 is xcd 1 of one die";
  if (!launch.by_die && launch.tiles() < 2 * unit_.xcds) return "xcd 0 is for many tiles";
  return {};
}

void MfmaFamily::fill(gpu::LaunchSpace<MfmaLaunchConfig>& space) const {
  space.add(std::vector<Parameter>{
      {"bm", {"16", "32", "64", "128", "256"}, "64", "block_m: rows of x in a tile"},
      {"bn", {"16", "32", "64", "128", "256"}, "64", "block_n: rows of the weight in a tile"},
      {"bk", {"64", "128", "256"}, "128", "block_k, in bytes"},
      {"nw", {"1", "2", "4", "8"}, "4", "waves of a block"},
      {"mi", {"16", "32"}, "16", "rows of the MFMA instruction (matrix_instr_nonkdim)"},
      {"kp", {"1", "2"}, "2", "kpack: instructions that a read of LDS feeds"},
      {"nb", {"1", "2"}, "1", "tiles in LDS"},
      {"dl", {"0", "1"}, "0", "1: global loads go to LDS without registers"},
      {"pad", {"0", "16"}, "0", "bytes after a row in LDS; 0: rows are swizzled", NumberRange{0, 128, 16}},
      {"sk",
       {"1", "2", "3", "4", "6", "8", "12", "16"},
       "1",
       "split-K: blocks that divide k",
       NumberRange{1, 64}},
      {"eu", {"0", "2"}, "0", "waves_per_eu; 0: the compiler decides", NumberRange{0, 8}},
      {"gm", {"1", "8"}, "8", "group_m: tiles along m before the next along n", NumberRange{1, 64}},
      {"xcd", {"1", "0"}, "1", "1: neighbouring tiles on the same die"}});
  space.rule("tile", Rule::build, refuse_tile, {"bm", "bn", "bk", "nw", "mi"});
  space.rule("LDS", Rule::build, std::bind_front(&MfmaFamily::refuse_staging, this),
             {"bm", "bn", "bk", "nw", "mi", "kp", "nb", "dl", "pad"});
  space.rule("registers", Rule::build, refuse_registers);
  space.rule("split-K", Rule::build, refuse_mfma_split, {"bk", "sk"});
  space.rule("waste", Rule::search, refuse_mfma_waste, {"bm", "bn", "bk", "nw", "mi", "kp", "pad"});
  space.rule("order", Rule::search, std::bind_front(&MfmaFamily::refuse_wasted_order, this));
  space.add(split_k_divides(space.problem().k, "sk", 8 * 128 / bits(space.problem().x_type)));
  space.add_tune_gemm_rules([](const MfmaLaunchConfig& launch) {
    return TuneGemmConfig{.block_m = launch.block_m,
                          .block_n = launch.block_n,
                          .block_k = 8 * launch.block_k / launch.element_bits,
                          .group_m = launch.group_m,
                          .split_k = launch.split_k,
                          .instruction = launch.rows};
  });
}

// The largest square-ish tile with at least one for each compute unit; split-K if even small tiles are fewer.
Config MfmaFamily::default_config(const Problem& problem) const {
  const std::int64_t block_m = problem.m <= 16 ? 16 : problem.m <= 32 ? 32 : problem.m <= 256 ? 64 : 128;
  const auto tiles = [&](std::int64_t width) {
    return ceil_div(problem.m, block_m) * ceil_div(problem.n, width) * problem.batch;
  };
  const std::int64_t widest = quantization(problem) == QuantType::per_1x128 ? 64 : 128;
  const std::int64_t block_n = block_m >= 64 && problem.n > 64 && tiles(widest) >= unit_.units ? widest : 64;
  Config config;
  // 256 bytes of bf16 are 64 of fp4, which is what a shuffled weight needs.
  const bool fp4 = problem.w_type == DataType::f4_e2m1;
  const std::int64_t block_k = fp4 && is_packed(problem) ? 256 : 128;
  config.set("bk", block_k);
  const std::int64_t k_tiles = launch_config(problem, config).k_tiles;
  std::int64_t split_k = 1;
  for (const std::int64_t more : {2, 3, 4, 6, 8})
    if (tiles(block_n) * more <= 2 * unit_.units && k_tiles >= 4 * more) split_k = more;
  return {{"bm", block_m}, {"bn", block_n}, {"bk", block_k}, {"nw", 4}, {"mi", 16}, {"kp", 2}, {"nb", 1},
          {"dl", 0},       {"pad", 0},      {"sk", split_k}, {"eu", 0}, {"gm", 8},  {"xcd", 1}};
}

std::vector<gpu::Part> MfmaFamily::parts(const Problem& problem, const MfmaLaunchConfig& launch) const {
  gpu::Source source{"mfma", source_, gpu::type_defines(problem), "mfma"};
  source.defines.push_back(mfma_define(launch));
  std::vector<gpu::Part> parts{{std::move(source), launch.shared_bytes}};
  if (launch.split_k > 1)
    parts.push_back({{"mfma_reduce", reduce_, gpu::type_defines(problem), "mfma_reduce"}});
  return parts;
}

}  // namespace

std::unique_ptr<KernelFamily> make_mfma_family(gpu::Runtime& runtime) {
  return std::make_unique<MfmaFamily>(runtime);
}

const gpu::FamilyEntry& mfma_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mfma", .rank = 40, .aliases = tunable_aliases, .fallback_rank = 40},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!has_mfma(context.runtime.architecture())) return nullptr;
        return make_mfma_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::hip
