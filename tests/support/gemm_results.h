// A file of tune_gemm's results, read.
#pragma once

#include <string>

#include "base/file.h"
#include "formats/tune_gemm/gemm_result_yaml.h"

namespace gemmtune {

inline Result<GemmResultFile> read_gemm_results(const std::string& path) {
  GEMMTUNE_TRY(const auto content, read_file(path));
  return parse_gemm_results(path, content);
}

}  // namespace gemmtune
