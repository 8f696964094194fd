// Timings of the production operator as text and JSON: for `bench`, `tune --run_config` and `tune --compare`.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "cli/shared/console.h"
#include "evaluate/evaluator.h"
#include "resolve/table_set.h"
#include "tuning/operator_bench.h"

namespace gemmtune::cli {

/// Times the request's shapes, with progress on the console; Ctrl-C ends early and leaves the rest out.
std::vector<BenchRow> run_bench(const Device& device, Evaluator& evaluator, const BenchRequest& request,
                                Console& console);

/// How A and B are called in the report, and which B is.
struct BenchNames {
  std::string a = "operator";
  std::string b = "default";
};
/// A table, the geometric mean, and each mismatch and error with its reason.
std::string bench_text(const std::vector<BenchRow>& rows, const BenchNames& names);
std::string bench_json(const std::string& command, const std::vector<BenchRow>& rows,
                       const DeviceInfo& device);
/// A line for each regression by more than `percent`; empty where there is none.
std::string regressions_text(const std::vector<BenchRow>& rows, double percent);
/// exit_findings where a result was wrong or did not run, exit_interrupted after Ctrl-C, else exit_done.
int bench_code(const std::vector<BenchRow>& rows);

}  // namespace gemmtune::cli
