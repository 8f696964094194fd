#include "cli/tune/dry_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/traits.h"
#include "base/text.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/output_path.h"
#include "cli/shared/report_parts.h"
#include "cli/tune/tune_report.h"
#include "formats/json.h"
#include "resolve/candidate_list.h"
#include "resolve/known_rows.h"
#include "tuning/problem_tuner.h"
#include "tuning/run.h"
#include "tuning/shard_deal.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

std::size_t tuned_count(const DryRun& plan) {
  return static_cast<std::size_t>(
      std::ranges::count_if(plan.shapes, [](const PlannedShape& each) { return each.why_not.empty(); }));
}

}  // namespace

Result<DryRun> dry_run(const Device& device, const TuneRequest& request) {
  DryRun plan;
  plan.output = request.output.empty() ? std::string() : absolute_path(request.output);
  plan.budget_seconds = request.budget_seconds;
  if (request.m_range) plan.m_range = request.m_range->range;
  if (request.shapes.empty()) return plan;
  std::vector<std::string> paths{request.output};
  paths.insert(paths.end(), request.also_read.begin(), request.also_read.end());
  GEMMTUNE_TRY(const auto known,
               KnownRows::read(paths, form_of(request.shapes.front().problem), device.info()));
  const std::string environment = row_environment(device, request.policy).hash;
  const bool runs_on_host = traits_of(device.info()).runs_on_host;
  std::optional<MRange> range;
  if (request.m_range) range = request.m_range->range;
  const ShardDeal cost =
      deal_shapes(request.shapes, 1, runs_on_host ? imagined_cpu : imagined_gpu, request.strategy, range);
  for (std::size_t i = 0; i < request.shapes.size(); ++i) {
    PlannedShape& planned = plan.shapes.emplace_back(PlannedShape{request.shapes[i], 0, {}, 0});
    Problem problem = planned.shape.problem;
    if (range) problem.m = range->last;
    const CandidateList list = list_candidates(device, problem, candidate_filter(request));
    planned.candidates = list.candidates.size();
    const KnownRows::Row* const row = range ? nullptr : known.find(problem);
    if (row != nullptr && counts_as_done(device, request, environment, row->entry)) {
      planned.why_not = fmt::format("in {}:{} already", row->path, row->entry.line);
    } else if (list.candidates.empty()) {
      planned.why_not = "no kernel family takes it: " + joined(list.refusals, "; ");
    } else {
      planned.predicted_seconds = cost.seconds[i];
      plan.predicted_seconds += cost.seconds[i];
    }
  }
  if (plan.budget_seconds > 0) plan.predicted_seconds = std::min(plan.predicted_seconds, plan.budget_seconds);
  return plan;
}

std::string dry_run_text(const DryRun& plan, const DeviceInfo& device) {
  TextTable table({{"shape (M x N x K)"},
                   {"layer", false, true, 1},
                   {"calls", true},
                   {"kernels", true},
                   {"predicted s", true, false, 2},
                   {"not tuned because", false, true}});
  for (const PlannedShape& each : plan.shapes) {
    table.add({short_name(each.shape.problem), each.shape.layer,
               std::to_string(std::max<std::int64_t>(1, each.shape.calls)), std::to_string(each.candidates),
               each.why_not.empty() ? fmt::format("{:.1f}", each.predicted_seconds) : "-", each.why_not});
  }
  std::string text = table.text(stdout_is_terminal() ? stdout_columns() : 0) + "\n";
  text +=
      fmt::format("{} of {} would be tuned on {}, about {}{}\n", tuned_count(plan),
                  counted(plan.shapes.size(), "shape"), device_line(device), duration(plan.predicted_seconds),
                  plan.budget_seconds > 0 ? fmt::format(" (--budget {:g})", plan.budget_seconds)
                                          : std::string(" as predicted from their sizes"));
  if (plan.m_range)
    text += fmt::format("over M = {} to {}, as ranges\n", plan.m_range->first, plan.m_range->last);
  return text + fmt::format("into {}; nothing was measured or written\n", plan.output);
}

std::string dry_run_json(const DryRun& plan, const DeviceInfo& device) {
  Json json = {{"command", "tune --dry-run"}, {"device", device_json(device)},
               {"output", plan.output},       {"shapes", Json::array()},
               {"tuned", tuned_count(plan)},  {"predicted_seconds", plan.predicted_seconds}};
  for (const PlannedShape& each : plan.shapes) {
    json["shapes"].push_back({{"problem", print(each.shape.problem)},
                              {"layer", each.shape.layer},
                              {"calls", std::max<std::int64_t>(1, each.shape.calls)},
                              {"candidates", each.candidates},
                              {"why_not", each.why_not.empty() ? Json() : Json(each.why_not)},
                              {"predicted_seconds", each.predicted_seconds}});
  }
  return json_document(json);
}

}  // namespace gemmtune::cli
