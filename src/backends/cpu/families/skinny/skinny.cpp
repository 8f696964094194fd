#include "backends/cpu/families/skinny/skinny.h"

#include <set>

#include "backends/cpu/families/own_families.h"
#include "backends/refusal.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t kc_values[] = {256, 512, 1024, 2048, 4096, 16384};
constexpr std::int64_t whole_k = 16384;  // of one pass over x
constexpr std::int64_t pf_values[] = {0, 256, 512, 1024, 2048, 4096};
// What can be built beside them.
constexpr NumberRange kc_range{chunk_elements, whole_k, chunk_elements};
constexpr NumberRange pf_range{0, 16384, 64};
constexpr NumberRange split_range{1, 64};
constexpr NumberRange rows_range{64, skinny_max_rows_a_pass, 16};
constexpr std::int64_t rows_values[] = {144, 192, 256, 288, 384, skinny_max_rows_a_pass};
constexpr std::int64_t max_partial_bytes = std::int64_t{64} << 20;
// For the cost model, of the machine that machine_rates describes.
constexpr std::int64_t rows_that_wait =
    256;  // for weights: tiles of 48 rows, in fewer passes, hide less of it (docs/lab/cpu_tiled.md)
constexpr double inner_cache_bytes = 768e3;
constexpr double inner_cache_speed = 8;   // times the outer ones', of tiles of sums
constexpr double l1_panel_bytes = 16384;  // of two panels' block of k, beside tiles of x
constexpr double wake_microseconds = 3;
// Of a core that reads rows in turn, measured with 48 KiB of L1 (docs/lab/cpu_few_rows.md).
constexpr double side_by_side_rate = 0.8;    // of the rate of a single run, for all other reads
constexpr std::int64_t run_prefetch = 4096;  // bytes ahead in a single run
constexpr std::int64_t near_prefetch = 512;  // where fewer are better
constexpr std::int64_t run_x_limit = 32768;  // packed x, read again for each row, stays in L1 below this size
// Of a core that reads unaided, Zen 4, with 32 KiB of L1 (docs/lab/cpu_few_rows.md).
constexpr double unaided_flops = 236e3;          // a microsecond, at 3.7 GHz
constexpr double unaided_bytes = 17e3;           // a microsecond, of a single run
constexpr std::int64_t unaided_x_limit = 16384;  // packed x beside the row that passes through L1
constexpr std::int64_t long_row = 16384;         // bytes: such rows side by side are as fast as a single run
constexpr std::int64_t short_row = 4096;         // below, they are slowest
constexpr std::int64_t products_of_a_sum =
    448;  // elements of k that are multiplied while the lanes of a sum are added up

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
          .splits = config.number("sk", 1),
          .rows = config.number("mc", skinny_max_rows_a_pass),
          .tree = config.number("tree", 0) == 1};
}

Config config_of(const SkinnySettings& settings, const Problem& problem) {
  Config config{{"isa", to_string(settings.isa)},
                {"w", to_string(layout_of(problem))},
                {"mr", settings.mr},
                {"nr", settings.nr},
                {"kc", settings.kc},
                {"pf", settings.prefetch},
                {"sk", settings.splits}};
  if (problem.m > rows_values[0]) config.set("mc", settings.rows);
  return config;
}

class SkinnyFamily final : public LeafFamily {
 public:
  SkinnyFamily(const KernelSet& set, int threads) : set_(set), threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return "skinny"; }
  int tie_rank() const override { return 10; }

  Status accepts(const Problem& problem) const override {
    GEMMTUNE_RETURN_IF_ERROR(accepts_a16w16(problem));
    if (problem.m > skinny_max_m && !takes_any_rows(problem))
      return refusal::refuse(refusal::rows, "{} is not taken, only up to {}", problem.m, skinny_max_m);
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return WeightLayout::panel16; }

  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    return make_skinny_kernel(set_, problem, settings_of(config), threads_);
  }

  /// Dot products along plain rows add the lanes of vectors, in an order of each register tile: no promise.
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const SkinnySettings settings = settings_of(config);
    if (!sums_as_panels(problem, settings)) return {};
    return settings.tree ? tree_sum_order(settings.isa, problem.k)
                         : panel_sum_order(settings.isa, settings.splits);
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return cost(problem, settings_of(config));
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    return settings_of(config).splits * problem.m * problem.n;
  }

 private:
  /// Requires a problem of a16w16.
  bool takes_any_rows(const Problem& problem) const {
    return set_.at(useful_levels(set_, problem.x_type).front())->rows_read_x_panels;
  }
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
  /// Requires a register tile that the isa has.
  bool sums_as_panels(const Problem& problem, const SkinnySettings& settings) const {
    if (layout_of(problem) == WeightLayout::panel16) return true;
    const RowList& list = set_.at(settings.isa)->rows[static_cast<int>(element_of(problem.x_type))];
    return find(list, settings.mr, settings.nr)->sums_as_panels;
  }
  /// Whether the weight is read once, row after row, as addresses without a gap, while packed x stays in L1.
  bool is_single_run(const Problem& problem, const SkinnySettings& settings) const {
    const std::int64_t x_bytes =
        settings.mr * round_up(problem.k, chunk_elements) * compute_bytes(*set_.at(settings.isa));
    return settings.nr == 1 && settings.splits == 1 && problem.m <= settings.mr && x_bytes < run_x_limit;
  }
  /// Whether fewer bytes ahead are better: rows of a plain weight side by side for eight rows of x and more, on a core that reads rows in
  /// turn. Only bf16 was measured (docs/lab/cpu_few_rows.md).
  bool fetches_near(const Problem& problem, const SkinnySettings& settings) const {
    return set_.row_reads == RowReads::in_turn && problem.x_type == DataType::bf16 && settings.mr >= 8 &&
           settings.nr >= panel_columns && layout_of(problem) == WeightLayout::plain;
  }
  /// Whether the core reads a single run faster than rows side by side. fp32 gains nothing.
  bool gains_by_single_run(const Problem& problem) const {
    return set_.row_reads == RowReads::in_turn && layout_of(problem) == WeightLayout::plain &&
           bits(problem.w_type) == 16;
  }
  /// Whether the weight is bf16 and the core multiplies and reads it as RowReads::unaided says.
  bool reads_unaided(const Problem& problem, const SkinnySettings& settings) const {
    return set_.row_reads == RowReads::unaided && settings.isa == Isa::avx512bf16 &&
           problem.x_type == DataType::bf16;
  }
  void model_unaided_reads(const Problem& problem, const SkinnySettings& settings, KernelWork& work,
                           MachineRates& rates) const;
  std::string refuse_tile(const Problem& problem, const SkinnySettings& settings) const;
  std::string refuse_waste(const Problem& problem, const SkinnySettings& settings) const;
  std::string refuse_split(const Problem& problem, const SkinnySettings& settings) const;
  std::string refuse_tree(const Problem& problem, const SkinnySettings& settings) const;
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
  if (!known) return "mr x nr is no register tile of this isa and layout";
  return problem.m > skinny_max_m && !kernels->rows_read_x_panels ? "more than 32 rows are for AMX tiles"
                                                                  : "";
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
  if (settings.tree) return "sk splits k, and so does tree";
  if (settings.splits > threads_) return "sk is more than the threads";
  if (problem.k / settings.splits < 256) return "sk leaves less than 256 elements of k a split";
  if (settings.splits * problem.m * problem.n * 4 > max_partial_bytes)
    return "sk needs more than 64 MiB for partial sums";
  return {};
}

/// Requires a register tile that the isa has.
std::string SkinnyFamily::refuse_tree(const Problem& problem, const SkinnySettings& settings) const {
  if (settings.tree && !sums_as_panels(problem, settings)) return "tree is for tiles that multiply as panels";
  return {};
}

/// Of more than 32 rows: so many that x, kc deep, stays in the inner cache, and if it is not all rows, the sums and y beside it; not cut where the
/// fewest stay. Many rows meet panels that are cut to stay in L1 (docs/lab/cpu_tiled.md).
void choose_rows_and_depth(const Problem& problem, SkinnySettings& settings) {
  constexpr std::int64_t many_tiles_rows = 128;
  constexpr std::int64_t shallow_rows = 224;
  constexpr std::int64_t uncut_k = 1024;
  constexpr std::int64_t panel_rows = 256;
  constexpr std::int64_t group_rows = 288;
  constexpr std::int64_t cut_k = 2048;
  const bool whole = std::min(problem.m, rows_values[0]) * problem.k * 2 <= skinny_bytes_kept;
  std::int64_t depth = whole ? problem.k : std::min(problem.k, cut_k);
  const bool panels = layout_of(problem) == WeightLayout::panel16 && problem.m >= many_tiles_rows;
  settings.rows = rows_values[0];
  for (const std::int64_t rows : rows_values) {
    const bool stays = rows * depth * 2 <= skinny_bytes_kept && (rows <= group_rows || rows >= problem.m);
    if (settings.rows < problem.m && (panels ? rows <= panel_rows : stays)) settings.rows = rows;
  }
  if (panels && problem.k > uncut_k)
    depth = problem.m < shallow_rows ? std::min(problem.k, cut_k) : kc_values[0];
  for (const std::int64_t value : kc_values) {
    settings.kc = value;
    if (value >= depth) break;
  }
}

/// kc is a limit: all values of at least k mean the same, and so do all where one row tile holds x.
std::string refuse_kc(const Problem& problem, const SkinnySettings& settings) {
  const bool one_pass = problem.m <= settings.mr;
  std::int64_t smallest_enough = whole_k;
  if (!one_pass)
    for (const std::int64_t value : kc_values)
      if (value >= problem.k) smallest_enough = std::min(smallest_enough, value);
  return settings.kc > smallest_enough || (one_pass && settings.kc != whole_k)
             ? "kc means the same as another value"
             : "";
}

/// mc is a limit too.
std::string refuse_rows(const Problem& problem, const SkinnySettings& settings) {
  std::int64_t smallest_enough = skinny_max_rows_a_pass;
  for (const std::int64_t value : rows_values)
    if (value >= problem.m) smallest_enough = std::min(smallest_enough, value);
  return problem.m > rows_values[0] && settings.rows > smallest_enough ? "mc means the same as another value"
                                                                       : "";
}

Space SkinnyFamily::space(const Problem& problem) const {
  Parameter isa{"isa", {}, "scalar", "instruction set"};
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
  add_layout_parameter(to_string(layout_of(problem)), space);
  add_numbers(space, "mr", rows, "1", "rows of x in registers");
  add_numbers(space, "nr", columns, "16", "output features at once");
  add_numbers(space, "kc", kc_values, "16384", "elements of k a pass", kc_range);
  add_numbers(space, "pf", pf_values, "0", "prefetch distance in bytes", pf_range);
  space.add({"sk", {"1", "2", "4", "8"}, "1", "splits of k", split_range});
  add_tree_parameter(set_, problem.x_type, space);
  std::vector<std::int64_t> groups;
  if (problem.m > rows_values[0]) groups.assign(std::begin(rows_values), std::end(rows_values));
  add_numbers(space, "mc", groups, std::to_string(skinny_max_rows_a_pass), "rows of x a pass over the weight",
              rows_range);
  const auto rule = [&](const char* name, Rule kind, auto refusal, std::vector<std::string> reads) {
    space.add(Constraint{name,
                         [problem, refusal](const Config& c) { return refusal(problem, settings_of(c)); },
                         kind, std::move(reads)});
  };
  const auto own = [this](auto refusal) {
    return [this, refusal](const Problem& asked, const SkinnySettings& settings) {
      return (this->*refusal)(asked, settings);
    };
  };
  rule("tile", Rule::build, own(&SkinnyFamily::refuse_tile), {"isa", "mr", "nr"});
  rule("sk", Rule::build, own(&SkinnyFamily::refuse_split), {"sk", "tree"});
  rule("tree", Rule::build, own(&SkinnyFamily::refuse_tree), {"isa", "mr", "nr", "tree"});
  rule("waste", Rule::search, own(&SkinnyFamily::refuse_waste), {"isa", "mr", "nr"});
  rule("kc", Rule::search, refuse_kc, {"mr", "kc"});
  rule("mc", Rule::search, refuse_rows, {"mc"});
  return space;
}

double SkinnyFamily::cost(const Problem& problem, const SkinnySettings& settings) const {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const bool panels = layout_of(problem) == WeightLayout::panel16;
  const std::int64_t passes = ceil_div(problem.m, settings.mr);
  const std::int64_t rest = problem.m - (passes - 1) * settings.mr;
  // The last of several tiles of AMX is as small as it can be.
  const double rows = problem.m > skinny_max_m
                          ? real(round_up(problem.m, panel_columns))
                          : real((passes - 1) * settings.mr) + real(rest + settings.mr) / 2;
  const double weights = real(weight_bytes(problem));
  const double k_block = real(std::min(settings.kc, problem.k));

  KernelWork work;
  const SkinnyGrid grid = skinny_grid(problem, settings, threads_);
  const std::int64_t columns = ceil_div(problem.n, grid.unit);
  work.tiles = passes * columns * settings.splits;
  work.tiles_at_once = grid.row_parts * grid.column_parts * settings.splits;
  work.busiest_tiles = ceil_div(passes, grid.row_parts) * ceil_div(columns, grid.column_parts);
  work.flops = 2 * rows * real(problem.n) * real(problem.k);
  const bool many = problem.m > skinny_max_m;
  if (many)
    // A tile of x for each tile of weights, of AMX, and the other way round: a load takes as long as a multiplication. From L2 both are slower.
    work.efficiency = (panels && k_block * real(settings.nr) * 2 <= l1_panel_bytes ? 1 : 0.85) * rows /
                      (rows * (1 + 16 / real(settings.nr)) + real(16 * passes));
  else if (panels)
    work.efficiency = tile_efficiency(settings.mr, settings.nr / panel_columns);
  else if (sums_as_panels(problem, settings) && !set_.at(settings.isa)->rows_read_x_panels)
    // Four shuffles of each vector of weights beside its products with mr rows.
    work.efficiency = real(settings.mr) / real(settings.mr + 4);
  else
    // Dot products along k have a vector of sums for each row of x and each feature, and add them up at the end.
    work.efficiency = 1 / (1 + 2 / real(settings.mr) + 1 / real(settings.nr));
  work.memory_bytes = weights;
  work.cache_bytes = real(problem.m * problem.n) * 8 * real(ceil_div(problem.k, settings.kc) - 1);
  if (many) work.cache_bytes /= inner_cache_speed;
  // The weight comes from an outer cache for each further group of rows; a group that is too large comes from there itself, once for 256
  // columns.
  work.cache_bytes += weights * real(grid.row_parts * grid.groups - 1);
  if (real(grid.group_tiles * settings.mr) * k_block * 2 > skinny_bytes_kept)
    work.cache_bytes += weights * real(problem.m) / 256;
  if (k_block * real(settings.nr) * 2 > inner_cache_bytes) work.cache_bytes += weights * real(passes - 1);
  if (fetches_near(problem, settings))
    work.exposed = settings.prefetch == 0 ? 1.0 : settings.prefetch > near_prefetch ? 0.65 : 0.3;
  else
    work.exposed = settings.prefetch >= 1024 ? 0.3 : settings.prefetch >= 512 ? 0.65 : 1.0;
  if (settings.splits > 1)
    work.tail_microseconds = real(settings.splits * problem.m * problem.n) / 4e3 + wake_microseconds;
  if (work.tiles_at_once > 1) work.tail_microseconds += wake_microseconds;
  MachineRates rates = machine_rates(settings.isa, problem.x_type, set_.level);
  if (gains_by_single_run(problem) &&
      !(is_single_run(problem, settings) && settings.prefetch >= run_prefetch))
    rates.memory_bytes_per_microsecond *= side_by_side_rate;
  if (reads_unaided(problem, settings)) model_unaided_reads(problem, settings, work, rates);
  // Tiles of 16 rows that hold one or two take 1.2 and 1.1 times as long as vectors (docs/lab/cpu_few_rows.md).
  if (settings.isa == Isa::amx && problem.m <= 2) rates.memory_bytes_per_microsecond *= 0.75;
  return gemmtune::predicted_microseconds(work, rates);
}

/// Prefetch distances in bytes for a core that reads unaided: none for few rows of x, far ones where multiplying takes as long as reading.
std::int64_t unaided_prefetch(const Problem& problem, const SkinnySettings& settings) {
  if (problem.m > settings.mr) return 0;
  if (layout_of(problem) == WeightLayout::panel16) return settings.mr > 8 ? run_prefetch : 0;
  if (settings.nr >= panel_columns) return 1024;
  return settings.mr > 4 ? run_prefetch : 0;
}

void SkinnyFamily::model_unaided_reads(const Problem& problem, const SkinnySettings& settings,
                                       KernelWork& work, MachineRates& rates) const {
  const bool panels = layout_of(problem) == WeightLayout::panel16;
  const auto nr = static_cast<double>(settings.nr);
  const std::int64_t row_bytes = problem.k * 2;
  rates.flops_per_microsecond = unaided_flops;
  rates.memory_bytes_per_microsecond = unaided_bytes;
  const bool one_pass = problem.m <= settings.mr;
  const bool fetched = settings.prefetch == unaided_prefetch(problem, settings) && (one_pass || !panels);
  work.exposed = fetched ? 0.3 : 0.6;
  if (panels) return;
  if (settings.nr < panel_columns) {
    // Dot products along k add up the lanes of a sum at the end of a row. One row of x has more loads than products.
    const double loads = settings.mr == 1 ? 1 + 1 / nr : 1;
    work.efficiency =
        0.78 * (1 - 0.2 / nr) / loads / (1 + products_of_a_sum / static_cast<double>(problem.k));
  } else {
    // Each further pass shuffles again.
    if (!one_pass) work.efficiency *= 0.75;
    if (settings.prefetch == 0) work.exposed = 1.0;
  }
  double rate = 1.0;
  if (settings.nr == 1) {
    const bool stays =
        settings.mr * row_bytes <= unaided_x_limit && row_bytes < long_row && problem.m <= settings.mr;
    if (!stays) rate = 0.5;
  } else if (settings.nr >= panel_columns) {
    rate = row_bytes >= short_row ? 0.7 : 0.6;
  } else {
    rate = row_bytes >= long_row ? 1.0 : row_bytes >= short_row ? 0.85 : 0.5;
    if (settings.nr == 2) rate *= 0.75;
  }
  rates.memory_bytes_per_microsecond *= rate;
}

Config SkinnyFamily::default_config(const Problem& problem) const {
  SkinnySettings best;
  double best_cost = 0;
  for (const Isa isa : useful_levels(set_, problem.x_type))
    for (const Tile& tile : tiles_of(*set_.at(isa), problem)) {
      SkinnySettings settings{
          .isa = isa, .mr = tile.mr, .nr = tile.nr, .kc = whole_k, .prefetch = 1024, .splits = 1};
      if (problem.m > skinny_max_m) {
        if (settings.mr > 32 && problem.m <= rows_that_wait) continue;
        choose_rows_and_depth(problem, settings);
      } else if (problem.m > settings.mr) {
        // Several passes: a block of weights stays in a cache, and the passes hide the fetching.
        settings.kc = layout_of(problem) == WeightLayout::panel16 ? 512
                      : reads_unaided(problem, settings)          ? whole_k
                                                                  : 2048;
        for (const std::int64_t value : kc_values)
          if (value >= problem.k) settings.kc = std::min(settings.kc, value);
        settings.prefetch = 0;
      } else if (gains_by_single_run(problem) && is_single_run(problem, settings)) {
        settings.prefetch = run_prefetch;
      } else if (reads_unaided(problem, settings)) {
        settings.prefetch = unaided_prefetch(problem, settings);
      } else if (fetches_near(problem, settings)) {
        settings.prefetch = near_prefetch;
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
