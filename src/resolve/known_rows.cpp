#include "resolve/known_rows.h"

#include "base/file.h"
#include "formats/aiter/tuned_csv.h"
#include "resolve/bind.h"

namespace gemmtune {

Result<KnownRows> KnownRows::read(const std::vector<std::string>& paths, Operation operation,
                                  const DeviceInfo& device) {
  KnownRows known;
  for (const std::string& path : paths) {
    if (path.empty() || !file_exists(path)) continue;
    auto file = read_tuned_csv(path, {.operation = operation});
    if (!file.ok()) return file.status();
    for (TunedEntry& entry : file->entries) {
      if (!row_is_of(entry, device) || !valid_time(entry.us)) continue;
      known.rows_.push_back({std::move(entry), path});
    }
  }
  return known;
}

const KnownRows::Row* KnownRows::find(const Problem& problem) const {
  for (const Row& row : rows_) {
    if (same_key(row.entry.problem, problem)) return &row;
  }
  return nullptr;
}

}  // namespace gemmtune
