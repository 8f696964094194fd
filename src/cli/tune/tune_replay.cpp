#include "cli/tune/tune_replay.h"

#include <utility>

namespace gemmtune::cli {

ShapeList shapes_of_recording(const TuneOptions& options, const Recording& recording) {
  ShapeList list;
  list.source = options.replay;
  for (const RecordedProblem& problem : recording.problems) {
    if (options.limit > 0 && list.rows.size() == static_cast<std::size_t>(options.limit)) break;
    ShapeRow row;
    row.problem = problem.problem;
    row.calls = problem.calls;
    list.rows.push_back(std::move(row));
  }
  return list;
}

Status take_recorded_policy(const RecordedRun& run, const TuneOptions& options, TuneRequest& request) {
  const std::string asked = policy_of(options, run.device).text();
  const std::string recorded = run.policy.text();
  if (asked != default_policy(run.device).text() && asked != recorded) {
    return Status::invalid("--replay {}: was recorded with {}, asked is {}", options.replay, recorded, asked);
  }
  request.policy.cache = run.policy.cache;
  request.policy.warmup = run.policy.warmup;
  request.policy.iterations = run.policy.iterations;
  request.policy.sample_microseconds = run.policy.sample_microseconds;
  request.policy.init = run.policy.init;
  request.policy.launch = run.policy.launch;
  request.policy.rotating_mb = run.policy.rotating_mb;
  request.policy.team = run.policy.team;
  request.policy.parallel_pass = run.policy.parallel_pass;
  request.policy.processor_time = run.policy.processor_time;
  return {};
}

}  // namespace gemmtune::cli
