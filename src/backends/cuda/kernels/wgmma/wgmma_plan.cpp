#include "backends/cuda/kernels/wgmma/wgmma_plan.h"

#include <algorithm>
#include <cmath>

#include "backends/cuda/kernels/hopper.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t piece_bytes = 128;      // of k, in one row
constexpr std::int64_t shared_reserve = 2048;  // alignment of the ring, and barriers
constexpr std::int64_t most_accumulators = 128;
constexpr std::int64_t most_accumulators_of_two_blocks = 96;
constexpr std::int64_t registers = 65536;  // of a multiprocessor
constexpr std::int64_t most_stages = 32;
constexpr std::int64_t small_ring = 112;  // KiB: two blocks a multiprocessor
constexpr std::int64_t large_ring = 226;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What results take on their way out, or parts of k on theirs to each other; as in wgmma.cu.
std::int64_t scratch_bytes(const WgmmaPlan& plan, std::int64_t output_bytes) {
  if (plan.split > 1) {
    const std::int64_t units = (plan.swapped ? plan.b_rows : plan.a_rows) / 8;
    const std::int64_t most = ceil_div(units, plan.split);
    return plan.swapped ? plan.split * plan.a_rows * (most * 8 + 2) * 4
                        : plan.split * most * 8 * (plan.b_rows + 8) * 4;
  }
  if (plan.swapped)
    return plan.warpgroups * std::min<std::int64_t>(plan.b_rows, 32) * (64 * output_bytes + 16);
  std::int64_t columns = 64;
  while (plan.b_rows % columns != 0) columns /= 2;
  return plan.warpgroups * 4 * 16 * (columns * output_bytes + (output_bytes == 4 ? 32 : 16));
}

/// A wave of clusters covers about a square of y.
std::int64_t band_of(const WgmmaPlan& plan, std::int64_t clusters_at_once) {
  const double shape =
      static_cast<double>(plan.b_rows * plan.cb) / static_cast<double>(plan.a_rows * plan.ca);
  const double band = std::sqrt(static_cast<double>(clusters_at_once) * shape);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::lround(band)), 1, plan.tiles_a);
}

void choose_grid(const Problem& problem, const gpu::Limits& limits, WgmmaPlan& plan) {
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
      std::max<std::int64_t>(1, limits.multiprocessors * plan.resident / plan.cluster());
  const std::int64_t clusters = plan.split > 1 ? plan.tiles() : std::min(plan.tiles(), at_once);
  plan.blocks = clusters * plan.cluster();
  plan.band = band_of(plan, at_once);
}

}  // namespace

WgmmaPlan wgmma_plan(const Problem& problem, const Config& config, const gpu::Limits& limits) {
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
  const std::int64_t fixed = scratch_bytes(plan, bits(problem.y_type) / 8) + shared_reserve;
  const std::int64_t most = static_cast<std::int64_t>(limits.shared_bytes_a_block) - fixed;
  const std::int64_t ring = std::min(config.number("ring", large_ring) * 1024 - fixed, most);
  plan.stages = std::min(std::max<std::int64_t>(ring, 0) / plan.stage_bytes, most_stages);
  // A block with one tile alone fills no more stages than the tile has steps.
  if (plan.split > 1) plan.stages = std::min(plan.stages, ceil_div(plan.steps, plan.split));
  plan.shared_bytes = plan.stages * plan.stage_bytes + fixed;
  choose_grid(problem, limits, plan);
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
       .values = {"16", "32", "64", "96", "128", "192", "256"},
       .absent = "128",
       .meaning = "rows of the second operand a tile"},
      {.key = "wg", .values = {"1", "2"}, .absent = "2", .meaning = "warpgroups that multiply"},
      {.key = "turn", .values = {"0", "1"}, .absent = "0", .meaning = "1: they take whole tiles in turn"},
      {.key = "ks", .values = {"1", "2"}, .absent = "1", .meaning = "pieces of 128 bytes of k a stage"},
      {.key = "ca", .values = {"1", "2"}, .absent = "1", .meaning = "blocks that share the second operand"},
      {.key = "cb", .values = {"1", "2"}, .absent = "1", .meaning = "blocks that share the first operand"},
      {.key = "c",
       .values = {"1", "2", "3", "4", "5", "6", "7", "8"},
       .absent = "1",
       .meaning = "blocks of a cluster, which divide k"},
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
  if ((plan.split > 1) + (plan.ca > 1) + (plan.cb > 1) > 1) return "one of c, ca and cb at most is above 1";
  return {};
}

std::string refuse_wgmma(const WgmmaPlan& plan, const gpu::Limits& limits) {
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

std::string refuse_wgmma_packed(const WgmmaPlan& plan) {
  const std::int64_t rows = plan.swapped ? plan.a_rows / plan.cb : plan.b_rows / plan.ca;
  if (rows % 64 != 0 && 64 % rows != 0) return "tile divides the packed weight's tiles of 64 rows";
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
  if (!plan.swapped && plan.b_rows < 64) return "tb is small for sw 0";
  if (problem.m > 768 && plan.a_rows * plan.b_rows < 128 * 128) return "tile is small for so many rows";
  if (plan.a_rows == 256 && plan.b_rows < 128) return "ta 256 wants as wide a tile";
  return {};
}

std::string refuse_wgmma_waste(const Problem& problem, const WgmmaPlan& plan, const gpu::Limits& limits) {
  const std::int64_t processors = limits.multiprocessors;
  const std::int64_t tiles = plan.tiles() * plan.ca * plan.cb;
  if (plan.warpgroups == 1 && plan.a_rows > 64 && plan.b_rows > 64) return "wg 1 is for small tiles";
  if (plan.pieces > 1 && plan.a_rows + plan.b_rows > 192) return "ks is for small tiles";
  if (plan.pieces > 1 && plan.steps < plan.split * 3) return "ks leaves a block less than three steps";
  if (plan.split > 1 && tiles * plan.split > processors * 5 / 2) return "c makes too many blocks";
  if (plan.split > 1 && plan.steps < plan.split * 3) return "c leaves a block less than three steps";
  if (plan.split == 1 && tiles * 4 < processors && plan.steps >= 16)
    return "c 1 leaves most multiprocessors idle";
  if (plan.turns && tiles <= processors) return "turn needs more tiles than multiprocessors";
  if (plan.ca * plan.cb > 1 && tiles < processors / 2) return "sharing is for many tiles";
  if (plan.ca > 1 && plan.tiles_a == 1 && plan.ca * plan.a_rows > 2 * (plan.swapped ? problem.n : problem.m))
    return "ca leaves a block of each cluster idle";
  if (plan.cb > 1 && plan.cb * plan.b_rows >= 2 * (plan.swapped ? problem.m : problem.n))
    return "cb leaves a block of each cluster idle";
  return {};
}

std::string refuse_wgmma_ring(const Problem& problem, const Config& config, const gpu::Limits& limits) {
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

Config default_wgmma_config(const Problem& problem, const gpu::Limits& limits) {
  const bool swapped = problem.m <= 64;
  std::int64_t tb = 256;
  if (swapped) {
    tb = problem.m <= 16 ? 16 : problem.m <= 32 ? 32 : 64;
  } else if (problem.m <= 512) {
    tb = 128;
  }
  const std::int64_t ta = swapped ? 64 : 128;
  const std::int64_t tiles =
      ceil_div(swapped ? problem.n : problem.m, ta) * ceil_div(swapped ? problem.m : problem.n, tb);
  const std::int64_t steps = ceil_div(bytes_of(problem.x_type, problem.k), piece_bytes);
  const std::int64_t most = std::min<std::int64_t>((swapped ? tb : ta) / 8, 8);
  const std::int64_t split =
      std::clamp<std::int64_t>(limits.multiprocessors / std::max<std::int64_t>(tiles, 1), 1,
                               std::max<std::int64_t>(1, std::min(most, steps / 3)));
  Config config;
  config.set("sw", std::int64_t{swapped});
  config.set("ta", ta);
  config.set("tb", tb);
  config.set("wg", std::int64_t{swapped ? 1 : 2});
  for (const char* key : {"turn", "ks", "ca", "cb"}) config.set(key, std::int64_t{key[0] == 't' ? 0 : 1});
  config.set("c", tb == 256 ? 1 : split);
  config.set("ring", swapped ? small_ring : large_ring);
  config.set("pdl", std::int64_t{0});
  return config;
}

// Roofline of a wave: the matrix unit's rate falls for narrow tiles and where nothing overlaps with storing;
// operands come through the second-level cache once a tile; a cluster that divides k pays for the exchange.
double predicted_wgmma(const Problem& problem, const WgmmaPlan& plan, const gpu::Limits& limits) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double processors = real(limits.multiprocessors);
  const double per_processor = (bits(problem.x_type) == 8 ? 1580e6 : 790e6) / processors;
  const double width = real(plan.b_rows);
  double efficiency = width >= 128 ? 0.97 : width >= 64 ? 0.85 : width >= 32 ? 0.6 : 0.35;
  const double resident = real(plan.resident);
  if (plan.warpgroups * plan.resident < 2) efficiency *= 0.8;
  const double blocks = real(plan.tiles() * plan.cluster());
  const double share = 1 / real(plan.split);
  const double a_block =
      2 * real(plan.a_rows) * width * real(problem.k) * share / (per_processor * efficiency);
  const double waves = std::ceil(blocks / processors);
  const double compute = waves * a_block;
  const double k_bytes = real(bytes_of(problem.x_type, problem.k));
  const double loaded =
      k_bytes * share * blocks * (real(plan.a_rows) / real(plan.cb) + width / real(plan.ca));
  const double cache = loaded / (9.0e6 * std::min(1.0, blocks / processors));
  const double in_flight = std::min(blocks, processors * resident) * real(plan.stages * plan.stage_bytes);
  const double memory = bytes(problem) / 4.2e6 *
                        std::pow(std::max(1.0, 10e6 / std::max(in_flight, 1.0)), 0.2) *
                        std::max(1.0, 0.75 * processors / blocks);
  const double stored = real(plan.a_rows) * width * real(bits(problem.y_type) / 8) / 60e3;
  const double epilogue = plan.turns || resident > 1 ? stored : stored * waves;
  return 2.5 + std::max({compute, cache, memory}) + 0.15 * std::min(compute, memory) + epilogue +
         (plan.split > 1 ? 0.5 + 0.05 * real(plan.split) : 0);
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
      "#define MULTIPLY(d, a, b) asm volatile(\"wgmma.mma_async.sync.aligned.m64n{}k{} {{{}}}, %{}, %{}, 1, "
      "1, "
      "1{};\" : {} : \"l\"(a), \"l\"(b))\n"
      "#define SETTLE(d) asm volatile(\"\" : {} : : \"memory\")\n",
      b_rows, types, registers_text, count, count + 1, orders, operands, operands);
}

}  // namespace gemmtune::cuda
