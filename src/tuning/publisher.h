// Publisher: entries on their way into the tuned file, at most once a second (a long file less often) and all of
// them at the end. The path's ending says which: tune_gemm's results in a YAML, else AITER's CSV.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "formats/aiter/tuned_csv.h"

namespace gemmtune {

class Publisher {
 public:
  /// An empty path publishes nowhere. The device, whose kernels the entries name, must outlive it.
  Publisher(std::string path, PublishOptions options, const Device& device)
      : path_(std::move(path)), options_(std::move(options)), device_(device) {}

  /// The file can be written: asked before hours of tuning, not after. Errors name the path.
  Status check_writable() const;
  /// ok if the file can hold a row of the problem.
  Status check_expressible(const Problem& problem) const;
  /// Replaces the object that the next publication writes beside the file.
  void set_environment(std::string json) { options_.environment_json = std::move(json); }
  Status add(TunedEntry entry);
  /// Publishes what waits.
  Status flush();

 private:
  using Clock = std::chrono::steady_clock;

  /// Writes what waits.
  Status write() const;

  std::string path_;
  PublishOptions options_;
  const Device& device_;
  std::vector<TunedEntry> waiting_;
  Clock::time_point last_{};          // the epoch: the first entry goes out at once
  Clock::duration last_duration_{0};  // that the last publication took
};

}  // namespace gemmtune
