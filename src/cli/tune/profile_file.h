// --profile_file: every candidate that was looked at, in the tuned file's columns and five more.
#pragma once

#include <string>

#include "backends/backend.h"
#include "base/status.h"
#include "formats/aiter/tuned_csv.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// Columns of a tuned file (spread and accuracy among them), then the measured errors (MeasuredError; empty if not
/// measured), `joules` and `joules_spread` where they are asked for, `outcome` and `reason`. A candidate without a time has
/// us = -1. Lines are appended to what the file holds. All are of one operation, whose columns these are.
class ProfileFile {
 public:
  /// The device must outlive it.
  /// `has_joules`: two more columns, the joules of a call and their spread.
  ProfileFile(std::string path, const Device& device, std::string environment_hash, OperationForm operation,
              CsvSchema schema, bool has_joules = false);

  /// An error where an existing file has other columns.
  Status check_header() const;
  Status append(const ItemReport& report) const;

 private:
  std::string header() const;
  std::string lines_of(const ItemReport& report) const;

  std::string path_;
  const Device& device_;
  std::string environment_hash_;
  OperationForm operation_;
  CsvSchema schema_;
  bool has_joules_;
};

}  // namespace gemmtune::cli
