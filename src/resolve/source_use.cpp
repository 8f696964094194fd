#include "resolve/source_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "resolve/bind.h"
#include "tuned/entry.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_named_devices = 4;

std::string threads_text(int count) { return fmt::format("{} thread{}", count, count == 1 ? "" : "s"); }

/// Rows of this machine with another number of threads have a reason that is not seen in a table.
std::string threads_hint(const SourceUse& use, const DeviceInfo& device) {
  if (!cpu_architecture(device.gfx)) return {};
  const bool same_gfx = std::ranges::any_of(
      use.devices, [&](const auto& one) { return one.first.starts_with(device.gfx + "/"); });
  return same_gfx ? fmt::format(" (this process may use {})", threads_text(device.cu_num)) : std::string();
}

/// Of files that have rows, and none that may answer. `files`: how many; `path` is the first.
std::string unused_text(const std::string& path, std::size_t files, const SourceUse& use,
                        const DeviceInfo& device) {
  const std::string others = files == 1 ? "" : fmt::format(" and {} more", files - 1);
  return fmt::format("{}{} {} not used: {}, none of this device, {}{}", path, others,
                     files == 1 ? "is" : "are", rows_of_devices(use.devices), device_of_rows(device),
                     threads_hint(use, device));
}

std::string why_unused(const TableSource& source, const SourceUse& use, const std::string& difference,
                       const DeviceInfo& device, bool strict) {
  if (!source.state.ok()) return source.state.message();
  if (use.devices.empty()) return {};
  if (use.own == 0 && use.fewer_threads == 0) return unused_text(source.path, 1, use, device);
  if (strict && use.other_environment > 0) {
    return fmt::format("{}: {} of {} rows of this device are not used, they are of another environment: {}",
                       source.path, use.other_environment, use.own, difference);
  }
  return {};
}

std::string fewer_threads_text(const TableSource& source, const SourceUse& use, const DeviceInfo& device) {
  return fmt::format(
      "{}: {}, this process may use {}: they answer as fewer_threads, verified in their first call",
      source.path, rows_of_devices(use.devices), threads_text(device.cu_num));
}

}  // namespace

std::string device_of_row(const TunedEntry& row) {
  const std::string_view gfx = table_gfx(row);
  if (!row.bucket.empty()) return gfx.empty() ? "any device" : std::string(gfx);
  return fmt::format("{}/{}", gfx.empty() ? "(no gfx)" : gfx, row.cu_num);
}

std::string device_of_rows(const DeviceInfo& device) {
  return fmt::format("{}/{}", device.gfx, device.cu_num);
}

std::string rows_of_devices(const std::map<std::string, std::size_t>& devices) {
  std::vector<std::pair<std::string, std::size_t>> sorted(devices.begin(), devices.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::size_t rows = 0;
  for (const auto& [name, count] : sorted) rows += count;
  std::string text = fmt::format("{} row{} of ", rows, rows == 1 ? "" : "s");
  const std::size_t named = std::min(sorted.size(), max_named_devices);
  for (std::size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == named && named == sorted.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + sorted[i].first;
  }
  if (named < sorted.size()) text += fmt::format(" and {} more devices", sorted.size() - named);
  return text;
}

std::vector<SourceUse> uses_of_sources(const TableSet& tables, const DeviceInfo& device, bool strict) {
  std::vector<SourceUse> uses(tables.sources.size());
  std::vector<std::string> differences(tables.sources.size());
  const TunedEntry* before = nullptr;  // rows of one device follow each other
  std::size_t* of_device = nullptr;
  for (const TunedEntry& row : tables.table.entries()) {
    SourceUse& use = uses[row.source];
    const bool same = before != nullptr && before->source == row.source && before->gfx == row.gfx &&
                      before->cu_num == row.cu_num && before->bucket.empty() == row.bucket.empty();
    if (!same) of_device = &use.devices[device_of_row(row)];
    before = &row;
    ++*of_device;
    if (row_is_of(row, device)) {
      ++use.own;
      std::string difference = tables.other_environment(row, device);
      if (difference.empty()) continue;
      ++use.other_environment;
      if (differences[row.source].empty()) differences[row.source] = std::move(difference);
    } else if (tables.fewer_threads && !tables.exact_only && !strict && is_of_fewer_threads(row, device)) {
      ++use.fewer_threads;
    }
  }
  for (std::size_t i = 0; i < uses.size(); ++i)
    uses[i].unused = why_unused(tables.sources[i], uses[i], differences[i], device, strict);
  return uses;
}

std::vector<SourceWarning> source_warnings(const TableSet& tables, const DeviceInfo& device, bool strict) {
  const std::vector<SourceUse> uses = uses_of_sources(tables, device, strict);
  std::set<OperationForm> own;
  std::set<OperationForm> fewer;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].own > 0) own.insert(tables.sources[i].operation);
    if (uses[i].fewer_threads > 0) fewer.insert(tables.sources[i].operation);
  }
  struct Unused {
    std::size_t files = 0;
    std::size_t warning = 0;  // index
    std::string first;
    SourceUse rows;  // of all
  };
  std::map<OperationForm, Unused> unused;
  std::vector<SourceWarning> warnings;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const TableSource& source = tables.sources[i];
    const SourceUse& use = uses[i];
    const OperationForm operation = source.operation;
    const bool missing = source.state.code() == StatusCode::not_found;
    if (!source.state.ok()) {
      if (source.named || !missing) warnings.push_back({operation, true, use.unused});
    } else if (use.own > 0) {
      if (!use.unused.empty()) warnings.push_back({operation, source.named, use.unused});
    } else if (own.contains(operation) || source.triton) {
      continue;  // another file has rows; and a folder of configs holds those of every device
    } else if (use.fewer_threads > 0) {
      warnings.push_back({operation, source.named, fewer_threads_text(source, use, device)});
    } else if (!use.unused.empty() && !fewer.contains(operation)) {
      Unused& files = unused[operation];
      if (files.files++ == 0) {
        files.warning = warnings.size();
        files.first = source.path;
        warnings.push_back({operation, false, {}});
      }
      SourceWarning& warning = warnings[files.warning];
      warning.named = warning.named || source.named;
      for (const auto& [name, rows] : use.devices) files.rows.devices[name] += rows;
      warning.text = unused_text(files.first, files.files, files.rows, device);
    }
  }
  return warnings;
}

}  // namespace gemmtune
