// The cache of FlashInfer's autotuner: a JSON object whose keys are texts of Python tuples, ('operation', 'runner', ((4, 7168),
// (7168, 4608), …)), whose values are [runner, tactic], and whose "_metadata" says where it was made. A tactic is an index
// into the list of one version of a library on one GPU: such entries can be listed and checked, not carried.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace gemmtune {

struct FlashinferEntry {
  std::string operation;  // fp4_gemm
  std::string shapes;     // "(4, 7168), (7168, 4608)", as in the key
  std::string runner;     // CudnnFp4GemmRunner
  std::string tactic;     // JSON: mostly an index; -1: the runner's fallback
  std::size_t line = 0;   // 1-based
};

struct FlashinferCache {
  std::vector<std::pair<std::string, std::string>> metadata;  // flashinfer_version, cuda_version, gpu …
  std::vector<FlashinferEntry> entries;
  std::vector<std::string> diagnostics;  // file:line: what is no entry
  std::vector<std::string> notes;        // file:line: what FlashInfer would not check of where it was made
};

/// By its beginning: an object with "_metadata" or a tuple's text as its first key.
bool is_flashinfer(std::string_view content);
/// An error where it is no JSON object.
Result<FlashinferCache> parse_flashinfer_cache(const std::string& source, const std::string& content);

}  // namespace gemmtune
