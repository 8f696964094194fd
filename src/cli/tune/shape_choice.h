// Options that change a list of shapes after it was read.
#pragma once

#include "base/status.h"
#include "cli/tune/tune_options.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune::cli {

/// --last and --all_bias: which shapes there are.
Status choose_shapes(const TuneOptions& options, ShapeList& shapes);

/// --bias_vector of shapes from a file or a model.
Status add_bias(const TuneOptions& options, ShapeList& shapes);

}  // namespace gemmtune::cli
