#include "backends/cuda/families/skinny/skinny.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/skinny/skinny_plan.h"
#include "backends/cuda/tensor_map.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/compiled_family.h"
#include "base/hash.h"
#include "base/rounding.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t most_rows = 64;   // of x
constexpr std::int64_t most_blocks = 8;  // of a cluster, without asking for more than is portable
constexpr unsigned threads = 160;

/// As in skinny.cu.
struct Arguments {
  api::TensorMap w;
  api::TensorMap x;
  const void* bias;
  const float* x_scale;
  const float* w_scale;
  void* y;
  long long ldy;
  int m, n;
  int stages;
  int blocks;
  int steps, more;
  int most;
  int dependent;
  int ahead;
  int ahead_blocks;
  unsigned long long groups;
  PackedWeight packed;
};

class SkinnyKernel final : public Kernel {
 public:
  SkinnyKernel(const CudaDriver& driver, std::shared_ptr<gpu::Program> program, const Problem& problem,
               const SkinnyPlan& plan)
      : program_(std::move(program)),
        problem_(problem),
        plan_(plan),
        element_bytes_(bits(problem.x_type) / 8),
        w_map_(driver.functions(),
               {nullptr, element_bytes_, problem.n, problem.k, problem.k * element_bytes_, plan.rows}),
        x_map_(driver.functions(),
               {nullptr, element_bytes_, problem.m, problem.k, problem.k * element_bytes_, plan.columns}) {
    shape_.threads = threads;
    shape_.grid[0] = static_cast<unsigned>(plan.tiles * plan.blocks);
    hopper_.cluster = static_cast<unsigned>(plan.blocks);
    shape_.shared_bytes = static_cast<std::size_t>(plan.shared_bytes);
    // Also where it waits before it reads anything: what is in front of that is hidden.
    hopper_.dependent = true;
    shape_.extension = &hopper_;
  }
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return gpu::weight_layout_of(problem_); }

  Status run(const Operands& o, void*, Stream stream) const override {
    Arguments values{};
    const std::int64_t ldx = problem_.m == 1 ? problem_.k : o.ldx;
    if (problem_.bpreshuffle) {
      values.packed = packed_weight(problem_, o.w);
    } else {
      GEMMTUNE_RETURN_IF_ERROR(w_map_.at(o.w, problem_.k * element_bytes_, values.w));
    }
    GEMMTUNE_RETURN_IF_ERROR(x_map_.at(o.x, ldx * element_bytes_, values.x));
    values.bias = o.bias;
    values.x_scale = static_cast<const float*>(o.x_scale);
    values.w_scale = static_cast<const float*>(o.w_scale);
    values.y = o.y;
    values.ldy = o.ldy;
    values.m = static_cast<int>(problem_.m);
    values.n = static_cast<int>(problem_.n);
    values.stages = static_cast<int>(plan_.stages);
    values.blocks = static_cast<int>(plan_.blocks);
    values.steps = static_cast<int>(plan_.steps / plan_.blocks);
    values.more = static_cast<int>(plan_.steps % plan_.blocks);
    values.most = static_cast<int>(plan_.most_groups());
    values.dependent = plan_.dependent ? 1 : 0;
    values.ahead = static_cast<int>(plan_.ahead);
    values.ahead_blocks = static_cast<int>(plan_.ahead_blocks);
    values.groups = plan_.first_groups();
    void* arguments[] = {&values};
    return program_->launch(shape_, arguments, stream);
  }

 private:
  std::shared_ptr<gpu::Program> program_;
  Problem problem_;
  SkinnyPlan plan_;
  int element_bytes_;
  MovableMap w_map_;
  MovableMap x_map_;
  HopperLaunch hopper_;
  gpu::LaunchShape shape_;  // points at hopper_
};

class SkinnyFamily final : public gpu::CompiledFamily {
 public:
  SkinnyFamily(gpu::Runtime& runtime, const CudaDriver& driver)
      : runtime_(runtime),
        driver_(driver),
        source_(std::string(gpu::numbers_text()) + std::string(hopper_text()) +
                std::string(skinny_load_text()) + std::string(skinny_store_text()) +
                std::string(skinny_text())) {}

  std::string_view name() const override { return "skinny"; }
  std::string identity() const override {
    return fmt::format("skinny r1 source {}", short_hash(source_, 12));
  }
  int tie_rank() const override { return 10; }
  Status accepts(const Problem& problem) const override;
  std::optional<WeightLayout> packed_layout(const Problem&) const override {
    return WeightLayout::tile64x128;
  }
  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;
  Result<gpu::Source> source(const Problem& problem, const Config& config) const override;
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override;
  double predicted_microseconds(const Problem& problem, const Config& config) const override;
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    return skinny_plan(problem, config, runtime_.limits()).shared_bytes;
  }
  std::string_view thread_pool() const override { return "gpu"; }

 private:
  std::string refuse_build(const Problem& problem, const Config& config) const;
  std::string refuse_waste(const Problem& problem, const Config& config) const;

  gpu::Runtime& runtime_;
  const CudaDriver& driver_;
  std::string source_;
};

Status SkinnyFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_dense(problem, gpu::Weights::packed_too));
  const auto refuse = [&](std::string_view subject, std::string detail) {
    return Status::unsupported("{}: {}", subject, detail);
  };
  if (problem.x_type == DataType::f32) return refuse("data types", "f32 operands: the matrix unit has none");
  if (problem.m > most_rows) return refuse("rows", fmt::format("m = {} is above {}", problem.m, most_rows));
  return accepts_alignment(problem);
}

std::string SkinnyFamily::refuse_build(const Problem& problem, const Config& config) const {
  const SkinnyPlan plan = skinny_plan(problem, config, runtime_.limits());
  if (plan.blocks > plan.steps) return "c is more than the steps of k";
  if (plan.stages < std::min<std::int64_t>(2, ceil_div(plan.steps, plan.blocks)))
    return "ring holds less than two stages";
  if (plan.shared_bytes > static_cast<std::int64_t>(runtime_.limits().shared_bytes_a_block))
    return "ring needs more shared memory than a block may have";
  return {};
}

std::string SkinnyFamily::refuse_waste(const Problem& problem, const Config& config) const {
  const SkinnyPlan plan = skinny_plan(problem, config, runtime_.limits());
  if (plan.rows > 64 && problem.n <= 64) return "r is more than the rows of w";
  const std::int64_t processors = runtime_.limits().multiprocessors;
  if (plan.blocks > 1 && plan.tiles * (plan.blocks - 1) >= processors * 4)
    return "c makes more than four blocks a multiprocessor";
  if (plan.pieces > 1 && plan.steps < plan.blocks * 2) return "ks leaves a block less than two steps";
  // A smaller ring that already holds all of a block's share is the same.
  const std::int64_t share = ceil_div(plan.steps, plan.blocks) * plan.stage_bytes;
  for (const std::int64_t smaller : {50, 75, 110}) {
    if (smaller < config.number("ring") && smaller * 1024 >= share)
      return "ring means the same as a smaller one";
  }
  return {};
}

Space SkinnyFamily::space(const Problem& problem) const {
  Space space;
  space.add(Parameter{.key = "r", .values = {"64", "128"}, .absent = "64", .meaning = "rows of w a block"});
  space.add(Parameter{
      .key = "ks", .values = {"1", "2", "4"}, .absent = "1", .meaning = "pieces of 128 bytes of k a stage"});
  space.add(Parameter{.key = "c",
                      .values = {"1", "2", "3", "4", "5", "6", "7", "8"},
                      .absent = "1",
                      .meaning = "blocks of a cluster, which divide k"});
  space.add(Parameter{.key = "ring",
                      .values = {"50", "75", "110", "220"},
                      .absent = "110",
                      .meaning = "KiB of stages, at most"});
  space.add(dependent_parameter());
  space.add(
      Constraint{"fits", [this, problem](const Config& config) { return refuse_build(problem, config); }});
  space.add(Constraint{"waste",
                       [this, problem](const Config& config) { return refuse_waste(problem, config); },
                       Rule::search});
  return space;
}

// Enough blocks for every multiprocessor to have one or two; a ring of which two fit.
Config SkinnyFamily::default_config(const Problem& problem) const {
  const std::int64_t tiles = ceil_div(problem.n, 64);
  Config config;
  config.set("r", std::int64_t{64});
  config.set("ks", std::int64_t{1});
  std::int64_t blocks =
      std::clamp<std::int64_t>(runtime_.limits().multiprocessors * 3 / 2 / tiles, 1, most_blocks);
  blocks = std::min(blocks, ceil_div(bytes_of(problem.x_type, problem.k), SkinnyPlan::piece_bytes));
  config.set("c", blocks);
  config.set("ring", std::int64_t{110});
  config.set("pdl", std::int64_t{0});
  return config;
}

Result<gpu::Source> SkinnyFamily::source(const Problem& problem, const Config& config) const {
  GEMMTUNE_RETURN_IF_ERROR(accepts(problem));
  if (const std::string refusal = space(problem).build_refusal(config); !refusal.empty())
    return Status::unsupported("skinny: {}", refusal);
  const SkinnyPlan plan = skinny_plan(problem, config, runtime_.limits());
  gpu::Source source{"skinny", source_, gpu::type_defines(problem), "skinny"};
  source.defines.push_back(fmt::format("ROWS={}", plan.rows));
  source.defines.push_back(fmt::format("COLUMNS={}", plan.columns));
  source.defines.push_back(fmt::format("PIECES={}", plan.pieces));
  source.defines.push_back("HINTS=1");
  source.defines.push_back(fmt::format("PACKED={}", problem.bpreshuffle ? 1 : 0));
  return source;
}

Result<std::unique_ptr<Kernel>> SkinnyFamily::build(const Problem& problem, const Config& config) const {
  const auto needed = source(problem, config);
  if (!needed.ok()) return needed.status();
  auto program = runtime_.load(*needed);
  if (!program.ok()) return program.status();
  const SkinnyPlan plan = skinny_plan(problem, config, runtime_.limits());
  GEMMTUNE_RETURN_IF_ERROR((*program)->reserve_shared(static_cast<std::size_t>(plan.shared_bytes)));
  return std::unique_ptr<Kernel>(std::make_unique<SkinnyKernel>(driver_, std::move(*program), problem, plan));
}

/// A rank, not a time: what a sweep over eight (N, K) on one H200 taught. Best are about 200 blocks on 132
/// multiprocessors and as many bytes in flight as fit beside another block; unequal shares of blocks and of k
/// cost in proportion.
double SkinnyFamily::predicted_microseconds(const Problem& problem, const Config& config) const {
  const SkinnyPlan plan = skinny_plan(problem, config, runtime_.limits());
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double processors = real(runtime_.limits().multiprocessors);
  const double grid = real(plan.tiles * plan.blocks);
  const double resident = real(plan.resident);
  const double waves = grid / (processors * resident);
  const double uneven = std::ceil(waves) / waves;
  const double share = real(ceil_div(plan.steps, plan.blocks) * plan.blocks) / real(plan.steps);
  const double in_flight = std::min(grid, processors * resident) * real(plan.stages * plan.stage_bytes);
  const double few_bytes = std::max(1.0, 12e6 / std::max(in_flight, 1.0));
  const double memory = bytes(problem) / 4.3e6;
  const double few_blocks = std::max(1.0, 100 / grid);
  return 2.2 +
         memory * share * (1 + 0.08 * (std::min(uneven, 3.0) - 1)) * std::pow(few_bytes, 0.15) * few_blocks +
         (plan.blocks > 1 ? 0.25 + 0.02 * real(plan.blocks) : 0) + 0.1 * std::abs(std::log2(grid / 200));
}

}  // namespace

std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver) {
  return std::make_unique<SkinnyFamily>(runtime, driver);
}

}  // namespace gemmtune::cuda
