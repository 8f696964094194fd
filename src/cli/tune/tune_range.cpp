#include "cli/tune/tune_range.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "cli/shared/console.h"
#include "cli/shared/interrupt.h"
#include "cli/tune/interruptible_evaluator.h"
#include "cli/tune/profile_file.h"
#include "cli/tune/range_progress.h"
#include "cli/tune/tune_events.h"
#include "cli/tune/tune_journal.h"
#include "cli/tune/tune_workers.h"

namespace gemmtune::cli {
namespace {

ProfileFile profile_of(const Device& device, const TuneRequest& request, const Outputs& outputs) {
  return {outputs.profile, device.info(), row_environment(device, request.policy).hash,
          request.publish.schema};
}

std::string opening(const TuneRequest& request, std::size_t weights) {
  const MRange& range = request.m_range->range;
  return fmt::format("{} over M = {} to {}, regret up to {:g} %", counted(weights, "weight"), range.first,
                     range.last, 100 * request.m_range->regret);
}

int end(const TuneOptions& options, const RangeEnding& ending) {
  fmt::print("{}", options.json ? ending_json(ending) : ending_text(ending));
  return ending_code(ending);
}

}  // namespace

int tune_ranges(const TuneOptions& options, const Environment& environment,
                const std::vector<std::unique_ptr<Device>>& devices, const ShapeList& shapes) {
  Device& device = *devices.front();
  auto outputs = outputs_of(options, environment, device.info(), shapes);
  if (!outputs.ok()) return usage_error("tune", outputs.message());
  auto request = request_of(options, shapes, *outputs, device);
  if (!request.ok()) return usage_error("tune", request.message());
  ProfileFile profile = profile_of(device, *request, *outputs);
  const bool profiled = !outputs->profile.empty();
  if (const Status status = profiled ? profile.check_header() : Status(); !status.ok())
    return usage_error("tune", status.message());
  Console console(options.quiet);
  auto journal = TuneJournal::open(options, *outputs, device, *request);
  if (!journal.ok()) return usage_error("tune", journal.message());
  for (const std::string& diagnostic : shapes.diagnostics) console.urgent_line(diagnostic);
  const auto weights = weights_of(request->shapes, request->m_range->range.last);
  console.line(opening(*request, weights.size()) +
               ((*journal)->goes_on() ? ", going on with an unfinished run" : ""));
  watch_for_interrupts();
  const auto evaluators = make_evaluators(options, environment, devices, *request);
  std::vector<std::unique_ptr<InterruptibleEvaluator>> interruptible;
  std::vector<Evaluator*> measuring;
  for (const auto& evaluator : evaluators) {
    const auto journaled = (*journal)->around(*evaluator);
    if (!journaled.ok()) return usage_error("tune", journaled.message());
    interruptible.push_back(std::make_unique<InterruptibleEvaluator>(**journaled, interrupted));
    measuring.push_back(interruptible.back().get());
  }
  RangeProgress progress(console, profiled ? &profile : nullptr, options.verbose);
  const auto events = TuneEvents::open(options.events, progress);
  if (!events.ok()) return usage_error("tune", events.message());
  const auto summary = tune_m_ranges(device, measuring, *request, progress, (*journal)->around(**events));
  const TuneSummary problems = summary.ok() ? as_problems(*summary) : TuneSummary();
  (*journal)->end(summary.ok() ? &problems : nullptr, interrupted());
  console.clear_live_line();
  if (!summary.ok()) return usage_error("tune", summary.message());
  return end(options, {*summary, shapes, *outputs, device.info(), request->m_range->range, interrupted()});
}

int replay_ranges(const TuneOptions& options, const RangeReplay& replay, Device& device,
                  Evaluator& evaluator) {
  ProfileFile profile = profile_of(device, replay.request, replay.outputs);
  const bool profiled = !replay.outputs.profile.empty();
  if (const Status status = profiled ? profile.check_header() : Status(); !status.ok())
    return usage_error("tune", status.message());
  Console console(options.quiet);
  const auto weights = weights_of(replay.request.shapes, replay.request.m_range->range.last);
  console.line(opening(replay.request, weights.size()) + fmt::format(", from {}", options.replay));
  watch_for_interrupts();
  InterruptibleEvaluator interruptible(evaluator, interrupted);
  Evaluator* const evaluators[] = {&interruptible};
  RangeProgress progress(console, profiled ? &profile : nullptr, options.verbose);
  const auto events = TuneEvents::open(options.events, progress);
  if (!events.ok()) return usage_error("tune", events.message());
  const auto summary = tune_m_ranges(device, evaluators, replay.request, progress, **events);
  console.clear_live_line();
  if (!summary.ok()) return usage_error("tune", summary.message());
  return end(options, {*summary, replay.shapes, replay.outputs, device.info(), replay.request.m_range->range,
                       interrupted()});
}

}  // namespace gemmtune::cli
