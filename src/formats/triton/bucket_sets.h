// Sets of Triton configs beside each other: what changed, and several as one. Files with the same name (architecture, family,
// sizes) are one, wherever they lie.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "formats/diagnostics.h"
#include "formats/triton/triton_json.h"
#include "tuned/difference.h"

namespace gemmtune {

/// A bucket that look-up can find (of a key that comes twice the last), and its file.
struct PlacedBucket {
  const TritonFile* file = nullptr;  // null: there is none
  const TritonBucket* bucket = nullptr;
};

struct BucketChange {
  ChangeKind kind = ChangeKind::added;  // or removed, or winner: another kernel or other parameters
  PlacedBucket before;                  // none where added
  PlacedBucket after;                   // none where removed
  const PlacedBucket& place() const { return after.file != nullptr ? after : before; }
};

struct BucketDifference {
  std::vector<BucketChange> changes;  // in the order of `before`, then what was added
  std::size_t equal = 0;
};

/// By name and key of the bucket. Two single files are compared whatever their names are. Of two files with one name the
/// first counts. A bucket with a kernelName is that kernel, whatever its other parameters say.
BucketDifference compare_triton_files(std::span<const TritonFile> before, std::span<const TritonFile> after);

struct MergedConfigs {
  std::vector<TritonFile> files;  // in the order of their first ones; `path` is that of the first
  std::size_t buckets = 0;
  std::size_t duplicates = 0;     // buckets that an earlier file has
  std::vector<LeftOut> left_out;  // keys of another scheme than the first file's, notes that differ from its
};

/// Of one key the first file's bucket stays: configs have no times.
MergedConfigs merge_triton_files(std::span<const TritonFile> files);

/// "kernel tiled_r1_…", or the parameters.
std::string describe_config(const TritonConfig& config);

}  // namespace gemmtune
