// `tune --run_config` and `tune --compare`: the production operator, timed instead of or around tuning.
#pragma once

#include <filesystem>
#include <string>

#include "backends/backend.h"
#include "base/environment.h"
#include "cli/shared/console.h"
#include "cli/tune/tune_options.h"
#include "evaluate/evaluator.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune::cli {

/// A temporary tuned file private to this process, removed together with its side files.
class CandidateFile {
 public:
  explicit CandidateFile(const std::string& output);
  ~CandidateFile();
  CandidateFile(const CandidateFile&) = delete;
  CandidateFile& operator=(const CandidateFile&) = delete;

  Status make();
  /// Requires make().
  std::string path() const { return (folder_ / name_).string(); }

 private:
  std::string name_;
  std::filesystem::path folder_;
};

/// --run_config FILE: the rows of this device in a tuned file, against the default. Answers the exit code, as
/// all of these.
int run_operator_on_file(const TuneOptions& options, Device& device);
/// A bare --run_config: the input's shapes with the tables that a program would use now.
int run_operator_on_shapes(const TuneOptions& options, const Environment& environment, Device& device,
                           const ShapeList& shapes);
/// --compare, after tuning into a file of its own: times the operator with the rows of `outputs` before and
/// with the new ones after, in interleaved rounds. Writes only with --update_improved, and only rows that
/// improved or had no time.
int compare_rows(const TuneOptions& options, const Outputs& outputs, Device& device,
                 const TuneRequest& request, const RunSummary& summary, Console& console,
                 Evaluator& evaluator);

}  // namespace gemmtune::cli
