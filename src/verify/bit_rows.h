// The rows that tell bit classes apart, where they are placed, and the comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "verify/bit_class.h"
#include "verify/inputs.h"

namespace gemmtune {

inline constexpr std::int64_t probe_rows = 6;      // whose bits count
inline constexpr std::int64_t neighbour_rows = 6;  // that stand beside them

/// The problem whose operands the kernels of all M share: probe rows, then neighbour rows.
Problem bit_problem(const Problem& problem);
/// How many sets of operands of the problem are compared: more of them if y has few columns.
int bit_sets(const Problem& problem);
/// Operands of bit_problem(). Rows of x of a float type differ in kind: their products cancel, their magnitudes change
/// along k, the last elements are the largest, or no element is negative.
Result<HostOperands> bit_operands(const Problem& problem, int set, std::uint64_t seed, int threads);

/// The M at which a kernel is run beside the problem's own, as far as its family takes them.
std::vector<std::int64_t> other_bit_ms(std::int64_t m);
/// What a bit class was seen on, in words.
std::string bit_evidence(const Problem& problem);

/// What a placement changes.
enum class Varied { nothing, neighbours, position };

/// Which row of bit_problem() stands at each row of x.
struct RowPlacement {
  Varied varied = Varied::nothing;
  std::vector<std::int32_t> rows;
};

/// Placements for `m` rows: those that change nothing first, twice each; together they hold every probe row.
std::vector<RowPlacement> row_placements(std::int64_t m);

/// The operands of `rows.size()` rows: x with its scales, and the routes of a mixture. The others are those of `all`.
HostOperands placed_rows(const Problem& problem, const HostOperands& all, std::span<const std::int32_t> rows);

/// Where a placement has its probe rows, in order.
std::vector<std::int64_t> placed_probes(const RowPlacement& placement);

/// An output to compare: of every batch the rows of y that placed_probes() names, dense.
struct PlacedOutput {
  int set = 0;
  const Problem* problem = nullptr;  // with its M and the type of y
  const RowPlacement* placement = nullptr;
  std::span<const std::byte> y;
};

/// Collects the bits of probe rows.
class BitClassBuilder {
 public:
  /// Empty if every probe row has the bits that it had before, else what differs, and where it does first.
  std::string add(const PlacedOutput& output);
  /// Of all bits that were added.
  std::string id() const;

 private:
  using Key = std::tuple<int, int, std::int64_t, std::int32_t>;  // type of y, set, batch, probe row
  struct Seen {
    std::vector<std::byte> bits;
    std::int64_t m = 0;
    std::int64_t row = 0;
  };

  static std::string difference(const PlacedOutput& output, const Seen& seen, std::int64_t row,
                                std::span<const std::byte> bits);

  std::map<Key, Seen> seen_;
};

}  // namespace gemmtune
