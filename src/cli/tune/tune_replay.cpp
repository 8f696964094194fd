#include "cli/tune/tune_replay.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "cli/command.h"
#include "cli/shared/console.h"
#include "cli/shared/interrupt.h"
#include "cli/tune/interruptible_evaluator.h"
#include "cli/tune/profile_file.h"
#include "cli/tune/tune_events.h"
#include "cli/tune/tune_progress.h"
#include "cli/tune/tune_range.h"
#include "cli/tune/tune_report.h"
#include "evaluate/replay/replay_device.h"
#include "evaluate/replay/replay_evaluator.h"

namespace gemmtune::cli {
namespace {

bool names_shapes(const TuneOptions& options) {
  return !options.input.empty() || options.size.any() || !options.model.folder.empty();
}

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

/// The recorded times are of one policy: they cannot answer for another.
Status take_policy(const RecordedRun& run, const TuneOptions& options, TuneRequest& request) {
  const std::string asked = policy_of(options, run.device).text();
  const std::string recorded = run.policy.text();
  if (asked != default_policy(run.device).text() && asked != recorded) {
    return Status::invalid("--replay {}: was recorded with {}, asked is {}", options.replay, recorded, asked);
  }
  request.policy.cache = run.policy.cache;
  request.policy.warmup = run.policy.warmup;
  request.policy.iterations = run.policy.iterations;
  request.policy.sample_microseconds = run.policy.sample_microseconds;
  return {};
}

struct Replay {
  const Recording& recording;
  const ShapeList& shapes;
  const Outputs& outputs;
  TuneRequest& request;
};

int run_replay(const TuneOptions& options, Replay& replay, ReplayDevice& device) {
  ProfileFile profile(replay.outputs.profile, device.info(),
                      row_environment(device, replay.request.policy).hash, replay.request.publish.schema);
  if (!replay.outputs.profile.empty()) {
    if (const Status status = profile.check_header(); !status.ok())
      return usage_error("tune", status.message());
  }
  Console console(options.quiet);
  for (const std::string& diagnostic : replay.shapes.diagnostics) console.urgent_line(diagnostic);
  console.line(fmt::format("{} from {}, recorded on {}", counted(replay.shapes.rows.size(), "shape"),
                           options.replay, device_line(device.info())));
  watch_for_interrupts();
  ReplayEvaluator evaluator(replay.recording, replay.request.policy.seed);
  replay.request.clock = [&evaluator] { return evaluator.seconds(); };
  InterruptibleEvaluator interruptible(evaluator, interrupted);
  TuneProgress progress(console, device, replay.outputs.profile.empty() ? nullptr : &profile, replay.request,
                        options.verbose);
  const auto events = TuneEvents::open(options.events, progress);
  if (!events.ok()) return usage_error("tune", events.message());
  const auto summary = tune(device, interruptible, replay.request, **events);
  console.clear_live_line();
  if (!summary.ok()) return usage_error("tune", summary.message());
  const TuneEnding ending{*summary, replay.shapes, replay.outputs, device.info(), interrupted()};
  fmt::print("{}", options.json ? ending_json(ending) : ending_text(ending));
  return ending_code(ending);
}

}  // namespace

int replay_tuning(const TuneOptions& options, const Environment& environment) {
  const auto recording = read_recording(options.replay);
  if (!recording.ok()) return usage_error("tune", fmt::format("--replay {}", recording.message()));
  ReplayDevice device(*recording);
  auto shapes = names_shapes(options) ? shapes_of(options, environment, device.info())
                                      : Result<ShapeList>(shapes_of_recording(options, *recording));
  if (!shapes.ok()) return usage_error("tune", shapes.message());
  auto outputs = outputs_of(options, environment, device.info(), *shapes);
  if (!outputs.ok()) return usage_error("tune", outputs.message());
  auto request = request_of(options, *shapes, *outputs, device);
  if (!request.ok()) return usage_error("tune", request.message());
  if (const Status status = take_policy(recording->run, options, *request); !status.ok())
    return usage_error("tune", status.message());
  if (request->m_range) {
    ReplayEvaluator evaluator(*recording, request->policy.seed);
    request->clock = [&evaluator] { return evaluator.seconds(); };
    return replay_ranges(options, {*request, *shapes, *outputs}, device, evaluator);
  }
  Replay replay{*recording, *shapes, *outputs, *request};
  return run_replay(options, replay, device);
}

}  // namespace gemmtune::cli
