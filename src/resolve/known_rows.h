// The rows of tuned files that a run starts from: what is done already, and which weight layouts are decided.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "tuned/entry.h"
#include "tuned/key.h"

namespace gemmtune {

class KnownRows {
 public:
  /// Reads every file that exists as a table of `operation`; a file that exists, but cannot be read as one, is
  /// an error. Rows of other devices and rows without a valid time are left out.
  static Result<KnownRows> read(const std::vector<std::string>& paths, Operation operation,
                                const DeviceInfo& device);

  struct Row {
    TunedEntry entry;
    std::string path;
  };
  /// The first row of this key; nullptr where there is none.
  const Row* find(const Problem& problem) const;
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Row> rows_;
};

}  // namespace gemmtune
