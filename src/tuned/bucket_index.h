// The buckets of Triton configs in a table of rows: found by architecture, operation and sizes, whatever the number of
// compute units and the types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "tuned/key.h"
#include "tuned/table.h"

namespace gemmtune {

/// What a Triton config's name says of a problem: the operation, N, K, the batch or the experts, and of a fused MoE the
/// kinds of the operands' types (16 bits, fp8, int8 …). Sizes that a name does not say are 0.
Problem bucket_group(const Problem& problem);

class BucketIndex {
 public:
  BucketIndex() = default;
  /// Of equal names (architecture, operation, sizes) the first file's buckets are taken, as a whole.
  explicit BucketIndex(std::span<const TunedEntry> entries);

  struct Hit {
    std::size_t entry = 0;      // index of the entries
    bool of_all_sizes = false;  // its file names no N and K
  };
  /// The bucket of the problem's M in the file that names most of its sizes: B, N and K, then experts and N, then N and K, then none. A file
  /// that names more replaces the others wholesale: where it has no bucket of the M there is no answer.
  std::optional<Hit> find(const LookupKey& key) const;

 private:
  struct Span {
    std::int64_t m_from = 0;
    std::int64_t m = 0;
    std::size_t entry = 0;
  };
  struct File {
    std::uint32_t source = 0;
    std::vector<Span> spans;  // ascending, disjoint
  };
  std::unordered_map<GroupKey, File, GroupKeyHash> files_;
};

}  // namespace gemmtune
