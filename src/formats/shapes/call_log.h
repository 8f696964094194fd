// The GEMMs that the log of a program names: AITER's and vLLM's lines of missing configs, calls of hipblaslt-bench and
// rocblas-bench, onednn_verbose, PyTorch profiler traces, TunableOp's files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune {

struct CallLogOptions {
  ShapeListOptions list;
  // The M of lines that say none, as vLLM's of a missing config. None: such lines are diagnostics.
  std::vector<std::int64_t> tokens;
};

/// Rows may be of several operations; each line counts as a call. Lines that name a GEMM which no list holds are diagnostics,
/// all others are passed over. An error where no line names one, or where `strict` meets a diagnostic.
Result<ShapeList> parse_call_log(const std::string& source, std::string content,
                                 const CallLogOptions& options);

}  // namespace gemmtune
