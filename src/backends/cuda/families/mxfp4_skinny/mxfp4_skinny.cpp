#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_arguments.h"
#include "backends/cuda/families/own_families.h"
#include "backends/cuda/families/weight_format.h"
#include "backends/cuda/tensor_map.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/fastest_config.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {

GEMMTUNE_FIELDS(Mxfp4SkinnyConfig, warps, units, tail, groups, pieces, split, x_fp4, packed, scale_bytes,
                weight, group, zero_points);

namespace {

constexpr std::int64_t k_of_unit = 64;
constexpr std::int64_t rows_of_strip = 16;
constexpr std::int64_t piece_bytes = 512;      // of 16 rows x 64 of k
constexpr std::int64_t strip_sum_bytes = 512;  // of 16 x 8 sums
constexpr std::int64_t strip_slots = 4;        // for the warps' sums
constexpr std::int64_t max_skinny_rows = 32;   // of x
constexpr std::int64_t max_skinny_warps = 16;
constexpr std::int64_t max_units_of_warp = 10;
constexpr std::int64_t max_pieces = 32;             // of a warp
constexpr std::int64_t x_group_bytes = 1024;        // of eight rows of x, 64 of k
constexpr std::int64_t barrier_bytes = 2048;        // and what aligns x
constexpr std::int64_t max_early_bytes = 32 << 10;  // of a block
constexpr std::int64_t registers_beside_x = 36;     // of a thread, scales and sums left out
constexpr std::int64_t pipeline_kib[] = {16, 24, 32, 48, 64, 96};

/// Strips of 16 rows of the weight, which clusters of `split_k` blocks divide.
struct Mxfp4SkinnyLaunch {
  std::int64_t groups = 1;  // of eight rows of x
  std::int64_t warps = 1;   // that divide a block's k
  std::int64_t warp_units = 1;
  std::int64_t units = 1;  // of 64 of k
  std::int64_t split_k = 1;
  std::int64_t strips = 1;
  std::int64_t clusters = 1;
  std::int64_t pieces = 0;     // in a warp's pipeline
  std::int64_t max_owned = 0;  // strips that a block of a cluster adds
  std::int64_t shared_bytes = 0;
  bool dependent = false;
  WeightTraits weight;

  std::int64_t threads() const { return warps * 32; }
  bool tail() const { return split_k * warps * warp_units != units; }
  std::int64_t cluster_strips() const { return ceil_div(strips, clusters); }
  /// Of a strip's scales and zero points in shared memory; a row's are read where they are needed.
  std::int64_t strip_scale_bytes() const {
    const std::int64_t scales =
        weight.group == 0 && weight.format == WeightFormat::int4 ? 0 : weight.scale_row;
    return rows_of_strip * (scales + (weight.zero_points ? weight.scale_row / 2 : 0));
  }
  /// Of a row and a unit, in registers.
  std::int64_t unit_scale_bytes() const {
    if (weight.format != WeightFormat::int4) return weight.format == WeightFormat::nvfp4 ? 4 : 2;
    if (weight.group == 0) return 0;
    return weight.group < k_of_unit ? 4 : 2;
  }
  /// Of sums.
  std::int64_t sets() const {
    return groups > 2 || (has_whole_groups() && (split_k > 1 || warp_units > 8)) ? 1 : 2;
  }
  /// Of 128 of k: each warp begins with one.
  bool has_whole_groups() const { return weight.group > k_of_unit && warp_units % 2 == 0; }
  /// Of a row and a warp, in registers.
  std::int64_t own_scale_bytes() const {
    return warp_units / (has_whole_groups() ? 2 : 1) * unit_scale_bytes();
  }
  std::int64_t pipeline_bytes() const { return warps * pieces * piece_bytes; }
  /// Of a thread: those of a quarter of a multiprocessor, which its warps share.
  std::int64_t registers() const {
    return std::min<std::int64_t>(255, 512 / ceil_div(warps, std::int64_t{4}) / 8 * 8);
  }
};

Mxfp4SkinnyLaunch mxfp4_skinny_launch(const Problem& problem, const Config& config,
                                      const HopperLimits& limits) {
  Mxfp4SkinnyLaunch launch;
  launch.dependent = is_dependent(config);
  launch.weight = weight_traits(problem);
  launch.groups = config.number("bm", 8) / 8;
  launch.split_k = config.number("csk", 1);
  launch.units = problem.k / k_of_unit;
  launch.warp_units = std::min(config.number("ku", 3), launch.units);
  launch.warps = ceil_div(launch.units, launch.warp_units * launch.split_k);
  launch.strips = problem.n / rows_of_strip;
  launch.clusters = std::clamp<std::int64_t>(limits.clusters_at_once(launch.split_k), 1,
                                             std::max<std::int64_t>(1, launch.strips));
  // Whole strips, or a part of one that divides it, so that a piece's place is known at compile time.
  const std::int64_t most = std::min({config.number("smem", 32) * 1024 / (launch.warps * piece_bytes),
                                      launch.cluster_strips() * launch.warp_units, max_pieces});
  for (launch.pieces = most; launch.pieces > 1; --launch.pieces)
    if (launch.pieces % launch.warp_units == 0 || launch.warp_units % launch.pieces == 0) break;
  const std::int64_t sums = launch.groups * strip_sum_bytes;
  if (launch.split_k > 1) launch.max_owned = ceil_div(launch.cluster_strips(), launch.split_k);
  // Of a warp: its part of x, then its sums.
  const bool fp4 = problem.x_type == DataType::f4_e2m1;
  const std::int64_t x = launch.warp_units * launch.groups * (fp4 ? x_group_bytes / 4 : x_group_bytes);
  const std::int64_t x_scales = fp4 ? launch.groups * 8 * launch.warps * launch.warp_units * 2 : 0;
  const std::int64_t scales = launch.split_k == 1 ? strip_slots * launch.strip_scale_bytes() : 0;
  launch.shared_bytes = barrier_bytes + x_scales + scales + launch.warps * std::max(x, strip_slots * sums) +
                        launch.max_owned * launch.split_k * sums + launch.pipeline_bytes();
  return launch;
}

/// Bytes of a row's scales that a load takes. Those of groups of 128 are loaded one by one if a warp begins within a group.
std::int64_t scale_load_bytes(const Mxfp4SkinnyLaunch& launch) {
  if (launch.weight.group > k_of_unit && !launch.has_whole_groups()) return 2;
  std::int64_t bytes = 16;
  while ((launch.own_scale_bytes() | launch.weight.scale_row) % bytes != 0) bytes /= 2;
  return bytes;
}

class Mxfp4SkinnyKernel final : public gpu::JitKernel<Mxfp4SkinnyLaunch> {
 public:
  Mxfp4SkinnyKernel(const CudaDriver& driver, gpu::Programs programs, const Problem& problem,
                    const Mxfp4SkinnyLaunch& launch)
      : JitKernel(std::move(programs), problem, launch),
        x_map_(driver.functions(), {nullptr, 2, problem.x_type == DataType::bf16 ? problem.m : 0, problem.k,
                                    problem.k * 2, problem.m}) {
    hopper_.cluster = static_cast<unsigned>(launch.split_k);
    // Plain launches start early too: their prologue overlaps the previous kernel, before griddepcontrol.wait.
    hopper_.dependent = true;
    shape_.grid[0] = static_cast<unsigned>(launch.clusters * launch.split_k);
    shape_.threads = static_cast<unsigned>(launch.threads());
    shape_.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
    shape_.extension = &hopper_;
  }
  WeightLayout weight_layout() const override { return gpu::weight_layout_of(problem_); }

  Status run(const Operands& o, void*, Stream stream) const override {
    const std::int64_t ldx = problem_.m == 1 ? problem_.k : o.ldx;
    const std::int64_t x_row = bytes_of(problem_.x_type, ldx);
    GEMMTUNE_RETURN_IF_ERROR(check_alignment(o.x, x_row, {o.w, o.w_scale, o.x_scale, o.w_zero_points}));
    Mxfp4SkinnyArguments values{};
    if (problem_.x_type == DataType::bf16) GEMMTUNE_RETURN_IF_ERROR(x_map_.at(o.x, x_row, values.x_map));
    values.w = static_cast<const unsigned char*>(o.w);
    values.scales = static_cast<const unsigned char*>(o.w_scale);
    values.x = static_cast<const unsigned char*>(o.x);
    values.x_scales = static_cast<const unsigned char*>(o.x_scale);
    values.bias = o.bias;
    values.y = o.y;
    values.x_row = x_row;
    values.y_row = o.ldy;
    values.rows = as_int(problem_.m);
    values.strips = as_int(launch_.strips);
    values.units = as_int(launch_.units);
    values.scale_row = as_int(launch_.weight.scale_row);
    values.split_k = as_int(launch_.split_k);
    values.max_owned = as_int(launch_.max_owned);
    values.dependent_launch = launch_.dependent ? 1 : 0;
    values.prefetch_units =
        as_int(std::min(launch_.warp_units, max_early_bytes / (launch_.warps * piece_bytes)));
    values.format = gpu::format_of(o);
    return enqueue(0, shape_, values, stream);
  }

 private:
  MovableMap x_map_;
  HopperLaunch hopper_;
  gpu::LaunchShape shape_;  // points at hopper_
};

class Mxfp4SkinnyFamily final : public gpu::JitFamily<Mxfp4SkinnyLaunch> {
 public:
  Mxfp4SkinnyFamily(gpu::Runtime& runtime, const CudaDriver& driver, const HopperLimits& limits,
                    const std::optional<Mxfp4SkinnyCost>& cost)
      : JitFamily(
            runtime,
            {.name = "mxfp4_skinny", .tie_rank = 10, .packed = WeightLayout::fragment64, .revision = 2}),
        driver_(driver),
        limits_(limits),
        cost_(cost ? *cost : mxfp4_skinny_cost(limits_)) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;
  /// A warp's part of k has one sum or two in turn, that over the warps of a block two.
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const Mxfp4SkinnyLaunch launch = launch_config(problem, config);
    return fmt::format("mxfp4_skinny {} sums of {} units, {} blocks", launch.sets(), launch.warp_units,
                       launch.split_k);
  }

 protected:
  Mxfp4SkinnyLaunch launch_config(const Problem& problem, const Config& config) const override {
    return mxfp4_skinny_launch(problem, config, limits_);
  }
  void fill(gpu::LaunchSpace<Mxfp4SkinnyLaunch>& space) const override;
  double cost(const Problem& problem, const Mxfp4SkinnyLaunch& launch) const override;
  std::vector<gpu::Part> parts(const Problem& problem, const Mxfp4SkinnyLaunch& launch) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const Mxfp4SkinnyLaunch& launch) const override {
    return std::make_unique<Mxfp4SkinnyKernel>(driver_, std::move(programs), problem, launch);
  }
  std::string device_text() const override { return source_; }

 private:
  std::string refuse_build(const Problem& problem, const Mxfp4SkinnyLaunch& launch) const;
  std::string refuse_waste(const Problem& problem, const Config& config,
                           const Mxfp4SkinnyLaunch& launch) const;

  const CudaDriver& driver_;
  HopperLimits limits_;
  Mxfp4SkinnyCost cost_;
  std::string source_ = gpu::include_line("backends/cuda/families/mxfp4_skinny/mxfp4_skinny.cu");
};

Status Mxfp4SkinnyFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(accepts_weight(problem));
  if (problem.x_type != DataType::bf16 && problem.operation != Operation::a4w4_blockscale)
    return refusal::refuse(refusal::types, "x {} of {}, only bf16, and {} of {}", to_string(problem.x_type),
                           to_string(form_of(problem)), to_string(DataType::f4_e2m1),
                           to_string(Operation::a4w4_blockscale));
  GEMMTUNE_RETURN_IF_ERROR(
      gpu::accepts_dense(problem, {.weights = gpu::Weights::packed_too, .fp4 = true, .all_formats = true}));
  if (problem.m > max_skinny_rows)
    return refusal::refuse(refusal::size, "m = {}, at most {}", problem.m, max_skinny_rows);
  if (problem.k % k_of_unit != 0 || problem.n % rows_of_strip != 0)
    return refusal::refuse(refusal::alignment, "n = {}, k = {}, no multiples of {} and {}", problem.n,
                           problem.k, rows_of_strip, k_of_unit);
  GEMMTUNE_RETURN_IF_ERROR(accepts_addresses(problem));
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (problem.n > most || problem.k > most || default_config(problem).text().empty())
    return refusal::refuse(refusal::size, "{} x {}: a warp's part of x does not fit into registers",
                           problem.n, problem.k);
  return {};
}

/// What int4 weights take beside their scales, zero points and sums: so many that kernels at the limit do not spill.
std::int64_t registers_of_int4(const Mxfp4SkinnyLaunch& launch, bool packed) {
  if (launch.weight.format != WeightFormat::int4) return 0;
  std::int64_t registers = (packed ? 0 : 8) + (launch.weight.zero_points ? 16 : 0);
  if (launch.weight.is_grouped() && !launch.has_whole_groups())
    registers += 8 + 9 * std::max<std::int64_t>(0, launch.warp_units - 5);
  // A warp that begins within a group of 128 loads its scales one by one.
  if (launch.weight.group > k_of_unit && !launch.has_whole_groups() && launch.groups == 2) registers += 8;
  if (launch.weight.is_grouped() && launch.groups > 2) registers += 24;
  if (launch.has_whole_groups()) registers += 5 * std::max<std::int64_t>(0, launch.warp_units - 6);
  if (launch.has_whole_groups() && launch.split_k > 1 && launch.pieces < launch.warp_units) registers += 10;
  return registers;
}

std::string Mxfp4SkinnyFamily::refuse_build(const Problem& problem, const Mxfp4SkinnyLaunch& launch) const {
  if (launch.warps > max_skinny_warps) return "ku makes more than 16 warps";
  if ((launch.split_k - 1) * launch.warps * launch.warp_units >= launch.units)
    return "csk leaves a block without k";
  if (problem.m > 16 && launch.split_k > 2) return "csk 4 takes longer than mxfp4 with more than 16 rows";
  if (problem.m > launch.groups * 8) return "bm is less than the rows of x";
  if (launch.groups * 8 >= round_up(problem.m, std::int64_t{8}) + 8) return "bm leaves eight rows empty";
  const std::int64_t sums = launch.groups * launch.sets() * 4;
  const std::int64_t zero_words =
      launch.weight.zero_points ? ceil_div(launch.own_scale_bytes() / 2, std::int64_t{4}) : 0;
  const std::int64_t held = launch.warp_units * launch.groups * 8 +
                            (ceil_div(launch.own_scale_bytes(), std::int64_t{4}) + zero_words) * 4 +
                            sums * (launch.weight.is_grouped() ? 2 : 1);
  if (held + registers_beside_x + registers_of_int4(launch, is_packed(problem)) > launch.registers())
    return "more of x than registers";
  if (launch.pieces < 1) return "smem holds no piece for each warp";
  if (launch.shared_bytes > static_cast<std::int64_t>(limits_.shared_bytes_per_block))
    return "more partial sums than shared memory";
  return {};
}

std::string Mxfp4SkinnyFamily::refuse_waste(const Problem& problem, const Config& config,
                                            const Mxfp4SkinnyLaunch& launch) const {
  if (launch.warps < 8 && launch.warp_units > 1)
    return "ku leaves most of a multiprocessor's warps without k";
  if (launch.pieces == 1 && launch.cluster_strips() * launch.warp_units > 1) return "smem holds one piece";
  Config smaller = config;
  for (const std::int64_t kib : pipeline_kib) {
    if (kib >= config.number("smem")) break;
    smaller.set("smem", kib);
    if (mxfp4_skinny_launch(problem, smaller, limits_).pieces == launch.pieces)
      return "smem makes as many pieces as a smaller one";
  }
  return {};
}

void Mxfp4SkinnyFamily::fill(gpu::LaunchSpace<Mxfp4SkinnyLaunch>& space) const {
  space.add({"bm", {"8", "16", "24", "32"}, "8", "block_m: rows of x, all of them"});
  Parameter units{"ku", {}, "3", "units of 64 of k that a warp has"};
  for (std::int64_t i = 1; i <= max_units_of_warp; ++i) units.values.push_back(std::to_string(i));
  space.add(std::move(units));
  space.add({"csk", {"1", "2", "4"}, "1", "split-K within the cluster: blocks that divide k"});
  Parameter smem{
      "smem", {}, "32", "KiB of shared memory, which the warps' pipelines fill", NumberRange{4, 227}};
  for (const std::int64_t kib : pipeline_kib) smem.values.push_back(std::to_string(kib));
  space.add(std::move(smem));
  space.add(dependent_parameter());
  space.rule("fits", Rule::build, std::bind_front(&Mxfp4SkinnyFamily::refuse_build, this));
  space.rule("waste", Rule::search, std::bind_front(&Mxfp4SkinnyFamily::refuse_waste, this));
  refuse_slow(space, 2);
}

/// The config that the cost model prefers; empty if none fits.
Config Mxfp4SkinnyFamily::default_config(const Problem& problem) const {
  gpu::FastestConfig fastest;
  Config config;
  config.set("bm", std::clamp<std::int64_t>(round_up(problem.m, std::int64_t{8}), 8, max_skinny_rows));
  for (std::int64_t units = 1; units <= max_units_of_warp; ++units) {
    for (const std::int64_t csk : {1, 2, 4}) {
      for (const std::int64_t kib : pipeline_kib) {
        config.set("ku", units);
        config.set("csk", csk);
        config.set("smem", kib);
        config.set("pdl", std::int64_t{0});
        const Mxfp4SkinnyLaunch launch = launch_config(problem, config);
        if (refuse_build(problem, launch).empty()) fastest.consider(config, cost(problem, launch));
      }
    }
  }
  return fastest.config();
}

std::vector<gpu::Part> Mxfp4SkinnyFamily::parts(const Problem& problem,
                                                const Mxfp4SkinnyLaunch& launch) const {
  gpu::Source source{"mxfp4_skinny",
                     source_,
                     {fmt::format("ELEMENT={}", gpu::element_code(DataType::bf16)),
                      fmt::format("OUTPUT={}", gpu::element_code(problem.y_type)), "L2_HINTS=1",
                      gpu::config_define(Mxfp4SkinnyConfig{.warps = as_int(launch.warps),
                                                           .units = as_int(launch.warp_units),
                                                           .tail = launch.tail(),
                                                           .groups = as_int(launch.groups),
                                                           .pieces = as_int(launch.pieces),
                                                           .split = launch.split_k > 1,
                                                           .x_fp4 = problem.x_type == DataType::f4_e2m1,
                                                           .packed = is_packed(problem),
                                                           .scale_bytes = as_int(scale_load_bytes(launch)),
                                                           .weight = launch.weight.format,
                                                           .group = as_int(launch.weight.group),
                                                           .zero_points = launch.weight.zero_points})},
                     "mxfp4_skinny"};
  return {{std::move(source), launch.shared_bytes}};
}

/// In microseconds; meant to rank kernels, not to state their time. Bytes under way beyond what memory needs cost time: the first ones arrive later.
double Mxfp4SkinnyFamily::cost(const Problem& problem, const Mxfp4SkinnyLaunch& launch) const {
  const bool split = launch.split_k > 1;
  const double groups = as_real(launch.groups);
  const double units = as_real(launch.warp_units);
  const double strips = as_real(launch.cluster_strips());
  // In clusters lanes load scales.
  const double scale_loads =
      split ? as_real(launch.own_scale_bytes()) / as_real(scale_load_bytes(launch)) : 0;
  // Of a strip: a warp by itself, and the issue slots of all.
  // Cycles of a fragment beside those of MXFP4: counted for factors of e4m3 and for sums of groups in place of factors, fitted for sums of whole groups.
  const double more = launch.weight.format == WeightFormat::nvfp4  ? (is_packed(problem) ? 6 : 1)
                      : launch.weight.format != WeightFormat::int4 ? 0
                      : launch.has_whole_groups()                  ? -4 - 2 * groups
                      : launch.weight.is_grouped()                 ? 2 * groups - 6
                                                                   : -6;
  const double alone = units * (cost_.unit + 4 * more + cost_.unit_group * groups) + cost_.strip +
                       cost_.scale_load * scale_loads;
  const double shared =
      (units * 4 * (cost_.issued_unit + more + cost_.issued_unit_group * groups) + cost_.issued_strip) *
      as_real(ceil_div(launch.warps, std::int64_t{4}));
  const double busy = strips * std::max(alone, shared) / cost_.clock;
  const double bytes =
      as_real(problem.n) * (as_real(problem.k) * 0.5 + launch.weight.scale_bytes(as_real(problem.k)));
  const double under_way = as_real(launch.pipeline_bytes());
  const double blocks = as_real(launch.clusters * launch.split_k);
  const double loaded = bytes / std::min<double>(cost_.from_memory, blocks * under_way / cost_.latency);
  // Decoding MXFP4 takes longer than loading bf16.
  const double x = groups * 16 * as_real(problem.k) / as_real(launch.split_k) /
                   (problem.x_type == DataType::bf16 ? cost_.x_bytes : cost_.fp4_x_bytes);
  const double less_than_a_strip = launch.pieces < launch.warp_units ? cost_.piece * strips : 0;
  return (is_packed(problem) ? cost_.launched_packed : cost_.launched) + std::max(busy, loaded) + x +
         under_way / cost_.under_way + less_than_a_strip +
         (split ? cost_.exchanged * as_real(launch.split_k) : 0);
}

}  // namespace

std::unique_ptr<KernelFamily> make_mxfp4_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver,
                                                       const HopperLimits& limits,
                                                       const std::optional<Mxfp4SkinnyCost>& cost) {
  return std::make_unique<Mxfp4SkinnyFamily>(runtime, driver, limits, cost);
}

const gpu::FamilyEntry& mxfp4_skinny_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mxfp4_skinny", .rank = 34, .aliases = tunable_aliases, .fallback_rank = 33},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_mxfp4_skinny_family(context.runtime, driver_of(context),
                                        hopper_limits(context.runtime, driver_of(context)));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
