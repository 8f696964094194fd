// `tune --run_config` and `tune --compare`: the production operator, timed instead of or around tuning.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "cli/tune/tune_options.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune::cli {

/// --run_config FILE: the rows of this device in a tuned file, against the default.
int run_operator_on_file(const TuneOptions& options, Device& device);
/// A bare --run_config: the input's shapes with the tables that a program would use now.
int run_operator_on_shapes(const TuneOptions& options, const Environment& environment, Device& device,
                           const ShapeList& shapes);
/// --compare: tunes into a file of its own, times the operator with the output's rows before and with the new
/// ones after, in interleaved rounds. Writes only with --update_improved, and only rows that improved or had
/// no time.
int compare_operator(const TuneOptions& options, const Environment& environment,
                     const std::vector<std::unique_ptr<Device>>& devices, const ShapeList& shapes);

}  // namespace gemmtune::cli
