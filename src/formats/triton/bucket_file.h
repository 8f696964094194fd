// A Triton config that a tuning by buckets writes: AITER's names and keys, our kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "candidates/config.h"
#include "formats/triton/triton_json.h"
#include "problem/problem.h"

namespace gemmtune {

struct TunedBucket {
  TritonBucket bucket;           // with its config
  std::optional<double> regret;  // summed over the tuned M; nullopt: it was not measured at all of them
};

/// The file of a problem's (B, N, K), or of a fused MoE's (E, N, K): AITER's name for GEMMs. nullopt: AITER has no family
/// of files for its operation or types.
std::optional<std::string> bucket_file_name(std::string_view arch, const Problem& problem);

/// The scheme of a problem's file: a fused MoE's thirds are TritonScheme::moe.
TritonScheme scheme_for(TritonScheme scheme, const Problem& problem);
/// The bucket that a tuner writes for `m`, without a config: small_M, medium_M or large_M; of `bounds` M_LEQ_x with
/// the smallest of default_triton_bounds that holds m, `any` above them. Not of TritonScheme::named.
TritonBucket bucket_for(TritonScheme scheme, std::int64_t m);

/// Ascending by M; `any` is the last.
void sort_buckets(TritonFile& file);

/// {"kernelName": "tiled_r1_mr8…", "BLOCK_SIZE_M": 64, …}: the parameters that AITER has a key for under that key, all of
/// them in the name.
TritonConfig bucket_config(const std::string& kernel_name,
                           const std::vector<std::pair<std::string, std::string>>& settings);

/// {"BLOCK_SIZE_M": 64, …}, for a program that launches the kernel itself.
TritonConfig bucket_config(const std::vector<LauncherParameter>& parameters);

/// The key of a note: bucket → regret. No look-up uses keys that begin with '_'.
inline constexpr std::string_view regret_note = "_regret";

/// The keys that a file has once these are written into it, in its order, without their configs; only `keys` if the file
/// is not there or is no Triton config.
TritonFile keys_of_updated(const std::string& path, TritonScheme scheme,
                           const std::vector<TritonBucket>& keys);

/// Writes the buckets into the file, atomically: equal keys are replaced, others and notes stay. An error, and nothing is
/// written, if the file is there and is no Triton config, or has keys of another scheme. `problem`: one that was tuned, for
/// the note problem_note.
Status update_bucket_file(const std::string& path, TritonScheme scheme, const Problem& problem,
                          const std::vector<TunedBucket>& buckets);

}  // namespace gemmtune
