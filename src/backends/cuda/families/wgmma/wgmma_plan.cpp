#include "backends/cuda/families/wgmma/wgmma_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/cuda/families/hopper.h"
#include "base/rounding.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t piece_bytes = 128;      // of k, in one row
constexpr std::int64_t shared_reserve = 2048;  // alignment of the ring, and barriers
constexpr std::int64_t most_accumulators = 128;
constexpr std::int64_t most_accumulators_of_two_blocks = 80;
constexpr std::int64_t registers = 65536;  // of a multiprocessor
constexpr std::int64_t most_stages = 32;
constexpr std::int64_t most_blocks = 8;   // of a cluster, without asking for more than is portable
constexpr std::int64_t small_ring = 112;  // KiB: two blocks a multiprocessor
constexpr std::int64_t large_ring = 226;

/// What results take on their way out, or parts of k on theirs to each other; as in wgmma.cu.
std::int64_t scratch_bytes(const WgmmaPlan& plan, std::int64_t output_bytes) {
  if (plan.split > 1) {
    const std::int64_t units = (plan.swapped ? plan.b_rows : plan.a_rows) / 8;
    const std::int64_t most = ceil_div(units, plan.split);
    // Own sums, and what each of the others sends.
    const std::int64_t across = plan.swapped ? plan.a_rows : plan.b_rows;
    return (units + (plan.split - 1) * most) * 8 * across * 4;
  }
  if (plan.lone) return 0;
  // Two buffers for each of a swapped tile's warpgroups, else for each warp.
  return 2 * plan.warpgroups * plan.stored_rows() * (plan.swapped ? 64 * output_bytes : 4 * 128);
}

/// A wave of clusters covers about a square of y.
std::int64_t band_of(const WgmmaPlan& plan, std::int64_t clusters_at_once) {
  const double shape =
      static_cast<double>(plan.b_rows * plan.cb) / static_cast<double>(plan.a_rows * plan.ca);
  const double band = std::sqrt(static_cast<double>(clusters_at_once) * shape);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::lround(band)), 1, plan.tiles_a);
}

void choose_grid(const Problem& problem, const HopperLimits& limits, WgmmaPlan& plan) {
  const std::int64_t rows_a = plan.swapped ? problem.n : problem.m;
  const std::int64_t rows_b = plan.swapped ? problem.m : problem.n;
  plan.tiles_a = ceil_div(rows_a, plan.a_rows * plan.ca);
  plan.tiles_b = ceil_div(rows_b, plan.b_rows * plan.cb);
  plan.once = (plan.swapped ? plan.tiles_b * plan.cb : plan.tiles_a * plan.ca) == 1;
  const std::int64_t by_memory =
      static_cast<std::int64_t>(limits.shared_bytes_a_multiprocessor) / (plan.shared_bytes + 1024);
  // Sums, and about as many again as all else needs.
  const std::int64_t by_registers = registers / (plan.threads() * (plan.accumulators() + 72));
  plan.resident = std::max<std::int64_t>(1, std::min(by_memory, by_registers));
  const std::int64_t at_once =
      std::max<std::int64_t>(1, limits.clusters_at_once(plan.cluster()) * plan.resident);
  const std::int64_t clusters = plan.split > 1 ? plan.tiles() : std::min(plan.tiles(), at_once);
  plan.blocks = clusters * plan.cluster();
  plan.band = band_of(plan, at_once);
}

void lay_out(WgmmaPlan& plan, std::int64_t ring_bytes, std::int64_t output_bytes,
             const HopperLimits& limits) {
  const std::int64_t scratch = scratch_bytes(plan, output_bytes);
  // Parts of k take the ring's place, and so do results of a block's only tile.
  const std::int64_t fixed = shared_reserve + (plan.split > 1 ? 0 : scratch);
  const std::int64_t most = static_cast<std::int64_t>(limits.shared_bytes_a_block) - fixed;
  const std::int64_t ring = std::min(ring_bytes - fixed, most);
  plan.stages = std::min(std::max<std::int64_t>(ring, 0) / plan.stage_bytes, most_stages);
  // A block with one tile alone fills no more stages than the tile has steps.
  if (plan.split > 1) plan.stages = std::min(plan.stages, ceil_div(plan.steps, plan.split));
  plan.memory_bytes = plan.split > 1 ? std::max(plan.stages * plan.stage_bytes, round_up(scratch, 16))
                                     : plan.stages * plan.stage_bytes + scratch;
  plan.shared_bytes = plan.memory_bytes + shared_reserve;
}

}  // namespace

WgmmaPlan wgmma_plan(const Problem& problem, const Config& config, const HopperLimits& limits) {
  WgmmaPlan plan;
  plan.swapped = config.number("sw", 0) != 0;
  plan.a_rows = config.number("ta", 128);
  plan.b_rows = config.number("tb", 128);
  plan.warpgroups = config.number("wg", 2);
  plan.turns = config.number("turn", 0) != 0;
  plan.pieces = config.number("ks", 1);
  plan.ca = config.number("ca", 1);
  plan.cb = config.number("cb", 1);
  plan.split = config.number("c", 1);
  plan.dependent = is_dependent(config);
  plan.steps = ceil_div(bytes_of(problem.x_type, problem.k), piece_bytes * plan.pieces);
  plan.stage_bytes = plan.pieces * (plan.a_rows + plan.b_rows) * piece_bytes;
  const std::int64_t ring = config.number("ring", large_ring) * 1024;
  const std::int64_t output_bytes = bits(problem.y_type) / 8;
  plan.lone = plan.split == 1 && !plan.turns;
  lay_out(plan, ring, output_bytes, limits);
  choose_grid(problem, limits, plan);
  if (!plan.lone) return plan;
  // More tiles than blocks, or a ring too short for the results of one.
  if (plan.blocks < plan.tiles() * plan.cluster() || plan.buffers(output_bytes) > plan.stages) {
    plan.lone = false;
    lay_out(plan, ring, output_bytes, limits);
    choose_grid(problem, limits, plan);
  }
  return plan;
}

std::vector<Parameter> wgmma_parameters() {
  return {
      {.key = "sw", .values = {"0", "1"}, .absent = "0", .meaning = "1: the weight is the first operand"},
      {.key = "ta",
       .values = {"64", "128", "256"},
       .absent = "128",
       .meaning = "rows of the first operand a tile"},
      {.key = "tb",
       .values = {"16", "32", "48", "64", "80", "96", "112", "128", "144", "160", "176", "192", "208", "224",
                  "240", "256"},
       .absent = "128",
       .meaning = "rows of the second operand a tile"},
      {.key = "wg", .values = {"1", "2"}, .absent = "2", .meaning = "warpgroups that multiply"},
      {.key = "turn", .values = {"0", "1"}, .absent = "0", .meaning = "1: they take whole tiles in turn"},
      {.key = "ks", .values = {"1", "2"}, .absent = "1", .meaning = "pieces of 128 bytes of k a stage"},
      {.key = "ca",
       .values = {"1", "2", "4", "8"},
       .absent = "1",
       .meaning = "blocks of a cluster that share the second operand"},
      {.key = "cb",
       .values = {"1", "2", "4", "8"},
       .absent = "1",
       .meaning = "blocks of a cluster that share the first operand"},
      {.key = "c",
       .values = {"1", "2", "3", "4", "5", "6", "7", "8"},
       .absent = "1",
       .meaning = "parts of k, which blocks of a cluster have"},
      {.key = "ring", .values = {"112", "226"}, .absent = "226", .meaning = "KiB of shared memory, at most"},
      dependent_parameter(),
  };
}

std::string refuse_wgmma_tile(const WgmmaPlan& plan) {
  if (plan.turns && plan.warpgroups < 2) return "turn needs two warpgroups";
  const std::int64_t rows = plan.turns ? plan.a_rows : plan.a_rows / plan.warpgroups;
  if (rows % 64 != 0 || rows == 0) return "ta leaves a warpgroup less than 64 rows";
  // Two blocks of 64 rows need addresses of their own: some epilogues then spill.
  const std::int64_t most = rows > 64 ? most_accumulators_of_two_blocks : most_accumulators;
  if (plan.accumulators() > most) return "tile needs more registers than a thread has";
  return {};
}

std::string refuse_wgmma_cluster(const WgmmaPlan& plan) {
  if (plan.cluster() > most_blocks) return "ca, cb and c make a cluster of more than eight blocks";
  // The swizzle repeats after eight rows.
  if (plan.a_rows / plan.cb % 8 != 0 || plan.b_rows / plan.ca % 8 != 0 || plan.a_rows % plan.cb != 0 ||
      plan.b_rows % plan.ca != 0)
    return "ca or cb leaves a block a part of eight rows to load";
  return {};
}

std::string refuse_wgmma(const WgmmaPlan& plan, const HopperLimits& limits) {
  if (plan.split > 1 && plan.turns) return "turn does not go with c";
  if (plan.split > plan.steps) return "c is more than the steps of k";
  if (plan.split * 8 > (plan.swapped ? plan.b_rows : plan.a_rows))
    return "c is more than eight rows of y each";
  const std::int64_t share = ceil_div(plan.steps, plan.split);
  if (plan.stages < std::min<std::int64_t>(2, share) || plan.stages < 1)
    return "ring holds less than two stages";
  if (plan.shared_bytes > static_cast<std::int64_t>(limits.shared_bytes_a_block))
    return "ring needs more shared memory than a block may have";
  return {};
}

std::string refuse_wgmma_tile_waste(const Problem& problem, const WgmmaPlan& plan) {
  const std::int64_t rows_a = plan.swapped ? problem.n : problem.m;
  const std::int64_t rows_b = plan.swapped ? problem.m : problem.n;
  if (plan.a_rows > 64 && rows_a <= plan.a_rows / 2) return "ta is more than twice the rows there are";
  if (plan.b_rows > 16 && rows_b <= plan.b_rows / 2) return "tb is more than twice the rows there are";
  if (!plan.swapped && problem.m < 48) return "sw 0 leaves most rows of a tile empty";
  if (plan.swapped && problem.m > 768) return "sw 1 is for few rows";
  if (plan.swapped && plan.b_rows < 64 && problem.m > 2 * plan.b_rows) return "tb reads the weight too often";
  if (!plan.swapped && plan.b_rows < 64 && problem.m > 256) return "tb is small for so many rows";
  if (problem.m > 768 && plan.a_rows * plan.b_rows < 128 * 112) return "tile is small for so many rows";
  if (plan.a_rows == 256 && plan.b_rows < 64) return "ta 256 wants as wide a tile";
  // As many tiles of 16 rows less, up to four of a multiprocessor's: those are full.
  const std::int64_t across = ceil_div(rows_b, plan.b_rows);
  if (plan.b_rows > 16 && plan.b_rows - 16 >= ceil_div(rows_b, across))
    return "tb means as many tiles as a narrower one";
  return {};
}

std::string refuse_wgmma_waste(const Problem& problem, const WgmmaPlan& plan, const HopperLimits& limits) {
  const std::int64_t processors = limits.multiprocessors;
  const std::int64_t tiles = plan.tiles() * plan.ca * plan.cb;
  const std::int64_t alone = ceil_div(plan.swapped ? problem.n : problem.m, plan.a_rows) *
                             ceil_div(plan.swapped ? problem.m : problem.n, plan.b_rows);
  if (plan.warpgroups == 1 && plan.a_rows > 64) return "wg 1 is for small tiles";
  if (plan.pieces > 1 && plan.a_rows + plan.b_rows > 192) return "ks is for small tiles";
  if (plan.pieces > 1 && plan.steps < plan.split * 3) return "ks leaves a block less than three steps";
  // A second wave of them waits for the first one's sums too: at best 1.1 times the fastest kernel's time.
  if (plan.split > 1 && plan.tiles() > limits.clusters_at_once(plan.cluster()) * plan.resident)
    return "c makes more clusters than run at once";
  if (plan.split > 1 && plan.steps < plan.split * 3) return "c leaves a block less than three steps";
  if (tiles * plan.split * 4 < processors && plan.steps >= plan.split * 16)
    return "most multiprocessors stay idle";
  if (plan.turns && tiles <= processors) return "turn needs more tiles than multiprocessors";
  if (plan.ca * plan.cb > 1 && tiles * plan.split < processors / 2) return "sharing is for many blocks";
  if (tiles * 8 > alone * 9) return "ca or cb leaves blocks of clusters idle";
  return {};
}

std::string refuse_wgmma_ring(const Problem& problem, const Config& config, const HopperLimits& limits) {
  Config other = config;
  const bool large = config.number("ring", large_ring) > small_ring;
  other.set("ring", large ? small_ring : large_ring);
  const WgmmaPlan plan = wgmma_plan(problem, config, limits);
  const WgmmaPlan compared = wgmma_plan(problem, other, limits);
  if (large && plan.stages == compared.stages) return "ring means the same as a smaller one";
  if (!large && plan.resident < 2 && compared.stages > plan.stages)
    return "ring is small for one block a multiprocessor";
  return {};
}

namespace {

Config config_of(bool swapped, std::int64_t ta, std::int64_t tb, std::int64_t split, std::int64_t ca,
                 std::int64_t cb) {
  Config config;
  config.set("sw", std::int64_t{swapped});
  config.set("ta", ta);
  config.set("tb", tb);
  config.set("wg", std::int64_t{ta / 64});
  config.set("turn", std::int64_t{0});
  config.set("ks", std::int64_t{1});
  config.set("ca", ca);
  config.set("cb", cb);
  config.set("c", split);
  config.set("ring", swapped ? small_ring : large_ring);
  config.set("pdl", std::int64_t{0});
  return config;
}

/// For few rows: the weight first, enough blocks for every multiprocessor.
Config swapped_config(const Problem& problem, const HopperLimits& limits) {
  const std::int64_t tb = problem.m <= 16 ? 16 : problem.m <= 32 ? 32 : 64;
  const std::int64_t tiles = ceil_div(problem.n, 64) * ceil_div(problem.m, tb);
  const std::int64_t steps = ceil_div(bytes_of(problem.x_type, problem.k), piece_bytes);
  const std::int64_t most = std::max<std::int64_t>(1, std::min(tb / 8, steps / 3));
  return config_of(true, 64, tb, std::clamp<std::int64_t>(limits.multiprocessors / tiles, 1, most), 1, 1);
}

}  // namespace

Config default_wgmma_config(const Problem& problem, const HopperLimits& limits) {
  if (problem.m <= 64) return swapped_config(problem, limits);
  // What the cost model likes best of tiles of 128 rows.
  Config best = config_of(false, 128, 128, 1, 1, 1);
  double least = predicted_wgmma(problem, wgmma_plan(problem, best, limits), limits);
  for (std::int64_t tb = 64; tb <= 256; tb += 16) {
    for (const std::int64_t split : {1, 2, 4}) {
      for (const auto& [ca, cb] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
        const Config config = config_of(false, 128, tb, split, ca, cb);
        const WgmmaPlan plan = wgmma_plan(problem, config, limits);
        if (!refuse_wgmma_cluster(plan).empty() || !refuse_wgmma(plan, limits).empty()) continue;
        const double predicted = predicted_wgmma(problem, plan, limits);
        if (predicted >= least) continue;
        least = predicted;
        best = config;
      }
    }
  }
  return best;
}

// A wave's blocks take their steps at the rate of what holds them up most: how long a stage is on its way
// again over how many there are, the matrix unit, the way into a multiprocessor, the second-level cache,
// which gives to all of them and gets what is different in what they ask for. Then there is what the last
// results take, and what blocks send each other. The figures are a fit to 1,400 kernels of 20 (M, N, K) on
// one H200, fast ones weighing more; under lasting products its clock is a quarter below the one that stands
// here.
double predicted_wgmma(const Problem& problem, const WgmmaPlan& plan, const HopperLimits& limits) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  constexpr double clock = 1900;         // cycles a microsecond
  constexpr double refill = 2200;        // cycles until a stage that was read is full again
  constexpr double into_processor = 67;  // bytes a cycle
  constexpr double from_cache = 18.3e6;  // bytes a microsecond, to all
  constexpr double different = 6.5e6;    // of which different
  constexpr double from_memory = 4.3e6;
  const double processors = real(limits.multiprocessors);
  const double cluster = real(plan.cluster());
  const double blocks = real(plan.tiles()) * cluster;
  const double resident = std::min(real(plan.resident), std::ceil(blocks / processors));
  const double at_once = std::min(blocks, limits.clusters_at_once(plan.cluster()) * cluster * resident);
  const double waves = std::ceil(blocks / at_once);
  const double share = std::max(1.0, at_once / processors);  // of a multiprocessor's blocks
  const double width = real(plan.b_rows);
  // Products of 64 rows and 32 bytes of k: narrow ones wait for shared memory.
  const double product = std::max(width / 2, 22 + width * 0.18);
  const double products = 1.3 * product * real(plan.a_rows / 64) * 4 * real(plan.pieces) * share;
  const double way = real(plan.stage_bytes) / into_processor * share;
  const double line = real(plan.pieces) * 128;
  const double loaded = line * (real(plan.a_rows) / real(plan.cb) + width / real(plan.ca)) * at_once;
  const double rows =
      std::min(real(plan.swapped ? problem.n : problem.m), real(plan.tiles_a * plan.ca * plan.a_rows)) +
      std::min(real(plan.swapped ? problem.m : problem.n), real(plan.tiles_b * plan.cb) * width);
  const double cache = (loaded / from_cache + line * rows * real(plan.split) / waves / different) * clock;
  const double late = refill / std::max(0.5, real(plan.stages) - 1.3);
  // Nearly the largest of them.
  const double step =
      std::pow(std::pow(products, 8) + std::pow(way, 8) + std::pow(cache, 8) + std::pow(late, 8), 0.125);
  const double looped = waves * real(ceil_div(plan.steps, plan.split)) * step / clock;
  const double in_flight = at_once * real(plan.stages * plan.stage_bytes);
  const double memory = bytes(problem) / from_memory * std::pow(std::max(1.0, 6.5e6 / in_flight), 0.2) *
                        std::max(1.0, 0.7 * processors / blocks);
  const double area = real(plan.a_rows) * width;
  const double stored = (0.36 + area / 15.5e3) * (plan.turns || resident > 1 ? 1 : waves);
  const double exchanged = 2.6 + area * 4 / 20.7e3;
  // Blocks that share rows of x wait for the slowest of them. Of a packed weight's tiles, parts come in runs
  // that end at different times.
  const bool uneven =
      problem.bpreshuffle && plan.weight_rows() < 64 && (plan.swapped ? plan.ca : plan.cb) > 1;
  return 0.1 + std::max(looped, memory) * (uneven ? 1.2 : 1) + (plan.split > 1 ? exchanged : stored) +
         (plan.ca * plan.cb > 1 ? 1.0 : 0);
}

std::string multiply_source(DataType element, std::int64_t b_rows) {
  const std::int64_t count = b_rows / 2;
  std::string registers_text;
  std::string operands;
  for (std::int64_t i = 0; i < count; ++i) {
    registers_text += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
    operands += fmt::format("{}\"+f\"(d[{}])", i == 0 ? "" : ", ", i);
  }
  const std::string_view types = element == DataType::f8_e4m3fn ? "32.f32.e4m3.e4m3"
                                 : element == DataType::bf16    ? "16.f32.bf16.bf16"
                                                                : "16.f32.f16.f16";
  const std::string_view orders = element == DataType::f8_e4m3fn ? "" : ", 0, 0";
  return fmt::format(
      "#define MULTIPLY(d, a, b, keep) asm volatile(\"{{.reg .pred kept; setp.ne.s32 kept, %{}, 0; \" "
      "\"wgmma.mma_async.sync.aligned.m64n{}k{} {{{}}}, %{}, %{}, kept, 1, 1{};}}\" "
      ": {} : \"l\"(a), \"l\"(b), \"r\"(keep))\n"
      "#define SETTLE(d) asm volatile(\"\" : {} : : \"memory\")\n",
      count + 2, b_rows, types, registers_text, count, count + 1, orders, operands, operands);
}

}  // namespace gemmtune::cuda
