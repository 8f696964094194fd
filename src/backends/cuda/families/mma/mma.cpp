#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/cards.h"
#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/mma/mma_arguments.h"
#include "backends/cuda/families/own_families.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/fitted.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/refusal.h"
#include "base/fields.h"
#include "base/rounding.h"
#include "base/text.h"
#include "problem/operands.h"

namespace gemmtune::cuda {

GEMMTUNE_FIELDS(MmaConfig, block_m, block_n, warps_m, warps_n, num_stages, split_k, x_columns, w_columns);

namespace {

constexpr std::int64_t max_accumulators = 64;                  // of a thread; 128 compile for many seconds
constexpr std::int64_t max_workspace = std::int64_t{1} << 30;  // bytes of partial sums

/// "sm_90a" → 90.
std::int64_t capability_of(const std::string& architecture) {
  std::string digits;
  for (const char letter : architecture)
    if (letter >= '0' && letter <= '9') digits += letter;
  return parse_integer(digits).value_or(0);
}

/// A config for a problem. D = A · Bᵀ with A = x, B = w. Shared memory and workspace in bytes.
struct LaunchConfig {
  std::int64_t block_m = 64;
  std::int64_t block_n = 64;
  std::int64_t num_warps = 4;
  std::int64_t num_stages = 3;
  std::int64_t split_k = 1;  // blocks that divide k; a second kernel reduces their sums
  std::int64_t warps_m = 1;
  std::int64_t warps_n = 4;
  std::int64_t k_tiles = 1;
  std::int64_t tiles_m = 1;
  std::int64_t tiles_n = 1;
  std::int64_t shared_bytes = 0;
  std::int64_t workspace_bytes = 0;

  std::int64_t tiles() const { return tiles_m * tiles_n; }
  std::int64_t accumulators() const { return block_m * block_n / (32 * num_warps); }
};

LaunchConfig launch_config(const Problem& problem, const Config& config) {
  LaunchConfig launch;
  launch.block_m = config.number("bm", 64);
  launch.block_n = config.number("bn", 64);
  launch.num_warps = config.number("nw", 4);
  launch.num_stages = config.number("st", 3);
  launch.split_k = config.number("sk", 1);
  launch.warps_m = launch.block_m >= 64 ? 2 : 1;
  launch.warps_n = launch.num_warps / launch.warps_m;
  launch.k_tiles = ceil_div(bytes_of(problem.x_type, problem.k), atom_bytes);
  launch.tiles_m = ceil_div(problem.m, launch.block_m);
  launch.tiles_n = ceil_div(problem.n, launch.block_n);
  launch.shared_bytes = launch.num_stages * (launch.block_m + launch.block_n) * atom_bytes;
  launch.workspace_bytes =
      launch.split_k > 1 ? problem.batch * launch.split_k * problem.m * problem.n * 4 : 0;
  return launch;
}

/// Constants of the cost model.
struct MmaCost {
  gpu::OfClock rate;                   // operations a microsecond of a multiprocessor, of 16-bit elements
  double max_share, min_share;         // shares of it that any kernel reaches
  double tile_share, doubled_tile;     // share for a tile of 256 sums of a warp, and more for each doubling
  gpu::OfMemory from_memory;           // bytes a microsecond
  gpu::OfMemory under_way;             // bytes of shared memory with which memory is busy
  double few_under_way;                // exponent of the lack of them
  double launched, reduction;          // microseconds of a launch, and of the reduction's
  gpu::OfMemory partials_from_memory;  // bytes a microsecond
};

GEMMTUNE_FIELDS(MmaCost, rate, max_share, min_share, tile_share, doubled_tile, from_memory, under_way,
                few_under_way, launched, reduction, partials_from_memory);

// Of the data sheet; no kernel was measured.
constexpr gpu::FittedRow<MmaCost> mma_rows[] = {{a100,
                                                 {.rate = {2.9e6},
                                                  .max_share = 0.8,
                                                  .min_share = 0.2,
                                                  .tile_share = 0.25,
                                                  .doubled_tile = 0.25,
                                                  .from_memory = {2e6},
                                                  .under_way = {4e6},
                                                  .few_under_way = 0.3,
                                                  .launched = 3,
                                                  .reduction = 2,
                                                  .partials_from_memory = {4e6}}}};

class MmaKernel final : public gpu::JitKernel<LaunchConfig> {
 public:
  /// `programs`: with split-K the second one is the reduction.
  MmaKernel(gpu::Programs programs, const Problem& problem, const LaunchConfig& launch)
      : JitKernel(std::move(programs), problem, launch),
        x_(operand_shapes(problem).x),
        w_line_bytes_(bytes_of(problem.w_type, operand_shapes(problem).w.line_elements())) {
    shape_.threads = static_cast<unsigned>(32 * launch.num_warps);
    shape_.grid[0] = static_cast<unsigned>(launch.tiles());
    shape_.grid[1] = static_cast<unsigned>(launch.split_k);
    shape_.grid[2] = reduction_shape_.grid[2] = static_cast<unsigned>(problem.batch);
    shape_.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
    reduction_shape_.threads = 256;
    reduction_shape_.grid[0] = static_cast<unsigned>(
        std::min<std::int64_t>(ceil_div(problem.m * problem.n, 256), std::int64_t{1} << 20));
  }
  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(launch_.workspace_bytes); }

  Status run(const Operands& o, void* workspace, Stream stream) const override {
    const std::int64_t x_line_bytes = bytes_of(x_.type, x_.lines() == 1 ? x_.line_elements() : o.ldx);
    const std::int64_t x_batch_bytes = problem_.batch > 1 ? bytes_of(x_.type, o.x_batch_stride) : 0;
    if (x_line_bytes % 16 != 0 || x_batch_bytes % 16 != 0 ||
        reinterpret_cast<std::uintptr_t>(o.x) % 16 != 0 || reinterpret_cast<std::uintptr_t>(o.w) % 16 != 0) {
      return Status::unsupported(
          "mma needs pointers, rows and batches of x at multiples of 16 bytes: rows of {} bytes",
          x_line_bytes);
    }
    MmaArguments values{};
    values.x = static_cast<const unsigned char*>(o.x);
    values.w = static_cast<const unsigned char*>(o.w);
    values.bias = o.bias;
    values.x_scale = static_cast<const float*>(o.x_scale);
    values.w_scale = static_cast<const float*>(o.w_scale);
    values.y = o.y;
    values.partials = static_cast<float*>(workspace);
    values.x_line_bytes = x_line_bytes;
    values.w_line_bytes = w_line_bytes_;
    values.k_bytes = bytes_of(x_.type, problem_.k);
    values.ldy = o.ldy;
    values.x_batch_bytes = x_batch_bytes;
    values.w_batch_bytes = problem_.n * w_line_bytes_;
    values.y_batch_step = o.y_batch_stride;
    values.m = static_cast<int>(problem_.m);
    values.n = static_cast<int>(problem_.n);
    values.split_k = static_cast<int>(launch_.split_k);
    values.tiles_m = static_cast<int>(launch_.tiles_m);
    values.tiles_n = static_cast<int>(launch_.tiles_n);
    GEMMTUNE_RETURN_IF_ERROR(enqueue(0, shape_, values, stream));
    return programs_.size() > 1 ? enqueue(1, reduction_shape_, values, stream) : Status();
  }

 private:
  MatrixShape x_;
  std::int64_t w_line_bytes_;
  gpu::LaunchShape shape_;
  gpu::LaunchShape reduction_shape_;
};

class MmaFamily final : public gpu::JitFamily<LaunchConfig> {
 public:
  explicit MmaFamily(gpu::Runtime& runtime)
      : JitFamily(runtime, {.name = "mma", .tie_rank = 12}),
        limits_(runtime.limits()),
        cost_(gpu::constants_for(limits_, mma_rows)),
        capability_(capability_of(runtime.architecture())) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;
  /// Ada's tensor core keeps as few bits of fp8 products as Hopper's; of later ones nothing was measured.
  Accuracy accuracy(const Problem& problem, const Config&) const override {
    return traits(problem.x_type).fp8 ? Accuracy::tensor_core : Accuracy::fp32;
  }
  /// An instruction for each 32 bytes of k in the order of k, and partial sums in the order of the splits; tiles, warps and stages change no
  /// sum.
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const LaunchConfig launch = launch_config(problem, config);
    return fmt::format("mma, {} of {} k tiles", launch.split_k, launch.k_tiles);
  }

 protected:
  LaunchConfig launch_config(const Problem& problem, const Config& config) const override {
    return cuda::launch_config(problem, config);
  }
  void fill(gpu::LaunchSpace<LaunchConfig>& space) const override;
  double cost(const Problem& problem, const LaunchConfig& launch) const override;
  std::int64_t resources_of(const LaunchConfig& launch) const override {
    return launch.shared_bytes + launch.workspace_bytes;
  }
  std::vector<gpu::Part> parts(const Problem& problem, const LaunchConfig& launch) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const LaunchConfig& launch) const override {
    return std::make_unique<MmaKernel>(std::move(programs), problem, launch);
  }
  std::string device_text() const override { return source_ + reduce_; }

 private:
  std::string refuse_build(const LaunchConfig& launch) const;
  std::string refuse_waste(const Problem& problem, const LaunchConfig& launch) const;

  gpu::Limits limits_;
  MmaCost cost_;
  std::int64_t capability_;
  std::string source_ = gpu::include_line("backends/cuda/families/mma/mma.cu");
  std::string reduce_ = gpu::include_line("backends/cuda/families/mma/mma_reduce.cu");
};

Status MmaFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(
      gpu::accepts_on_tensor_cores(problem, {.orders = refusal::Orders::any_input, .batches = true}));
  GEMMTUNE_RETURN_IF_ERROR(accepts_transposing(problem));
  if (problem.x_type == DataType::f8_e4m3fn && capability_ < 89)
    return refusal::refuse(refusal::types, "fp8 operands: the tensor cores have them from sm_89 on");
  if (problem.x_type == DataType::f8_e4m3fn && capability_ == 90)
    return refusal::refuse(refusal::types,
                           "fp8 operands: Hopper widens them in registers that this family needs");
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_sizes(problem));
  return accepts_alignment(problem);
}

std::string MmaFamily::refuse_build(const LaunchConfig& launch) const {
  if (launch.block_n / launch.warps_n % 16 != 0 || launch.block_n < 16 * launch.warps_n)
    return "nw leaves a warp less than 16 columns";
  if (launch.accumulators() > max_accumulators) return "tile needs more registers than a thread has";
  if (launch.block_m == 16 && launch.block_n == 128 && launch.split_k > 1)
    return "bn 128 with bm 16 and split-K: the compiler spills registers";
  if (launch.shared_bytes > static_cast<std::int64_t>(limits_.shared_bytes_per_block))
    return "st needs more shared memory than a block may have";
  if (launch.split_k > launch.k_tiles) return "sk is more than the k tiles";
  if (launch.workspace_bytes > max_workspace) return "sk needs more than 1 GiB of workspace";
  return {};
}

std::string MmaFamily::refuse_waste(const Problem& problem, const LaunchConfig& launch) const {
  const std::int64_t processors = limits_.multiprocessors;
  if (launch.block_m > 16 && launch.block_m >= 2 * problem.m)
    return "bm is more than twice the rows there are";
  if (launch.block_m < 64 && problem.m > 4 * launch.block_m) return "bm reads the weight too often";
  if (launch.block_n > 64 && launch.block_n >= 2 * problem.n)
    return "bn is more than twice the rows there are";
  if (launch.split_k > 1 && launch.tiles() * problem.batch * launch.split_k > 4 * processors)
    return "sk makes too many blocks";
  if (launch.split_k > 1 && launch.k_tiles < 4 * launch.split_k)
    return "sk leaves a block less than four k tiles";
  if (launch.num_warps == 8 && launch.accumulators() < 32) return "nw 8 is for large tiles";
  return {};
}

void MmaFamily::fill(gpu::LaunchSpace<LaunchConfig>& space) const {
  space.add({"bm", {"16", "32", "64", "128"}, "64", "block_m: rows of x in a tile"});
  space.add({"bn", {"64", "128"}, "64", "block_n: rows of the weight in a tile"});
  space.add({"nw", {"4", "8"}, "4", "num_warps of a block"});
  space.add({"st", {"3", "4", "6"}, "3", "num_stages, of 128 bytes of k each", NumberRange{2, 12}});
  space.add({"sk",
             {"1", "2", "3", "4", "6", "8", "12", "16"},
             "1",
             "split-K: blocks that divide k",
             NumberRange{1, 64}});
  space.rule("fits", Rule::build, std::bind_front(&MmaFamily::refuse_build, this));
  space.rule("waste", Rule::search,
             [this](const Problem& problem, const Config& config, const LaunchConfig& launch) -> std::string {
               if (capability_ == 90 && !(config == default_config(problem)))
                 return "Hopper has better kernels: its default alone is tried";
               return refuse_waste(problem, launch);
             });
  const std::int64_t block_k = 8 * atom_bytes / bits(space.problem().x_type);
  space.add(split_k_divides(space.problem().k, "sk", block_k));
  space.add_tune_gemm_rules([block_k](const LaunchConfig& launch) {
    return TuneGemmConfig{
        .block_m = launch.block_m, .block_n = launch.block_n, .block_k = block_k, .split_k = launch.split_k};
  });
}

// The largest tile with at least one for each multiprocessor; split-K if even small tiles are fewer.
Config MmaFamily::default_config(const Problem& problem) const {
  const std::int64_t processors = limits_.multiprocessors;
  const std::int64_t block_m = problem.m <= 16 ? 16 : problem.m <= 32 ? 32 : problem.m <= 512 ? 64 : 128;
  const auto tiles = [&](std::int64_t width) {
    return ceil_div(problem.m, block_m) * ceil_div(problem.n, width) * problem.batch;
  };
  const std::int64_t block_n = block_m >= 64 && problem.n > 64 && tiles(128) >= processors ? 128 : 64;
  const std::int64_t k_tiles = ceil_div(bytes_of(problem.x_type, problem.k), atom_bytes);
  std::int64_t split_k = 1;
  for (const std::int64_t more : {2, 3, 4, 6, 8})
    if (tiles(block_n) * more <= 2 * processors && k_tiles >= 4 * more) split_k = more;
  return {{"bm", block_m},
          {"bn", block_n},
          {"nw", block_m == 128 && block_n == 128 ? 8 : 4},
          {"st", 3},
          {"sk", split_k}};
}

std::vector<gpu::Part> MmaFamily::parts(const Problem& problem, const LaunchConfig& launch) const {
  gpu::Source source{"mma", source_, gpu::type_defines(problem), "mma"};
  source.defines.push_back(
      gpu::config_define(MmaConfig{.block_m = static_cast<int>(launch.block_m),
                                   .block_n = static_cast<int>(launch.block_n),
                                   .warps_m = static_cast<int>(launch.warps_m),
                                   .warps_n = static_cast<int>(launch.warps_n),
                                   .num_stages = static_cast<int>(launch.num_stages),
                                   .split_k = launch.split_k > 1,
                                   .x_columns = problem.x_order == Order::column_major,
                                   .w_columns = problem.w_order == Order::column_major}));
  std::vector<gpu::Part> parts{{std::move(source), launch.shared_bytes}};
  if (launch.split_k > 1)
    parts.push_back({{"mma_reduce", reduce_, gpu::type_defines(problem), "mma_reduce"}});
  return parts;
}

/// In microseconds; meant to rank kernels, not to state their time: waves of blocks at the rate of a
/// multiprocessor, weights and partial sums once through memory.
double MmaFamily::cost(const Problem& problem, const LaunchConfig& launch) const {
  const double processors = as_real(limits_.multiprocessors);
  const double blocks = as_real(launch.tiles() * problem.batch * launch.split_k);
  const double warp_tile = as_real(launch.block_m * launch.block_n / launch.num_warps);
  const double efficiency =
      std::min(cost_.max_share, cost_.tile_share + cost_.doubled_tile * std::log2(warp_tile / 256));
  const double rate =
      cost_.rate * (bits(problem.x_type) == 8 ? 2 : 1) * std::max(efficiency, cost_.min_share);
  const double a_block =
      2 * as_real(launch.block_m * launch.block_n) * as_real(problem.k) / as_real(launch.split_k) / rate;
  const double compute = std::ceil(blocks / processors) * a_block;
  const double in_flight = std::min(blocks, 2 * processors) * as_real(launch.shared_bytes);
  const double memory =
      bytes(problem) / cost_.from_memory *
      std::max(1.0, std::pow(cost_.under_way / std::max(in_flight, 1.0), cost_.few_under_way));
  return cost_.launched + std::max(compute, memory) +
         (launch.split_k > 1
              ? cost_.reduction + 2 * as_real(launch.workspace_bytes) / cost_.partials_from_memory
              : 0);
}

}  // namespace

std::unique_ptr<KernelFamily> make_mma_family(gpu::Runtime& runtime) {
  return std::make_unique<MmaFamily>(runtime);
}

const gpu::FamilyEntry& mma_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mma", .rank = 40, .aliases = tunable_aliases, .fallback_rank = 40},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (driver_of(context).compute_capability() < 80) return nullptr;
        return make_mma_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::cuda
