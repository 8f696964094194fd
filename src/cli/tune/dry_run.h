// tune --dry-run: what a run would do, without a measurement and without a file.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

struct PlannedShape {
  ShapeRow shape;
  std::size_t candidates = 0;    // kernels that take it
  std::string why_not;           // it is not tuned: "in the file already", or what refuses it; empty: it is
  double predicted_seconds = 0;  // of tuning it; 0 where it is not tuned
};

struct DryRun {
  std::vector<PlannedShape> shapes;
  std::string output;            // absolute
  double predicted_seconds = 0;  // of the run, at most its budget
  double budget_seconds = 0;
  std::optional<MRange> m_range;
};

/// An error is one that would stop the run (a file of rows that cannot be read).
Result<DryRun> dry_run(const Device& device, const TuneRequest& request);
std::string dry_run_text(const DryRun& plan, const DeviceInfo& device);
std::string dry_run_json(const DryRun& plan, const DeviceInfo& device);

}  // namespace gemmtune::cli
