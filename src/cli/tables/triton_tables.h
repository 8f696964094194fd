// merge and diff of Triton configs (JSON): bucket by bucket.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace gemmtune::cli {

struct TritonMergeOptions {
  std::vector<std::string> files;
  std::string output;  // a file, or a folder where the inputs have several names; empty, -: stdout
  bool quiet = false;
  bool json = false;
};
/// The exit code of `gemmtune merge`.
Result<int> merge_triton(const TritonMergeOptions& options);

struct TritonDiffOptions {
  std::string before;
  std::string after;
  bool quiet = false;
  bool json = false;
};
/// The exit code of `gemmtune diff`.
Result<int> diff_triton(const TritonDiffOptions& options);

}  // namespace gemmtune::cli
