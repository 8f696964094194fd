// What the rows of each tuned file are to a device, and which files are not used.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "resolve/table_set.h"

namespace gemmtune {

/// Rows of one file. A bucket counts as a row.
struct SourceUse {
  std::size_t own = 0;                         // of this device
  std::size_t fewer_threads = 0;               // that may answer as Match::fewer_threads
  std::size_t other_environment = 0;           // of `own`: measured in another environment
  std::map<std::string, std::size_t> devices;  // rows by "gfx950/256"; of buckets "gfx950"
  /// Why the file, or in strict rules a part of it, is not used; empty: it is. A sentence with the file's name.
  std::string unused;
};

/// One for each of `tables.sources`. `strict`: rows of another environment do not answer.
std::vector<SourceUse> uses_of_sources(const TableSet& tables, const DeviceInfo& device, bool strict);

struct SourceWarning {
  OperationForm operation = Operation::a16w16;
  bool named = false;  // about a file that somebody named, or one that is there and cannot be read
  std::string text;
};

/// What a user should hear of: files that were named and are missing, files that cannot be read, rows that strict rules leave
/// out; and of operations for which no file has rows of this device, the files with rows of others. (Tables of many devices
/// are made of files of one each.)
std::vector<SourceWarning> source_warnings(const TableSet& tables, const DeviceInfo& device, bool strict);

/// "232 rows of gfx950/256 and gfx1250/96": the devices with the most rows first, four at most.
std::string rows_of_devices(const std::map<std::string, std::size_t>& devices);
/// "gfx950/256": as rows_of_devices() names the row's device.
std::string device_of_row(const TunedEntry& row);
/// "x86-avx2/2".
std::string device_of_rows(const DeviceInfo& device);

}  // namespace gemmtune
