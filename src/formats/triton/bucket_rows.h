// Triton configs as rows: what look-up asks of their buckets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/triton/triton_json.h"
#include "tuned/entry.h"

namespace gemmtune {

/// The one key of a bucket that is gemmtune's: the name of a kernel, which holds all of its parameters.
inline constexpr std::string_view kernel_name_key = "kernelName";
/// The libtype of a configuration that only Triton can run.
inline constexpr std::string_view triton_libtype = "triton";
/// The key of a note: a problem that the file was tuned for, as print() writes it. No look-up uses it.
inline constexpr std::string_view problem_note = "_problem";

/// An interval of M that one bucket answers; several where other buckets lie between.
struct BucketSpan {
  const TritonBucket* bucket = nullptr;  // of the file
  std::int64_t m_from = 0;
  std::int64_t m = 0;  // max_dimension: all that is above
  bool tuned = false;  // false for `any`

  /// The largest M at which to run it: m, or of a span without a largest M twice the M before it.
  std::int64_t last() const;
};
/// By find_bucket() with the bounds of the file's family, ascending; M between two of them have no bucket.
std::vector<BucketSpan> bucket_spans(const TritonFile& file);

/// The answer at m; nullptr: there is none.
const TritonBucket* answer_at(const std::vector<BucketSpan>& spans, std::int64_t m);

/// The kernelName of a bucket; empty: a configuration that only Triton can run.
std::string own_kernel(const TritonConfig& config);
/// "BLOCK_SIZE_M=16;num_warps=4;cache_modifier=.cg"
std::string triton_config_text(const TritonConfig& config);

/// One row a span of M (bucket_spans()): TunedEntry::bucket, m_from and M, the architecture and the sizes of the file's
/// name, the kernel. Without kernelName the row has its parameters as the name and the libtype triton. An error, which names the
/// family, if it is of no operation here; a name without a family is taken for one of `operation`.
Result<std::vector<TunedEntry>> bucket_rows(const TritonFile& file,
                                            std::optional<OperationForm> operation = std::nullopt);

/// A problem whose kernels the file's buckets hold, with any M: that of the note, if it is of the file's name, else what the
/// name says with the operation's own types. An error where sizes are missing, in words.
Result<Problem> problem_of_file(const TritonFile& file,
                                std::optional<OperationForm> operation = std::nullopt);

/// bucket_rows() as whole problems, to be run: m is the M that the bucket's key names (of one without a largest M twice the
/// largest M below it), m_from stays. An error where problem_of_file() has one.
Result<std::vector<TunedEntry>> rows_to_run(const TritonFile& file,
                                            std::optional<OperationForm> operation = std::nullopt);

}  // namespace gemmtune
