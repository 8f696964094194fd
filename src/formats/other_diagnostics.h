// What is wrong with files that hold neither tuned rows nor buckets: shape lists, tune_gemm's YAML, hipBLASLt's
// table.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune {

/// "file:line: what is wrong" for each part of the file that means nothing; an error where the whole means
/// nothing.
Result<std::vector<std::string>> diagnostics_of(const std::string& source, const std::string& content,
                                                const ShapeListOptions& options);

}  // namespace gemmtune
