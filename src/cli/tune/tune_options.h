// What the user of `gemmtune tune` asked for, and the steps from there to a TuneRequest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"
#include "cli/shared/device_options.h"
#include "cli/shared/model_options.h"
#include "cli/shared/size_options.h"
#include "formats/shapes/shape_list.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

struct TuneOptions {
  SizeOptions size;
  DeviceOptions device;
  ModelOptions model;
  std::string input;       // empty: the config folder's untuned file
  std::int64_t limit = 0;  // 0: all
  std::string output;      // colon list; empty: the config folder's tuned file
  std::string profile;
  std::string schema = "aiter";
  std::string sort;  // "true", "false"; empty: off
  double max_err_ratio = 0.05;
  int batch = 100;
  bool all = false;
  bool stale = false;
  int warmup = 5;
  int iterations = 101;
  bool split_k = true;
  std::string families = "all";
  std::string search = "staged";
  double budget_seconds = 0;
  double prefer_ratio = 0.995;
  std::string cache = "weights-cold";
  std::optional<std::string> run_config;  // an empty text: the input with defaults
  bool compare = false;
  bool update_improved = false;
  double least_improvement = 3.0;  // percent
  bool resume = true;
  bool retry_failed = false;
  std::string record;  // file; empty: none
  std::string events;  // file; empty: none
  std::string replay;
  bool verbose = false;
  bool quiet = false;
  bool strict = false;
  bool json = false;
  int workers = 0;               // --mp; 0: one a device
  std::string timeout = "1800";  // seconds, or none
  bool shape_grouped = false;    // accepted: shapes are never split among devices
  bool in_process = false;
  std::string m_range;      // A:B; empty: tune the M of the shapes
  double m_regret = 2.0;    // percent
  std::string pdl = "off";  // --pdl: off, allow
  int confirmations = 0;    // --confirmations; 0: two on a CPU, one elsewhere
};

/// Contradictions that need no machine and no file; a word list for each value that has one.
Status check_options(const TuneOptions& options);

/// The shapes asked for: of a single size, a model, a file or the config folder, cut to --limit.
Result<ShapeList> shapes_of(const TuneOptions& options, const Environment& environment,
                            const DeviceInfo& device);

/// Where the results go; the config folder's file of the operation (that of the shapes) where no -o was given
/// (its folder is made). Checked for writing; a file or schema without gfx is refused for a device that needs
/// it.
struct Outputs {
  std::string tuned;
  std::vector<std::string> also_read;
  std::string profile;
  bool is_config_file = false;
};
Result<Outputs> outputs_of(const TuneOptions& options, const Environment& environment,
                           const DeviceInfo& device, const ShapeList& shapes);

Policy policy_of(const TuneOptions& options, const DeviceInfo& device);
/// --timeout in seconds; infinity for none.
Result<double> timeout_of(const TuneOptions& options);
Result<TuneRequest> request_of(const TuneOptions& options, const ShapeList& shapes, const Outputs& outputs,
                               const Device& device);

}  // namespace gemmtune::cli
