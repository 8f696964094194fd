#include "backends/cpu/families/skinny_w4/skinny_w4.h"

#include <set>

#include "backends/cpu/families/blocked/blocked.h"
#include "backends/cpu/families/own_families.h"
#include "backends/refusal.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t pf_values[] = {0, 512, 1024, 2048, 4096, 8192};
// What can be built beside them.
constexpr NumberRange pf_range{0, 16384, 64};
// Of x; beyond them products cost more than decoding.
constexpr std::int64_t many_rows = 128;

W4Tile w4_tile_of(const Config& config) {
  return {.isa = parse_isa(config.word("isa")).value_or(Isa::scalar),
          .mr = config.number("mr", 1),
          .nr = config.number("nr", 1),
          .prefetch = config.number("pf", 0)};
}

Config config_of(const W4Tile& tile) {
  return {{"isa", to_string(tile.isa)}, {"mr", tile.mr}, {"nr", tile.nr}, {"pf", tile.prefetch}};
}

std::string refuse_tile(const KernelSet& set, const BlockFormat& format, const W4Tile& tile) {
  const W4Kernels* kernels = w4_kernels(set, tile.isa, format);
  if (kernels == nullptr) return "the device does not have this isa, or it cannot multiply the types";
  if (find(w4_tiles(*kernels, format.w), tile.mr, tile.nr) == nullptr)
    return "mr x nr is no register tile of this isa";
  return {};
}

/// Requires a register tile that the isa has.
std::string refuse_waste(const KernelSet& set, const BlockFormat& format, const W4Tile& tile) {
  const W4List& list = w4_tiles(*w4_kernels(set, tile.isa, format), format.w);
  const std::int64_t rows = format.x.rows;
  const bool fetches_rows = w4_kernels(set, tile.isa, format)->amx != nullptr;
  if (fetches_rows && tile.prefetch != 0 && tile.prefetch != default_w4_prefetch)
    return "pf means the same as another value";
  if (tile.mr > fitting(list, rows, tile.nr)->mr) return "mr leaves rows of the register tile empty";
  if (tile.mr < w4_panel_rows && tile.mr * 8 < std::min<std::int64_t>(rows, fitting(list, rows, 1)->mr))
    return "mr decodes the weights more than eight times";
  if (rows > many_rows && tile.mr * tile.nr < 8) return "mr x nr uses too few registers";
  return {};
}

/// The levels with kernels for a format, the preferred one first.
std::vector<Isa> w4_levels(const KernelSet& set, const BlockFormat& format) {
  std::vector<Isa> levels;
  for (int i = static_cast<int>(set.level); i >= 0; --i)
    if (w4_kernels(set, static_cast<Isa>(i), format) != nullptr) levels.push_back(static_cast<Isa>(i));
  return levels;
}

class SkinnyW4Family final : public LeafFamily {
 public:
  SkinnyW4Family(const KernelSet& set, int threads) : set_(set), threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return "skinny_w4"; }
  int tie_rank() const override { return 11; }

  Status accepts(const Problem& problem) const override {
    // Both MXFP4 is a matter of integers (streaming).
    const bool dense = !traits(problem.operation).mixture && !traits(problem.operation).batched;
    if (!dense || bits(problem.w_type) != 4 || problem.operation == Operation::a4w4_blockscale)
      return refusal::refuse(refusal::operation, "{} is not taken, only weights of 4 bits; x of MXFP4 is not",
                             to_string(form_of(problem)));
    GEMMTUNE_RETURN_IF_ERROR(refusal::check_order(problem));
    if (problem.weight_layout != WeightLayout::plain)
      return refusal::refuse(refusal::layout, "{} is not taken, only plain",
                             to_string(problem.weight_layout));
    if (w4_levels(set_, format_of(problem)).empty())
      return refusal::refuse(refusal::instructions, "{} has no such kernels, they need AVX2",
                             to_string(set_.level));
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }

  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    return make_skinny_w4_kernel(set_, problem, w4_tile_of(config), threads_);
  }

  std::string sum_order(const Problem&, const Config& config) const override {
    return w4_sum_order(w4_tile_of(config).isa);
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return cost(problem, w4_tile_of(config));
  }
  std::int64_t resources(const Problem&, const Config& config) const override {
    return config.number("mr", 1) * config.number("nr", 1);
  }

 private:
  double cost(const Problem& problem, const W4Tile& tile) const;

  KernelSet set_;
  int threads_;
};

Space SkinnyW4Family::space(const Problem& problem) const {
  Parameter isa{"isa", {}, "scalar", "instruction set"};
  std::set<std::int64_t> rows;
  std::set<std::int64_t> columns;
  const BlockFormat format = format_of(problem);
  for (const Isa level : w4_levels(set_, format)) {
    isa.values.emplace_back(to_string(level));
    const W4List& list = w4_tiles(*w4_kernels(set_, level, format), format.w);
    for (int i = 0; i < list.count; ++i) {
      rows.insert(list.entries[i].mr);
      columns.insert(list.entries[i].nr);
    }
  }
  Space space;
  space.add(std::move(isa));
  add_numbers(space, "mr", rows, "1", "rows of x in registers");
  add_numbers(space, "nr", columns, "1", "rows of the weight at once");
  add_numbers(space, "pf", pf_values, "0", "prefetch distance in bytes", pf_range);
  space.add(Constraint{"tile",
                       [this, format](const Config& c) { return refuse_tile(set_, format, w4_tile_of(c)); },
                       Rule::build,
                       {"isa", "mr", "nr"}});
  space.add(Constraint{"waste",
                       [this, format](const Config& c) { return refuse_waste(set_, format, w4_tile_of(c)); },
                       Rule::search,
                       {"isa", "mr", "nr", "pf"}});
  return space;
}

double SkinnyW4Family::cost(const Problem& problem, const W4Tile& tile) const {
  const MachineRates machine = machine_rates(tile.isa, DataType::bf16, tile.isa);
  KernelWork work;
  work.tiles = ceil_div(problem.n, tile.nr);
  work.tiles_at_once = worthwhile_threads(problem, threads_);
  work.flops = w4_microseconds(set_, format_of(problem), problem.m, tile) * machine.flops_per_microsecond;
  work.efficiency = 1;
  work.memory_bytes = static_cast<double>(weight_bytes(problem));
  work.exposed = tile.prefetch >= 4096 ? 0.3 : tile.prefetch >= 1024 ? 0.6 : 0.8;
  return gemmtune::predicted_microseconds(work, machine);
}

Config SkinnyW4Family::default_config(const Problem& problem) const {
  const BlockFormat format = format_of(problem);
  W4Tile best;
  double best_cost = 0;
  for (const Isa isa : w4_levels(set_, format)) {
    const W4List& list = w4_tiles(*w4_kernels(set_, isa, format), format.w);
    for (int i = 0; i < list.count; ++i) {
      const W4Tile tile{
          .isa = isa, .mr = list.entries[i].mr, .nr = list.entries[i].nr, .prefetch = default_w4_prefetch};
      if (!refuse_waste(set_, format, tile).empty()) continue;
      const double microseconds = cost(problem, tile);
      if (best_cost != 0 && microseconds >= best_cost) continue;
      best_cost = microseconds;
      best = tile;
    }
  }
  return config_of(best);
}

}  // namespace

std::unique_ptr<KernelFamily> make_skinny_w4_family(const KernelSet& set, int threads) {
  return std::make_unique<SkinnyW4Family>(set, threads);
}
std::unique_ptr<KernelFamily> make_skinny_w4_family(Isa level, int threads) {
  return make_skinny_w4_family(kernel_set(level), threads);
}

}  // namespace gemmtune::cpu
