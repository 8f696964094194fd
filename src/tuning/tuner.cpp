#include "tuning/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "backends/traits.h"
#include "base/enumerators.h"
#include "evaluate/worker/worker_pool.h"
#include "tuning/budget.h"
#include "tuning/confirmation_pass.h"
#include "tuning/interruptible_evaluator.h"
#include "tuning/run.h"
#include "tuning/work_item.h"

namespace gemmtune {
namespace {

constexpr double min_seconds_for_roof = 20;
constexpr double min_budget_for_roof = 60;
constexpr double share_for_roof = 0.05;  // of a budget

Status check_range(const std::optional<MRangeRequest>& asked) {
  if (!asked) return {};
  const MRange& range = asked->range;
  if (range.first >= 1 && range.last >= range.first && range.last <= max_dimension) return {};
  return Status::invalid("range of M {}:{}: expected 1 <= first <= last <= {}", range.first, range.last,
                         max_dimension);
}

/// An evaluator that ends with an error ends the work of the others.
struct EndOfWork {
  explicit EndOfWork(RunBudget& of) : budget(of) {}
  ~EndOfWork() {
    if (!is_regular) budget.end();
  }
  EndOfWork(const EndOfWork&) = delete;
  EndOfWork& operator=(const EndOfWork&) = delete;

  RunBudget& budget;
  bool is_regular = false;
};

/// Of the largest shape that has one, by `evaluator`, within the deadline but for one kernel. Runs of some length alone pay
/// for it.
Status measure_roof(Run& run, Device& device, Evaluator& evaluator, const Deadline& deadline) {
  const TuneRequest& request = run.request();
  if (!request.measures_compute_roof || run.stopped()) return {};
  std::optional<Problem> product;
  double most = 0;
  for (const ShapeRow& shape : request.shapes) {
    auto large = large_product(shape.problem, device.info());
    if (!large || flops(shape.problem) <= most) continue;
    most = flops(shape.problem);
    product = large;
  }
  auto roof = product ? measure_compute_roof(device, evaluator, *product,
                                             [&] { return run.stopped() || deadline.over(); })
                      : std::nullopt;
  return roof ? run.note_compute_roof(std::move(*roof)) : Status();
}

Result<RunSummary> run_items(Run& run, Device& device, std::span<Evaluator* const> evaluators,
                             Evaluator& unlimited, const Deadline& clock) {
  GEMMTUNE_RETURN_IF_ERROR(run.open());
  const double budget = run.request().budget_seconds;
  if (budget >= min_budget_for_roof)  // nothing is measured once it has ended
    GEMMTUNE_RETURN_IF_ERROR(measure_roof(run, device, unlimited, Deadline::in(share_for_roof * budget)));
  ConfirmationPass confirmation(run);
  const auto items = run.request().m_range ? range_items(run) : shape_items(run, confirmation);
  run.begin();
  const auto work = [&](std::size_t worker, std::size_t) -> Status {
    EndOfWork end(run.budget());
    while (const auto visit = run.budget().next(worker))
      GEMMTUNE_RETURN_IF_ERROR(items[visit->group]->visit(*visit, *evaluators[worker]));
    end.is_regular = true;
    return {};
  };
  GEMMTUNE_RETURN_IF_ERROR(share_out(evaluators.size(), evaluators.size(), work));
  for (const auto& item : items) GEMMTUNE_RETURN_IF_ERROR(item->finish());
  GEMMTUNE_RETURN_IF_ERROR(confirmation.run(evaluators));
  if (budget == 0 && clock.seconds_elapsed() >= min_seconds_for_roof)
    GEMMTUNE_RETURN_IF_ERROR(measure_roof(run, device, unlimited, Deadline::never()));
  return run.finish();
}

}  // namespace

int default_confirmations(const DeviceInfo& device, Objective objective) {
  return objective == Objective::time ? traits_of(device).confirmation_passes : 1;
}

double default_seconds_before_confirmation(const DeviceInfo& device) {
  return traits_of(device).runs_on_host ? 30 : 0;
}

void choose_confirmations(TuneRequest& request, const DeviceInfo& device, int asked) {
  // The confirmation pass chooses among all finalists of a shape, whatever their bit class is.
  if (request.invariant) asked = 1;
  request.confirmations = asked > 0 ? asked : default_confirmations(device, request.policy.objective);
  request.seconds_before_confirmation = default_seconds_before_confirmation(device);
}

constexpr EnumeratorNames<ProblemState, 7> problem_state_names({{ProblemState::tuned, "tuned"},
                                                                {ProblemState::kept_default, "default"},
                                                                {ProblemState::skipped_done, "done already"},
                                                                {ProblemState::unsupported, "unsupported"},
                                                                {ProblemState::failed, "failed"},
                                                                {ProblemState::out_of_budget,
                                                                 "out of budget"},
                                                                {ProblemState::interrupted, "interrupted"}});
std::string_view to_string(ProblemState state) { return problem_state_names.of(state); }

Result<RunSummary> tune(Device& device, std::span<Evaluator* const> evaluators, const TuneRequest& request,
                        RunObserver& observer) {
  const Deadline clock = Deadline::never(request.clock);
  if (evaluators.empty()) return Status::invalid("no evaluator: expected at least one");
  GEMMTUNE_RETURN_IF_ERROR(check_range(request.m_range));
  const auto at_once = static_cast<std::size_t>(std::max(1, request.shapes_at_once));
  std::vector<Evaluator*> working(evaluators.begin(), evaluators.end());
  working.resize(std::min(working.size(), at_once));
  Run run(device, working.size(), request, observer);
  std::vector<std::unique_ptr<InterruptibleEvaluator>> interruptible;
  for (Evaluator*& evaluator : working) {
    interruptible.push_back(std::make_unique<InterruptibleEvaluator>(
        *evaluator, [&run] { return run.stopped(); }, [&run] { return run.budget().is_cut_off(); }));
    evaluator = interruptible.back().get();
  }
  auto summary = run_items(run, device, working, *evaluators.front(), clock);
  if (summary.ok()) summary->seconds = clock.seconds_elapsed();
  return summary;
}

Status check_energy(Device& device, const TuneRequest& request) {
  if (!weighs_energy(request)) return {};
  const bool chooses = request.policy.objective != Objective::time;
  const std::string option =
      chooses ? fmt::format("--objective {}", to_string(request.policy.objective)) : "--energy";
  if (request.m_range)
    return Status::invalid("{}: not with --m-range, whose rows are compared by time", option);
  if (chooses && request.pdl)
    return Status::invalid("{}: not with --pdl allow, whose dependent launches are compared by time", option);
  if (chooses && request.confirmations > 1)
    return Status::invalid("{}: a confirmation pass compares by time; expected --confirmations 1", option);
  if (const Status counted = device.counts_energy(); !counted.ok())
    return {counted.code(), fmt::format("{}: {}", option, counted.message())};
  return {};
}

Result<RunSummary> tune(Device& device, Evaluator& evaluator, const TuneRequest& request,
                        RunObserver& observer) {
  Evaluator* const evaluators[] = {&evaluator};
  return tune(device, evaluators, request, observer);
}

}  // namespace gemmtune
