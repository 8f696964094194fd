#include "backends/cuda/families/wgmma/wgmma.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/wgmma/wgmma_plan.h"
#include "backends/cuda/tensor_map.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/compiled_family.h"
#include "base/hash.h"
#include "base/rounding.h"

namespace gemmtune::cuda {
namespace {

/// floor(n / divisor) for n below 2³¹ is the upper half of n · multiplier, shifted: multiplier = ⌈2^(32 +
/// shift) / divisor⌉ with 2^shift < divisor ≤ 2^(shift + 1). (Granlund and Montgomery, Division by Invariant
/// Integers using Multiplication, 1994.)
struct Divider {
  int divisor = 1;
  unsigned multiplier = 0;
  unsigned shift = 0;
};

Divider divider(std::int64_t divisor) {
  Divider one{static_cast<int>(divisor), 0, 0};
  if (divisor <= 1) return one;
  while ((std::int64_t{2} << one.shift) < divisor) ++one.shift;
  const std::uint64_t scaled = std::uint64_t{1} << (31 + one.shift + 1);
  one.multiplier = static_cast<unsigned>((scaled + static_cast<std::uint64_t>(divisor) - 1) /
                                         static_cast<std::uint64_t>(divisor));
  return one;
}

/// As in wgmma_load.cuh.
struct Arguments {
  int stages;
  int memory_bytes;
  int steps;
  int dependent;
  int ca_bits;
  int cb_bits;
  int arrivals;
  int called;
  int tiles;
  int whole_bands;
  Divider band_tiles;
  Divider band;
  Divider last_band;
  int whole;
  int m, n;
  long long ldy;
  void* y;
  const void* bias;
  const float* x_scale;
  const float* w_scale;
  PackedWeight packed;
  api::TensorMap a;
  api::TensorMap b;
  api::TensorMap y_lines;
  api::TensorMap y_rest;
};

/// Of the weight, that a block calls into the second-level cache while it waits for the kernel in front.
constexpr std::int64_t called_bytes = 32768;

int narrow(std::int64_t value) { return static_cast<int>(value); }

class WgmmaKernel final : public Kernel {
 public:
  WgmmaKernel(const CudaDriver& driver, std::shared_ptr<gpu::Program> program, const Problem& problem,
              const WgmmaPlan& plan)
      : program_(std::move(program)),
        problem_(problem),
        plan_(plan),
        element_bytes_(bits(problem.x_type) / 8),
        output_bytes_(bits(problem.y_type) / 8),
        x_map_(driver.functions(),
               {nullptr, element_bytes_, problem.m, problem.k, problem.k * element_bytes_, plan.x_rows()}),
        w_map_(driver.functions(), {nullptr, element_bytes_, problem.n, problem.k, problem.k * element_bytes_,
                                    plan.weight_rows()}),
        y_lines_(driver.functions(), {nullptr, output_bytes_, problem.m, problem.n, problem.n * output_bytes_,
                                      plan.stored_rows()}),
        y_rest_(driver.functions(), {nullptr, output_bytes_, problem.m, problem.n, problem.n * output_bytes_,
                                     plan.stored_rows(), plan.rest_columns(output_bytes_)}) {
    shape_.threads = static_cast<unsigned>(plan.threads());
    hopper_.cluster = static_cast<unsigned>(plan.cluster());
    shape_.shared_bytes = static_cast<std::size_t>(plan.shared_bytes);
    // Every one starts early; who may not read the weight then waits first.
    hopper_.dependent = true;
    shape_.extension = &hopper_;
    // Blocks stay and take tile after tile: one that did not fit beside the others would come when they are
    // done.
    if (const int most = driver.clusters_at_once(program_->loaded(), shape_);
        most > 0 && plan.split == 1 && !plan.lone)
      plan_.blocks = std::min<std::int64_t>(plan.tiles(), most) * plan.cluster();
    shape_.grid[0] = static_cast<unsigned>(plan_.blocks);
    band_tiles_ = divider(plan.band * plan.tiles_b);
    band_ = divider(plan.band);
    last_band_ = divider(std::max<std::int64_t>(1, plan.tiles_a % plan.band));
  }
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return gpu::weight_layout_of(problem_); }

  Status run(const Operands& o, void*, Stream stream) const override {
    Arguments values{};
    const std::int64_t ldx = problem_.m == 1 ? problem_.k : o.ldx;
    GEMMTUNE_RETURN_IF_ERROR(x_map_.at(o.x, ldx * element_bytes_, plan_.swapped ? values.b : values.a));
    if (problem_.bpreshuffle) {
      values.packed = packed_weight(problem_, o.w);
    } else {
      GEMMTUNE_RETURN_IF_ERROR(
          w_map_.at(o.w, problem_.k * element_bytes_, plan_.swapped ? values.a : values.b));
    }
    values.whole = lead_out(o, values) ? 1 : 0;
    values.bias = o.bias;
    values.x_scale = static_cast<const float*>(o.x_scale);
    values.w_scale = static_cast<const float*>(o.w_scale);
    values.y = o.y;
    values.ldy = o.ldy;
    values.m = narrow(problem_.m);
    values.n = narrow(problem_.n);
    values.steps = narrow(plan_.steps);
    values.stages = narrow(plan_.stages);
    values.memory_bytes = narrow(plan_.memory_bytes);
    values.ca_bits = std::countr_zero(static_cast<unsigned>(plan_.ca));
    values.cb_bits = std::countr_zero(static_cast<unsigned>(plan_.cb));
    values.arrivals = narrow(plan_.arrivals());
    values.called = narrow(called_bytes / (plan_.pieces * plan_.weight_rows() * 128));
    values.tiles = narrow(plan_.tiles());
    values.whole_bands = narrow(plan_.tiles_a / plan_.band);
    values.band_tiles = band_tiles_;
    values.band = band_;
    values.last_band = last_band_;
    values.dependent = plan_.dependent ? 1 : 0;
    void* arguments[] = {&values};
    return program_->launch(shape_, arguments, stream);
  }

 private:
  /// Whether the copy engine can write y; then with its maps.
  bool lead_out(const Operands& o, Arguments& values) const {
    const std::int64_t row_bytes =
        problem_.m == 1 ? round_up(problem_.n * output_bytes_, 16) : o.ldy * output_bytes_;
    if (plan_.split > 1 || reinterpret_cast<std::uintptr_t>(o.y) % 16 != 0 || row_bytes % 16 != 0)
      return false;
    return y_lines_.at(o.y, row_bytes, values.y_lines).ok() &&
           (plan_.rest_columns(output_bytes_) == 0 || y_rest_.at(o.y, row_bytes, values.y_rest).ok());
  }

  std::shared_ptr<gpu::Program> program_;
  Problem problem_;
  WgmmaPlan plan_;
  int element_bytes_;
  int output_bytes_;
  MovableMap x_map_;
  MovableMap w_map_;
  MovableMap y_lines_;
  MovableMap y_rest_;
  Divider band_tiles_;
  Divider band_;
  Divider last_band_;
  HopperLaunch hopper_;
  gpu::LaunchShape shape_;  // points at hopper_
};

class WgmmaFamily final : public gpu::CompiledFamily {
 public:
  WgmmaFamily(gpu::Runtime& runtime, const CudaDriver& driver)
      : runtime_(runtime),
        driver_(driver),
        limits_(hopper_limits(runtime, driver)),
        source_(std::string(gpu::numbers_text()) + std::string(hopper_text()) +
                std::string(wgmma_load_text()) + std::string(wgmma_store_text()) +
                std::string(wgmma_parts_text()) + std::string(wgmma_text())) {}

  std::string_view name() const override { return "wgmma"; }
  std::string identity() const override {
    return fmt::format("wgmma r1 source {}", short_hash(source_ + multiply_source(DataType::bf16, 16), 12));
  }
  int tie_rank() const override { return 11; }
  Status accepts(const Problem& problem) const override;
  std::optional<WeightLayout> packed_layout(const Problem&) const override {
    return WeightLayout::tile64x128;
  }
  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override {
    return default_wgmma_config(problem, limits_);
  }
  Result<gpu::Source> source(const Problem& problem, const Config& config) const override;
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override;
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return predicted_wgmma(problem, plan(problem, config), limits_);
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    return plan(problem, config).shared_bytes;
  }
  std::string_view thread_pool() const override { return "gpu"; }

 private:
  WgmmaPlan plan(const Problem& problem, const Config& config) const {
    return wgmma_plan(problem, config, limits_);
  }

  gpu::Runtime& runtime_;
  const CudaDriver& driver_;
  HopperLimits limits_;
  std::string source_;
};

Status WgmmaFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_dense(problem, gpu::Weights::packed_too));
  const auto refuse = [&](std::string_view subject, std::string detail) {
    return Status::unsupported("{}: {}", subject, detail);
  };
  if (problem.x_type == DataType::f32) return refuse("data types", "f32 operands: the matrix unit has none");
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (problem.m > most || problem.n > most || problem.k > most)
    return refuse("size",
                  fmt::format("{} x {} x {}, at most {} each", problem.m, problem.n, problem.k, most));
  return accepts_alignment(problem);
}

Space WgmmaFamily::space(const Problem& problem) const {
  Space space;
  for (Parameter& parameter : wgmma_parameters()) space.add(std::move(parameter));
  const auto limits = limits_;
  const auto rule = [&](std::string name, Rule kind, auto refusal, std::vector<std::string> reads) {
    space.add(Constraint{std::move(name),
                         [problem, limits, refusal](const Config& config) -> std::string {
                           const WgmmaPlan plan = wgmma_plan(problem, config, limits);
                           return refusal(problem, config, plan, limits);
                         },
                         kind, std::move(reads)});
  };
  rule("tile", Rule::build,
       [](auto&, auto&, const WgmmaPlan& plan, auto&) { return refuse_wgmma_tile(plan); },
       {"ta", "tb", "wg", "turn"});
  rule("tile waste", Rule::search,
       [](const Problem& of, auto&, const WgmmaPlan& plan, auto&) {
         return refuse_wgmma_tile_waste(of, plan);
       },
       {"sw", "ta", "tb"});
  rule("cluster", Rule::build,
       [](auto&, auto&, const WgmmaPlan& plan, auto&) { return refuse_wgmma_cluster(plan); },
       {"ta", "tb", "ca", "cb", "c"});
  rule("fits", Rule::build,
       [](auto&, auto&, const WgmmaPlan& plan, const HopperLimits& most) { return refuse_wgmma(plan, most); },
       {});
  rule("waste", Rule::search,
       [](const Problem& of, auto&, const WgmmaPlan& plan, const HopperLimits& most) {
         return refuse_wgmma_waste(of, plan, most);
       },
       {});
  const double slowest = 1.4 * predicted_microseconds(problem, default_config(problem));
  rule("slow", Rule::search,
       [slowest](const Problem& of, auto&, const WgmmaPlan& plan,
                 const HopperLimits& limits_of_device) -> std::string {
         if (predicted_wgmma(of, plan, limits_of_device) <= slowest) return {};
         return "the cost model says much slower than the default";
       },
       {});
  rule("ring", Rule::search,
       [](const Problem& of, const Config& config, auto&, const HopperLimits& most) {
         return refuse_wgmma_ring(of, config, most);
       },
       {});
  return space;
}

Result<gpu::Source> WgmmaFamily::source(const Problem& problem, const Config& config) const {
  GEMMTUNE_RETURN_IF_ERROR(accepts(problem));
  if (const std::string refusal = space(problem).build_refusal(config); !refusal.empty())
    return Status::unsupported("wgmma: {}", refusal);
  const WgmmaPlan planned = plan(problem, config);
  gpu::Source source{"wgmma", multiply_source(problem.x_type, planned.b_rows) + source_,
                     gpu::type_defines(problem), "wgmma"};
  source.defines.push_back(fmt::format("A_ROWS={}", planned.a_rows));
  source.defines.push_back(fmt::format("B_ROWS={}", planned.b_rows));
  source.defines.push_back(fmt::format("WARPGROUPS={}", planned.warpgroups));
  source.defines.push_back(fmt::format("TURNS={}", planned.turns ? 1 : 0));
  source.defines.push_back(fmt::format("SWAP={}", planned.swapped ? 1 : 0));
  source.defines.push_back(fmt::format("SPLIT={}", planned.split));
  source.defines.push_back(fmt::format("LONE={}", planned.lone ? 1 : 0));
  source.defines.push_back(fmt::format("SHARED={}", planned.ca * planned.cb > 1 ? 1 : 0));
  source.defines.push_back(fmt::format("PIECES={}", planned.pieces));
  source.defines.push_back(fmt::format("HINTS={}", planned.once ? 1 : 0));
  source.defines.push_back(fmt::format("BIAS={}", problem.bias ? 1 : 0));
  source.defines.push_back(fmt::format("SCALED={}", problem.scale_ab ? 1 : 0));
  source.defines.push_back(fmt::format("PACKED={}", problem.bpreshuffle ? 1 : 0));
  return source;
}

Result<std::unique_ptr<Kernel>> WgmmaFamily::build(const Problem& problem, const Config& config) const {
  const auto needed = source(problem, config);
  if (!needed.ok()) return needed.status();
  auto program = runtime_.load(*needed);
  if (!program.ok()) return program.status();
  const WgmmaPlan planned = plan(problem, config);
  GEMMTUNE_RETURN_IF_ERROR((*program)->reserve_shared(static_cast<std::size_t>(planned.shared_bytes)));
  return std::unique_ptr<Kernel>(
      std::make_unique<WgmmaKernel>(driver_, std::move(*program), problem, planned));
}

}  // namespace

std::unique_ptr<KernelFamily> make_wgmma_family(gpu::Runtime& runtime, const CudaDriver& driver) {
  return std::make_unique<WgmmaFamily>(runtime, driver);
}

}  // namespace gemmtune::cuda
