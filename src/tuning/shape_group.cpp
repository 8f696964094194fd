#include "tuning/shape_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tuned/key.h"
#include "tuning/layout_group.h"

namespace gemmtune {
namespace {

class ShapeGroup final : public WorkItem {
 public:
  ShapeGroup(Run& run, ConfirmationPass& confirmation, std::vector<std::size_t> members)
      : run_(run), confirmation_(confirmation), members_(std::move(members)) {}

  Status run(Evaluator& evaluator) override;

 private:
  const Problem& problem_of(std::size_t item) const { return run_.request().shapes[item].problem; }
  std::optional<WeightLayout> decided_layout() const;
  ProblemResult tune_one(std::size_t item, std::optional<WeightLayout> layout, Evaluator& evaluator);
  void conclude(std::size_t item, ProblemResult&& result, std::optional<WeightLayout> layout);

  Run& run_;
  ConfirmationPass& confirmation_;
  const std::vector<std::size_t> members_;
};

std::optional<WeightLayout> ShapeGroup::decided_layout() const {
  const Problem& first = problem_of(members_.front());
  for (const std::size_t i : members_) {
    const WeightLayout asked = problem_of(i).weight_layout;
    if (first.bpreshuffle && asked != WeightLayout::any) return asked;
  }
  std::unordered_set<Problem, SameKeyHash, SameKey> waiting;
  for (const std::size_t i : members_) {
    if (run_.waits(i)) waiting.insert(problem_of(i));
  }
  return run_.decided_layout(first, [&](const TunedEntry& row) { return waiting.contains(row.problem); });
}

ProblemResult ShapeGroup::tune_one(std::size_t item, std::optional<WeightLayout> layout,
                                   Evaluator& evaluator) {
  const Deadline clock = Deadline::never(run_.request().clock);
  ItemReport& report = run_.report(item);
  run_.problem_started(item, report.shape);
  const auto own = run_.take_time(item);
  if (!own) {
    ProblemResult nothing;
    nothing.failure = report.state;
    nothing.reason = report.reason;
    return nothing;
  }
  ProblemResult result = run_.search(item, report.shape.problem, layout, *own, evaluator);
  for (const LayoutResult& each : result.layouts) {
    if (each.settled.speedup) run_.learn_gain(item, *each.settled.speedup);
  }
  report.seconds = clock.seconds_elapsed();
  return result;
}

void ShapeGroup::conclude(std::size_t item, ProblemResult&& result, std::optional<WeightLayout> layout) {
  ItemReport& report = run_.report(item);
  report.trials = std::move(result.trials);
  report.refusals = std::move(result.refusals);
  const auto chosen = std::find_if(result.layouts.begin(), result.layouts.end(),
                                   [&](const LayoutResult& each) { return each.layout == layout; });
  if (chosen == result.layouts.end()) {
    report.state = result.failure;
    report.reason = result.reason;
    if (!result.layouts.empty()) {
      report.reason = fmt::format("no kernel for layout {}, which the other M of this weight use",
                                  to_string(layout.value_or(WeightLayout::any)));
    }
    return;
  }
  run_.set_row(item, *chosen);
  run_.note_machine(chosen->settled.noise_floor, chosen->settled.quietness.busy());
  confirmation_.add(item, std::move(*chosen));
}

Status ShapeGroup::run(Evaluator& evaluator) {
  const auto decided = decided_layout();
  std::vector<ProblemResult> results(members_.size());
  std::vector<GroupMember> members;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!run_.waits(members_[i])) continue;
    results[i] = tune_one(members_[i], decided, evaluator);
    GroupMember& member = members.emplace_back();
    member.calls = std::max<std::int64_t>(1, run_.report(members_[i]).shape.calls);
    for (const LayoutResult& each : results[i].layouts) {
      member.times.push_back({each.layout, each.settled.microseconds});
    }
  }
  const auto layout = decided ? decided : choose_layout(members);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::size_t item = members_[i];
    const ItemReport& report = run_.report(item);
    if (run_.waits(item)) {
      conclude(item, std::move(results[i]), layout);
    } else {
      run_.problem_started(item, report.shape);
    }
    GEMMTUNE_RETURN_IF_ERROR(run_.publish(report.rows));
    run_.problem_done(item, report);
  }
  return {};
}

/// The first index of each key in a list of shapes.
using FirstOfKey = std::unordered_map<Problem, std::size_t, SameKeyHash, SameKey>;

/// True if the shape needs no tuning; the report then has the reason. `earlier`: of the shapes before it.
bool leave_out(Run& run, const FirstOfKey& earlier, ItemReport& report) {
  const auto ends_as = [&](ProblemState state, std::string reason) {
    report.state = state;
    report.reason = std::move(reason);
    return true;
  };
  const Problem& problem = report.shape.problem;
  if (const Status status = run.check_problem(problem); !status.ok()) {
    return ends_as(ProblemState::unsupported, status.message());
  }
  if (const auto same = earlier.find(problem); same != earlier.end()) {
    return ends_as(ProblemState::skipped_done,
                   fmt::format("the same problem is number {} of this list", same->second + 1));
  }
  const KnownRows::Row* row = run.known().find(problem);
  if (row == nullptr || !run.counts(row->entry)) return false;
  run.learn_winner(problem, row->entry.kernel_name);
  return ends_as(
      ProblemState::skipped_done,
      fmt::format("done already: {}:{} has {} at {} us{}", row->path, row->entry.line, row->entry.kernel_name,
                  row->entry.us, run.request().stale ? " of today's environment" : ""));
}

}  // namespace

std::vector<std::unique_ptr<WorkItem>> shape_items(Run& run, ConfirmationPass& confirmation) {
  const std::vector<ShapeRow>& shapes = run.request().shapes;
  FirstOfKey first_of_key;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    ItemReport report;
    report.shape = shapes[i];
    std::optional<double> expected;
    if (!leave_out(run, first_of_key, report)) expected = expected_microseconds(report.shape.problem);
    run.add(std::move(report), expected);
    first_of_key.try_emplace(shapes[i].problem, i);
    run.preparing(i + 1, shapes.size());
  }
  std::vector<std::unique_ptr<WorkItem>> items;
  for (std::vector<std::size_t>& group : layout_groups(shapes)) {
    items.push_back(std::make_unique<ShapeGroup>(run, confirmation, std::move(group)));
  }
  return items;
}

}  // namespace gemmtune
