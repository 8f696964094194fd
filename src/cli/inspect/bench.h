// What `gemmtune bench` times, for commands that mean the same (tune --run_config).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"
#include "cli/shared/device_options.h"
#include "formats/shapes/shape_list.h"
#include "measure/policy.h"
#include "resolve/table_set.h"

namespace gemmtune::cli {

struct BenchOptions {
  DeviceOptions device;
  std::string file;
  std::string against;
  std::string operation;
  int rounds = 30;
  int limit = 0;
  double max_err_ratio = 0.05;
  double max_regression = 1;
  std::optional<Policy> policy;  // absent: the device's usual one, on `routing`
  std::string routing = "uniform";
  bool strict = false;
  std::string pdl = "off";
  bool quiet = false;
  bool json = false;
};

/// Shapes, and the tables of A: FILE itself if it is a tuned file, else those of the environment.
struct BenchInput {
  std::vector<ShapeRow> shapes;
  bool tuned_file = false;
  TableSet tables;
  std::shared_ptr<const TableSet> online;
  std::shared_ptr<const TableSet> shipped;
};

/// Of a file: tuned files, Triton configs or a shape list, colon-separated. Strict: a row that cannot be read is an error.
Result<BenchInput> read_bench_input(const std::string& path, std::optional<OperationForm> operation,
                                    const Environment& environment, const Device& device,
                                    bool strict = false);
/// Of shapes, with the tables that a program would use now.
Result<BenchInput> bench_input_of(ShapeList shapes, const Environment& environment, const Device& device);

/// Times the operator against its default or --against, and prints the report. The exit code.
Result<int> time_operator(const BenchOptions& options, BenchInput input, Device& device);

}  // namespace gemmtune::cli
