#include "cli/tune/tune_shard.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/path_list.h"
#include "base/text.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/tune/option_table.h"
#include "cli/tune/tune_report.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/json.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "tuned/key.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

/// A place among so many, from 0, and who says it.
struct Rank {
  std::size_t index = 0;
  std::size_t count = 1;
  std::string source;
};

/// The variables of schedulers. Errors name the variable.
class Scheduler {
 public:
  explicit Scheduler(const Environment& environment) : variables_(environment.scheduler_variables) {}

  /// Of Slurm's array or of an indexed Job; nullopt: neither. `count`: of auto/N, 0: not given.
  Result<std::optional<Rank>> job(std::size_t count) const;
  /// Among the processes of one job; nullopt: it has one.
  Result<std::optional<Rank>> process() const;

 private:
  bool has(const char* name) const { return variables_.contains(name); }
  Result<std::size_t> number(const char* name) const;
  Result<std::size_t> number(const char* name, std::size_t otherwise) const {
    return has(name) ? number(name) : Result<std::size_t>(otherwise);
  }
  Result<std::optional<Rank>> array() const;
  Result<std::optional<Rank>> rank(const char* index, const char* count) const;

  const std::map<std::string, std::string, std::less<>>& variables_;
};

Result<std::size_t> Scheduler::number(const char* name) const {
  const std::string& text = variables_.find(name)->second;
  const auto value = parse_integer(text);
  if (value && *value >= 0 && *value <= static_cast<std::int64_t>(UINT32_MAX))
    return static_cast<std::size_t>(*value);
  return Status::invalid("--shard auto: {}={}: expected a whole number of at least 0", name, text);
}

Result<std::optional<Rank>> Scheduler::rank(const char* index, const char* count) const {
  if (!has(index) || !has(count)) return std::optional<Rank>();
  const auto at = number(index);
  const auto all = number(count);
  for (const Status& status : {at.status(), all.status()}) GEMMTUNE_RETURN_IF_ERROR(status);
  if (*at >= *all)
    return Status::invalid("--shard auto: {}={}, {}={}: expected an index below the number", index, *at,
                           count, *all);
  return std::optional(Rank{*at, *all, index});
}

/// Ids of an array are numbers from a minimum on, a step apart.
Result<std::optional<Rank>> Scheduler::array() const {
  constexpr const char* id_name = "SLURM_ARRAY_TASK_ID";
  if (!has(id_name)) return std::optional<Rank>();
  if (!has("SLURM_ARRAY_TASK_COUNT"))
    return Status::invalid("--shard auto: {} without SLURM_ARRAY_TASK_COUNT; give --shard I/N", id_name);
  const auto id = number(id_name);
  const auto count = number("SLURM_ARRAY_TASK_COUNT");
  const auto min = number("SLURM_ARRAY_TASK_MIN", 0);
  const auto step = number("SLURM_ARRAY_TASK_STEP", 1);
  for (const Status& status : {id.status(), count.status(), min.status(), step.status()})
    GEMMTUNE_RETURN_IF_ERROR(status);
  const auto max = number("SLURM_ARRAY_TASK_MAX", *min + (std::max<std::size_t>(*count, 1) - 1) * *step);
  GEMMTUNE_RETURN_IF_ERROR(max.status());
  const bool fits = *step >= 1 && *count >= 1 && *id >= *min && (*id - *min) % *step == 0 &&
                    (*id - *min) / *step < *count && *max == *min + (*count - 1) * *step;
  if (fits) return std::optional(Rank{(*id - *min) / *step, *count, id_name});
  return Status::invalid(
      "--shard auto: {}={} of {} ids from {} to {}: expected ids a step apart (--array=0-15); give --shard "
      "I/N",
      id_name, *id, *count, *min, *max);
}

Result<std::optional<Rank>> Scheduler::job(std::size_t count) const {
  auto slurm = array();
  if (!slurm.ok() || *slurm || !has("JOB_COMPLETION_INDEX")) return slurm;
  if (has("JOB_COMPLETIONS")) return rank("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS");
  GEMMTUNE_TRY(const auto index, number("JOB_COMPLETION_INDEX"));
  if (count == 0)
    return Status::invalid(
        "--shard auto: JOB_COMPLETION_INDEX without a number of completions: give --shard auto/N, "
        "or set JOB_COMPLETIONS");
  if (index >= count)
    return Status::invalid("--shard auto/{}: JOB_COMPLETION_INDEX={}: expected an index below it", count,
                           index);
  return std::optional(Rank{index, count, "JOB_COMPLETION_INDEX"});
}

Result<std::optional<Rank>> Scheduler::process() const {
  // mpirun within Slurm: Slurm's own numbers are those of its launcher.
  for (const auto& [index, count] :
       {std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, std::pair{"PMI_RANK", "PMI_SIZE"},
        std::pair{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, std::pair{"SLURM_PROCID", "SLURM_NTASKS"}}) {
    auto found = rank(index, count);
    if (!found.ok() || *found) return found;
  }
  return std::optional<Rank>();
}

Result<Shard> automatic_shard(std::size_t count, const Environment& environment) {
  const Scheduler scheduler(environment);
  GEMMTUNE_TRY(auto job, scheduler.job(count));
  GEMMTUNE_TRY(auto process, scheduler.process());
  if (!job && !process) {
    return Status::invalid(
        "--shard auto: no scheduler says which process this is (Slurm's array or tasks, mpirun, PMI, an "
        "indexed Job of Kubernetes); give --shard I/N");
  }
  const Rank outer = job.value_or(Rank{});
  const Rank inner = process.value_or(Rank{});
  const Shard shard{outer.index * inner.count + inner.index + 1, outer.count * inner.count};
  if (shard.count > max_shards)
    return Status::invalid("--shard auto: {} processes, expected at most {}", shard.count, max_shards);
  if (count != 0 && shard.count != count) {
    return Status::invalid("--shard auto/{}: {} says that there are {}", count,
                           job ? outer.source : inner.source, shard.count);
  }
  return shard;
}

/// Not a file: what is written there is nobody's to rename.
bool is_device(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
}

std::string list_hash(const std::vector<ShapeRow>& shapes, bool runs_on_host, const TuneOptions& options) {
  std::string text = fmt::format("{} {} {} {}\n", shard_deal_version, runs_on_host ? "CPU" : "GPU",
                                 options.request.strategy, options.m_range);
  for (const ShapeRow& shape : shapes) text += print(shape.problem) + "\n";
  return short_hash(text, 16);
}

}  // namespace

Result<Shard> shard_of(const std::string& text, const Environment& environment) {
  if (const auto shard = parse_shard(text)) return *shard;
  if (text == "auto") return automatic_shard(0, environment);
  const std::string automatic = "auto/";
  if (text.starts_with(automatic)) {
    const auto shard = parse_shard("1/" + text.substr(automatic.size()));
    if (shard) return automatic_shard(shard->count, environment);
  }
  return Status::invalid("--shard {}: expected I/N with 1 <= I <= N <= {}, auto or auto/N", text, max_shards);
}

Status name_outputs(const Shard& shard, TuneOptions& options) {
  std::vector<std::string> outputs = path_list(options.output);
  if (!outputs.empty() && !names_folder(options.output)) {  // a file in a folder is named with its operation
    if (is_yaml_path(outputs.front()))
      return Status::invalid("-o {}: results of tune_gemm are not merged; expected a .csv with --shard",
                             outputs.front());
    const auto named = shard_of_path(outputs.front());
    if (named && *named != shard)
      return Status::invalid(
          "-o {}: is named after shard {}, but this is shard {}; expected a name without one",
          outputs.front(), to_string(*named), to_string(shard));
    if (!named) outputs.front() = shard_path(outputs.front(), shard);
    options.output = outputs.front();
    for (std::size_t i = 1; i < outputs.size(); ++i) options.output += ":" + outputs[i];
  }
  for (std::string* path : {&options.profile, &options.record, &options.events}) {
    if (!path->empty() && !is_device(*path) && shard_of_path(*path) != shard)
      *path = shard_path(*path, shard);
  }
  return {};
}

TuneShard::TuneShard(const Shard& shard, bool runs_on_host, const TuneOptions& options,
                     const std::optional<MRange>& range, ShapeList& shapes)
    : shard_(shard),
      runs_on_host_(runs_on_host),
      all_(std::move(shapes.rows)),
      deal_(deal_shapes(all_, shard.count, runs_on_host ? imagined_cpu : imagined_gpu,
                        options.request.strategy, range)) {
  file_.shard = shard;
  file_.list = list_hash(all_, runs_on_host, options);
  file_.shapes_in_list = all_.size();
  if (range) {
    file_.m_from = range->first;
    file_.m_to = range->last;
  }
  file_.operation = all_.empty() ? shapes.operation : form_of(all_.front().problem);
  shapes.rows.clear();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (deal_.shard_of[i] + 1 != shard.index) continue;
    shapes.rows.push_back(all_[i]);
    file_.shapes.push_back({deal_.positions[i], all_[i].problem, {}, {}});
  }
  if (!shapes.rows.empty() || all_.empty()) return;
  shapes.operation = file_.operation;
}

double TuneShard::share(std::size_t shard) const {
  const double all = std::accumulate(deal_.loads.begin(), deal_.loads.end(), 0.0);
  return all > 0 ? deal_.loads[shard] / all : 0;
}

std::string TuneShard::line() const {
  return fmt::format("shard {} of {}: {} of {}, {:.1f} % of the time predicted for a {}", shard_.index,
                     shard_.count, file_.shapes.size(), counted(all_.size(), "shape"),
                     100 * share(shard_.index - 1), runs_on_host_ ? "CPU" : "GPU");
}

std::string TuneShard::list(bool all, bool json) const {
  std::vector<std::size_t> shapes;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all || deal_.shard_of[i] + 1 == shard_.index) shapes.push_back(i);
  }
  if (!json) {
    TextTable table({{"shard", true}, {"shape (M x N x K)"}, {"calls", true}, {"predicted s", true}});
    for (const std::size_t i : shapes) {
      table.add({fmt::format("{}/{}", deal_.shard_of[i] + 1, shard_.count), shape_text(all_[i]),
                 std::to_string(std::max<std::int64_t>(1, all_[i].calls)),
                 fmt::format("{:.2f}", deal_.seconds[i])});
    }
    return table.text(stdout_is_terminal() ? stdout_columns() : 0) + (all ? "" : "\n" + line() + "\n");
  }
  Json document = {{"command", "tune --list"},      {"shard", all ? Json() : Json(shard_.index)},
                   {"shards", shard_.count},        {"list", file_.list},
                   {"shapes_in_list", all_.size()}, {"predicted_for", runs_on_host_ ? "CPU" : "GPU"},
                   {"loads", Json::array()},        {"shapes", Json::array()}};
  std::vector<std::size_t> counts(shard_.count);
  for (const std::size_t shard : deal_.shard_of) ++counts[shard];
  for (std::size_t shard = 0; shard < shard_.count; ++shard) {
    document["loads"].push_back(
        {{"shard", shard + 1}, {"shapes", counts[shard]}, {"predicted_seconds", deal_.loads[shard]}});
  }
  for (const std::size_t i : shapes) {
    document["shapes"].push_back({{"problem", print(all_[i].problem)},
                                  {"m", all_[i].problem.m},
                                  {"n", all_[i].problem.n},
                                  {"k", all_[i].problem.k},
                                  {"calls", std::max<std::int64_t>(1, all_[i].calls)},
                                  {"shard", deal_.shard_of[i] + 1},
                                  {"position", deal_.positions[i]},
                                  {"predicted_seconds", deal_.seconds[i]}});
  }
  return json_document(document);
}

Status TuneShard::begin(const Outputs& outputs, const Device& device, const TuneRequest& request) {
  output_ = outputs.tuned;
  // The same shard started twice: the second one finds what the first one did.
  GEMMTUNE_TRY(lock_, FileLock::acquire(output_ + ".shard.lock"));
  file_.options = identity_text(request);
  file_.gfx = device.info().gfx;
  file_.cu_num = device.info().cu_num;
  file_.environment = row_environment(device, request.policy).hash;
  file_.state = shard_running;
  return write_shard_file(output_, file_);
}

Status TuneShard::end(const RunSummary& summary, const TuneRequest& request, bool interrupted) {
  file_.state = interrupted ? shard_interrupted : shard_finished;
  std::unordered_map<Problem, const ItemReport*, SameKeyHash, SameKey> reports;
  for (const ItemReport& report : summary.items) reports.try_emplace(report.shape.problem, &report);
  for (ShardShape& shape : file_.shapes) {
    Problem problem = shape.problem;
    if (file_.m_to > 0) problem.m = file_.m_to;
    const auto found = reports.find(problem);
    if (found == reports.end()) continue;
    shape.state = to_string(found->second->state);
    shape.reason = found->second->reason;
  }
  if (!file_exists(output_)) {
    GEMMTUNE_RETURN_IF_ERROR(
        write_file_atomically(output_, write_tuned_csv(file_.operation, {}, request.publish.schema)));
  }
  return write_shard_file(output_, file_);
}

}  // namespace gemmtune::cli
