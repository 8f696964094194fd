// `tune --buckets -o DIR`: after the shapes are tuned, a Triton config for each (N, K), with one kernel a bucket of M.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"
#include "cli/tune/tune_options.h"
#include "evaluate/evaluator.h"
#include "formats/triton/triton_json.h"

namespace gemmtune::cli {

/// --bucket-scheme: thirds or bounds.
Result<TritonScheme> bucket_scheme_of(const TuneOptions& options);

/// shapes/block_scale_seed.csv: the sizes that AITER's block-scale tuner tunes.
Result<ShapeList> block_scale_seed_shapes();

struct WrittenBucket {
  std::string path;
  std::string key;
  std::string kernel;
  double regret = 0;
  std::size_t ms = 0;
};
struct BucketReport {
  std::vector<WrittenBucket> written;
  std::vector<std::string> problems;  // "8x1024x1024: why no kernel answers the bucket"
};

/// Of the rows of this device in the tuned file, written into its folder. An error where a file cannot be written.
Result<BucketReport> write_buckets(const TuneOptions& options, const Outputs& outputs, const Device& device,
                                   const Policy& policy, Evaluator& evaluator);

}  // namespace gemmtune::cli
