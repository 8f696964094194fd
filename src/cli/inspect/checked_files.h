// The rows and buckets that `gemmtune check` runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "cli/shared/size_options.h"
#include "tuned/entry.h"

namespace gemmtune::cli {

/// A file's rows, or its buckets.
struct CheckedFile {
  std::string path;
  std::vector<TunedEntry> entries;
  std::vector<std::string> diagnostics;
};

/// Tuned files, or Triton configs and folders of them, colon-separated. Of a config for this device whose name says no N and
/// K those of `size` count; without them that is a diagnostic.
Result<std::vector<CheckedFile>> read_checked_files(const std::string& paths, const SizeOptions& size,
                                                    std::optional<OperationForm> operation,
                                                    const DeviceInfo& device);

}  // namespace gemmtune::cli
