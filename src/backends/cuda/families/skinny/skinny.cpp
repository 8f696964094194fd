#include <algorithm>
#include <functional>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/own_families.h"
#include "backends/cuda/families/skinny/skinny_arguments.h"
#include "backends/cuda/families/skinny/skinny_cost.h"
#include "backends/cuda/families/skinny/skinny_launch_config.h"
#include "backends/cuda/tensor_map.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/fastest_config.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/refusal.h"
#include "base/rounding.h"

namespace gemmtune::cuda {

GEMMTUNE_FIELDS(SkinnyConfig, block_m, block_n, k_atoms, promotion, packed);

namespace {

constexpr std::int64_t max_m = 64;

class SkinnyKernel final : public gpu::JitKernel<SkinnyLaunchConfig> {
 public:
  SkinnyKernel(const CudaDriver& driver, gpu::Programs programs, const Problem& problem,
               const SkinnyLaunchConfig& launch)
      : JitKernel(std::move(programs), problem, launch),
        element_bytes_(bits(problem.x_type) / 8),
        w_map_(driver.functions(),
               {nullptr, element_bytes_, problem.n, problem.k, problem.k * element_bytes_, launch.block_m, 0,
                batches(problem), problem.n * problem.k * element_bytes_}),
        x_map_(driver.functions(), {nullptr, element_bytes_, problem.m, problem.k, problem.k * element_bytes_,
                                    std::min(launch.block_n, problem.m), 0, batches(problem),
                                    problem.m * problem.k * element_bytes_}) {
    shape_.threads = skinny_threads;
    shape_.grid[0] = static_cast<unsigned>(launch.tiles * launch.split_k);
    shape_.grid[1] = static_cast<unsigned>(problem.batch);
    hopper_.cluster = static_cast<unsigned>(launch.split_k);
    shape_.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
    // Plain launches start early too: their prologue overlaps the previous kernel, before
    // griddepcontrol.wait.
    hopper_.dependent = true;
    shape_.extension = &hopper_;
  }
  WeightLayout weight_layout() const override { return gpu::weight_layout_of(problem_); }

  Status run(const Operands& o, void*, Stream stream) const override {
    SkinnyArguments values{};
    const std::int64_t ldx = problem_.m == 1 ? problem_.k : o.ldx;
    if (is_packed(problem_)) {
      values.packed = packed_weight(problem_, o.w);
    } else {
      GEMMTUNE_RETURN_IF_ERROR(w_map_.at(o.w, problem_.k * element_bytes_, values.w));
    }
    GEMMTUNE_RETURN_IF_ERROR(
        x_map_.at(o.x, ldx * element_bytes_, o.x_batch_stride * element_bytes_, values.x));
    values.bias = o.bias;
    values.scales = gpu::scales_of(problem_, o);
    values.y = o.y;
    values.ldy = o.ldy;
    values.y_batch_step = o.y_batch_stride;
    values.m = static_cast<int>(problem_.m);
    values.n = static_cast<int>(problem_.n);
    values.num_stages = static_cast<int>(launch_.num_stages);
    values.split_k = static_cast<int>(launch_.split_k);
    values.k_tiles = static_cast<int>(launch_.k_tiles / launch_.split_k);
    values.extra_k_tiles = static_cast<int>(launch_.k_tiles % launch_.split_k);
    values.max_row_groups = static_cast<int>(launch_.max_row_groups());
    values.dependent_launch = launch_.dependent_launch ? 1 : 0;
    values.prefetch_k_tiles = static_cast<int>(launch_.prefetch_k_tiles);
    values.prefetch_blocks = static_cast<int>(launch_.prefetch_blocks);
    values.first_row_groups = launch_.first_row_groups();
    return enqueue(0, shape_, values, stream);
  }

 private:
  /// Of tensor maps with three dimensions; 0: they have two.
  static std::int64_t batches(const Problem& problem) {
    return traits(problem.operation).batched ? problem.batch : 0;
  }

  int element_bytes_;
  MovableMap w_map_;
  MovableMap x_map_;
  HopperLaunch hopper_;
  gpu::LaunchShape shape_;  // points at hopper_
};

class SkinnyFamily final : public gpu::JitFamily<SkinnyLaunchConfig> {
 public:
  SkinnyFamily(gpu::Runtime& runtime, const CudaDriver& driver)
      : JitFamily(runtime, {.name = "skinny", .tie_rank = 10, .packed = WeightLayout::tile64x128}),
        driver_(driver),
        limits_(hopper_limits(runtime, driver)),
        cost_(skinny_cost(limits_)) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;
  Accuracy accuracy(const Problem& problem, const Config& config) const override {
    return hopper_accuracy(problem, config);
  }
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const SkinnyLaunchConfig launch = launch_config(problem, config);
    return hopper_sum_order(problem, launch.k_tiles, launch.k_atoms, launch.split_k, launch.promotion);
  }

 protected:
  SkinnyLaunchConfig launch_config(const Problem& problem, const Config& config) const override {
    return skinny_launch_config(problem, config, limits_);
  }
  void fill(gpu::LaunchSpace<SkinnyLaunchConfig>& space) const override;
  double cost(const Problem& problem, const SkinnyLaunchConfig& launch) const override {
    return predicted_skinny(problem, launch, limits_, cost_);
  }
  std::vector<gpu::Part> parts(const Problem& problem, const SkinnyLaunchConfig& launch) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const SkinnyLaunchConfig& launch) const override {
    return std::make_unique<SkinnyKernel>(driver_, std::move(programs), problem, launch);
  }
  std::string device_text() const override { return source_; }

 private:
  std::string refuse_build(const Problem& problem, const SkinnyLaunchConfig& launch) const;
  std::string refuse_waste(const Problem& problem, const SkinnyLaunchConfig& launch) const;

  const CudaDriver& driver_;
  HopperLimits limits_;
  SkinnyCost cost_;
  std::string source_ = gpu::include_line("backends/cuda/families/skinny/skinny.cu");
};

Status SkinnyFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_on_tensor_cores(problem, {.weights = gpu::Weights::packed_too,
                                                                  .row_scales = true,
                                                                  .block_scales = true,
                                                                  .int8 = true,
                                                                  .batches = true}));
  if (problem.m > max_m) return refusal::refuse(refusal::rows, "m = {} is above {}", problem.m, max_m);
  return accepts_alignment(problem);
}

std::string SkinnyFamily::refuse_build(const Problem& problem, const SkinnyLaunchConfig& launch) const {
  if (quantization(problem) == QuantType::per_1x128 && launch.promotion == 0)
    return "prom 0 adds no scales of blocks";
  if (launch.split_k > launch.k_tiles) return "csk is more than the k tiles";
  if (launch.num_stages < std::min<std::int64_t>(2, ceil_div(launch.k_tiles, launch.split_k)))
    return "smem holds less than two stages";
  if (launch.shared_bytes > static_cast<std::int64_t>(limits_.shared_bytes_per_block))
    return "smem is more shared memory than a block may have";
  return {};
}

std::string SkinnyFamily::refuse_waste(const Problem& problem, const SkinnyLaunchConfig& launch) const {
  if (launch.block_m > 64 && problem.n <= 64) return "bm is more than the rows of w";
  const std::int64_t processors = limits_.multiprocessors;
  if (launch.split_k > 1 && launch.tiles * problem.batch * (launch.split_k - 1) >= processors * 4)
    return "csk makes more than four blocks per multiprocessor";
  if (launch.k_atoms > 1 && launch.k_tiles < launch.split_k * 2)
    return "bk leaves a block less than two k tiles";
  // A smaller smem that holds all of a block's k tiles makes the same kernel.
  const std::int64_t share = ceil_div(launch.k_tiles, launch.split_k) * launch.stage_bytes;
  for (const std::int64_t smaller : {50, 75, 110}) {
    if (smaller < launch.smem_kib && smaller * 1024 >= share)
      return "smem makes as many stages as a smaller one";
  }
  return {};
}

void SkinnyFamily::fill(gpu::LaunchSpace<SkinnyLaunchConfig>& space) const {
  space.add({"bm", {"64", "128"}, "64", "block_m: rows of the weight in a tile"});
  space.add(block_k_parameter(space.problem().x_type, {1, 2, 4}));
  space.add(cluster_split_parameter());
  space.add(pipeline_parameter({"50", "75", "110", "220"}, "110", 16));
  space.add(dependent_parameter());
  space.add(promotion_parameter(space.problem().x_type, {1}));
  space.rule("fits", Rule::build,
             [this](const Problem& problem, const Config& config, const SkinnyLaunchConfig& launch) {
               std::string block_k = refuse_block_k(config, problem.x_type);
               return block_k.empty() ? refuse_build(problem, launch) : block_k;
             });
  space.rule("waste", Rule::search, std::bind_front(&SkinnyFamily::refuse_waste, this));
}

// Enough blocks for one or two per multiprocessor; shared memory of which two blocks fit. Of fp8 the best by the cost model.
Config SkinnyFamily::default_config(const Problem& problem) const {
  const std::int64_t tiles = ceil_div(problem.n, 64) * problem.batch;
  Config config{{"bm", 64}, {"bk", block_k_of(problem.x_type, 1)}};
  std::int64_t split_k = std::clamp<std::int64_t>(limits_.multiprocessors * 3 / 2 / tiles, 1, max_cluster);
  split_k = std::min(split_k, ceil_div(bytes_of(problem.x_type, problem.k), atom_bytes));
  config.set("csk", split_k);
  config.set("smem", std::int64_t{110});
  config.set("pdl", std::int64_t{0});
  if (!accumulates_fewer_bits(problem.x_type)) return config;
  config.set("prom", std::int64_t{1});
  gpu::FastestConfig fastest;
  fastest.consider(config, predicted_microseconds(problem, config));
  for (const std::int64_t atoms : {1, 2, 4}) {
    config.set("bk", block_k_of(problem.x_type, atoms));
    for (const std::int64_t smem_kib : {50, 75, 110}) {
      config.set("smem", smem_kib);
      for (std::int64_t blocks = 1; blocks <= max_cluster; ++blocks) {
        config.set("csk", blocks);
        const SkinnyLaunchConfig launch = launch_config(problem, config);
        if (refuse_build(problem, launch).empty()) fastest.consider(config, cost(problem, launch));
      }
    }
  }
  return fastest.config();
}

std::vector<gpu::Part> SkinnyFamily::parts(const Problem& problem, const SkinnyLaunchConfig& launch) const {
  gpu::Source source{"skinny", source_, gpu::type_defines(problem), "skinny"};
  source.defines.push_back("L2_HINTS=1");
  source.defines.push_back(gpu::config_define(SkinnyConfig{.block_m = as_int(launch.block_m),
                                                           .block_n = as_int(launch.block_n),
                                                           .k_atoms = as_int(launch.k_atoms),
                                                           .promotion = as_int(launch.promotion),
                                                           .packed = is_packed(problem)}));
  return {{std::move(source), launch.shared_bytes}};
}

}  // namespace

std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver) {
  return std::make_unique<SkinnyFamily>(runtime, driver);
}

const gpu::FamilyEntry& skinny_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "skinny",
               .rank = 20,
               .fallback_rank = 20,
               .leads_untuned =
                   [](const Problem& problem, std::string_view architecture) {
                     return leads_few_rows(problem, architecture) == "skinny";
                   },
               .fitted = true},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_skinny_family(context.runtime, driver_of(context));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
