#include "backends/cpu/families/streaming/streaming.h"

#include <set>

#include "backends/cpu/families/own_families.h"
#include "backends/refusal.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t kc_values[] = {512, 2048, 16384};
constexpr std::int64_t whole_k = 16384;  // of one pass over x
constexpr std::int64_t pf_values[] = {0, 512, 1024, 2048, 4096};
// What can be built beside them; a block of scales is 128 elements of k.
constexpr NumberRange kc_range{128, whole_k, 128};
constexpr NumberRange pf_range{0, 16384, 64};
/// int32 sums of int8: 128² · k must stay below 2³¹.
constexpr std::int64_t max_integer_k = (std::int64_t{1} << 17) - 1;

StreamingSettings settings_of(const Config& config) {
  return {.isa = parse_isa(config.word("isa")).value_or(Isa::scalar),
          .mr = config.number("mr", 1),
          .nr = config.number("nr", 16),
          .kc = config.number("kc", whole_k),
          .prefetch = config.number("pf", 0)};
}

class StreamingFamily final : public LeafFamily {
 public:
  StreamingFamily(const KernelSet& set, int threads) : set_(set), threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return "streaming"; }
  int tie_rank() const override { return 15; }

  Status accepts(const Problem& problem) const override {
    if (!streamed_type(problem))
      return refusal::refuse(
          refusal::operation,
          "{} of {} is not taken, only int8, fp8 and fp4 with scales of both and one batch",
          to_string(form_of(problem)), to_string(problem.x_type));
    if (problem.m > streaming_max_m && problem.x_type != DataType::i8)
      return refusal::refuse(refusal::rows, "{} is not taken, only up to {}", problem.m, streaming_max_m);
    GEMMTUNE_RETURN_IF_ERROR(refusal::check_order(problem));
    if (problem.weight_layout != WeightLayout::panel16 && problem.weight_layout != WeightLayout::any)
      return refusal::refuse(refusal::layout, "{} is not taken, only panel16",
                             to_string(problem.weight_layout));
    if (problem.x_type == DataType::i8 && problem.k > max_integer_k)
      return refusal::refuse(refusal::reduction, "{} is not taken, only up to {} of int8", problem.k,
                             max_integer_k);
    if (streaming_levels(set_, *streamed_type(problem)).empty())
      return refusal::refuse(refusal::instructions,
                             "{} has no such kernels, they need AVX-512 with BF16, VNNI and VBMI",
                             to_string(set_.level));
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return WeightLayout::panel16; }

  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    return make_streaming_kernel(set_, problem, settings_of(config), threads_);
  }

  /// Lines along k, then blocks of scales. AMX tiles take another way for MXFP4 if a row of x has scales beyond bf16, and then
  /// all rows take it: no promise.
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const Isa isa = settings_of(config).isa;
    const Streamed type = *streamed_type(problem);
    if (type == Streamed::i8) return std::string(integer_sum_order);
    if (set_.stream_at(isa)->scales_packed_f4 && type == Streamed::f4_e2m1) return {};
    return fmt::format("lines-{}", to_string(isa));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return cost(problem, settings_of(config));
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    return problem.m * config.number("nr", 16);
  }

 private:
  std::string refuse_tile(const Problem& problem, const StreamingSettings& settings) const;
  std::string refuse_waste(const Problem& problem, const StreamingSettings& settings) const;
  double cost(const Problem& problem, const StreamingSettings& settings) const;
  /// The settings that are kept for a level unless a search finds better ones.
  StreamingSettings default_settings(const Problem& problem, Isa isa) const;

  KernelSet set_;
  int threads_;
};

std::string StreamingFamily::refuse_tile(const Problem& problem, const StreamingSettings& settings) const {
  const StreamKernels* kernels = set_.stream_at(settings.isa);
  if (kernels == nullptr) return "the device does not have this isa";
  if (find(*kernels, *streamed_type(problem), settings.mr, settings.nr / panel_columns) == nullptr)
    return "mr x nr is no register tile of this isa";
  return {};
}

/// Requires a register tile that the isa has.
std::string StreamingFamily::refuse_waste(const Problem& problem, const StreamingSettings& settings) const {
  const StreamKernels& kernels = *set_.stream_at(settings.isa);
  const Streamed type = *streamed_type(problem);
  const std::int64_t enough = fitting(kernels, type, problem.m, settings.nr / panel_columns)->mr;
  if (settings.mr > enough) return "mr leaves rows of the register tile empty";
  if (settings.mr * 2 < std::min<std::int64_t>(problem.m, fitting(kernels, type, problem.m, 1)->mr))
    return "mr makes more than two passes over the weights";
  return {};
}

/// All kc mean the same where one row tile holds x, and so do all of at least k.
std::string refuse_kc(const Problem& problem, const StreamingSettings& settings) {
  if (problem.m <= settings.mr && settings.kc != whole_k) return "kc means the same as another value";
  for (const std::int64_t smaller : kc_values)
    if (problem.m > settings.mr && smaller < settings.kc && smaller >= problem.k)
      return "kc means the same as a smaller one";
  return {};
}

Space StreamingFamily::space(const Problem& problem) const {
  std::set<std::int64_t> rows;
  std::set<std::int64_t> columns;
  Parameter isas{"isa", {}, "scalar", "instruction set"};
  for (const Isa isa : streaming_levels(set_, *streamed_type(problem))) {
    isas.values.emplace_back(to_string(isa));
    const int type = static_cast<int>(*streamed_type(problem));
    const StreamKernels& kernels = *set_.stream_at(isa);
    for (int i = 0; i < kernels.counts[type]; ++i) {
      rows.insert(kernels.entries[type][i].mr);
      columns.insert(kernels.entries[type][i].panels * panel_columns);
    }
  }
  Space space;
  space.add(std::move(isas));
  add_layout_parameter(to_string(WeightLayout::panel16), space);
  add_numbers(space, "mr", rows, "1", "rows of x in registers");
  add_numbers(space, "nr", columns, "16", "output features at once");
  add_numbers(space, "kc", kc_values, "16384", "elements of k a pass", kc_range);
  add_numbers(space, "pf", pf_values, "0", "prefetch distance in bytes", pf_range);
  space.add(Constraint{"tile",
                       [this, problem](const Config& c) { return refuse_tile(problem, settings_of(c)); },
                       Rule::build,
                       {"isa", "mr", "nr"}});
  space.add(Constraint{"waste",
                       [this, problem](const Config& c) { return refuse_waste(problem, settings_of(c)); },
                       Rule::search,
                       {"isa", "mr", "nr"}});
  space.add(Constraint{"kc",
                       [problem](const Config& c) { return refuse_kc(problem, settings_of(c)); },
                       Rule::search,
                       {"mr", "kc"}});
  return space;
}

double StreamingFamily::cost(const Problem& problem, const StreamingSettings& settings) const {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const std::int64_t passes = ceil_div(problem.m, settings.mr);
  const double weights = real(weight_bytes(problem));
  // Instructions a line of 64 bytes: decoding, then the rows' products; two a cycle of a third of a
  // nanosecond. An AMX tile multiplies 16 rows of a line in 2 cycles (fp8) or 4; beside it cores multiply
  // bf16 in vectors at half the rate.
  const bool f4 = problem.x_type == DataType::f4_e2m1;
  const bool i8 = problem.x_type == DataType::i8;
  double decoding = i8 ? 1 : f4 ? 4 : 8;
  double products = i8 ? 1 : f4 ? 2.75 : set_.level == Isa::amx ? 4 : 2;
  double loads = 0.3 * 16 / real(settings.nr);
  if (settings.isa == Isa::amx) {
    decoding = f4 ? 18 : 15;
    products = f4 ? 0.5 : 0.25;
    loads = 0.05 * 16 / real(settings.nr);
  }
  const double instructions = real(passes) * (decoding + real(settings.mr) * (products + loads));
  const double computing = weights / 64 * instructions / 6000;
  KernelWork work;
  work.tiles = ceil_div(problem.n, settings.nr);
  work.tiles_at_once = worthwhile_threads(problem, threads_);
  work.flops = computing * machine_rates(settings.isa, DataType::bf16, settings.isa).flops_per_microsecond;
  work.efficiency = 1;
  work.memory_bytes = weights;
  work.exposed = settings.prefetch >= 1024 ? 0.3 : settings.prefetch >= 512 ? 0.5 : 0.8;
  if (passes > 1 && settings.kc > 2048) work.cache_bytes = weights * real(passes - 1);
  return gemmtune::predicted_microseconds(work, machine_rates(settings.isa, DataType::bf16, settings.isa));
}

StreamingSettings StreamingFamily::default_settings(const Problem& problem, Isa isa) const {
  const StreamKernels& kernels = *set_.stream_at(isa);
  const Streamed type = *streamed_type(problem);
  const std::int64_t mr = fitting(kernels, type, problem.m, 1)->mr;
  // Tiles of two panels have two chains of sums.
  const bool two = (mr <= 4 || isa == Isa::amx) && find(kernels, type, mr, 2) != nullptr;
  return {.isa = isa,
          .mr = mr,
          .nr = two ? 2 * panel_columns : panel_columns,
          .kc = problem.m <= mr ? whole_k : kc_values[0],
          .prefetch = 1024};
}

Config StreamingFamily::default_config(const Problem& problem) const {
  StreamingSettings best;
  for (const Isa isa : streaming_levels(set_, *streamed_type(problem))) {
    const StreamingSettings settings = default_settings(problem, isa);
    if (best.isa == Isa::scalar || cost(problem, settings) < cost(problem, best)) best = settings;
  }
  return {{"isa", to_string(best.isa)}, {"w", "panel16"}, {"mr", best.mr}, {"nr", best.nr}, {"kc", best.kc},
          {"pf", best.prefetch}};
}

}  // namespace

std::vector<Isa> streaming_levels(const KernelSet& set, Streamed type) {
  std::vector<Isa> levels;
  for (int i = static_cast<int>(set.level); i >= 0; --i) {
    const StreamKernels* kernels = set.stream_at(static_cast<Isa>(i));
    if (kernels != nullptr && kernels->counts[static_cast<int>(type)] > 0)
      levels.push_back(static_cast<Isa>(i));
  }
  return levels;
}

std::optional<Streamed> streamed_type(const Problem& problem) {
  const OperationTraits& operation = traits(problem.operation);
  if (problem.w_type != problem.x_type || problem.batch != 1) return std::nullopt;
  if (operation.batched || operation.mixture) return std::nullopt;
  const bool fn = problem.x_type == DataType::f8_e4m3fn;
  const bool fnuz = problem.x_type == DataType::f8_e4m3fnuz;
  const auto of_fp8 = [&](Streamed as_fn, Streamed as_fnuz) {
    return fn ? std::optional(as_fn) : fnuz ? std::optional(as_fnuz) : std::nullopt;
  };
  switch (quantization(problem)) {
    case QuantType::per_tensor:
    case QuantType::per_token:
      if (problem.x_type == DataType::i8) return Streamed::i8;
      return of_fp8(Streamed::f8_e4m3fn, Streamed::f8_e4m3fnuz);
    case QuantType::per_1x128:
      return of_fp8(Streamed::f8_e4m3fn_block, Streamed::f8_e4m3fnuz_block);
    case QuantType::per_1x32:
      return problem.x_type == DataType::f4_e2m1 ? std::optional(Streamed::f4_e2m1) : std::nullopt;
    default:
      return std::nullopt;
  }
}

const StreamEntry* find(const StreamKernels& kernels, Streamed type, std::int64_t mr, std::int64_t panels) {
  const int index = static_cast<int>(type);
  for (int i = 0; i < kernels.counts[index]; ++i) {
    const StreamEntry& entry = kernels.entries[index][i];
    if (entry.mr == mr && entry.panels == panels) return &entry;
  }
  return nullptr;
}

const StreamEntry* fitting(const StreamKernels& kernels, Streamed type, std::int64_t rows,
                           std::int64_t panels) {
  const int index = static_cast<int>(type);
  const StreamEntry* best = nullptr;
  for (int i = 0; i < kernels.counts[index]; ++i) {
    const StreamEntry& entry = kernels.entries[index][i];
    if (entry.panels != panels) continue;
    const bool better = best == nullptr || (entry.mr >= rows ? best->mr < rows || entry.mr < best->mr
                                                             : best->mr < rows && entry.mr > best->mr);
    if (better) best = &entry;
  }
  return best;
}

std::unique_ptr<KernelFamily> make_streaming_family(const KernelSet& set, int threads) {
  return std::make_unique<StreamingFamily>(set, threads);
}
std::unique_ptr<KernelFamily> make_streaming_family(Isa level, int threads) {
  return make_streaming_family(kernel_set(level), threads);
}

}  // namespace gemmtune::cpu
