#include "tuning/publisher.h"

#include <algorithm>

#include "base/file.h"
#include "base/file_lock.h"
#include "formats/tune_gemm/gemm_result_file.h"

namespace gemmtune {
namespace {

/// A long file takes seconds to replace: at most a twentieth of the time. What waits is in the journal.
constexpr int max_pause_per_second = 20;

GemmResult result_of(const Device& device, const TunedEntry& entry) {
  const auto candidate = device.resolve(entry.kernel_name, entry.problem);
  GemmResult result =
      gemm_result_of(entry, candidate.ok() ? candidate->config.settings() : Config().settings());
  add_problem_parameters(entry.problem, result);
  return result;
}

}  // namespace

Status Publisher::check_writable() const {
  if (path_.empty()) return {};
  if (is_yaml_path(path_)) GEMMTUNE_RETURN_IF_ERROR(check_gemm_result_file(path_));
  if (file_exists(path_)) {
    if (auto content = read_file(path_); !content.ok()) return content.status();
  }
  // publish() takes this lock too: where it cannot be had, nothing could be published.
  return FileLock::acquire(path_ + ".lock").status();
}

Status Publisher::check_expressible(const Problem& problem) const {
  if (path_.empty()) return {};
  if (!is_yaml_path(path_)) return gemmtune::check_expressible(problem);
  if (is_tune_gemm_problem(problem)) return {};
  return Status::unsupported("{}: tune_gemm's results hold plain GEMMs, not {}", path_, print(problem));
}

Status Publisher::add(TunedEntry entry) {
  if (path_.empty()) return {};
  waiting_.push_back(std::move(entry));
  const auto pause =
      std::max<Clock::duration>(std::chrono::seconds(1), max_pause_per_second * last_duration_);
  if (last_ != Clock::time_point{} && Clock::now() - last_ < pause) return {};
  return flush();
}

Status Publisher::write() const {
  if (!is_yaml_path(path_)) return publish(path_, waiting_, options_);
  std::vector<GemmResult> results;
  for (const TunedEntry& entry : waiting_) results.push_back(result_of(device_, entry));
  return update_gemm_results(path_, results);
}

Status Publisher::flush() {
  if (waiting_.empty()) return {};
  const auto begin = Clock::now();
  GEMMTUNE_RETURN_IF_ERROR(write());
  waiting_.clear();
  last_ = Clock::now();
  last_duration_ = last_ - begin;
  return {};
}

}  // namespace gemmtune
