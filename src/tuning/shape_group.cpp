#include "tuning/shape_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "select/energy.h"
#include "tuned/key.h"
#include "tuning/layout_group.h"

namespace gemmtune {
namespace {

class ShapeGroup final : public WorkItem {
 public:
  ShapeGroup(Run& run, ConfirmationPass& confirmation, std::vector<std::size_t> members)
      : run_(run), confirmation_(confirmation), members_(std::move(members)) {}

  Status visit(const RunBudget::Visit& visit, Evaluator& evaluator) override;
  Status finish() override;

 private:
  /// A problem that was visited and not reported.
  struct Visited {
    TuningProgress progress;
    std::optional<ProblemResult>
        result;              // kernels, or why there are none: of the latest visit that settled it
    bool may_go_on = false;  // it may be visited again
    double seconds = 0;      // of all visits
  };

  const Problem& problem_of(std::size_t item) const { return run_.request().shapes[item].problem; }
  std::optional<WeightLayout> decided_layout() const;
  void tune_one(std::size_t item, const RunBudget::Visit& visit, Evaluator& evaluator);
  bool all_have_results() const;
  /// Decides the layout of all members. Nothing changes it later.
  void conclude();
  LayoutResult* chosen(Visited& visited) const;
  /// Into the report: the row, or why there is none.
  void set_result(std::size_t item);
  /// No visit follows: observer and confirmation pass get what the last one found.
  void report(std::size_t item);
  /// Publishes the member's row, and reports it unless it may be visited again.
  Status present(std::size_t item, bool may_go_on);

  Run& run_;
  ConfirmationPass& confirmation_;
  const std::vector<std::size_t> members_;
  std::map<std::size_t, Visited> visited_;  // by item
  bool is_concluded_ = false;
  std::optional<WeightLayout>
      layout_;  // that members may use; before they are concluded: where rows decide it
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

void ShapeGroup::tune_one(std::size_t item, const RunBudget::Visit& visit, Evaluator& evaluator) {
  if (visited_.empty() && !is_concluded_) layout_ = decided_layout();
  const Deadline clock = Deadline::never(run_.request().clock);
  const ShapeRow& shape = run_.report(item).shape;
  run_.problem_started(item, shape);
  Visited& visited = visited_[item];
  ProblemResult result =
      run_.search(item, shape.problem, layout_, visit.tuning, evaluator, &visited.progress);
  visited.seconds += clock.seconds_elapsed();
  visited.may_go_on = run_.budget().done(visit, result.figures);
  if (visited.may_go_on) run_.problem_paused(item);
  const bool is_failed = result.layouts.empty() && !result.reason.empty();
  const bool has_kernels = visited.result && !visited.result->layouts.empty();
  if (is_failed && has_kernels) return;  // of an earlier visit: they stay
  if (visit.tuning.settles || is_failed) visited.result = std::move(result);
}

bool ShapeGroup::all_have_results() const {
  return std::ranges::all_of(members_, [&](std::size_t item) {
    const auto found = visited_.find(item);
    return !run_.waits(item) || (found != visited_.end() && found->second.result);
  });
}

void ShapeGroup::conclude() {
  is_concluded_ = true;
  if (visited_.empty()) layout_ = decided_layout();
  if (layout_) return;
  std::vector<GroupMember> members;
  // By time where the joules of any are missing.
  const bool counted = std::ranges::all_of(visited_, [&](const auto& one) {
    return !one.second.result ||
           std::ranges::all_of(one.second.result->layouts, [&](const LayoutResult& each) {
             return objective_value(each.settled, run_.request().policy.objective).has_value();
           });
  });
  const Objective objective = counted ? run_.request().policy.objective : Objective::time;
  for (const auto& [item, visited] : visited_) {
    if (!visited.result) continue;
    GroupMember& member = members.emplace_back();
    member.calls = std::max<std::int64_t>(1, run_.report(item).shape.calls);
    for (const LayoutResult& each : visited.result->layouts)
      member.times.push_back({each.layout, *objective_value(each.settled, objective)});
  }
  layout_ = choose_layout(members);
}

LayoutResult* ShapeGroup::chosen(Visited& visited) const {
  if (!visited.result) return nullptr;
  for (LayoutResult& each : visited.result->layouts) {
    if (each.layout == layout_) return &each;
  }
  return nullptr;
}

void ShapeGroup::set_result(std::size_t item) {
  ItemReport& report = run_.report(item);
  const auto found = visited_.find(item);
  if (found == visited_.end() || !found->second.result) {
    run_.set_unfinished(report, found != visited_.end());
    return;
  }
  Visited& visited = found->second;
  const ProblemResult& result = *visited.result;
  report.seconds = visited.seconds;
  report.trials = result.trials;
  report.refusals = result.refusals;
  if (const LayoutResult* each = chosen(visited)) {
    run_.set_row(item, *each);
    return;
  }
  report.state = result.failure;
  report.reason = result.reason;
  if (!result.layouts.empty()) {
    report.reason = fmt::format("no kernel for layout {}, which the other M of this weight use",
                                to_string(layout_.value_or(WeightLayout::any)));
  }
}

void ShapeGroup::report(std::size_t item) {
  const ItemReport& report = run_.report(item);
  const auto found = visited_.find(item);
  if (found == visited_.end()) {
    run_.problem_started(item, report.shape);
  } else {
    if (LayoutResult* each = chosen(found->second)) confirmation_.add(item, std::move(*each));
    visited_.erase(found);
  }
  run_.problem_done(item, report);
}

Status ShapeGroup::present(std::size_t item, bool may_go_on) {
  if (run_.waits(item)) set_result(item);
  const auto found = visited_.find(item);
  const LayoutResult* const each = found == visited_.end() ? nullptr : chosen(found->second);
  // Before the row is published: the environment stands beside it.
  if (each != nullptr && !may_go_on)
    run_.note_machine(each->settled.noise_floor, each->settled.quietness.busy());
  GEMMTUNE_RETURN_IF_ERROR(run_.publish(run_.report(item).rows));
  if (!may_go_on) {
    report(item);
  } else if (run_.waits(item) && run_.report(item).row() != nullptr) {
    run_.problem_settled(item);
  }
  return {};
}

Status ShapeGroup::visit(const RunBudget::Visit& visit, Evaluator& evaluator) {
  if (visit.item) {
    tune_one(*visit.item, visit, evaluator);
  } else {
    run_.budget().done(visit, {});
  }
  if (is_concluded_) return present(*visit.item, visited_.at(*visit.item).may_go_on);
  if (!all_have_results()) return {};
  conclude();
  for (const std::size_t item : members_) {
    const auto found = visited_.find(item);
    GEMMTUNE_RETURN_IF_ERROR(present(item, found != visited_.end() && found->second.may_go_on));
  }
  return {};
}

Status ShapeGroup::finish() {
  if (!is_concluded_) {
    conclude();
    for (const std::size_t item : members_) GEMMTUNE_RETURN_IF_ERROR(present(item, false));
  }
  while (!visited_.empty()) GEMMTUNE_RETURN_IF_ERROR(present(visited_.begin()->first, false));
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
  if (const Status status = run.check_expressible(problem); !status.ok()) {
    return ends_as(ProblemState::failed, status.message());
  }
  if (const auto same = earlier.find(problem); same != earlier.end()) {
    report.repeats = true;
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
  std::vector<std::vector<std::size_t>> groups = layout_groups(shapes);
  std::vector<std::size_t> group_of_shape(shapes.size());
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const std::size_t shape : groups[group]) group_of_shape[shape] = group;
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    ItemReport report;
    report.shape = shapes[i];
    const bool waits = !leave_out(run, first_of_key, report);
    run.add(std::move(report), group_of_shape[i], waits);
    first_of_key.try_emplace(shapes[i].problem, i);
    run.preparing(i + 1, shapes.size());
  }
  std::vector<std::unique_ptr<WorkItem>> items;
  for (std::vector<std::size_t>& group : groups) {
    items.push_back(std::make_unique<ShapeGroup>(run, confirmation, std::move(group)));
  }
  return items;
}

}  // namespace gemmtune
