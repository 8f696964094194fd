// A recording: all results of an evaluator in a run and what the device said of each problem, so that the run
// can be repeated without a machine. One JSON object per line; a line that a kill cut off is left out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/file.h"
#include "evaluate/evaluator.h"
#include "measure/policy.h"

namespace gemmtune {

struct RecordedFamily {
  std::string name;
  int revision = 1;
  int tie_rank = 0;
  std::string identity;  // Device::family_identity
  std::string thread_pool;
};

struct RecordedConfig {
  std::string kernel_name;
  double predicted = 0;
  std::int64_t resources = 0;
};

/// What a family said of one problem.
struct RecordedSpace {
  std::string family;
  std::string refusal;  // empty: it takes the problem, and the rest holds
  std::vector<Parameter> parameters;
  std::optional<WeightLayout> packed;
  std::string default_kernel;
  std::vector<RecordedConfig> configs;
};

struct RecordedScreening {
  std::string candidate;
  Outcome outcome;
  double seconds = 0;  // the call took, building and checking included
};

struct RecordedFinals {
  std::vector<std::string> candidates;
  FinalsResult result;
  double seconds = 0;
};

struct RecordedNeighbour {
  std::string candidate;
  std::int64_t m = 0;
  Outcome outcome;
  double seconds = 0;
};

struct RecordedProblem {
  Problem problem;
  std::int64_t calls = 1;
  std::string baseline;  // kernel name; empty where there is none
  std::string fallback;
  std::vector<RecordedSpace> spaces;
  std::vector<RecordedScreening> screenings;
  std::vector<RecordedFinals> finals;
  std::vector<RecordedNeighbour> neighbours;
};

struct RecordedRun {
  DeviceInfo device;
  std::vector<RecordedFamily> families;
  Policy policy;  // what Policy::text() says of it
  double max_err_ratio = 0.05;
};

struct Recording {
  RecordedRun run;
  std::vector<RecordedProblem> problems;  // each once
  std::size_t damaged_lines = 0;          // cut off by a kill
};

/// Plain or compressed by gzip. Errors name file, line and what was expected.
Result<Recording> read_recording(const std::string& path);

RecordedRun recorded_run(const Device& device, const Policy& policy, double max_err_ratio);

/// Appends to a recording; each line is in the operating system's hands when a call returns.
class RecordingWriter {
 public:
  /// Begins the file, or continues one that has the same device and policy; another one is an error.
  static Result<RecordingWriter> open(const std::string& path, const RecordedRun& run);
  /// The file held a recording already.
  bool goes_on() const { return goes_on_; }

  /// Returns the number by which the problem's other lines name it.
  Result<std::size_t> add(const RecordedProblem& problem);
  Status add(std::size_t problem, const RecordedScreening& screening);
  Status add(std::size_t problem, const RecordedFinals& finals);
  Status add(std::size_t problem, const RecordedNeighbour& neighbour);

 private:
  explicit RecordingWriter(LineFile file) : file_(std::move(file)) {}

  LineFile file_;
  bool goes_on_ = false;
  std::size_t problems_ = 0;
  std::map<std::size_t, std::map<std::string, std::size_t>> numbers_;  // of a problem's candidates
};

}  // namespace gemmtune
