#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "select/energy.h"
#include "tuned/key.h"
#include "tuning/confirmation_pass.h"
#include "tuning/invariant_group.h"
#include "tuning/layout_group.h"
#include "tuning/run.h"
#include "tuning/work_item.h"

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
  /// Of an invariant request: members of one key but for M get kernels of one bit class, or none.
  void agree_on_bits(Evaluator& evaluator);
  void agree_on_bits(Evaluator& evaluator, const std::vector<std::size_t>& items);
  bool is_replaced(const TunedEntry& row) const;
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
    if (is_packed(first) && asked != WeightLayout::any) return asked;
  }
  return run_.decided_layout(first, [this](const TunedEntry& row) { return is_replaced(row); });
}

bool ShapeGroup::is_replaced(const TunedEntry& row) const {
  return std::ranges::any_of(
      members_, [&](std::size_t i) { return run_.waits(i) && same_key(problem_of(i), row.problem); });
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

void ShapeGroup::agree_on_bits(Evaluator& evaluator) {
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [item, visited] : visited_) {
    if (chosen(visited) == nullptr) continue;
    const auto key = group_of(problem_of(item));
    const auto group = std::ranges::find_if(groups, [&](const std::vector<std::size_t>& known) {
      return group_of(problem_of(known.front())) == key;
    });
    if (group == groups.end()) {
      groups.push_back({item});
    } else {
      group->push_back(item);
    }
  }
  for (const std::vector<std::size_t>& items : groups) agree_on_bits(evaluator, items);
}

void ShapeGroup::agree_on_bits(Evaluator& evaluator, const std::vector<std::size_t>& items) {
  std::vector<InvariantMember> members;
  for (const std::size_t item : items) {
    const LayoutResult& each = *chosen(visited_.at(item));
    const auto calls = static_cast<double>(std::max<std::int64_t>(1, run_.report(item).shape.calls));
    members.push_back({problem_of(item), calls, each.layout, each.screened});
  }
  const std::string decided = run_.decided_bits(problem_of(items.front()),
                                                [this](const TunedEntry& row) { return is_replaced(row); });
  InvariantChoice choice = choose_invariant(run_.device(), evaluator, run_.request(), decided, members);
  if (run_.ended()) {  // the report says so, and not that there is no class
    for (const std::size_t item : items) visited_.at(item).result.reset();
    return;
  }
  const bool is_whole = std::ranges::all_of(choice.settled, [](const Settled& one) { return !!one.winner; });
  for (std::size_t i = 0; i < items.size(); ++i) {
    ProblemResult& result = *visited_.at(items[i]).result;
    merge_trials(members[i].screened, result.trials);
    if (choice.bits.empty() || !is_whole) {
      result.layouts.clear();
      result.failure = ProblemState::failed;
      const bool is_own = !choice.bits.empty() && !choice.settled[i].winner;
      result.reason = choice.bits.empty() ? choice.reason
                      : is_own
                          ? choice.settled[i].reason
                          : fmt::format("another M of its weight has no kernel of bit class {}", choice.bits);
      continue;
    }
    LayoutResult& each = *chosen(visited_.at(items[i]));
    each.settled = std::move(choice.settled[i]);
    each.bits = choice.bits;
  }
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
  if (run_.request().invariant) agree_on_bits(evaluator);
  for (const std::size_t item : members_) {
    const auto found = visited_.find(item);
    GEMMTUNE_RETURN_IF_ERROR(present(item, found != visited_.end() && found->second.may_go_on));
  }
  return {};
}

Status ShapeGroup::finish() {
  if (!is_concluded_) {
    // Without all M the class is not decided, and a kernel alone is no row.
    if (run_.request().invariant) {
      for (auto& [item, visited] : visited_) visited.result.reset();
    }
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
  if (row == nullptr || !run.counts(row->entry)) {
    const Status status = run.check_keeps_bits(problem);
    return !status.ok() && ends_as(ProblemState::failed, status.message());
  }
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
  std::vector<std::vector<std::size_t>> groups = layout_groups(shapes, run.request().invariant);
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
