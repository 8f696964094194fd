#include "backends/cuda/families/mma/mma.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/compiled_family.h"
#include "base/hash.h"
#include "base/rounding.h"
#include "base/text.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t piece_bytes = 128;                       // of k, in one row of a stage
constexpr std::int64_t most_accumulators = 64;                  // of a thread; 128 compile for many seconds
constexpr std::int64_t most_workspace = std::int64_t{1} << 30;  // bytes of partial sums

/// "sm_90a" → 90.
std::int64_t capability_of(const std::string& architecture) {
  std::string digits;
  for (const char letter : architecture)
    if (letter >= '0' && letter <= '9') digits += letter;
  return parse_integer(digits).value_or(0);
}

/// As in mma.cu.
struct Arguments {
  const void* x;
  const void* w;
  const void* bias;
  const float* x_scale;
  const float* w_scale;
  void* y;
  void* partial;
  long long x_row;
  long long k_bytes;
  long long ldy;
  int m, n;
  int splits;
  int tiles_m, tiles_n;
};

/// A config worked out for a problem.
struct Plan {
  std::int64_t tile_m = 64;
  std::int64_t tile_n = 64;
  std::int64_t warps = 4;
  std::int64_t stages = 3;
  std::int64_t splits = 1;
  std::int64_t warps_m = 1;
  std::int64_t warps_n = 4;
  std::int64_t pieces = 1;  // of all of k
  std::int64_t tiles_m = 1;
  std::int64_t tiles_n = 1;
  std::int64_t shared_bytes = 0;
  std::int64_t workspace_bytes = 0;

  std::int64_t tiles() const { return tiles_m * tiles_n; }
  std::int64_t accumulators() const { return tile_m * tile_n / (32 * warps); }
};

Plan plan_of(const Problem& problem, const Config& config) {
  Plan plan;
  plan.tile_m = config.number("tm", 64);
  plan.tile_n = config.number("tn", 64);
  plan.warps = config.number("wp", 4);
  plan.stages = config.number("st", 3);
  plan.splits = config.number("sk", 1);
  plan.warps_m = plan.tile_m >= 64 ? 2 : 1;
  plan.warps_n = plan.warps / plan.warps_m;
  plan.pieces = ceil_div(bytes_of(problem.x_type, problem.k), piece_bytes);
  plan.tiles_m = ceil_div(problem.m, plan.tile_m);
  plan.tiles_n = ceil_div(problem.n, plan.tile_n);
  plan.shared_bytes = plan.stages * (plan.tile_m + plan.tile_n) * piece_bytes;
  plan.workspace_bytes = plan.splits > 1 ? plan.splits * problem.m * problem.n * 4 : 0;
  return plan;
}

class MmaKernel final : public Kernel {
 public:
  /// `reduction`: null where k is not divided.
  MmaKernel(std::shared_ptr<gpu::Program> program, std::shared_ptr<gpu::Program> reduction,
            const Problem& problem, const Plan& plan)
      : program_(std::move(program)),
        reduction_(std::move(reduction)),
        problem_(problem),
        plan_(plan),
        element_bytes_(bits(problem.x_type) / 8) {
    shape_.threads = static_cast<unsigned>(32 * plan.warps);
    shape_.grid[0] = static_cast<unsigned>(plan.tiles());
    shape_.grid[1] = static_cast<unsigned>(plan.splits);
    shape_.shared_bytes = static_cast<std::size_t>(plan.shared_bytes);
    reduction_shape_.threads = 256;
    reduction_shape_.grid[0] = static_cast<unsigned>(
        std::min<std::int64_t>(ceil_div(problem.m * problem.n, 256), std::int64_t{1} << 20));
  }
  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(plan_.workspace_bytes); }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

  Status run(const Operands& o, void* workspace, Stream stream) const override {
    const std::int64_t ldx = problem_.m == 1 ? problem_.k : o.ldx;
    if (ldx * element_bytes_ % 16 != 0 || reinterpret_cast<std::uintptr_t>(o.x) % 16 != 0 ||
        reinterpret_cast<std::uintptr_t>(o.w) % 16 != 0) {
      return Status::unsupported(
          "mma needs pointers and rows of x at multiples of 16 bytes: rows of {} bytes",
          ldx * element_bytes_);
    }
    Arguments values{};
    values.x = o.x;
    values.w = o.w;
    values.bias = o.bias;
    values.x_scale = static_cast<const float*>(o.x_scale);
    values.w_scale = static_cast<const float*>(o.w_scale);
    values.y = o.y;
    values.partial = workspace;
    values.x_row = ldx * element_bytes_;
    values.k_bytes = problem_.k * element_bytes_;
    values.ldy = o.ldy;
    values.m = static_cast<int>(problem_.m);
    values.n = static_cast<int>(problem_.n);
    values.splits = static_cast<int>(plan_.splits);
    values.tiles_m = static_cast<int>(plan_.tiles_m);
    values.tiles_n = static_cast<int>(plan_.tiles_n);
    void* arguments[] = {&values};
    GEMMTUNE_RETURN_IF_ERROR(program_->launch(shape_, arguments, stream));
    return reduction_ ? reduction_->launch(reduction_shape_, arguments, stream) : Status();
  }

 private:
  std::shared_ptr<gpu::Program> program_;
  std::shared_ptr<gpu::Program> reduction_;
  Problem problem_;
  Plan plan_;
  std::int64_t element_bytes_;
  gpu::LaunchShape shape_;
  gpu::LaunchShape reduction_shape_;
};

class MmaFamily final : public gpu::CompiledFamily {
 public:
  explicit MmaFamily(gpu::Runtime& runtime)
      : runtime_(runtime),
        capability_(capability_of(runtime.architecture())),
        source_(std::string(gpu::numbers_text()) + std::string(mma_text())) {}

  std::string_view name() const override { return "mma"; }
  std::string identity() const override { return fmt::format("mma r1 source {}", short_hash(source_, 12)); }
  int tie_rank() const override { return 12; }
  Status accepts(const Problem& problem) const override;
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }
  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;
  Result<gpu::Source> source(const Problem& problem, const Config& config) const override;
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override;
  double predicted_microseconds(const Problem& problem, const Config& config) const override;
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    const Plan plan = plan_of(problem, config);
    return plan.shared_bytes + plan.workspace_bytes;
  }
  std::string_view thread_pool() const override { return "gpu"; }

 private:
  std::string refuse_build(const Problem& problem, const Config& config) const;
  std::string refuse_waste(const Problem& problem, const Config& config) const;

  gpu::Runtime& runtime_;
  std::int64_t capability_;
  std::string source_;
};

Status MmaFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_dense(problem));
  const auto refuse = [&](std::string_view subject, std::string detail) {
    return Status::unsupported("{}: {}", subject, detail);
  };
  if (problem.x_type == DataType::f32) return refuse("data types", "f32 operands: the matrix unit has none");
  if (problem.x_type == DataType::f8_e4m3fn && capability_ < 89)
    return refuse("data types", "fp8 operands: the matrix unit has them from sm_89 on");
  if (problem.x_type == DataType::f8_e4m3fn && capability_ == 90)
    return refuse("data types", "fp8 operands: Hopper widens them in registers that this family needs");
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (problem.m > most || problem.n > most || problem.k > most)
    return refuse("size",
                  fmt::format("{} x {} x {}, at most {} each", problem.m, problem.n, problem.k, most));
  return accepts_alignment(problem);
}

std::string MmaFamily::refuse_build(const Problem& problem, const Config& config) const {
  const Plan plan = plan_of(problem, config);
  if (plan.tile_n / plan.warps_n % 16 != 0 || plan.tile_n < 16 * plan.warps_n)
    return "wp leaves a warp less than 16 columns";
  if (plan.accumulators() > most_accumulators) return "tile needs more registers than a thread has";
  if (plan.tile_m == 16 && plan.tile_n == 128 && plan.splits > 1)
    return "tn 128 with tm 16 and divided k: the compiler spills registers";
  if (plan.shared_bytes > static_cast<std::int64_t>(runtime_.limits().shared_bytes_a_block))
    return "st needs more shared memory than a block may have";
  if (plan.splits > plan.pieces) return "sk is more than the pieces of k";
  if (plan.workspace_bytes > most_workspace) return "sk needs more than 1 GiB of workspace";
  return {};
}

std::string MmaFamily::refuse_waste(const Problem& problem, const Config& config) const {
  if (capability_ == 90 && !(config == default_config(problem)))
    return "Hopper has better kernels: its default alone is tried";
  const Plan plan = plan_of(problem, config);
  const std::int64_t processors = runtime_.limits().multiprocessors;
  if (plan.tile_m > 16 && plan.tile_m >= 2 * problem.m) return "tm is more than twice the rows there are";
  if (plan.tile_m < 64 && problem.m > 4 * plan.tile_m) return "tm reads the weight too often";
  if (plan.tile_n > 64 && plan.tile_n >= 2 * problem.n) return "tn is more than twice the rows there are";
  if (plan.splits > 1 && plan.tiles() * plan.splits > 4 * processors) return "sk makes too many blocks";
  if (plan.splits > 1 && plan.pieces < 4 * plan.splits) return "sk leaves a block less than four pieces of k";
  if (plan.warps == 8 && plan.accumulators() < 32) return "wp 8 is for large tiles";
  return {};
}

Space MmaFamily::space(const Problem& problem) const {
  Space space;
  space.add(Parameter{
      .key = "tm", .values = {"16", "32", "64", "128"}, .absent = "64", .meaning = "rows of x a tile"});
  space.add(Parameter{
      .key = "tn", .values = {"64", "128"}, .absent = "64", .meaning = "rows of the weight a tile"});
  space.add(Parameter{.key = "wp", .values = {"4", "8"}, .absent = "4", .meaning = "warps a block"});
  space.add(Parameter{
      .key = "st", .values = {"3", "4", "6"}, .absent = "3", .meaning = "stages of 128 bytes of k"});
  space.add(Parameter{.key = "sk",
                      .values = {"1", "2", "3", "4", "6", "8", "12", "16"},
                      .absent = "1",
                      .meaning = "blocks that divide k"});
  space.add(
      Constraint{"fits", [this, problem](const Config& config) { return refuse_build(problem, config); }});
  space.add(Constraint{"waste",
                       [this, problem](const Config& config) { return refuse_waste(problem, config); },
                       Rule::search});
  return space;
}

// The largest tile that still leaves each multiprocessor one, and k divided where even small ones do not.
Config MmaFamily::default_config(const Problem& problem) const {
  const std::int64_t processors = runtime_.limits().multiprocessors;
  const std::int64_t tm = problem.m <= 16 ? 16 : problem.m <= 32 ? 32 : problem.m <= 512 ? 64 : 128;
  const auto tiles = [&](std::int64_t tn) { return ceil_div(problem.m, tm) * ceil_div(problem.n, tn); };
  const std::int64_t tn = tm >= 64 && problem.n > 64 && tiles(128) >= processors ? 128 : 64;
  const std::int64_t pieces = ceil_div(bytes_of(problem.x_type, problem.k), piece_bytes);
  std::int64_t splits = 1;
  for (const std::int64_t more : {2, 3, 4, 6, 8})
    if (tiles(tn) * more <= 2 * processors && pieces >= 4 * more) splits = more;
  Config config;
  config.set("tm", tm);
  config.set("tn", tn);
  config.set("wp", std::int64_t{tm == 128 && tn == 128 ? 8 : 4});
  config.set("st", std::int64_t{3});
  config.set("sk", splits);
  return config;
}

Result<gpu::Source> MmaFamily::source(const Problem& problem, const Config& config) const {
  GEMMTUNE_RETURN_IF_ERROR(accepts(problem));
  if (const std::string refusal = space(problem).build_refusal(config); !refusal.empty())
    return Status::unsupported("mma: {}", refusal);
  const Plan plan = plan_of(problem, config);
  gpu::Source source{"mma", source_, gpu::type_defines(problem), "mma"};
  source.defines.push_back(fmt::format("TILE_M={}", plan.tile_m));
  source.defines.push_back(fmt::format("TILE_N={}", plan.tile_n));
  source.defines.push_back(fmt::format("WARPS_M={}", plan.warps_m));
  source.defines.push_back(fmt::format("WARPS_N={}", plan.warps_n));
  source.defines.push_back(fmt::format("STAGES={}", plan.stages));
  source.defines.push_back(fmt::format("SPLIT={}", plan.splits > 1 ? 1 : 0));
  return source;
}

Result<std::unique_ptr<Kernel>> MmaFamily::build(const Problem& problem, const Config& config) const {
  const auto needed = source(problem, config);
  if (!needed.ok()) return needed.status();
  const Plan plan = plan_of(problem, config);
  auto program = runtime_.load(*needed);
  if (!program.ok()) return program.status();
  GEMMTUNE_RETURN_IF_ERROR((*program)->reserve_shared(static_cast<std::size_t>(plan.shared_bytes)));
  std::shared_ptr<gpu::Program> reduction;
  if (plan.splits > 1) {
    gpu::Source second{"mma_reduce", source_, gpu::type_defines(problem), "mma_reduce"};
    second.defines.emplace_back("REDUCE=1");
    auto loaded = runtime_.load(second);
    if (!loaded.ok()) return loaded.status();
    reduction = std::move(*loaded);
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<MmaKernel>(std::move(*program), std::move(reduction), problem, plan));
}

/// A rank, not a time: waves of blocks at the rate of an A100's multiprocessor, weights and partial sums once
/// through its memory.
double MmaFamily::predicted_microseconds(const Problem& problem, const Config& config) const {
  const Plan plan = plan_of(problem, config);
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double processors = real(runtime_.limits().multiprocessors);
  const double blocks = real(plan.tiles() * plan.splits);
  const double warp_tile = real(plan.tile_m * plan.tile_n / plan.warps);
  const double efficiency = std::min(0.8, 0.25 + 0.25 * std::log2(warp_tile / 256));
  const double rate = 2.9e6 * (bits(problem.x_type) == 8 ? 2 : 1) * std::max(efficiency, 0.2);
  const double a_block = 2 * real(plan.tile_m * plan.tile_n) * real(problem.k) / real(plan.splits) / rate;
  const double compute = std::ceil(blocks / processors) * a_block;
  const double in_flight = std::min(blocks, 2 * processors) * real(plan.shared_bytes);
  const double memory = bytes(problem) / 2e6 * std::max(1.0, std::pow(4e6 / std::max(in_flight, 1.0), 0.3));
  return 3 + std::max(compute, memory) + (plan.splits > 1 ? 2 + 2 * real(plan.workspace_bytes) / 4e6 : 0);
}

}  // namespace

std::unique_ptr<KernelFamily> make_mma_family(gpu::Runtime& runtime) {
  return std::make_unique<MmaFamily>(runtime);
}

}  // namespace gemmtune::cuda
