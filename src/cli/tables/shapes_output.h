// Where the rows of `gemmtune shapes` go: one CSV an operation.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune::cli {

/// The rows as CSV; of several operations one list behind another, each below a line "# operation".
std::string shapes_text(const std::vector<ShapeRow>& rows);

/// Writes the rows to `output`: a file, for rows of one operation; or a folder (one that is there, or a name
/// that ends with '/', made where missing), into which each operation goes under the base name of AITER's
/// untuned table. Answers a line for the user.
Result<std::string> write_shapes(const std::vector<ShapeRow>& rows, const std::string& output);

}  // namespace gemmtune::cli
