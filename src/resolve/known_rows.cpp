#include "resolve/known_rows.h"

#include "base/file.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "resolve/bind.h"
#include "tuned/choice.h"

namespace gemmtune {
namespace {

GroupKey weight_key(const Problem& problem) { return {{}, 0, weight_of(problem)}; }

}  // namespace

Result<KnownRows> KnownRows::read(const std::vector<std::string>& paths, OperationForm operation,
                                  const DeviceInfo& device) {
  KnownRows known;
  for (const std::string& path : paths) {
    if (path.empty() || is_yaml_path(path) || !file_exists(path)) continue;
    GEMMTUNE_TRY(auto file, read_tuned_csv(path, {.operation = operation}));
    for (TunedEntry& entry : file.entries) {
      if (!row_is_of(entry, device) || !may_be_chosen(entry)) continue;
      const std::size_t index = known.rows_.size();
      known.first_of_key_.try_emplace(entry.problem, index);
      known.of_weight_[weight_key(entry.problem)].push_back(index);
      known.rows_.push_back({std::move(entry), path});
    }
  }
  return known;
}

const KnownRows::Row* KnownRows::find(const Problem& problem) const {
  const auto found = first_of_key_.find(problem);
  return found == first_of_key_.end() ? nullptr : &rows_[found->second];
}

std::vector<const KnownRows::Row*> KnownRows::of_weight(const Problem& problem) const {
  std::vector<const Row*> rows;
  const auto found = of_weight_.find(weight_key(problem));
  if (found == of_weight_.end()) return rows;
  for (const std::size_t index : found->second) rows.push_back(&rows_[index]);
  return rows;
}

}  // namespace gemmtune
