// --profile_file: every candidate that was looked at, in the tuned file's columns and two more.
#pragma once

#include <string>

#include "backends/backend.h"
#include "base/status.h"
#include "formats/aiter/tuned_csv.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// Columns of a tuned file (spread among them), then `outcome` and `reason`. A candidate without a time has
/// us = -1. Lines are appended to what the file holds.
class ProfileFile {
 public:
  ProfileFile(std::string path, const DeviceInfo& device, std::string environment_hash, CsvSchema schema);

  /// An error where an existing file has other columns.
  Status check_header() const;
  Status append(const ItemReport& report) const;

 private:
  std::string lines_of(const ItemReport& report) const;

  std::string path_;
  DeviceInfo device_;
  std::string environment_hash_;
  CsvSchema schema_;
};

}  // namespace gemmtune::cli
