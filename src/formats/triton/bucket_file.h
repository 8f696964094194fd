// A Triton config that a tuning by buckets writes: AITER's names and keys, our kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "candidates/config.h"
#include "formats/triton/triton_json.h"

namespace gemmtune {

struct TunedBucket {
  TritonBucket bucket;  // with its config
  double regret = 0;    // summed over the tuned M
};

/// The bucket that a tuner writes for `m`, without a config: small_M, medium_M or large_M; of `bounds` M_LEQ_x with
/// the smallest of default_triton_bounds that holds m, `any` above them. Requires one of these two schemes.
TritonBucket bucket_for(TritonScheme scheme, std::int64_t m);

/// {"kernelName": "tiled_r1_mr8…", "mr": 8, …}: whole numbers as such.
TritonConfig bucket_config(const std::string& kernel_name,
                           const std::vector<std::pair<std::string, std::string>>& settings);

/// {"BLOCK_SIZE_M": 64, …}, for a program that launches the kernel itself.
TritonConfig bucket_config(const std::vector<LauncherParameter>& parameters);

/// The key of a note: bucket → regret. No look-up uses keys that begin with '_'.
inline constexpr std::string_view regret_note = "_regret";

/// Writes the buckets into the file, atomically: equal keys are replaced, others and notes stay. An error, and nothing is
/// written, if the file is there and is no Triton config, or has keys of another scheme.
Status update_bucket_file(const std::string& path, TritonScheme scheme,
                          const std::vector<TunedBucket>& buckets);

}  // namespace gemmtune
