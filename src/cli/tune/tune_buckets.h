// `tune --buckets -o DIR`: after the shapes are tuned, a Triton config for each (N, K), with one kernel a bucket of M.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/deadline.h"
#include "cli/tune/tune_options.h"
#include "evaluate/evaluator.h"
#include "formats/triton/triton_json.h"

namespace gemmtune::cli {

/// --bucket-scheme: thirds or bounds.
Result<TritonScheme> bucket_scheme_of(const TuneOptions& options);

/// shapes/block_scale_seed.csv: the sizes that AITER's block-scale tuner tunes.
Result<ShapeList> block_scale_seed_shapes(const std::string& architecture);

struct WrittenBucket {
  std::string path;
  std::string key;
  std::string kernel;
  std::optional<double> regret;  // nullopt: not measured
  std::size_t ms = 0;
  std::size_t compared = 0;  // of them, in paired rounds
  bool is_cut = false;       // the budget ended before all were compared
};
struct BucketReport {
  std::vector<WrittenBucket> written;
  std::vector<std::string> problems;  // "8x1024x1024: why no kernel answers the bucket"
};

/// Of the rows of this device in the tuned file, written into its folder. What is not compared at the deadline is decided
/// from what was measured. An error where a file cannot be written.
Result<BucketReport> write_buckets(const TuneOptions& options, const Outputs& outputs, const Device& device,
                                   const Policy& policy, Evaluator& evaluator, const Deadline& deadline);

}  // namespace gemmtune::cli
