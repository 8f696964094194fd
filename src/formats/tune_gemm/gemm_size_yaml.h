// tune_gemm's YAML list of sizes: [{M, N, K, rowMajorA, rowMajorB}, …], its result files included.
#pragma once

#include <string>

#include "base/status.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune {

/// Adds the sizes to list.rows (types: the options', else the row's own (gemm_result_file.h), else fp16, which is
/// tune_gemm's default) or its diagnostics. rowMajorA: T row-major, N column-major, of x [M, K]; rowMajorB of the weight as [K, N]: N is
/// our plain [N, K].
Status read_gemm_size_yaml(const std::string& path, const std::string& content,
                           const ShapeListOptions& options, ShapeList& list);

}  // namespace gemmtune
