#include "backends/cpu/families/skinny_w4/skinny_w4.h"

#include <set>

#include "backends/cpu/families/own_families.h"
#include "backends/refusal.h"
#include "problem/operands.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t pf_values[] = {0, 512, 1024, 2048, 4096, 8192};
constexpr std::int64_t default_pf = 8192;
// What can be built beside them.
constexpr NumberRange pf_range{0, 16384, 64};

SkinnyW4Settings settings_of(const Config& config) {
  return {.isa = parse_isa(config.word("isa")).value_or(Isa::scalar),
          .mr = config.number("mr", 1),
          .nr = config.number("nr", 1),
          .prefetch = config.number("pf", 0)};
}

Config config_of(const SkinnyW4Settings& settings) {
  Config config;
  config.set("isa", std::string(to_string(settings.isa)));
  config.set("mr", settings.mr);
  config.set("nr", settings.nr);
  config.set("pf", settings.prefetch);
  return config;
}

std::string refuse_tile(const KernelSet& set, const Problem& problem, const SkinnyW4Settings& settings) {
  const W4Kernels* kernels = w4_kernels(set, settings.isa, problem);
  if (kernels == nullptr) return "the device does not have this isa, or it cannot multiply the types";
  if (find(*kernels, nibble_of(problem), settings.mr, settings.nr) == nullptr)
    return "mr x nr is no register tile of this isa";
  return {};
}

/// Requires a register tile that the isa has.
std::string refuse_waste(const KernelSet& set, const Problem& problem, const SkinnyW4Settings& settings) {
  const W4Kernels& kernels = *w4_kernels(set, settings.isa, problem);
  const Nibble format = nibble_of(problem);
  if (settings.mr > fitting(kernels, format, problem.m, settings.nr)->mr)
    return "mr leaves rows of the register tile empty";
  if (settings.mr * 4 < std::min<std::int64_t>(problem.m, fitting(kernels, format, problem.m, 1)->mr))
    return "mr decodes the weights more than four times";
  return {};
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
    if (problem.m > skinny_w4_max_m)
      return refusal::refuse(refusal::rows, "{} is not taken, only up to {}", problem.m, skinny_w4_max_m);
    GEMMTUNE_RETURN_IF_ERROR(refusal::check_order(problem));
    if (problem.weight_layout != WeightLayout::plain)
      return refusal::refuse(refusal::layout, "{} is not taken, only plain",
                             to_string(problem.weight_layout));
    if (w4_levels(set_, problem).empty())
      return refusal::refuse(refusal::instructions, "{} has no such kernels, they need AVX2",
                             to_string(set_.level));
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }

  Space space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override;

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    return make_skinny_w4_kernel(set_, problem, settings_of(config), threads_);
  }

  /// A total for each lane of a line, along k; then the lanes in one order.
  std::string sum_order(const Problem&, const Config& config) const override {
    return fmt::format("w4-lanes-{}", config.word("isa"));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return cost(problem, settings_of(config));
  }
  std::int64_t resources(const Problem&, const Config& config) const override {
    return config.number("mr", 1) * config.number("nr", 1);
  }

 private:
  double cost(const Problem& problem, const SkinnyW4Settings& settings) const;

  KernelSet set_;
  int threads_;
};

Space SkinnyW4Family::space(const Problem& problem) const {
  Parameter isa{.key = "isa", .values = {}, .absent = "scalar", .meaning = "instruction set"};
  std::set<std::int64_t> rows;
  std::set<std::int64_t> columns;
  for (const Isa level : w4_levels(set_, problem)) {
    isa.values.emplace_back(to_string(level));
    const W4Kernels& kernels = *w4_kernels(set_, level, problem);
    const W4Entry* entries = kernels.entries[static_cast<int>(nibble_of(problem))];
    for (int i = 0; i < kernels.count; ++i) {
      rows.insert(entries[i].mr);
      columns.insert(entries[i].nr);
    }
  }
  Space space;
  space.add(std::move(isa));
  space.add(Parameter{
      .key = "mr", .values = number_texts(rows), .absent = "1", .meaning = "rows of x in registers"});
  space.add(Parameter{
      .key = "nr", .values = number_texts(columns), .absent = "1", .meaning = "rows of the weight at once"});
  space.add(Parameter{.key = "pf",
                      .values = number_texts(pf_values),
                      .absent = "0",
                      .meaning = "prefetch distance in bytes",
                      .range = pf_range});
  space.add(
      Constraint{"tile",
                 [this, problem](const Config& c) { return refuse_tile(set_, problem, settings_of(c)); },
                 Rule::build,
                 {"isa", "mr", "nr"}});
  space.add(
      Constraint{"waste",
                 [this, problem](const Config& c) { return refuse_waste(set_, problem, settings_of(c)); },
                 Rule::search,
                 {"isa", "mr", "nr"}});
  return space;
}

double SkinnyW4Family::cost(const Problem& problem, const SkinnyW4Settings& settings) const {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const W4Kernels& kernels = *w4_kernels(set_, settings.isa, problem);
  const double lines =
      real(round_up(problem.n, settings.nr)) * real(ceil_div(problem.k, kernels.line_elements));
  // Instructions of a line: decoding and scales for each tile of rows; for each row its products, the scale and loads of
  // x, which rows of the weight share and which cost more if x does not stay in the inner cache. Two a cycle of a third of
  // a nanosecond.
  constexpr double inner_cache = 40e3;
  constexpr double outer_load = 3.5;
  const double products = real(kernels.x_line_bytes) / real(kernels.line_elements / lane_elements * 4);
  const double x_bytes = real(std::min(problem.m, settings.mr) * ceil_div(problem.k, kernels.line_elements) *
                              kernels.x_line_bytes);
  const double load = x_bytes > inner_cache ? outer_load : 1;
  const double decoding = 2 * products + 4;
  const double row = products + 1.5 + load * products / real(settings.nr);
  const double rows = real(round_up(problem.m, settings.mr));
  const double computing = lines * (rows / real(settings.mr) * decoding + rows * row) / 6000;
  const MachineRates machine = machine_rates(settings.isa, DataType::bf16, settings.isa);
  KernelWork work;
  work.tiles = ceil_div(problem.n, settings.nr);
  work.tiles_at_once = worthwhile_threads(problem, threads_);
  work.flops = computing * machine.flops_per_microsecond;
  work.efficiency = 1;
  work.memory_bytes = real(weight_bytes(problem));
  work.exposed = settings.prefetch >= 4096 ? 0.3 : settings.prefetch >= 1024 ? 0.6 : 0.8;
  return gemmtune::predicted_microseconds(work, machine);
}

Config SkinnyW4Family::default_config(const Problem& problem) const {
  SkinnyW4Settings best;
  double best_cost = 0;
  for (const Isa isa : w4_levels(set_, problem)) {
    const W4Kernels& kernels = *w4_kernels(set_, isa, problem);
    const W4Entry* entries = kernels.entries[static_cast<int>(nibble_of(problem))];
    for (int i = 0; i < kernels.count; ++i) {
      const SkinnyW4Settings settings{
          .isa = isa, .mr = entries[i].mr, .nr = entries[i].nr, .prefetch = default_pf};
      if (!refuse_waste(set_, problem, settings).empty()) continue;
      const double microseconds = cost(problem, settings);
      if (best_cost != 0 && microseconds >= best_cost) continue;
      best_cost = microseconds;
      best = settings;
    }
  }
  return config_of(best);
}

}  // namespace

Nibble nibble_of(const Problem& problem) {
  if (problem.w_type != DataType::i4) return Nibble::e2m1;
  return problem.zero_points ? Nibble::i4_zero_points : Nibble::i4;
}

const W4Kernels* w4_kernels(const KernelSet& set, Isa isa, const Problem& problem) {
#if defined(GEMMTUNE_X86_KERNELS)
  if (set.at(isa) == nullptr) return nullptr;
  const W4Set* kernels = isa == Isa::avx2         ? &avx2_w4_kernels
                         : isa == Isa::avx512     ? &avx512_w4_kernels
                         : isa == Isa::avx512bf16 ? &avx512bf16_w4_kernels
                                                  : nullptr;
  if (kernels == nullptr) return nullptr;
  if (problem.x_type == DataType::i8) return &kernels->bytes;
  // bf16 does not hold fp16.
  return problem.x_type == DataType::f16 && set.at(isa)->bf16_compute ? nullptr : &kernels->floats;
#else
  (void)set, (void)isa, (void)problem;
  return nullptr;
#endif
}

std::vector<Isa> w4_levels(const KernelSet& set, const Problem& problem) {
  std::vector<Isa> levels;
  for (int i = static_cast<int>(set.level); i >= 0; --i)
    if (w4_kernels(set, static_cast<Isa>(i), problem) != nullptr) levels.push_back(static_cast<Isa>(i));
  return levels;
}

const W4Entry* find(const W4Kernels& kernels, Nibble format, std::int64_t mr, std::int64_t nr) {
  const W4Entry* entries = kernels.entries[static_cast<int>(format)];
  for (int i = 0; i < kernels.count; ++i)
    if (entries[i].mr == mr && entries[i].nr == nr) return &entries[i];
  return nullptr;
}

const W4Entry* fitting(const W4Kernels& kernels, Nibble format, std::int64_t rows, std::int64_t nr) {
  const W4Entry* entries = kernels.entries[static_cast<int>(format)];
  const W4Entry* best = nullptr;
  for (int i = 0; i < kernels.count; ++i) {
    if (entries[i].nr != nr) continue;
    const bool better =
        best == nullptr || (entries[i].mr >= rows ? best->mr < rows || entries[i].mr < best->mr
                                                  : best->mr < rows && entries[i].mr > best->mr);
    if (better) best = &entries[i];
  }
  return best;
}

std::unique_ptr<KernelFamily> make_skinny_w4_family(const KernelSet& set, int threads) {
  return std::make_unique<SkinnyW4Family>(set, threads);
}
std::unique_ptr<KernelFamily> make_skinny_w4_family(Isa level, int threads) {
  return make_skinny_w4_family(kernel_set(level), threads);
}

}  // namespace gemmtune::cpu
