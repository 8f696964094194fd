#include "backends/cpu/kernels/skinny/skinny.h"

#include <set>

#include "backends/cpu/kernels/own_families.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t kc_values[] = {512, 2048, 16384};
constexpr std::int64_t max_partial_bytes = std::int64_t{64} << 20;

struct Tile {
  std::int64_t mr = 0;
  std::int64_t nr = 0;
};

/// The register tiles of a level for this problem's weight.
std::vector<Tile> tiles_of(const IsaKernels& kernels, const Problem& problem) {
  const int type = static_cast<int>(element_of(problem.x_type));
  std::vector<Tile> tiles;
  if (layout_of(problem) == WeightLayout::panel16) {
    const PanelList& list = kernels.panels[type];
    for (int i = 0; i < list.count; ++i)
      tiles.push_back({list.entries[i].mr, list.entries[i].panels * panel_columns});
  } else {
    const RowList& list = kernels.rows[type];
    for (int i = 0; i < list.count; ++i) tiles.push_back({list.entries[i].mr, list.entries[i].nr});
  }
  return tiles;
}

SkinnySettings settings_of(const Config& config) {
  return {.isa = parse_isa(config.word("isa")).value_or(Isa::scalar),
          .mr = config.number("mr", 1),
          .nr = config.number("nr", 16),
          .kc = config.number("kc", 16384),
          .prefetch = config.number("pf", 0),
          .splits = config.number("sk", 1)};
}

Config config_of(const SkinnySettings& settings, const Problem& problem) {
  Config config;
  config.set("isa", std::string(to_string(settings.isa)));
  config.set("w", std::string(to_string(layout_of(problem))));
  config.set("mr", settings.mr);
  config.set("nr", settings.nr);
  config.set("kc", settings.kc);
  config.set("pf", settings.prefetch);
  config.set("sk", settings.splits);
  return config;
}

class SkinnyFamily final : public KernelFamily {
 public:
  SkinnyFamily(const KernelSet& set, int threads) : set_(set), threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return "skinny"; }
  int tie_rank() const override { return 10; }

  Status accepts(const Problem& problem) const override {
    GEMMTUNE_RETURN_IF_ERROR(accepts_a16w16(problem));
    if (problem.m > skinny_max_m)
      return Status::unsupported("m: {} is not taken, only up to {}", problem.m, skinny_max_m);
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return WeightLayout::panel16; }

  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    GEMMTUNE_RETURN_IF_ERROR(accepts(problem));
    GEMMTUNE_RETURN_IF_ERROR(check_config(space(problem), config));
    return make_skinny_kernel(set_, problem, settings_of(config), threads_);
  }

  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return cost(problem, settings_of(config));
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    return settings_of(config).splits * problem.m * problem.n;
  }

 private:
  /// The smallest row tile of this level and width that holds all rows of x, else the largest.
  std::int64_t enough_rows(const Problem& problem, Isa isa, std::int64_t nr) const {
    std::int64_t enough = 0;
    std::int64_t largest = 0;
    for (const Tile& tile : tiles_of(*set_.at(isa), problem)) {
      if (tile.nr != nr) continue;
      if (tile.mr >= problem.m && (enough == 0 || tile.mr < enough)) enough = tile.mr;
      largest = std::max(largest, tile.mr);
    }
    return enough != 0 ? enough : largest;
  }
  std::string refuse_tile(const Problem& problem, const SkinnySettings& settings) const;
  std::string refuse_waste(const Problem& problem, const SkinnySettings& settings) const;
  std::string refuse_split(const Problem& problem, const SkinnySettings& settings) const;
  double cost(const Problem& problem, const SkinnySettings& settings) const;

  KernelSet set_;
  int threads_;
};

std::string SkinnyFamily::refuse_tile(const Problem& problem, const SkinnySettings& settings) const {
  const IsaKernels* kernels = set_.at(settings.isa);
  if (kernels == nullptr) return "the device does not have this isa";
  bool known = false;
  for (const Tile& tile : tiles_of(*kernels, problem))
    known = known || (tile.mr == settings.mr && tile.nr == settings.nr);
  return known ? "" : "mr x nr is no register tile of this isa and layout";
}

/// Requires a register tile that the isa has.
std::string SkinnyFamily::refuse_waste(const Problem& problem, const SkinnySettings& settings) const {
  const std::int64_t enough = enough_rows(problem, settings.isa, settings.nr);
  if (settings.mr > enough) return "mr leaves rows of the register tile empty";
  if (settings.mr * 4 < std::min(problem.m, enough)) return "mr makes more than four passes over the weights";
  return {};
}

std::string SkinnyFamily::refuse_split(const Problem& problem, const SkinnySettings& settings) const {
  if (settings.splits == 1) return {};
  if (settings.splits > threads_) return "sk is more than the threads";
  if (problem.k / settings.splits < 256) return "sk leaves less than 256 elements of k a split";
  if (settings.splits * problem.m * problem.n * 4 > max_partial_bytes)
    return "sk needs more than 64 MiB for partial sums";
  return {};
}

/// kc is a limit: all values of at least k mean the same, and so do all where one row tile holds x.
std::string refuse_kc(const Problem& problem, const SkinnySettings& settings) {
  const bool one_pass = problem.m <= settings.mr;
  std::int64_t smallest_enough = kc_values[2];
  if (!one_pass)
    for (const std::int64_t value : {kc_values[1], kc_values[0]})
      if (value >= problem.k) smallest_enough = value;
  return settings.kc > smallest_enough || (one_pass && settings.kc != kc_values[2])
             ? "kc means the same as another value"
             : "";
}

Space SkinnyFamily::space(const Problem& problem) const {
  Parameter isa{.key = "isa", .values = {}, .absent = "scalar", .meaning = "instruction set"};
  std::set<std::int64_t> rows;
  std::set<std::int64_t> columns;
  for (const Isa level : useful_levels(set_, problem.x_type)) {
    isa.values.emplace_back(to_string(level));
    for (const Tile& tile : tiles_of(*set_.at(level), problem)) {
      rows.insert(tile.mr);
      columns.insert(tile.nr);
    }
  }
  Space space;
  space.add(std::move(isa));
  space.add(layout_parameter(problem));
  space.add(Parameter{
      .key = "mr", .values = number_texts(rows), .absent = "1", .meaning = "rows of x in registers"});
  space.add(Parameter{
      .key = "nr", .values = number_texts(columns), .absent = "16", .meaning = "output features at once"});
  space.add(Parameter{
      .key = "kc", .values = number_texts(kc_values), .absent = "16384", .meaning = "elements of k a pass"});
  space.add(Parameter{
      .key = "pf", .values = {"0", "1024", "4096"}, .absent = "0", .meaning = "prefetch distance in bytes"});
  space.add(Parameter{.key = "sk", .values = {"1", "2", "4", "8"}, .absent = "1", .meaning = "splits of k"});
  space.add(
      Constraint{"tile", [this, problem](const Config& c) { return refuse_tile(problem, settings_of(c)); }});
  space.add(
      Constraint{"sk", [this, problem](const Config& c) { return refuse_split(problem, settings_of(c)); }});
  space.add(Constraint{"waste",
                       [this, problem](const Config& c) { return refuse_waste(problem, settings_of(c)); },
                       Rule::search});
  space.add(Constraint{"kc", [problem](const Config& c) { return refuse_kc(problem, settings_of(c)); },
                       Rule::search});
  return space;
}

double SkinnyFamily::cost(const Problem& problem, const SkinnySettings& settings) const {
  const Machine machine = machine_model(settings.isa, problem.x_type);
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const bool panels = layout_of(problem) == WeightLayout::panel16;
  const double passes = real(ceil_div(problem.m, settings.mr));
  const std::int64_t rest = problem.m % settings.mr == 0 ? settings.mr : problem.m % settings.mr;
  const double rows = (passes - 1) * real(settings.mr) + real((rest + settings.mr) / 2);
  // Vector loads a multiplication: of x for each vector of features, of weights for each row of x.
  const double vectors = panels ? real(settings.nr) / 16 : real(settings.nr);
  const double loads = 1 / real(settings.mr) + 1 / vectors;
  const double compute =
      rows * real(problem.n) * real(problem.k) * 2 / machine.flops_per_microsecond * (0.75 + 0.5 * loads);
  // Several streams and a prefetch draw the weights a little faster.
  const double draw = 1 + 0.15 / vectors + (settings.prefetch == 0 ? 0.02 : 0.0);
  const double memory = real(weight_bytes(problem)) / machine.bytes_per_microsecond * draw;
  // The first pass waits for memory, the others find the weights in a cache.
  const double waiting = passes > 1 ? compute / passes * 0.2 : 0;
  const double threads = worthwhile_threads(problem, threads_);
  const double sums = settings.splits == 1 ? 0 : real(settings.splits * problem.m * problem.n) / 4e3 + 3;
  const double kc = passes > 1 && settings.kc == kc_values[2] ? 1.05 : 1.0;
  return (std::max(compute, memory) + waiting) * kc / threads + sums +
         (threads > 1 ? machine.wake_microseconds : 0);
}

Config SkinnyFamily::default_config(const Problem& problem) const {
  SkinnySettings best;
  double best_cost = 0;
  for (const Isa isa : useful_levels(set_, problem.x_type))
    for (const Tile& tile : tiles_of(*set_.at(isa), problem)) {
      SkinnySettings settings{
          .isa = isa, .mr = tile.mr, .nr = tile.nr, .kc = kc_values[2], .prefetch = 1024, .splits = 1};
      if (problem.m > settings.mr) {
        // Several passes: a block of weights stays in a cache, and the passes hide the fetching.
        settings.kc = layout_of(problem) == WeightLayout::panel16 ? kc_values[0] : kc_values[1];
        if (problem.k <= kc_values[0]) settings.kc = kc_values[0];
        settings.prefetch = 0;
      }
      if (!refuse_tile(problem, settings).empty() || !refuse_waste(problem, settings).empty()) continue;
      const double microseconds = cost(problem, settings);
      if (best_cost != 0 && microseconds >= best_cost) continue;
      best_cost = microseconds;
      best = settings;
    }
  return config_of(best, problem);
}

}  // namespace

std::unique_ptr<KernelFamily> make_skinny_family(const KernelSet& set, int threads) {
  return std::make_unique<SkinnyFamily>(set, threads);
}
std::unique_ptr<KernelFamily> make_skinny_family(Isa level, int threads) {
  return make_skinny_family(kernel_set(level), threads);
}

}  // namespace gemmtune::cpu
