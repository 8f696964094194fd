// The tables of a report, made of what the other commands compute: audit, diff, coverage, the journal's and the profile's readers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "cli/report/measurements.h"
#include "cli/report/report_table.h"
#include "cli/tables/audited_files.h"
#include "evaluate/journal/journal_report.h"
#include "formats/aiter/environment_json.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune::cli {

/// The device's rates that no kernel passes; 0: the highest that a row of the report reaches.
struct Roof {
  double tflops = 0;
  double gigabytes = 0;   // a second
  std::string product{};  // that reached tflops, as print() writes it; empty: not known
};

/// What a run says while it goes on (follow.h).
struct RunState {
  std::size_t shapes = 0;
  std::size_t done = 0;
  std::size_t candidates = 0;
  std::size_t skipped = 0;  // lines of its events that could not be read
  bool ended = false;
  std::vector<std::pair<std::string, std::string>> in_work;  // problem, what was tried last
};

/// Everything that was read.
struct ReportInputs {
  AuditedFiles tuned;
  std::vector<Finding> findings;
  EnvironmentObjects environments;
  Measurements measurements;
  std::vector<JournalRunReport> runs;
  std::optional<std::vector<TunedFile>> base;  // --base; an empty list is a base too
  double tolerance = 3;                        // percent, as diff's
  std::vector<ShapeList> captures;             // --capture, one an operation
  double tokens = 0;                           // of the captures; 0: estimated
  Roof roof;
  const Device* device = nullptr;  // this machine's, for the parameters of its families; may be null
  std::optional<RunState> run;
};

/// Those of which something is known; the first is `summary`.
std::vector<ReportTable> report_tables(const ReportInputs& inputs);

/// A device and an operation, for people and as a key: "sm_90/132 a16w16".
std::string view_of(const TunedEntry& row);

// Parts of report_tables().
ReportTable competitors_table(const ReportInputs& inputs, const std::vector<const TunedEntry*>& rows);
void add_search_tables(const ReportInputs& inputs, std::vector<ReportTable>& tables);
void add_workload_tables(const ReportInputs& inputs, std::vector<ReportTable>& tables);

}  // namespace gemmtune::cli
