#include "backends/cpu/families/kernel_set.h"

#include <bit>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {
namespace {

bool is_wide(DataType type) {
  return type == DataType::f32 || type == DataType::bf16 || type == DataType::f16;
}

int width(const PanelEntry& entry) { return entry.panels; }
int width(const ScaledPanelEntry& entry) { return entry.panels; }
int width(const RowEntry& entry) { return entry.nr; }
int width(const W4Entry& entry) { return entry.nr; }

template <typename List>
auto find_in(const List& list, std::int64_t mr, std::int64_t wanted) -> decltype(list.entries) {
  for (int i = 0; i < list.count; ++i)
    if (list.entries[i].mr == mr && width(list.entries[i]) == wanted) return &list.entries[i];
  return nullptr;
}

template <typename List>
auto fitting_in(const List& list, std::int64_t tile_rows, std::int64_t wanted) -> decltype(list.entries) {
  decltype(list.entries) best = nullptr;
  for (int i = 0; i < list.count; ++i) {
    const auto* entry = &list.entries[i];
    if (width(*entry) != wanted) continue;
    const bool holds = entry->mr >= tile_rows;
    const bool best_holds = best != nullptr && best->mr >= tile_rows;
    if (best == nullptr || (holds && (!best_holds || entry->mr < best->mr)) ||
        (!best_holds && entry->mr > best->mr))
      best = entry;
  }
  return best;
}

}  // namespace

KernelSet kernel_set(Isa level) {
  KernelSet set{.level = level, .row_reads = detect_row_reads(), .of = {&scalar_kernels}, .streams = {}};
#if defined(GEMMTUNE_X86_KERNELS)
  const IsaKernels* const all[] = {&scalar_kernels, &avx2_kernels, &avx512_kernels, &avx512bf16_kernels,
                                   &amx_kernels};
  for (int i = 0; i <= static_cast<int>(level); ++i) set.of[static_cast<std::size_t>(i)] = all[i];
  const W4Set* const of_four_bits[] = {nullptr, &avx2_w4_kernels, &avx512_w4_kernels, &avx512bf16_w4_kernels,
                                       &amx_w4_kernels};
  for (int i = 0; i <= static_cast<int>(level); ++i) set.w4[static_cast<std::size_t>(i)] = of_four_bits[i];
  if (level >= Isa::avx512bf16 && has_byte_permutes()) {
    set.streams[static_cast<std::size_t>(Isa::avx512bf16)] = &avx512vbmi_stream_kernels;
    if (level >= Isa::amx) set.streams[static_cast<std::size_t>(Isa::amx)] = &amx_stream_kernels;
  }
#endif
  return set;
}

std::vector<Isa> useful_levels(const KernelSet& set, DataType type) {
  const std::size_t most = type == DataType::bf16 && set.level == Isa::amx ? 3 : 2;
  std::vector<Isa> levels;
  for (int i = static_cast<int>(set.level); i >= 0 && levels.size() < most; --i) {
    const Isa isa = static_cast<Isa>(i);
    const IsaKernels* kernels = set.at(isa);
    if (kernels == nullptr || kernels->pack_x[static_cast<int>(element_of(type))] == nullptr) continue;
    if (isa == Isa::scalar && !levels.empty()) break;
    levels.push_back(isa);
  }
  return levels;
}

Element element_of(DataType type) {
  if (type == DataType::bf16) return Element::bf16;
  if (type == DataType::i8) return Element::i8;
  return type == DataType::f16 ? Element::f16 : Element::f32;
}

std::int64_t compute_bytes(const IsaKernels& kernels) { return kernels.bf16_compute ? 2 : 4; }
std::int64_t compute_bytes(const IsaKernels& kernels, DataType type) {
  return type == DataType::i8 ? 1 : compute_bytes(kernels);
}

std::string panel_sum_order(Isa isa, std::int64_t splits) {
  // Sums of AVX2 and AVX-512 are the same multiply-adds; bf16 pairs and AMX tiles add two products at once.
  const char* unit = isa == Isa::scalar ? "scalar" : isa == Isa::avx2 || isa == Isa::avx512 ? "fma" : nullptr;
  return fmt::format("chain-{}-sk{}", unit == nullptr ? to_string(isa) : std::string_view(unit), splits);
}

std::int64_t tree_parts(std::int64_t k) {
  constexpr std::int64_t min_part = 256;
  std::int64_t parts = 1;
  while (k % (2 * parts * chunk_elements) == 0 && k / (2 * parts) >= min_part) parts *= 2;
  return parts;
}

std::string tree_sum_order(Isa isa, std::int64_t k) {
  return fmt::format("tree of {} in {}", k / tree_parts(k), panel_sum_order(isa, 1));
}

void add_tree_parameter(const KernelSet& set, DataType type, Space& space) {
  space.add({"tree", {}, "0", "1: segments of k, added in pairs", NumberRange{0, 1}});
  space.add(
      Constraint{"tree isa",
                 [isa = std::string(to_string(useful_levels(set, type).front()))](const Config& config) {
                   const bool other = config.number("tree", 0) == 1 && config.word("isa") != isa;
                   return std::string(other ? "a tree is tried with the preferred isa alone" : "");
                 },
                 Rule::search,
                 {"isa", "tree"}});
}

TreeSums::TreeSums(Isa isa, std::int64_t parts)
    : isa_(isa), levels_(std::countr_zero(static_cast<std::uint64_t>(parts))) {}

bool TreeSums::add(std::int64_t index, float* sums, std::int64_t count, float* levels,
                   std::int64_t level_stride) const {
  const std::int64_t level = std::countr_one(static_cast<std::uint64_t>(index));
  for (std::int64_t i = 0; i < level; ++i)
    decode_kernels(isa_).add_row(
        {.row = levels + i * level_stride, .factor = 1, .count = count, .sum = sums, .add = true});
  if (level == levels_) return true;
  std::copy_n(sums, count, levels + level * level_stride);
  return false;
}

const PanelEntry* find(const PanelList& list, std::int64_t mr, std::int64_t panels) {
  return find_in(list, mr, panels);
}
const RowEntry* find(const RowList& list, std::int64_t mr, std::int64_t nr) { return find_in(list, mr, nr); }
const ScaledPanelEntry* find(const ScaledPanelList& list, std::int64_t mr, std::int64_t panels) {
  return find_in(list, mr, panels);
}
const W4Entry* find(const W4List& list, std::int64_t mr, std::int64_t nr) { return find_in(list, mr, nr); }
const PanelEntry* fitting(const PanelList& list, std::int64_t rows, std::int64_t panels) {
  return fitting_in(list, rows, panels);
}
const RowEntry* fitting(const RowList& list, std::int64_t rows, std::int64_t nr) {
  return fitting_in(list, rows, nr);
}
const W4Entry* fitting(const W4List& list, std::int64_t rows, std::int64_t nr) {
  return fitting_in(list, rows, nr);
}

Status accepts_a16w16(const Problem& problem, refusal::Orders taken) {
  GEMMTUNE_RETURN_IF_ERROR(refusal::check_plain_gemm(problem, taken));
  if (!is_wide(problem.x_type) || problem.w_type != problem.x_type)
    return refusal::refuse(refusal::types, "x {} and w {} are not taken, only f32, bf16 or f16 for both",
                           to_string(problem.x_type), to_string(problem.w_type));
  return accepts_dense(problem, taken);
}

Status accepts_dense(const Problem& problem, refusal::Orders taken) {
  if (!is_wide(problem.y_type))
    return refusal::refuse(refusal::types, "y {} is not taken, only f32, bf16 or f16",
                           to_string(problem.y_type));
  GEMMTUNE_RETURN_IF_ERROR(refusal::check_one_batch(problem, taken));
  const WeightLayout layout = problem.weight_layout;
  if (layout != WeightLayout::any && layout != WeightLayout::plain && layout != WeightLayout::panel16)
    return refusal::refuse(refusal::layout, "{} is not taken, only plain and panel16", to_string(layout));
  return {};
}

WeightLayout layout_of(const Problem& problem) {
  const bool packed = is_packed(problem) || problem.weight_layout == WeightLayout::panel16;
  return packed ? WeightLayout::panel16 : WeightLayout::plain;
}

void add_layout_parameter(std::string_view layout, Space& space) {
  space.add({"w", {std::string(layout)}, "plain", "weight layout"});
  space.add(Constraint{"w",
                       [layout = std::string(layout)](const Config& config) -> std::string {
                         return config.word("w", "plain") == layout ? "" : "w is not the weight's layout";
                       },
                       Rule::build,
                       {"w"}});
}

Panel16 panel16_of(const Problem& problem) {
  const std::int64_t pair = problem.w_type == DataType::bf16 ? 2 : problem.w_type == DataType::i8 ? 4 : 1;
  return {.n = problem.n, .k = problem.k, .element_bytes = bytes_of(problem.w_type, 1), .pair = pair};
}

bool panels_lead_unaided(const Problem& problem, RowReads row_reads) {
  return row_reads == RowReads::unaided && problem.operation == Operation::a16w16 &&
         problem.x_type == DataType::bf16 && problem.y_type == problem.x_type && is_packed(problem) &&
         (problem.weight_layout == WeightLayout::panel16 || problem.k > 512);
}

int worthwhile_threads(const Problem& problem, int threads) {
  const double microseconds = std::max(bytes(problem) / 15e3, flops(problem) / 100e3);
  constexpr double smallest_part = 6;
  return static_cast<int>(
      std::clamp<std::int64_t>(static_cast<std::int64_t>(microseconds / smallest_part), 1, threads));
}

void reduce_splits(const SplitSums& sums, const Operands& operands, Executor& executor,
                   std::int64_t threads) {
  constexpr std::int64_t block = 256;
  const std::int64_t blocks = ceil_div(sums.n, block);
  run_on(executor, std::min(threads, blocks), [&](std::int64_t part) {
    const std::int64_t parts = std::min(threads, blocks);
    alignas(64) float total[block];
    for (std::int64_t b = share(blocks, parts, part); b < share(blocks, parts, part + 1); ++b)
      for (std::int64_t row = 0; row < sums.m; ++row) {
        const std::int64_t first = b * block;
        const std::int64_t columns = std::min(block, sums.n - first);
        const float* from = sums.partials + row * sums.n + first;
        for (std::int64_t j = 0; j < columns; ++j) total[j] = from[j];
        for (std::int64_t split = 1; split < sums.parts; ++split) {
          const float* more = from + split * sums.m * sums.n;
          for (std::int64_t j = 0; j < columns; ++j) total[j] += more[j];
        }
        const auto* bias = static_cast<const char*>(operands.bias);
        sums.store({.tile = total,
                    .ldt = block,
                    .rows = 1,
                    .columns = columns,
                    .bias = bias == nullptr ? nullptr : bias + first * sums.y_bytes,
                    .y = static_cast<char*>(operands.y) + (row * operands.ldy + first) * sums.y_bytes,
                    .ldy = operands.ldy});
      }
  });
}

MachineRates machine_rates(Isa isa, DataType type, Isa level) {
  // Orders of magnitude of one core at 3.5 GHz; below bf16 units, 16-bit types are widened on the way. Cores
  // with AMX tiles multiply bf16 in vectors at a quarter of the others' rate.
  constexpr double rates[] = {10e3, 110e3, 220e3, 450e3, 2000e3};
  double widening = type == DataType::f32 || isa > Isa::avx512 ? 1.0 : 0.5;
  if (isa == Isa::avx512bf16 && level > Isa::avx512bf16) widening = 0.25;
  if (type == DataType::i8) widening *= 2;
  return {.units = 1,
          .flops_per_microsecond = rates[static_cast<int>(isa)] * widening,
          .memory_bytes_per_microsecond = 10e3,
          .shared_bytes_per_microsecond = 0,
          .cache_bytes_per_microsecond = 30e3,
          .start_microseconds = 0};
}

double tile_efficiency(std::int64_t rows, std::int64_t vectors) {
  constexpr double sums_for_latency = 16;
  const auto r = static_cast<double>(rows);
  const auto v = static_cast<double>(vectors);
  return std::min(1.0, r * v / sums_for_latency) / (1 + 1.5 / r + 0.35 / v);
}

}  // namespace gemmtune::cpu
