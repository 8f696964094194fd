#include <algorithm>
#include <functional>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/mxfp4/mxfp4_activations_arguments.h"
#include "backends/cuda/families/mxfp4/mxfp4_arguments.h"
#include "backends/cuda/families/own_families.h"
#include "backends/cuda/families/weight_format.h"
#include "backends/cuda/families/wgmma/wgmma_launch_config.h"
#include "backends/cuda/tensor_map.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/fastest_config.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/refusal.h"
#include "base/rounding.h"

namespace gemmtune::cuda {

GEMMTUNE_FIELDS(Mxfp4Config, warpgroups, tiles, block_n, together, k_atoms, wide, send, mma, row_scales,
                x_fp4, rows_per_y, persistent, packed, weight, group, zero_points, rescaled, scaled, stream);

namespace {

constexpr std::int64_t k_of_atom = 64;                  // elements of k in 128 bytes of x
constexpr std::int64_t max_weight_prefetch = 32 << 10;  // bytes of a block
constexpr std::int64_t max_exchange = 36 << 10;  // bytes: larger tiles read the other blocks' partial sums
constexpr std::int64_t max_fp4_stages = 32;
constexpr std::int64_t row_tiles[] = {8,   16,  32,  48,  64,  80,  96,  112, 128,
                                      144, 160, 176, 192, 208, 224, 240, 256};  // block_n
constexpr std::int64_t max_fp4_sums = 128;                                      // of a thread
// Of three warp groups, which take no registers; plain weights and other formats than MXFP4 take more to decode.
constexpr std::int64_t max_sums_of_three = 64;
constexpr std::int64_t max_sums_of_three_others = 56;
constexpr std::int64_t max_scaled_zero_points_of_three = 40;
constexpr std::int64_t max_plain_groups = 96;  // of two tiles a warp group, groups and a plain weight
constexpr std::int64_t max_plain_others_of_three = 32;  // of groups or zero points and a plain weight
constexpr std::int64_t max_streamed_zero_points = 120;  // of one tile a warp group, and stream-K
constexpr std::int64_t max_persistent_plain = 96;       // of two tiles of 64 rows and a plain weight
constexpr std::int64_t max_x_tiles = 65535;
constexpr std::int64_t workspace_alignment = 256;  // bytes
constexpr std::int64_t max_x_in_turn = 16 << 20;   // bytes

/// Activations that are not bf16 become that in the workspace, exactly.
bool widens_activations(const Problem& problem) { return problem.x_type != DataType::bf16; }
/// Rows of bf16 for a row of x: an fp16 element is the sum of two.
std::int64_t wide_rows(const Problem& problem) { return problem.x_type == DataType::f16 ? 2 : 1; }
bool is_nvfp4_x(const Problem& problem) { return quantization(problem) == QuantType::per_1x16; }
/// Whether y's rows have scales, which the epilogue applies: of NVFP4 x the same one.
bool scales_rows(const Problem& problem) {
  return quantization(problem) == QuantType::per_token || is_nvfp4_x(problem);
}

/// Whether the smallest tiles that may be divided between blocks, of more than 64 sums a thread, fill a wave of the multiprocessors.
bool may_stream(const Problem& problem, const gpu::Limits& limits) {
  const std::int64_t rows = problem.m * wide_rows(problem);
  return limits.cooperative_launches && rows > 64 &&
         ceil_div(problem.n, std::int64_t{128}) * ceil_div(rows, std::int64_t{80}) > limits.multiprocessors;
}

/// Tiles, shared memory and grid of a config.
struct Mxfp4LaunchConfig {
  std::int64_t warpgroups = 1;  // of consumers
  std::int64_t block_m = 64;    // rows of the weight
  std::int64_t block_n = 8;     // rows of x, as bf16
  std::int64_t rows_per_y = 1;  // of these for one of y
  std::int64_t k_atoms = 2;
  std::int64_t split_k = 1;
  bool packed = false;  // the weight
  WeightTraits weight;
  bool warp_instructions = false;  // mma.sync instead of wgmma
  bool scaled = false;             // elements of int4, by their group's scale
  bool stream = false;             // blocks divide the tiles behind whole waves
  bool dependent_launch = false;
  std::int64_t num_stages = 0;
  std::int64_t k_tiles = 1;
  std::int64_t stage_bytes = 0;
  std::int64_t storage_bytes = 0;
  std::int64_t exchange_bytes = 0;
  std::int64_t shared_bytes = 0;
  std::int64_t w_tiles = 1;  // of block_m
  std::int64_t x_tiles = 1;  // of block_n
  std::int64_t blocks_per_sm = 1;
  std::int64_t prefetch_blocks = 0;
  std::int64_t smem_kib = 110;
  std::int64_t processors = 1;

  std::int64_t tiles() const { return block_m / (64 * warpgroups); }  // of 64 rows, of a warp group
  /// Sums are in units of the latest group's scale, where a group's own would not fit into registers.
  bool rescales() const {
    return weight.is_grouped() && weight.group == 128 && packed && !warp_instructions && !scaled &&
           tiles() * block_n > 128;
  }
  /// A group's sums have registers of their own.
  bool adds_groups() const { return weight.is_grouped() && !rescales() && !scaled; }
  /// Of a thread, those of a group counted too.
  std::int64_t accumulators() const { return tiles() * block_n / 2 * (adds_groups() ? 2 : 1); }
  /// The consumers take registers from the producer.
  bool wide() const { return warpgroups == 2 && accumulators() > 64 && !warp_instructions; }
  std::int64_t threads() const { return 128 * warpgroups + (wide() ? 128 : 32); }
  /// Fragments of 16 of k are multiplied several together. With one tile and many columns single ones, of which two are under way, are as fast; a plain weight leaves
  /// three warp groups fewer registers.
  bool together() const { return tiles() > 1 || block_n <= (warpgroups == 3 && !packed ? 80 : 96); }
  /// A block computes several tiles; their rows of y leave through shared memory of their own.
  bool persistent() const {
    const std::int64_t most = packed || tiles() == 1 ? max_fp4_sums : max_persistent_plain;
    return split_k == 1 && !warp_instructions && rows_per_y == 1 && block_n >= 32 && accumulators() <= most;
  }
  /// Blocks of a cluster send each other their partial sums.
  bool sends() const { return y_rows() * block_m * 4 <= max_exchange; }
  std::int64_t y_rows() const { return block_n / rows_per_y; }
  /// Of the weight, before it may be read: an eighth of the block's share.
  std::int64_t prefetch_k_tiles() const {
    const std::int64_t k_tile_bytes = k_atoms * block_m * k_of_atom / 2;
    const std::int64_t share = ceil_div(k_tiles, split_k) * k_tile_bytes;
    return std::min(share / 8, max_weight_prefetch) / k_tile_bytes;
  }
  /// Tiles of x that stay in L2 while all blocks go through the weight.
  std::int64_t x_tiles_in_turn(std::int64_t k) const {
    return std::clamp<std::int64_t>(max_x_in_turn / (block_n * k * 2), 1, x_tiles);
  }
  std::int64_t blocks() const { return w_tiles * x_tiles * split_k; }
  /// Of stream-K, which has a block a multiprocessor: tiles of whole waves, and those behind them that blocks divide, the last whole wave among them: of these a block has more than
  /// the k of a tile, so that of no tile more than two blocks have a part.
  std::int64_t whole_tiles() const { return (blocks() / processors - 1) * processors; }
  std::int64_t tail_k_tiles() const { return (blocks() - whole_tiles()) * k_tiles; }
  /// In the workspace.
  std::int64_t partials_bytes() const { return stream ? processors * block_m * block_n * 4 : 0; }
  std::int64_t arrived_bytes() const {
    return stream ? round_up((grid_barrier_words(processors) + processors) * 4, workspace_alignment) : 0;
  }
  std::int64_t max_accumulators() const {
    if (stream && tiles() == 1 && weight.zero_points && !scaled) return max_streamed_zero_points;
    if (warpgroups < 3)
      return weight.is_grouped() && !packed && tiles() > 1 ? max_plain_groups : max_fp4_sums;
    if (scaled && weight.zero_points) return max_scaled_zero_points_of_three;
    if (packed && (weight.format == WeightFormat::mxfp4 || scaled)) return max_sums_of_three;
    return !packed && (weight.is_grouped() || weight.zero_points) ? max_plain_others_of_three
                                                                  : max_sums_of_three_others;
  }
};

Mxfp4LaunchConfig mxfp4_launch_config(const Problem& problem, const Config& config,
                                      const gpu::Limits& limits) {
  Mxfp4LaunchConfig launch;
  launch.warpgroups = config.number("wg", 1);
  launch.block_m = config.number("bm", 64);
  launch.block_n = config.number("bn", 8);
  launch.rows_per_y = wide_rows(problem);
  launch.packed = is_packed(problem);
  launch.weight = weight_traits(problem);
  launch.k_atoms = config.number("bk", 128) / k_of_atom;
  launch.split_k = config.number("csk", 1);
  launch.warp_instructions = config.number("mma", 0) != 0;
  launch.scaled = config.number("scaled", 0) != 0;
  launch.stream = config.number("stream", 0) != 0;
  launch.processors = std::max(limits.multiprocessors, 1);
  launch.dependent_launch = is_dependent(config);
  launch.smem_kib = config.number("smem", 110);
  launch.k_tiles = ceil_div(problem.k, k_of_atom * launch.k_atoms);
  launch.w_tiles = ceil_div(problem.n, launch.block_m);
  launch.x_tiles = ceil_div(problem.m, launch.y_rows());
  launch.stage_bytes = launch.k_atoms * (launch.block_m * k_of_atom / 2 + launch.block_n * atom_bytes);
  const std::int64_t partials = launch.y_rows() * (launch.block_m + 4) * 4;
  if (launch.split_k > 1 && launch.sends())
    launch.exchange_bytes =
        launch.split_k * ceil_div(launch.y_rows() * launch.block_m / 4, launch.split_k) * 16;
  if (launch.persistent()) launch.exchange_bytes = launch.warpgroups * 32 * 128;
  const std::int64_t fixed = shared_reserve + launch.exchange_bytes;
  const std::int64_t most = static_cast<std::int64_t>(limits.shared_bytes_per_block) - fixed;
  const std::int64_t wanted = std::min(launch.smem_kib * 1024 - fixed, most);
  launch.num_stages = std::min({wanted / std::max<std::int64_t>(launch.stage_bytes, 1),
                                ceil_div(launch.k_tiles, launch.split_k), max_fp4_stages});
  launch.storage_bytes =
      round_up(std::max(launch.num_stages * launch.stage_bytes, launch.persistent() ? 0 : partials), 16);
  launch.shared_bytes = launch.storage_bytes + fixed;
  const std::int64_t by_memory =
      static_cast<std::int64_t>(limits.shared_bytes_per_multiprocessor) / (launch.shared_bytes + 1024);
  const std::int64_t by_registers = 65536 / (launch.threads() * (launch.accumulators() + 90));
  launch.blocks_per_sm = std::clamp<std::int64_t>(std::min(by_memory, by_registers), 1, 12);
  launch.prefetch_blocks = limits.multiprocessors * launch.blocks_per_sm;
  return launch;
}

std::string widening_text() { return gpu::include_line("backends/cuda/families/mxfp4/mxfp4_activations.cu"); }

class Mxfp4Kernel final : public gpu::JitKernel<Mxfp4LaunchConfig> {
 public:
  /// `programs`: the second one widens activations that are not bf16.
  Mxfp4Kernel(const CudaDriver& driver, gpu::Programs programs, const Problem& problem,
              const Mxfp4LaunchConfig& launch)
      : JitKernel(std::move(programs), problem, launch),
        w_map_(driver.functions(), {nullptr, 1, problem.n, problem.k / 2, problem.k / 2, launch.block_m}),
        x_map_(driver.functions(),
               {nullptr, 2, problem.m * launch.rows_per_y, problem.k, problem.k * 2, launch.block_n}) {
    shape_.threads = static_cast<unsigned>(launch.threads());
    shape_.grid[0] = static_cast<unsigned>(
        launch.persistent() ? std::min(launch.w_tiles * launch.x_tiles, launch.prefetch_blocks)
                            : launch.w_tiles * launch.split_k);
    shape_.grid[1] = launch.persistent() ? 1U : static_cast<unsigned>(launch.x_tiles);
    hopper_.cluster = static_cast<unsigned>(launch.split_k);
    shape_.shared_bytes = static_cast<std::size_t>(launch.shared_bytes);
    hopper_.cooperative = launch.stream;
    // Plain launches start early too: their prologue overlaps the previous kernel, before griddepcontrol.wait.
    hopper_.dependent = true;
    shape_.extension = &hopper_;
    widening_hopper_.dependent = true;
    const std::int64_t units = problem.m * (bytes_of(problem.x_type, problem.k) / 16);
    widening_shape_.threads = 256;
    widening_shape_.grid[0] = static_cast<unsigned>(ceil_div(units, std::int64_t{256}));
    widening_shape_.extension = &widening_hopper_;
  }
  /// The activations as bf16, and what blocks that divide a tile exchange.
  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(wide_bytes() + launch_.arrived_bytes() + launch_.partials_bytes());
  }
  WeightLayout weight_layout() const override { return gpu::weight_layout_of(problem_); }

  Status run(const Operands& o, void* workspace, Stream stream) const override {
    Mxfp4Arguments values{};
    const std::int64_t ldx = problem_.m == 1 ? problem_.k : o.ldx;
    if (is_packed(problem_)) {
      values.fragments = static_cast<const unsigned char*>(o.w);
    } else {
      GEMMTUNE_RETURN_IF_ERROR(w_map_.at(o.w, problem_.k / 2, values.w));
    }
    if (widens()) {
      GEMMTUNE_RETURN_IF_ERROR(x_map_.at(workspace, problem_.k * 2, values.x));
      GEMMTUNE_RETURN_IF_ERROR(widen(o, bytes_of(problem_.x_type, ldx), workspace, stream));
    } else {
      GEMMTUNE_RETURN_IF_ERROR(x_map_.at(o.x, ldx * 2, values.x));
    }
    if (is_nvfp4_x(problem_)) {
      values.x_scales = static_cast<const float*>(o.x_global_scale);
    } else if (scales_rows(problem_)) {
      const gpu::ScalesArguments scales = gpu::scales_of(problem_, o);
      values.x_scales = scales.x;
      values.x_scale_step = static_cast<int>(scales.x_row_step);
    }
    const Fragment64 fragments = gpu::fragments_of(problem_);
    values.scales = static_cast<const unsigned char*>(o.w_scale);
    values.bias = o.bias;
    values.y = o.y;
    values.ldy = o.ldy;
    values.m = static_cast<int>(problem_.m);
    values.n = static_cast<int>(problem_.n);
    values.w_tiles = static_cast<int>(fragments.tiles());
    values.k_atoms = static_cast<int>(fragments.k_tiles());
    values.scale_row = static_cast<int>(launch_.weight.scale_row);
    values.format = gpu::format_of(o);
    const std::uintptr_t together =
        static_cast<std::uintptr_t>(values.scale_row) | reinterpret_cast<std::uintptr_t>(o.w_scale);
    values.scale_alignment = together % 4 == 0 ? 4 : together % 2 == 0 ? 2 : 1;
    values.num_stages = static_cast<int>(launch_.num_stages);
    values.split_k = static_cast<int>(launch_.split_k);
    values.k_tiles = static_cast<int>(launch_.k_tiles / launch_.split_k);
    values.extra_k_tiles = static_cast<int>(launch_.k_tiles % launch_.split_k);
    values.dependent_launch = launch_.dependent_launch ? 1 : 0;
    values.storage_bytes = static_cast<int>(launch_.storage_bytes);
    values.prefetch_k_tiles = static_cast<int>(launch_.prefetch_k_tiles());
    values.prefetch_blocks = static_cast<int>(launch_.prefetch_blocks);
    values.exchange_bytes = static_cast<int>(launch_.exchange_bytes);
    values.tiles = static_cast<int>(launch_.w_tiles * launch_.x_tiles);
    values.w_blocks = static_cast<int>(launch_.w_tiles);
    values.x_tiles = static_cast<int>(launch_.x_tiles);
    values.x_tiles_in_turn = static_cast<int>(launch_.x_tiles_in_turn(problem_.k));
    if (launch_.stream) {
      char* const arrived = static_cast<char*>(workspace) + wide_bytes();
      values.whole_tiles = static_cast<int>(launch_.whole_tiles());
      values.tail_k_tiles = static_cast<int>(launch_.tail_k_tiles() / launch_.processors);
      values.extra_tail = static_cast<int>(launch_.tail_k_tiles() % launch_.processors);
      values.arrived = reinterpret_cast<unsigned*>(arrived);
      values.barrier = values.arrived + launch_.processors;
      values.partials = reinterpret_cast<float*>(arrived + launch_.arrived_bytes());
    }
    return enqueue(0, shape_, values, stream);
  }

 private:
  bool widens() const { return programs_.size() > 1; }
  std::int64_t wide_bytes() const {
    return widens() ? round_up(problem_.m * launch_.rows_per_y * problem_.k * 2, workspace_alignment) : 0;
  }
  /// Activations as bf16 into the workspace.
  Status widen(const Operands& o, std::int64_t row_bytes, void* to, Stream stream) const {
    Mxfp4ActivationsArguments values{};
    values.x = static_cast<const unsigned char*>(o.x);
    values.scales = static_cast<const unsigned char*>(o.x_scale);
    values.to = static_cast<unsigned short*>(to);
    values.row_bytes = row_bytes;
    values.m = static_cast<int>(problem_.m);
    values.k = static_cast<int>(problem_.k);
    values.aligned =
        (static_cast<std::uintptr_t>(row_bytes) | reinterpret_cast<std::uintptr_t>(o.x)) % 16 == 0;
    return enqueue(1, widening_shape_, values, stream);
  }

  MovableMap w_map_;
  MovableMap x_map_;
  HopperLaunch hopper_;
  gpu::LaunchShape shape_;  // points at hopper_
  HopperLaunch widening_hopper_;
  gpu::LaunchShape widening_shape_;  // points at widening_hopper_
};

class Mxfp4Family final : public gpu::JitFamily<Mxfp4LaunchConfig> {
 public:
  Mxfp4Family(gpu::Runtime& runtime, const CudaDriver& driver, const std::optional<Mxfp4Cost>& cost)
      : JitFamily(runtime, {.name = "mxfp4", .tie_rank = 12, .packed = WeightLayout::fragment64}),
        driver_(driver),
        limits_(hopper_limits(runtime, driver)),
        cost_(cost ? *cost : mxfp4_cost(limits_)) {}

  Status accepts(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;
  Accuracy accuracy(const Problem&, const Config& config) const override {
    return config.number("scaled", 0) != 0 ? Accuracy::tensor_core : Accuracy::fp32;
  }
  /// An instruction for each 16 of k in the order of k, of a warp group or of a warp; with one tile a warp's odd ones have sums of their own.
  /// No promise with stream-K: which tiles are divided, and where, depends on M.
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const Mxfp4LaunchConfig launch = launch_config(problem, config);
    if (launch.stream) return {};
    const char* const instructions = launch.rescales()           ? "wgmma, rescaled"
                                     : launch.scaled             ? "wgmma, scaled"
                                     : !launch.warp_instructions ? "wgmma"
                                     : launch.tiles() == 1       ? "mma, even and odd"
                                                                 : "mma";
    return fmt::format(
        "mxfp4 {} to {}", instructions,
        ends_of_splits(ceil_div(problem.k, k_of_atom), launch.k_tiles, launch.k_atoms, launch.split_k));
  }

 protected:
  Mxfp4LaunchConfig launch_config(const Problem& problem, const Config& config) const override {
    return mxfp4_launch_config(problem, config, limits_);
  }
  void fill(gpu::LaunchSpace<Mxfp4LaunchConfig>& space) const override;
  double cost(const Problem& problem, const Mxfp4LaunchConfig& launch) const override;
  std::vector<gpu::Part> parts(const Problem& problem, const Mxfp4LaunchConfig& launch) const override;
  Result<std::unique_ptr<Kernel>> make_kernel(gpu::Programs programs, const Problem& problem,
                                              const Mxfp4LaunchConfig& launch) const override {
    return std::make_unique<Mxfp4Kernel>(driver_, std::move(programs), problem, launch);
  }
  std::string device_text() const override {
    return source_ + wgmma_of_registers_macros(8) + widening_text();
  }

 private:
  std::string refuse_build(const Problem& problem, const Mxfp4LaunchConfig& launch) const;
  std::string refuse_waste(const Problem& problem, const Mxfp4LaunchConfig& launch) const;

  const CudaDriver& driver_;
  HopperLimits limits_;
  Mxfp4Cost cost_;
  std::string source_ = gpu::include_line("backends/cuda/families/mxfp4/mxfp4.cu");
};

Status Mxfp4Family::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(accepts_weight(problem));
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_dense(problem, {.weights = gpu::Weights::packed_too,
                                                        .row_scales = true,
                                                        .int8 = true,
                                                        .fp4 = true,
                                                        .all_formats = true}));
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (problem.m > 8 * max_x_tiles || problem.n > most || problem.k > most)
    return refusal::refuse(refusal::size, "{} x {} x {}, at most {} x {} x {}", problem.m, problem.n,
                           problem.k, 8 * max_x_tiles, most, most);
  return accepts_alignment(problem);
}

std::string Mxfp4Family::refuse_build(const Problem& problem, const Mxfp4LaunchConfig& launch) const {
  if (launch.block_m % (64 * launch.warpgroups) != 0 || launch.tiles() > 2)
    return "bm is not one or two times 64 rows for each warp group";
  if (launch.accumulators() > launch.max_accumulators()) return "tile needs more registers than a thread has";
  if (launch.weight.zero_points && launch.tiles() > 1 && launch.k_atoms > 2 && !launch.warp_instructions)
    return "zero points of two tiles and bk 256: the compiler spills registers";
  if (launch.weight.zero_points && launch.tiles() > 1 && launch.scaled && launch.weight.group < 128)
    return "zero points of groups below 128, two tiles and scaled 1: the compiler spills registers";
  if (!is_packed(problem) && launch.k_atoms != 4) return "bk is not 256, which a plain weight needs";
  if (launch.k_atoms == 8 && !launch.warp_instructions) return "bk 512 is for mma 1";
  if (launch.warp_instructions && launch.block_n > 32) return "mma 1 is for few rows of x";
  if (launch.scaled && launch.warp_instructions) return "scaled is for mma 0";
  if (launch.split_k > launch.k_tiles) return "csk is more than the k tiles";
  if (launch.num_stages < std::min<std::int64_t>(2, ceil_div(launch.k_tiles, launch.split_k)))
    return "smem holds less than two stages";
  if (launch.stream) {
    if (!launch.wide() || !launch.persistent())
      return "stream is for wg 2, csk 1 and more than 64 sums a thread";
    if (launch.blocks() < launch.processors || launch.blocks() % launch.processors == 0)
      return "stream divides the tiles behind whole waves: there are none";
    if (launch.weight.format == WeightFormat::int4 && launch.weight.group == 0)
      return "stream and scales of rows: the compiler spills registers";
    if (!limits_.cooperative_launches) return "stream needs cooperative launches";
  }
  if (launch.x_tiles > max_x_tiles) return "bn makes too many tiles";
  if (launch.shared_bytes > static_cast<std::int64_t>(limits_.shared_bytes_per_block))
    return "smem is more shared memory than a block may have";
  return {};
}

std::string Mxfp4Family::refuse_waste(const Problem& problem, const Mxfp4LaunchConfig& launch) const {
  const std::int64_t processors = limits_.multiprocessors;
  const std::int64_t rows = problem.m * launch.rows_per_y;
  if (launch.block_m > 64 && problem.n <= launch.block_m / 2) return "bm is more than twice the rows of w";
  for (const std::int64_t narrower : row_tiles)
    if (narrower < launch.block_n && ceil_div(rows, narrower) == launch.x_tiles)
      return "bn makes as many tiles as a narrower one";
  if (launch.scaled && rows <= max_exact_rows) return "scaled is for many rows";
  if (launch.stream && launch.blocks() % processors * 32 > processors * 31)
    return "stream gains nothing in a full wave";
  if (launch.warpgroups == 3 && launch.block_n < 64) return "wg 3 is for many rows";
  if (launch.block_n < 64 && rows > launch.block_n) return "bn reads the weight too often";
  if (rows > 128 && launch.accumulators() * launch.warpgroups < 64) return "tile is small for so many rows";
  if (launch.split_k > 1 && launch.blocks() / launch.split_k * (launch.split_k - 1) >= processors * 4)
    return "csk makes more than four blocks per multiprocessor";
  if (launch.split_k > 1 && launch.k_tiles < launch.split_k * 2)
    return "csk leaves a block less than two k tiles";
  const std::int64_t share = ceil_div(launch.k_tiles, launch.split_k) * launch.stage_bytes + shared_reserve;
  for (const std::int64_t smaller : {36, 50, 75, 110}) {
    if (smaller < launch.smem_kib && smaller * 1024 >= share)
      return "smem makes as many stages as a smaller one";
  }
  return {};
}

void Mxfp4Family::fill(gpu::LaunchSpace<Mxfp4LaunchConfig>& space) const {
  space.add({"wg", {"1", "2", "3"}, "1", "consumer warp groups"});
  space.add({"bm", {"64", "128", "192", "256"}, "64", "block_m: rows of the weight in a tile"});
  Parameter rows{"bn", {}, "8", "block_n: rows of x in a tile"};
  for (const std::int64_t bn : row_tiles) rows.values.push_back(std::to_string(bn));
  space.add(std::move(rows));
  space.add({"mma", {"0", "1"}, "0", "1: instructions of a warp (mma.sync), 0: of a warp group (wgmma)"});
  space.add({"bk", {"128", "256", "512"}, "128", "block_k: elements of k in a stage"});
  space.add(cluster_split_parameter());
  space.add(pipeline_parameter({"36", "50", "75", "110", "226"}, "110", 16));
  space.add(scaled_parameter(space.problem()));
  Parameter stream{
      "stream", {}, "0", "1: stream-K: blocks divide the k of the tiles behind whole waves, 0: they do not"};
  if (may_stream(space.problem(), limits_)) stream.values = {"0", "1"};
  space.add(std::move(stream));
  space.add(dependent_parameter());
  space.rule("fits", Rule::build, std::bind_front(&Mxfp4Family::refuse_build, this));
  space.rule("waste", Rule::search, std::bind_front(&Mxfp4Family::refuse_waste, this));
  refuse_slow(space, 2);
}

/// The config that the cost model prefers: of many rows, elements of int4 are scaled, as other libraries' kernels do, so that a search may do that too.
Config Mxfp4Family::default_config(const Problem& problem) const {
  gpu::FastestConfig fastest;
  Config config;
  const std::int64_t rows = problem.m * wide_rows(problem);
  const bool scalable = may_scale_elements(problem);
  const bool streams = may_stream(problem, limits_);
  for (const auto& [wg, bm] :
       {std::pair<std::int64_t, std::int64_t>{1, 64}, {1, 128}, {2, 128}, {2, 256}, {3, 192}}) {
    for (const std::int64_t bn : row_tiles) {
      if ((bn < 64 && bn < rows) || bn >= 2 * std::max<std::int64_t>(rows, 8)) continue;
      for (std::int64_t csk = 1; csk <= max_cluster; ++csk) {
        for (const std::int64_t smem : {50, 75, 110, 226}) {
          for (const std::int64_t bk : {128, 256, 512}) {
            for (const std::int64_t mma : {1, 0}) {
              if (mma == 1 ? bn > 32 : bk == 512) continue;
              config.set("wg", wg);
              config.set("bm", bm);
              config.set("bn", bn);
              config.set("mma", mma);
              config.set("bk", bk);
              config.set("csk", csk);
              config.set("smem", smem);
              if (scalable) config.set("scaled", std::int64_t{rows > max_exact_rows ? 1 : 0});
              for (std::int64_t stream = 0; stream <= (streams ? 1 : 0); ++stream) {
                if (streams) config.set("stream", stream);
                config.set("pdl", std::int64_t{0});
                const Mxfp4LaunchConfig launch = launch_config(problem, config);
                if (refuse_build(problem, launch).empty()) fastest.consider(config, cost(problem, launch));
              }
            }
          }
        }
      }
    }
  }
  return fastest.config();
}

std::vector<gpu::Part> Mxfp4Family::parts(const Problem& problem, const Mxfp4LaunchConfig& launch) const {
  // The kernel sees bf16 activations: problems that differ in what these were share it, but for the unit of fp4. What the weight is the config says.
  Problem seen = default_problem(Operation::a16w4);
  seen.y_type = problem.y_type;
  gpu::Source source{"mxfp4", wgmma_of_registers_macros(launch.block_n) + source_, gpu::type_defines(seen),
                     "mxfp4"};
  source.defines.push_back(fmt::format("L2_HINTS={}", launch.x_tiles == 1 ? 1 : 0));
  source.defines.push_back(
      gpu::config_define(Mxfp4Config{.warpgroups = as_int(launch.warpgroups),
                                     .tiles = as_int(launch.tiles()),
                                     .block_n = as_int(launch.block_n),
                                     .together = launch.together(),
                                     .k_atoms = as_int(launch.k_atoms),
                                     .wide = launch.wide(),
                                     .send = launch.sends(),
                                     .mma = launch.warp_instructions,
                                     .row_scales = scales_rows(problem),
                                     .x_fp4 = quantization(problem) == QuantType::per_1x32,
                                     .rows_per_y = as_int(launch.rows_per_y),
                                     .persistent = launch.persistent(),
                                     .packed = is_packed(problem),
                                     .weight = launch.weight.format,
                                     .group = as_int(launch.weight.group),
                                     .zero_points = launch.weight.zero_points,
                                     .rescaled = launch.rescales(),
                                     .scaled = launch.scaled,
                                     .stream = launch.stream ? as_int(launch.processors) : 0}));
  std::vector<gpu::Part> parts{{std::move(source), launch.shared_bytes}};
  if (widens_activations(problem))
    parts.push_back(
        {{"mxfp4_activations", widening_text(), gpu::type_defines(problem), "mxfp4_activations"}});
  return parts;
}

/// Of 16 x 16 elements, over that of a packed MXFP4 weight. What is no constant is counted instructions.
double decoding_cost(const Mxfp4LaunchConfig& launch, const Mxfp4Cost& cost) {
  switch (launch.weight.format) {
    case WeightFormat::mxfp4:
      return launch.packed ? 1.0 : cost.plain;
    case WeightFormat::nvfp4:
      return launch.packed ? cost.nvfp4 : cost.plain + 0.1;
    case WeightFormat::int4:
      if (launch.scaled) return cost.scaled_int4 + (launch.weight.zero_points ? 0.15 : 0);
      return !launch.packed ? 1.1 : launch.rescales() ? cost.rescaled_int4 : cost.int4;
  }
  return 1.0;
}

/// In microseconds; meant to rank kernels, not to state their time. The blocks of a multiprocessor share its tensor cores and the units that decode; all
/// of them share memory.
double Mxfp4Family::cost(const Problem& problem, const Mxfp4LaunchConfig& launch) const {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const bool is_nvfp4 = launch.weight.format == WeightFormat::nvfp4;
  const Mxfp4InstructionCost& fit = launch.warp_instructions ? cost_.of_warps
                                    : is_nvfp4               ? cost_.of_nvfp4
                                                             : cost_.of_warpgroups;
  const std::int64_t processors = limits_.multiprocessors;
  const std::int64_t resident = std::min(launch.blocks_per_sm, ceil_div(launch.blocks(), processors));
  const std::int64_t at_once = limits_.clusters_at_once(launch.split_k) * launch.split_k * resident;
  const double waves = real(ceil_div(launch.blocks(), at_once));
  const double loops = launch.stream ? real(launch.blocks()) / real(processors) : waves;
  const std::int64_t k_tiles = ceil_div(launch.k_tiles, launch.split_k);
  const std::int64_t all_atoms = ceil_div(problem.k, k_of_atom);
  const double k_atoms = real(std::min(k_tiles * launch.k_atoms, all_atoms));
  const double tiles = real(launch.block_m / 64 * resident);  // of a multiprocessor, 64 rows each
  const double own_tiles = real(launch.tiles());
  const double rows = real(launch.block_n);
  const double decoding = decoding_cost(launch, cost_);
  const double waiting = is_nvfp4 && launch.packed ? cost_.nvfp4_waits : decoding;
  // Of the sums of groups, which are added to those of all k, or of all sums, which are rescaled. Additions of few groups overlap with products.
  const bool adds = launch.rescales() || (launch.adds_groups() && launch.weight.group < 128);
  const double adding = adds ? rows / 2 * k_of_atom / real(launch.weight.group) : 0;
  // Cycles of 64 of k: of a warp group that waits for its own results, and of the multiprocessor's units.
  const bool four_together = launch.tiles() == 1 && launch.together();
  const double alone =
      (launch.warp_instructions ? cost_.warp_loop + own_tiles * (fit.decoded * waiting + fit.row * rows)
       : four_together          ? 4 * (cost_.decoded_together * waiting + cost_.row_together * rows)
                                : 4 * own_tiles * (fit.decoded * waiting + fit.row * rows)) +
      own_tiles * adding;
  const double shared =
      tiles * ((launch.warp_instructions ? 1 : 4) * fit.decoded_by_units * decoding + adding);
  const bool two_stages = launch.num_stages == 2 && k_tiles > 2 && !launch.warp_instructions;
  const double step = (std::max(alone, shared) + fit.stage / real(launch.k_atoms)) *
                      (1 + (two_stages ? cost_.two_stages : 0));
  const double looped = loops * k_atoms * step / cost_.clock;
  const double memory = (bytes(problem) + real(weight_bytes(problem)) / 16) / cost_.from_memory;
  const double l2 = real(launch.blocks() * k_tiles * launch.stage_bytes) / fit.from_l2;
  const double loaded = std::max(memory, l2);
  const double stored =
      cost_.stored + fit.stored * real(launch.block_m * launch.block_n * resident) * waves / 20e3;
  return cost_.launched + fit.wave * (waves - 1) + std::max(looped, loaded) +
         fit.uncovered * std::min(looped, loaded) + stored +
         (launch.stream         ? cost_.streamed
          : launch.split_k == 1 ? 0
          : launch.sends()      ? cost_.sent * real(launch.split_k - 1)
                                : fit.exchanged);
}

}  // namespace

std::unique_ptr<KernelFamily> make_mxfp4_family(gpu::Runtime& runtime, const CudaDriver& driver,
                                                const std::optional<Mxfp4Cost>& cost) {
  return std::make_unique<Mxfp4Family>(runtime, driver, cost);
}

const gpu::FamilyEntry& mxfp4_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mxfp4", .rank = 35, .aliases = tunable_aliases, .fallback_rank = 35},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_mxfp4_family(context.runtime, driver_of(context));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
