// `tune --compare`: the production operator, timed around tuning.
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

/// --compare, after tuning into a file of its own: times the operator with the rows of `outputs` before and
/// with the new ones after, in interleaved rounds. Writes only with --update_improved, and only rows that
/// improved or had no time. Answers the exit code.
int compare_rows(const TuneOptions& options, const Outputs& outputs, Device& device,
                 const TuneRequest& request, const RunSummary& summary, Console& console,
                 Evaluator& evaluator);

}  // namespace gemmtune::cli
