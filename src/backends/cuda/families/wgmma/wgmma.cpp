#include <algorithm>
#include <bit>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/own_families.h"
#include "backends/cuda/families/wgmma/wgmma_arguments.h"
#include "backends/cuda/families/wgmma/wgmma_cost.h"
#include "backends/cuda/families/wgmma/wgmma_launch_config.h"
#include "backends/cuda/tensor_map.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {

GEMMTUNE_FIELDS(WgmmaConfig, block_m, block_n, consumer_warpgroups, ping_pong, swap_ab, split_k, single_tile,
                staging_buffers, whole_staging, multicast, k_atoms, promotion, n_slices, producer_registers,
                consumer_registers, bias, packed, a_mn_major, b_mn_major, last_x);

namespace {

/// multiplier = ⌈2^(32 + shift) / divisor⌉ with 2^shift < divisor ≤ 2^(shift + 1). (Granlund and Montgomery,
/// Division by Invariant Integers using Multiplication, 1994.)
FastDivisor fast_divisor(std::int64_t divisor) {
  FastDivisor made{static_cast<int>(divisor), 0, 0};
  if (divisor <= 1) return made;
  while ((std::int64_t{2} << made.shift) < divisor) ++made.shift;
  const std::uint64_t scaled = std::uint64_t{1} << (31 + made.shift + 1);
  made.multiplier = static_cast<unsigned>((scaled + static_cast<std::uint64_t>(divisor) - 1) /
                                          static_cast<std::uint64_t>(divisor));
  return made;
}

/// Bytes of the weight that a block prefetches into L2 while it waits for the previous kernel.
constexpr std::int64_t prefetch_bytes = 32768;

int narrow(std::int64_t value) { return static_cast<int>(value); }

class WgmmaKernel final : public gpu::JitKernel<WgmmaLaunchConfig> {
 public:
  WgmmaKernel(const CudaDriver& driver, gpu::Programs programs, const Problem& problem,
              const WgmmaLaunchConfig& launch)
      : JitKernel(std::move(programs), problem, launch),
        batches_(traits(problem.operation).batched ? problem.batch : 0),
        element_bytes_(bits(problem.x_type) / 8),
        output_bytes_(bits(problem.y_type) / 8),
        x_(operand_shapes(problem).x),
        w_(operand_shapes(problem).w),
        x_map_(driver.functions(), box_of(x_, launch.x_box_rows, launch.x_sharers())),
        last_x_map_(driver.functions(), launch.has_last_x()
                                            ? box_of(x_, launch.last_x_box_rows, launch.x_sharers())
                                            : MatrixBox{}),
        w_map_(driver.functions(), box_of(w_, launch.weight_box_rows(), launch.weight_sharers())),
        y_map_(driver.functions(), box_of_y(0)),
        y_tail_map_(driver.functions(), box_of_y(launch.tail_columns(output_bytes_))),
        x_scales_map_(driver.functions(),
                      box_of_scales(x_, launch.swap_ab ? launch.block_n : launch.block_m)),
        w_scales_map_(driver.functions(),
                      box_of_scales(w_, WgmmaLaunchConfig::weight_blocks(launch.swap_ab ? launch.block_m
                                                                                        : launch.block_n))) {
    shape_.threads = static_cast<unsigned>(launch.threads());
    hopper_.cluster = static_cast<unsigned>(launch.cluster_size());
    shape_.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
    // Plain launches start early too: their prologue overlaps the previous kernel, before
    // griddepcontrol.wait.
    hopper_.dependent = true;
    shape_.extension = &hopper_;
    // Blocks are persistent: one that does not fit beside the others would start after they have computed all
    // tiles.
    if (const int most = driver.clusters_at_once(programs_[0]->loaded(), shape_);
        most > 0 && launch.split_k == 1 && !launch.single_tile)
      launch_.num_blocks = std::min<std::int64_t>(launch.tiles(), most) * launch.cluster_size();
    shape_.grid[0] = static_cast<unsigned>(launch_.num_blocks);
    group_tiles_ = fast_divisor(launch.group_m * launch.tiles_n);
    group_m_ = fast_divisor(launch.group_m);
    last_group_m_ = fast_divisor(std::max<std::int64_t>(1, launch.tiles_m % launch.group_m));
    batch_tiles_ = fast_divisor(launch.tiles_m * launch.tiles_n);
  }
  WeightLayout weight_layout() const override { return gpu::weight_layout_of(problem_); }

  Status run(const Operands& o, void*, Stream stream) const override {
    WgmmaArguments values{};
    const std::int64_t x_row_bytes = (x_.lines() == 1 ? x_.line_elements() : o.ldx) * element_bytes_;
    const std::int64_t x_batch_bytes = o.x_batch_stride * element_bytes_;
    GEMMTUNE_RETURN_IF_ERROR(
        x_map_.at(o.x, x_row_bytes, x_batch_bytes, launch_.swap_ab ? values.b : values.a));
    if (launch_.has_last_x()) {
      GEMMTUNE_RETURN_IF_ERROR(last_x_map_.at(o.x, x_row_bytes, x_batch_bytes, values.last_x));
      values.last_x_row = narrow((launch_.x_tiles - 1) * launch_.x_rows());
    }
    if (is_packed(problem_)) {
      values.packed = packed_weight(problem_, o.w);
    } else {
      GEMMTUNE_RETURN_IF_ERROR(
          w_map_.at(o.w, w_.line_elements() * element_bytes_, launch_.swap_ab ? values.a : values.b));
    }
    values.use_tma_store = encode_y_maps(o, values) ? 1 : 0;
    values.bias = o.bias;
    values.scales = gpu::scales_of(problem_, o);
    values.scale_groups = narrow(launch_.scale_groups);
    values.x_box_rows = narrow(launch_.x_box_rows);
    values.loaded_bytes = narrow(launch_.loaded_bytes(launch_.x_box_rows));
    values.last_x_box_rows = narrow(launch_.last_x_box_rows);
    values.last_loaded_bytes = narrow(launch_.loaded_bytes(launch_.last_x_box_rows));
    values.scale_maps = launch_.scale_groups > 0 && encode_scale_maps(o, values) ? 1 : 0;
    values.y = o.y;
    values.ldy = o.ldy;
    values.y_batch_step = o.y_batch_stride;
    values.m = narrow(problem_.m);
    values.n = narrow(problem_.n);
    values.k_tiles = narrow(launch_.k_tiles);
    values.num_stages = narrow(launch_.num_stages);
    values.storage_bytes = narrow(launch_.storage_bytes);
    values.log2_cluster_m = std::countr_zero(static_cast<unsigned>(launch_.cluster_m));
    values.log2_cluster_n = std::countr_zero(static_cast<unsigned>(launch_.cluster_n));
    values.empty_arrivals = narrow(launch_.empty_arrivals());
    values.prefetch_k_tiles =
        narrow(prefetch_bytes / (launch_.k_atoms * launch_.weight_box_rows() * atom_bytes));
    values.tiles = narrow(launch_.tiles());
    values.full_groups = narrow(launch_.tiles_m / launch_.group_m);
    values.group_tiles = group_tiles_;
    values.group_m = group_m_;
    values.last_group_m = last_group_m_;
    values.batch_tiles = batch_tiles_;
    values.dependent_launch = launch_.dependent_launch ? 1 : 0;
    return enqueue(0, shape_, values, stream);
  }

 private:
  /// The dense operand, in boxes of `rows` rows x 128 bytes of k; of a column-major one 64 rows x the k of a
  /// swizzle atom that each of `sharers` blocks loads.
  MatrixBox box_of(const MatrixShape& shape, std::int64_t rows, std::int64_t sharers) const {
    const int element_bytes = bits(shape.type) / 8;
    const bool mn_major = shape.order == Order::column_major;
    return {nullptr,
            element_bytes,
            shape.lines(),
            shape.line_elements(),
            shape.line_elements() * element_bytes,
            mn_major ? atom_bytes / element_bytes / sharers : rows,
            0,
            batches_,
            shape.rows * shape.columns * element_bytes};
  }
  /// y, in boxes of `columns` columns; 0: of 128 bytes.
  MatrixBox box_of_y(std::int64_t columns) const {
    return {nullptr,
            output_bytes_,
            problem_.m,
            problem_.n,
            problem_.n * output_bytes_,
            launch_.staged_rows(),
            columns,
            batches_,
            problem_.m * problem_.n * output_bytes_};
  }

  /// Encodes y's tensor maps; false if the epilogue cannot store through TMA, which writes whole units of 16 bytes.
  bool encode_y_maps(const Operands& o, WgmmaArguments& values) const {
    const std::int64_t used_bytes = problem_.n * output_bytes_;
    const std::int64_t row_bytes = problem_.m == 1 ? used_bytes : o.ldy * output_bytes_;
    const std::int64_t batch_bytes = o.y_batch_stride * output_bytes_;
    if (launch_.split_k > 1 || reinterpret_cast<std::uintptr_t>(o.y) % 16 != 0 || row_bytes % 16 != 0 ||
        used_bytes % 16 != 0)
      return false;
    return y_map_.at(o.y, row_bytes, batch_bytes, values.y_map).ok() &&
           (launch_.tail_columns(output_bytes_) == 0 ||
            y_tail_map_.at(o.y, row_bytes, batch_bytes, values.y_tail_map).ok());
  }

  /// Scales of blocks, in boxes of `rows` rows x four of k.
  MatrixBox box_of_scales(const MatrixShape& shape, std::int64_t rows) const {
    if (launch_.scale_groups == 0) return {};
    return {nullptr, 4, shape.scale.rows, shape.scale.columns, shape.scale.columns * 4, rows, 4, 0, 0};
  }

  /// Encodes the maps of scales of blocks; false if TMA cannot read them: bytes, rows or pointers not aligned to 16 bytes.
  bool encode_scale_maps(const Operands& o, WgmmaArguments& values) const {
    const std::int64_t row_bytes = x_.scale.columns * 4;
    return x_.scale.type == ScaleType::f32 && row_bytes % 16 == 0 &&
           x_scales_map_.at(o.x_scale, row_bytes, values.x_scales).ok() &&
           w_scales_map_.at(o.w_scale, row_bytes, values.w_scales).ok();
  }

  std::int64_t batches_;  // of tensor maps with three dimensions; 0: they have two
  int element_bytes_;
  int output_bytes_;
  MatrixShape x_;
  MatrixShape w_;
  MovableMap x_map_;
  MovableMap last_x_map_;
  MovableMap w_map_;
  MovableMap y_map_;
  MovableMap y_tail_map_;
  MovableMap x_scales_map_;
  MovableMap w_scales_map_;
  FastDivisor group_tiles_;
  FastDivisor group_m_;
  FastDivisor last_group_m_;
  FastDivisor batch_tiles_;
  HopperLaunch hopper_;
  gpu::LaunchShape shape_;  // points at hopper_
};

class WgmmaFamily final : public gpu::JitFamily<WgmmaLaunchConfig> {
 public:
  WgmmaFamily(gpu::Runtime& runtime, const CudaDriver& driver)
      : JitFamily(runtime, {.name = "wgmma", .tie_rank = 11, .packed = WeightLayout::tile64x128}),
        driver_(driver),
        limits_(hopper_limits(runtime, driver)),
        cost_(wgmma_cost(limits_)) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override {
    return default_wgmma_config(problem, limits_, cost_);
  }
  Accuracy accuracy(const Problem& problem, const Config& config) const override {
    return hopper_accuracy(problem, config);
  }
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const WgmmaLaunchConfig launch = launch_config(problem, config);
    return hopper_sum_order(problem, launch.k_tiles, launch.k_atoms, launch.split_k, launch.promotion);
  }

 protected:
  WgmmaLaunchConfig launch_config(const Problem& problem, const Config& config) const override {
    return wgmma_launch_config(problem, config, limits_);
  }
  void fill(gpu::LaunchSpace<WgmmaLaunchConfig>& space) const override;
  double cost(const Problem& problem, const WgmmaLaunchConfig& launch) const override {
    return predicted_wgmma(problem, launch, limits_, cost_);
  }
  std::vector<gpu::Part> parts(const Problem& problem, const WgmmaLaunchConfig& launch) const override {
    return {{source_of(problem, launch), launch.shared_bytes}};
  }
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const WgmmaLaunchConfig& launch) const override {
    return std::make_unique<WgmmaKernel>(driver_, std::move(programs), problem, launch);
  }
  std::string device_text() const override { return source_ + wgmma_macros(DataType::bf16, 16); }

 private:
  gpu::Source source_of(const Problem& problem, const WgmmaLaunchConfig& launch) const;

  const CudaDriver& driver_;
  HopperLimits limits_;
  WgmmaCost cost_;
  std::string source_ = gpu::include_line("backends/cuda/families/wgmma/wgmma.cu");
};

Status WgmmaFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_on_tensor_cores(problem, {.weights = gpu::Weights::packed_too,
                                                                  .orders = refusal::Orders::any_input,
                                                                  .row_scales = true,
                                                                  .block_scales = true,
                                                                  .int8 = true,
                                                                  .batches = true}));
  GEMMTUNE_RETURN_IF_ERROR(accepts_transposing(problem));
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_sizes(problem));
  return accepts_alignment(problem);
}

void WgmmaFamily::fill(gpu::LaunchSpace<WgmmaLaunchConfig>& space) const {
  const Problem& of = space.problem();
  space.add(wgmma_parameters(of.x_type));
  if (!all_row_major(of)) space.rule("order", Rule::build, refuse_wgmma_order, {"swap", "bn"});
  space.rule("tile", Rule::build, refuse_wgmma_tile, {"bm", "bn", "wg", "pp"});
  space.rule("tile waste", Rule::search, refuse_wgmma_tile_waste, {"swap", "bm", "bn"});
  space.rule("cluster", Rule::build, refuse_wgmma_cluster, {"bm", "bn", "cm", "cn", "csk"});
  space.rule("fits", Rule::build,
             [this](const Problem& problem, const Config& config, const WgmmaLaunchConfig& launch) {
               std::string block_k = refuse_block_k(config, problem.x_type);
               return block_k.empty() ? refuse_wgmma(launch, limits_) : block_k;
             });
  space.rule("waste", Rule::search, [this](const Problem& problem, const WgmmaLaunchConfig& launch) {
    return refuse_wgmma_waste(problem, launch, limits_);
  });
  refuse_slow(space, 1.4);
  space.rule("smem", Rule::search,
             [this](const Problem& problem, const Config& config, const WgmmaLaunchConfig& launch) {
               return refuse_wgmma_smem(problem, config, launch, limits_);
             });
  const std::int64_t atom_elements = 8 * atom_bytes / bits(of.x_type);
  space.rule(
      "block_k 128", Rule::search,
      [atom_elements](const WgmmaLaunchConfig& launch) -> std::string {
        const bool excluded =
            launch.k_atoms * atom_elements >= 128 && launch.block_m >= 128 && launch.block_n >= 128;
        return excluded ? "a block of 128 x 128 has 128 elements of k a stage" : "";
      },
      {}, false);
  space.add(split_k_divides(of.k, "csk", atom_elements));
  // Of x, whichever operand it is.
  space.add_tune_gemm_rules([atom_elements](const WgmmaLaunchConfig& launch) {
    return TuneGemmConfig{.block_m = launch.swap_ab ? launch.block_n : launch.block_m,
                          .block_n = launch.swap_ab ? launch.block_m : launch.block_n,
                          .block_k = launch.k_atoms * atom_elements,
                          .split_k = launch.split_k};
  });
}

WgmmaConfig config_of(const Problem& problem, const WgmmaLaunchConfig& launch) {
  return {.block_m = narrow(launch.block_m),
          .block_n = narrow(launch.block_n),
          .consumer_warpgroups = narrow(launch.consumer_warpgroups),
          .ping_pong = launch.ping_pong,
          .swap_ab = launch.swap_ab,
          .split_k = narrow(launch.split_k),
          .single_tile = launch.single_tile,
          .staging_buffers = narrow(launch.staging_buffers_at_once),
          .whole_staging = launch.whole_staging,
          .multicast = launch.cluster_m * launch.cluster_n > 1,
          .k_atoms = narrow(launch.k_atoms),
          .promotion = narrow(launch.promotion),
          .n_slices = narrow(launch.n_slices),
          .producer_registers = narrow(launch.producer_registers),
          .consumer_registers = narrow(launch.consumer_registers()),
          .bias = problem.bias,
          .packed = is_packed(problem),
          .a_mn_major = launch.a_mn_major,
          .b_mn_major = launch.b_mn_major,
          .last_x = launch.has_last_x()};
}

gpu::Source WgmmaFamily::source_of(const Problem& problem, const WgmmaLaunchConfig& launch) const {
  gpu::Source source{
      "wgmma",
      wgmma_macros(problem.x_type, launch.block_n / launch.n_slices, {launch.a_mn_major, launch.b_mn_major}) +
          source_,
      gpu::type_defines(problem), "wgmma"};
  source.defines.push_back(fmt::format("L2_HINTS={}", launch.weight_read_once ? 1 : 0));
  source.defines.push_back(gpu::config_define(config_of(problem, launch)));
  return source;
}

}  // namespace

std::unique_ptr<KernelFamily> make_wgmma_family(gpu::Runtime& runtime, const CudaDriver& driver) {
  return std::make_unique<WgmmaFamily>(runtime, driver);
}

const gpu::FamilyEntry& wgmma_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "wgmma",
               .rank = 30,
               .aliases = tunable_aliases,
               .fallback_rank = 30,
               .leads_untuned =
                   [](const Problem& problem, std::string_view architecture) {
                     return leads_few_rows(problem, architecture) == "wgmma";
                   },
               .fitted = true},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_wgmma_family(context.runtime, driver_of(context));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
