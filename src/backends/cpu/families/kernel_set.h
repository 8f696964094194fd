// Which micro-kernels a family may use, and what all of our families share: the problems they take, how a
// config is checked, how x is cut into row tiles, how work is handed to the executor.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/machine/isa.h"
#include "backends/cpu/microkernels/micro.h"
#include "backends/cpu/microkernels/stream.h"
#include "backends/cpu/microkernels/w4.h"
#include "backends/cpu/threads/executor.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "candidates/cost_model.h"

namespace gemmtune::cpu {

inline constexpr int isa_levels = 5;

/// Null above the level. Tests put other kernels (an emulated AMX tile) in a place, or pretend another processor.
struct KernelSet {
  Isa level = Isa::scalar;
  RowReads row_reads = RowReads::side_by_side;
  std::array<const IsaKernels*, isa_levels> of{};
  /// Null too where the CPU lacks what they need beside the level (VBMI).
  std::array<const StreamKernels*, isa_levels> streams{};
  std::array<const W4Set*, isa_levels> w4{};
  const IsaKernels* at(Isa isa) const { return of[static_cast<std::size_t>(isa)]; }
  const StreamKernels* stream_at(Isa isa) const { return streams[static_cast<std::size_t>(isa)]; }
};
KernelSet kernel_set(Isa level);
/// The levels worth trying for a storage type, the preferred one first.
std::vector<Isa> useful_levels(const KernelSet& set, DataType type);

Element element_of(DataType type);
/// Of a packed element of x: of the level's floats, or of a storage type that may be int8.
std::int64_t compute_bytes(const IsaKernels& kernels);
std::int64_t compute_bytes(const IsaKernels& kernels, DataType type);
/// The order of sums of panel kernels (KernelFamily::sum_order): one chain along k for each of `splits` parts of it.
std::string panel_sum_order(Isa isa, std::int64_t splits);
/// A tree of sums has one chain for each part of k, and parts are added in pairs: (0 + 1) + (2 + 3), … A part is k halved as long
/// as halves are whole chunks of at least 256 elements. So k / 2, k / 4, … of such a problem has the same parts, and the sums of
/// its ranks added in pairs are the sums of the whole, bit for bit.
std::int64_t tree_parts(std::int64_t k);
std::string tree_sum_order(Isa isa, std::int64_t k);
/// Adds the parameter `tree`: 0 where it is absent, and 1 where a request chooses it; no search tries both. Trees are searched at
/// the preferred level of the type alone, so that those of a weight and of its ranks have one order.
void add_tree_parameter(const KernelSet& set, DataType type, Space& space);
/// Sums of the parts of a tree, one part after the other, of any number of elements.
class TreeSums {
 public:
  TreeSums(Isa isa, std::int64_t parts);
  /// Sums that wait for a partner, each of as many elements as a part's: at most as many.
  std::int64_t waiting() const { return levels_; }
  /// Adds to `sums`, those of part `index`, the sums that wait for them. True: `sums` are those of all parts; else they wait in
  /// `levels`, which are level_stride floats apart.
  bool add(std::int64_t index, float* sums, std::int64_t count, float* levels,
           std::int64_t level_stride) const;

 private:
  Isa isa_;
  std::int64_t levels_;
};

/// The order of sums of int8 in all families and at all levels: they are exact in int32, and float32(sum) is multiplied by the
/// product of the row's and the column's scale (DecodeKernels::scale_integer).
inline constexpr std::string_view integer_sum_order = "int32";
/// nullptr where the list has no such tile.
const PanelEntry* find(const PanelList& list, std::int64_t mr, std::int64_t panels);
const RowEntry* find(const RowList& list, std::int64_t mr, std::int64_t nr);
const ScaledPanelEntry* find(const ScaledPanelList& list, std::int64_t mr, std::int64_t panels);
const W4Entry* find(const W4List& list, std::int64_t mr, std::int64_t nr);
/// The tile with the fewest rows that still holds `rows` at this width; the largest where none does.
const PanelEntry* fitting(const PanelList& list, std::int64_t rows, std::int64_t panels);
const RowEntry* fitting(const RowList& list, std::int64_t rows, std::int64_t nr);
const W4Entry* fitting(const W4List& list, std::int64_t rows, std::int64_t nr);

/// ok for what all our a16w16 families take: f32, bf16 or f16 operands of one type, in these orders, plain or
/// panel16.
Status accepts_a16w16(const Problem& problem, refusal::Orders taken = refusal::Orders::row_major);
/// The part of it that any one multiplication has: y's type, one batch, order, layout.
Status accepts_dense(const Problem& problem, refusal::Orders taken = refusal::Orders::row_major);
/// panel16 for a problem whose weight is or may be packed, else plain.
WeightLayout layout_of(const Problem& problem);
/// Adds a parameter of numbers: `values` are worth trying, others of `range` can be built. The texts as Parameter has them.
template <typename Numbers>
void add_numbers(Space& space, std::string key, const Numbers& values, std::string absent,
                 std::string meaning, std::optional<NumberRange> range = {}) {
  std::vector<std::string> texts;
  for (const std::int64_t value : values) texts.push_back(std::to_string(value));
  space.add(Parameter{std::move(key), std::move(texts), std::move(absent), std::move(meaning), range});
}
/// Adds the parameter w, whose one value is the layout of the problem's weight. A config without w means
/// plain, and is refused if that is not the layout.
void add_layout_parameter(std::string_view layout, Space& space);
/// A stream's executor; never null in a kernel.
inline Executor& executor_of(Stream stream) { return *static_cast<Executor*>(stream.handle); }

/// The first of `parts` even shares of [0, count): share i is [share(count, parts, i), share(count, parts, i
/// + 1)).
inline constexpr std::int64_t share(std::int64_t count, std::int64_t parts, std::int64_t i) {
  return count * i / parts;
}

/// `rows` rows in tiles of mr, the last one as small as the kernels allow.
struct RowTiles {
  std::int64_t rows = 0;
  std::int64_t mr = 1;
  std::int64_t last_mr = 1;
  std::int64_t count() const { return ceil_div(rows, mr); }
  std::int64_t padded() const { return (count() - 1) * mr + last_mr; }
  std::int64_t size(std::int64_t tile) const { return tile + 1 < count() ? mr : last_mr; }
  /// Rows of the tile that are there.
  std::int64_t valid(std::int64_t tile) const { return std::min(mr, rows - tile * mr); }
};

/// Runs part(i) for all i in [0, parts) on at most executor.threads() threads; one part runs on the caller.
template <typename Part>
void run_on(Executor& executor, std::int64_t parts, Part&& part) {
  if (parts == 1) return part(std::int64_t{0});
  const std::int64_t workers = std::min<std::int64_t>(parts, executor.threads());
  if (workers <= 1) {
    for (std::int64_t i = 0; i < parts; ++i) part(i);
    return;
  }
  executor.run_parts(workers, [&](std::int64_t worker) {
    for (std::int64_t i = worker; i < parts; i += workers) part(i);
  });
}

/// Whether a packed weight of bf16 runs our panels untuned on a core that reads unaided, for any number of rows of x: `skinny` up to
/// skinny_panel_rows, then `tiled` (bench/results/epyc_zen4/in_a_program_untuned.csv). Where k is short oneDNN's layout stays, if none was chosen.
bool panels_lead_unaided(const Problem& problem, RowReads row_reads);
inline constexpr std::int64_t skinny_panel_rows = 16;

/// How many threads a problem is worth: a part should last several microseconds.
int worthwhile_threads(const Problem& problem, int threads);

/// Sums of split-K parts: partials[part][m][n], added in the order of the parts, then bias and rounding.
struct SplitSums {
  const float* partials = nullptr;
  std::int64_t parts = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  Store store = nullptr;
  std::int64_t y_bytes = 0;
};
void reduce_splits(const SplitSums& sums, const Operands& operands, Executor& executor, std::int64_t threads);

/// A rough core for the cost model: it only has to rank configs of one problem. `level`: the most that the
/// core can do.
MachineRates machine_rates(Isa isa, DataType type, Isa level);
/// The share of the multiplications' peak that a register tile reaches: loads of x for every row and of
/// weights for every vector of features beside its rows × vectors multiplications, and enough sums to hide
/// latency.
double tile_efficiency(std::int64_t rows, std::int64_t vectors);

}  // namespace gemmtune::cpu
