#include "backends/cpu/families/tiled/tiled.h"

#include <set>

#include "backends/cpu/families/own_families.h"
#include "backends/refusal.h"
#include "candidates/tune_gemm_rules.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t mc_values[] = {64, 128, 256, 512};
constexpr std::int64_t nc_values[] = {128, 256, 512, 1024, 2048};
constexpr std::int64_t kc_values[] = {128, 256, 512, 1024, 2048, 4096};
// What can be built beside them.
constexpr NumberRange mc_range{1, 4096};
constexpr NumberRange nc_range{panel_columns, 4096, panel_columns};
constexpr NumberRange kc_range{chunk_elements, 8192, chunk_elements};
constexpr NumberRange split_range{1, 64};
constexpr std::int64_t bound_by_weights = 128;  // rows
constexpr std::int64_t tiles_enough = 16;       // a thread: no split of k
constexpr std::int64_t max_partial_bytes = std::int64_t{64} << 20;
// For the cost model, of the machine that machine_rates describes.
constexpr double inner_cache_bytes = 768e3;  // of 1 MiB, beside what only passes through
constexpr double inner_cache_speed = 4;      // times the outer ones'
constexpr double spilt_share = 0.15;         // of x's re-reads from an outer cache, that are waited for
constexpr double fetched_share = 0.3;        // of weights' re-reads that vectors fetched ahead
constexpr double packing_passes = 10;  // what packing a plain weight costs, in passes over it through a cache
constexpr double wake_microseconds = 3;

/// The first value that holds `size`, at most `most`.
template <std::size_t count>
std::int64_t holding(const std::int64_t (&values)[count], std::int64_t size, std::int64_t most) {
  for (const std::int64_t value : values)
    if (value >= size || value == most) return value;
  return most;
}

struct Blocks {
  std::int64_t mc;
  std::int64_t nc;
  std::int64_t kc;
};
/// Blocks that are good without tuning. Vectors: what a block of weights meets stays in the inner cache, that
/// is x's rows (4 KiB of each) and the sums. AMX tiles multiply so fast that sums must be loaded and stored
/// less often.
Blocks default_blocks(const KernelSet& set, const Problem& problem) {
  const IsaKernels& kernels = *set.at(useful_levels(set, problem.x_type).front());
  const bool amx_tiles = kernels.rows_read_x_panels;
  const std::int64_t depth = amx_tiles ? 2048 : 4096 / compute_bytes(kernels, problem.x_type);
  return {.mc = holding(mc_values, problem.m, amx_tiles ? 512 : 128),
          .nc = holding(nc_values, problem.n, amx_tiles ? 512 : 256),
          .kc = holding(kc_values, problem.k, depth)};
}

/// ok for a8w8 of int8, with scales of rows and columns.
Status accepts_int8(const KernelSet& set, const Problem& problem) {
  if (problem.w_type != DataType::i8)
    return refusal::refuse(refusal::types, "x {} and w {} are not taken", to_string(problem.x_type),
                           to_string(problem.w_type));
  GEMMTUNE_RETURN_IF_ERROR(accepts_dense(problem));
  if (problem.k > tiled_integer_k)
    return refusal::refuse(refusal::reduction, "{} is not taken, only up to {} of int8", problem.k,
                           tiled_integer_k);
  if (useful_levels(set, DataType::i8).empty())
    return refusal::refuse(refusal::instructions,
                           "{} has no such kernels, they need AVX-512 with BF16 and VNNI",
                           to_string(set.level));
  return {};
}

/// The largest divisor of `threads` up to its square root.
std::int64_t square_divisor(std::int64_t threads) {
  std::int64_t best = 1;
  for (std::int64_t i = 2; i * i <= threads; ++i)
    if (threads % i == 0) best = i;
  return best;
}

struct Choice {
  TiledSettings settings;
  std::string_view split = "n";
};

class TiledFamily final : public LeafFamily {
 public:
  TiledFamily(const KernelSet& set, int threads) : set_(set), threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return "tiled"; }
  int tie_rank() const override { return 11; }
  Status accepts(const Problem& problem) const override {
    const OperationTraits& operation = traits(problem.operation);
    const bool scaled_rows =
        operation.quantization == QuantType::per_token && !operation.batched && !operation.own_w_type();
    if (scaled_rows && problem.x_type == DataType::i8) return accepts_int8(set_, problem);
    if (problem.operation != Operation::a16w16)
      return refusal::refuse(refusal::operation, "{} of {} is not taken, only a16w16, and a8w8 of int8",
                             to_string(form_of(problem)), to_string(problem.x_type));
    return accepts_a16w16(problem, refusal::Orders::any_input);
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return WeightLayout::panel16; }

  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    return make_tiled_kernel(set_, problem, choice_of(problem, config).settings);
  }

  std::string sum_order(const Problem& problem, const Config& config) const override {
    if (problem.x_type == DataType::i8) return std::string(integer_sum_order);
    const TiledSettings settings = choice_of(problem, config).settings;
    return settings.tree ? tree_sum_order(settings.isa, problem.k)
                         : panel_sum_order(settings.isa, settings.splits);
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return cost(problem, choice_of(problem, config));
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    const TiledSettings settings = choice_of(problem, config).settings;
    return settings.splits * problem.m * problem.n + settings.mc * problem.k;
  }

 private:
  Choice choice_of(const Problem& problem, const Config& config) const;
  void lay_grid(const Problem& problem, Choice& choice) const;
  std::string refuse_tile(const Problem& problem, const Choice& choice) const;
  std::string refuse_prefetch(const Problem& problem, const Choice& choice) const;
  std::string refuse_waste(const Problem& problem, const Choice& choice) const;
  std::string refuse_lower_isa(const Problem& problem, const Choice& choice) const;
  std::string refuse_split_k(const Problem& problem, const Choice& choice) const;
  std::string refuse_idle_split_k(const Problem& problem, const Choice& choice) const;
  std::string refuse_split(const Problem& problem, const Choice& choice) const;
  double cost(const Problem& problem, const Choice& choice) const;

  KernelSet set_;
  int threads_;
};

void TiledFamily::lay_grid(const Problem& problem, Choice& choice) const {
  TiledSettings& settings = choice.settings;
  const std::int64_t threads =
      std::max<std::int64_t>(worthwhile_threads(problem, threads_) / settings.splits, 1);
  if (choice.split == "m") settings.row_threads = threads;
  if (choice.split == "mn") settings.row_threads = square_divisor(threads);
  settings.row_threads = std::min(settings.row_threads, ceil_div(problem.m, settings.mr));
  settings.column_threads = std::min(threads / settings.row_threads, ceil_div(problem.n, settings.nr));
}

Choice TiledFamily::choice_of(const Problem& problem, const Config& config) const {
  Choice choice{.settings = {.isa = parse_isa(config.word("isa")).value_or(Isa::scalar),
                             .mr = config.number("mr", 1),
                             .nr = config.number("nr", 16),
                             .mc = config.number("mc", 128),
                             .nc = config.number("nc", 128),
                             .kc = config.number("kc", 256),
                             .prefetch = config.number("pf", 0),
                             .splits = config.number("sk", 1),
                             .tree = config.number("tree", 0) == 1},
                .split = config.word("split", "n")};
  lay_grid(problem, choice);
  return choice;
}

std::string TiledFamily::refuse_tile(const Problem& problem, const Choice& choice) const {
  const TiledSettings& settings = choice.settings;
  const IsaKernels* kernels = set_.at(settings.isa);
  if (kernels == nullptr) return "the device does not have this isa";
  const PanelList& list = tiled_panels(*kernels, problem);
  const std::int64_t panels = settings.nr / panel_columns;
  if (find(list, settings.mr, panels) == nullptr) return "mr x nr is no register tile of this isa and layout";
  return {};
}

std::string TiledFamily::refuse_prefetch(const Problem&, const Choice& choice) const {
  const IsaKernels* kernels = set_.at(choice.settings.isa);
  if (choice.settings.prefetch == 2 && kernels != nullptr && !kernels->rows_read_x_panels)
    return "pf 2 is for AMX tiles";
  return {};
}

/// Requires a register tile that the isa has.
std::string TiledFamily::refuse_waste(const Problem& problem, const Choice& choice) const {
  const TiledSettings& settings = choice.settings;
  const PanelList& list = tiled_panels(*set_.at(settings.isa), problem);
  const std::int64_t panels = settings.nr / panel_columns;
  const std::int64_t enough = fitting(list, problem.m, panels)->mr;
  if (settings.mr > enough) return "mr leaves rows of the register tile empty";
  // Small tiles load more than they multiply; they are for the ends of m only.
  std::int64_t largest = 0;
  for (int i = 0; i < list.count; ++i) {
    const std::int64_t useful =
        std::min<std::int64_t>(list.entries[i].mr, fitting(list, problem.m, list.entries[i].panels)->mr);
    if (useful == list.entries[i].mr)
      largest = std::max<std::int64_t>(largest, useful * list.entries[i].panels);
  }
  // Where few rows meet each weight, memory decides and smaller tiles keep up.
  const std::int64_t tile = settings.mr * panels;
  const bool few = problem.m > bound_by_weights ? tile * 3 < largest * 2 : tile * 2 < largest;
  if (few) return "mr x nr uses too few registers";
  return {};
}

std::string TiledFamily::refuse_lower_isa(const Problem& problem, const Choice& choice) const {
  const TiledSettings& settings = choice.settings;
  const bool preferred = settings.isa == useful_levels(set_, problem.x_type).front();
  const Blocks blocks = default_blocks(set_, problem);
  if (!preferred && (settings.mc != blocks.mc || settings.nc != blocks.nc))
    return "a lower isa is tried with one mc and nc only";
  return {};
}

std::string TiledFamily::refuse_split_k(const Problem& problem, const Choice& choice) const {
  const TiledSettings& settings = choice.settings;
  if (problem.x_type == DataType::i8 && (settings.splits > 1 || settings.tree))
    return "sk and tree are for sums of floats";
  if (settings.splits == 1) return {};
  if (settings.tree) return "sk splits k, and so does tree";
  if (settings.splits > threads_) return "sk is more than the threads";
  if (problem.k / settings.splits < 512) return "sk leaves less than 512 elements of k a split";
  if (settings.splits * problem.m * problem.n * 4 > max_partial_bytes)
    return "sk needs more than 64 MiB for partial sums";
  return {};
}

/// Requires a register tile that the isa has.
std::string TiledFamily::refuse_idle_split_k(const Problem& problem, const Choice& choice) const {
  const TiledSettings& settings = choice.settings;
  const std::int64_t tiles = ceil_div(problem.m, settings.mr) * ceil_div(problem.n, settings.nr);
  if (settings.splits > 1 && tiles >= tiles_enough * threads_)
    return "sk where all threads have tiles enough";
  return {};
}

std::string TiledFamily::refuse_split(const Problem& problem, const Choice& choice) const {
  const TiledSettings& settings = choice.settings;
  const std::int64_t threads = worthwhile_threads(problem, threads_) / settings.splits;
  if (choice.split != "n" && (threads < 2 || problem.m <= settings.mr))
    return "split by rows has nothing to split";
  if (choice.split == "mn" && square_divisor(threads) == 1) return "split mn means the same as split n";
  return {};
}

/// A blocking value is a limit: above the first that holds `size`, all mean the same.
template <std::size_t count>
std::string refuse_block(const std::int64_t (&values)[count], std::int64_t value, std::int64_t size) {
  for (const std::int64_t smaller : values)
    if (smaller < value && smaller >= size) return "a blocking value means the same as a smaller one";
  return {};
}

Space TiledFamily::space(const Problem& problem) const {
  Parameter isa{"isa", {}, "scalar", "instruction set"};
  std::set<std::int64_t> rows;
  std::set<std::int64_t> columns;
  for (const Isa level : useful_levels(set_, problem.x_type)) {
    isa.values.emplace_back(to_string(level));
    const PanelList& list = tiled_panels(*set_.at(level), problem);
    for (int i = 0; i < list.count; ++i) {
      rows.insert(list.entries[i].mr);
      columns.insert(list.entries[i].panels * panel_columns);
    }
  }
  Space space;
  space.add(std::move(isa));
  add_layout_parameter(to_string(layout_of(problem)), space);
  add_numbers(space, "mr", rows, "1", "rows of the register tile");
  add_numbers(space, "nr", columns, "16", "columns of the register tile");
  add_numbers(space, "mc", mc_values, "128", "rows a block", mc_range);
  add_numbers(space, "nc", nc_values, "128", "columns a block", nc_range);
  add_numbers(space, "kc", kc_values, "256", "elements of k a block", kc_range);
  space.add({"pf", {"0", "1", "2"}, "0", "prefetch: panels, and x"});
  space.add({"split", {"n", "m", "mn"}, "n", "what threads divide"});
  space.add({"sk", {"1", "2", "4"}, "1", "splits of k", split_range});
  add_tree_parameter(set_, problem.x_type, space);
  using Keys = std::vector<std::string>;
  const auto rule = [&](std::string name, Rule kind, auto refusal, Keys reads) {
    space.add(Constraint{std::move(name),
                         [this, problem, refusal](const Config& config) -> std::string {
                           return (this->*refusal)(problem, choice_of(problem, config));
                         },
                         kind, std::move(reads)});
  };
  const auto block_rule = [&](const char* key, const auto& values, std::int64_t size) {
    space.add(Constraint{
        key,
        [key, &values, size](const Config& c) { return refuse_block(values, c.number(key), size); },
        Rule::search,
        {key}});
  };
  rule("tile", Rule::build, &TiledFamily::refuse_tile, {"isa", "mr", "nr"});
  rule("pf", Rule::build, &TiledFamily::refuse_prefetch, {"isa", "pf"});
  rule("sk", Rule::build, &TiledFamily::refuse_split_k, {"sk", "tree"});
  rule("waste", Rule::search, &TiledFamily::refuse_waste, {"isa", "mr", "nr"});
  block_rule("mc", mc_values, problem.m);
  block_rule("nc", nc_values, problem.n);
  block_rule("kc", kc_values, problem.k);
  rule("lower isa", Rule::search, &TiledFamily::refuse_lower_isa, {"isa", "mc", "nc"});
  rule("idle sk", Rule::search, &TiledFamily::refuse_idle_split_k, {"mr", "nr", "sk"});
  rule("split", Rule::search, &TiledFamily::refuse_split, {"mr", "split", "sk"});
  space.add(split_k_divides(problem.k, "sk", 1));
  for (Constraint& each : tune_gemm_v2_rules(problem, [](const Config& config) {
         return TuneGemmConfig{.block_k = 1, .split_k = config.number("sk", 1)};
       }))
    space.add(std::move(each));
  return space;
}

double TiledFamily::cost(const Problem& problem, const Choice& choice) const {
  const TiledSettings& s = choice.settings;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const bool packed = layout_of(problem) == WeightLayout::panel16;
  const std::int64_t row_tiles = ceil_div(problem.m, s.mr);
  const std::int64_t column_tiles = ceil_div(problem.n, s.nr);
  const std::int64_t rest = problem.m - (row_tiles - 1) * s.mr;
  const std::int64_t last = fitting(tiled_panels(*set_.at(s.isa), problem), rest, s.nr / panel_columns)->mr;
  const double padded_m = real((row_tiles - 1) * s.mr + last);
  const double padded_n = real(round_up(problem.n, panel_columns));
  const double padded_k = real(round_up(problem.k, chunk_elements));
  const std::int64_t rounds = ceil_div(problem.m, std::max(s.mc, s.mr) * s.row_threads);
  const double weights = real(weight_bytes(problem));
  const double k_block = real(std::min(s.kc, problem.k));
  const double x_bytes = real(compute_bytes(*set_.at(s.isa), problem.x_type));

  KernelWork work;
  work.tiles = row_tiles * column_tiles * s.splits;
  work.tiles_at_once = s.row_threads * s.column_threads * s.splits;
  work.busiest_tiles = ceil_div(row_tiles, s.row_threads) * ceil_div(column_tiles, s.column_threads);
  work.flops = 2 * padded_m * padded_n * padded_k;
  work.efficiency = tile_efficiency(s.mr, s.nr / panel_columns);
  work.memory_bytes = weights;
  // Later rounds of rows find the weights in an outer cache; sums are loaded and stored once a block of k:
  // for AMX tiles in the inner cache, vectors also wait at each begin of a tile for what was not fetched
  // ahead.
  const bool amx_tiles = set_.at(s.isa)->rows_read_x_panels;
  const double k_blocks = real(ceil_div(problem.k, s.kc));
  work.cache_bytes = weights * real(rounds - 1) * (s.prefetch == 0 || amx_tiles ? 1 : fetched_share);
  work.cache_bytes += padded_m * padded_n * 8 * (k_blocks - 1) / (amx_tiles ? inner_cache_speed : 1);
  // x is read again for every column of tiles: from an outer cache, as far as it, the sums that wait for the
  // next block of k and the weights' panels do not fit into the inner one.
  const double rows = real(ceil_div(problem.m, rounds * s.row_threads));
  const double carried = k_blocks > 1 ? rows * real(std::min(s.nc, problem.n)) * 4 : 0;
  const double kept = (rows + real(s.nr)) * k_block * x_bytes + carried;
  // Cores with AMX tiles have an inner cache of twice the size.
  const double inner_bytes = (set_.level > Isa::avx512bf16 ? 2 : 1) * inner_cache_bytes;
  const double spilt = std::clamp(kept / inner_bytes - 1, 0.0, 1.0);
  work.cache_bytes += padded_m * padded_k * x_bytes * real(column_tiles) * spilt * spilt_share;
  if (packed) {
    // An AMX tile's loads run ahead of its multiplications by themselves.
    const double without_prefetch = amx_tiles ? 0.4 : 1.0;
    work.exposed = s.prefetch == 0 ? without_prefetch : 0.3;
  } else {
    work.cache_bytes += weights * real(rounds * s.row_threads) * packing_passes;
    if (real(std::min(s.nc, problem.n)) * k_block * x_bytes > inner_cache_bytes) {
      work.cache_bytes += weights * real(row_tiles);
    }
    work.exposed = 0.6;
  }
  if (s.splits > 1) work.tail_microseconds = real(s.splits * problem.m * problem.n) / 4e3 + wake_microseconds;
  if (work.tiles_at_once > 1) work.tail_microseconds += 2 * wake_microseconds;
  return gemmtune::predicted_microseconds(work, machine_rates(s.isa, problem.x_type, set_.level));
}

Config TiledFamily::default_config(const Problem& problem) const {
  const Blocks blocks = default_blocks(set_, problem);
  Choice best;
  double best_cost = 0;
  for (const Isa isa : useful_levels(set_, problem.x_type)) {
    const PanelList& list = tiled_panels(*set_.at(isa), problem);
    for (int i = 0; i < list.count; ++i) {
      Choice choice{
          .settings = {.isa = isa, .mr = list.entries[i].mr, .nr = list.entries[i].panels * panel_columns}};
      choice.settings.mc = blocks.mc;
      choice.settings.nc = blocks.nc;
      choice.settings.kc = blocks.kc;
      choice.settings.prefetch = 1;
      lay_grid(problem, choice);
      if (!refuse_tile(problem, choice).empty() || !refuse_waste(problem, choice).empty()) continue;
      const double microseconds = cost(problem, choice);
      if (best_cost != 0 && microseconds >= best_cost) continue;
      best_cost = microseconds;
      best = choice;
    }
  }
  const TiledSettings& s = best.settings;
  Config config{{"isa", to_string(s.isa)}, {"w", to_string(layout_of(problem))}};
  const std::pair<const char*, std::int64_t> numbers[] = {{"mr", s.mr}, {"nr", s.nr}, {"mc", s.mc},
                                                          {"nc", s.nc}, {"kc", s.kc}, {"pf", s.prefetch}};
  for (const auto& [key, value] : numbers) config.set(key, value);
  config.set("split", std::string(best.split));
  config.set("sk", s.splits);
  return config;
}

}  // namespace

std::unique_ptr<KernelFamily> make_tiled_family(const KernelSet& set, int threads) {
  return std::make_unique<TiledFamily>(set, threads);
}
std::unique_ptr<KernelFamily> make_tiled_family(Isa level, int threads) {
  return make_tiled_family(kernel_set(level), threads);
}

}  // namespace gemmtune::cpu
