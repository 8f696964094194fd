#include "tuning/invariant_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "evaluate/in_process/bit_class_finder.h"
#include "measure/statistics.h"
#include "search/strategy.h"
#include "select/finalists.h"
#include "select/screened_ties.h"
#include "tuning/problem_search.h"
#include "tuning/problem_tuner.h"

namespace gemmtune {
namespace {

constexpr std::size_t searched_orders = 2;    // that get a search of their own
constexpr std::size_t searched_kernels = 24;  // of such a search, looked at for the first time
constexpr std::size_t min_verified_orders = 4;
constexpr std::size_t max_verified_orders = 16;  // until a class serves every M
constexpr std::size_t verified_kernels = 4;      // of an order, at each M

double time_of(const Trial& trial) {
  const bool counts = trial.outcome.kind == OutcomeKind::ok && !trial.outcome.microseconds.empty();
  return counts ? median(trial.outcome.microseconds) : std::numeric_limits<double>::infinity();
}

/// The best kernels of a class or an order, one list a member, each the fastest first.
using KernelsOfMembers = std::vector<std::vector<Finalist>>;

class InvariantSearch {
 public:
  InvariantSearch(const Device& device, Evaluator& evaluator, const TuneRequest& request,
                  const std::string& decided, std::span<InvariantMember> members)
      : device_(device), evaluator_(evaluator), request_(request), decided_(decided), members_(members) {
    for (const InvariantMember& member : members_) {
      CandidateList list = list_candidates(device_, member.problem, candidate_filter(request_));
      std::erase_if(list.candidates, [&](const auto& listed) { return listed.layout != member.layout; });
      erase_refused(list.candidates);
      lists_.push_back(std::move(list.candidates));
    }
    serve_larger_m();
  }

  InvariantChoice choose() {
    for (const RankedOrder& ranked : ranked_orders(searched_orders)) search(ranked.order);
    std::size_t verified = 0;
    for (const RankedOrder& ranked : ranked_orders(max_verified_orders)) {
      const auto found = cheapest_class(true);
      if (verified >= min_verified_orders && found) break;
      // Kernels that promise nothing may be of the class that was found; a promise has a class of its own.
      if (found && ranked.is_promised && found->cost <= ranked.cost) continue;
      ++verified;
      verify(ranked.order);
    }
    const auto chosen = cheapest_class();
    InvariantChoice choice;
    if (!chosen) {
      choice.reason = no_class();
      return choice;
    }
    choice.bits = chosen->id;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      choice.settled.push_back(settle(i, chosen->id));
      merge_trials(choice.settled.back().trials, members_[i].screened);
    }
    return choice;
  }

 private:
  /// Costs are sums over the members of calls times microseconds.
  struct RankedOrder {
    double cost = 0;
    std::string order;
    bool is_promised = false;  // else it is a kernel's name
  };
  struct ClassCost {
    std::string id;
    double cost = 0;
  };

  /// The row of the largest of several M serves all larger ones: there a kernel for few rows is taken only if no other can run.
  void serve_larger_m() {
    constexpr std::int64_t any_m = std::int64_t{1} << 20;
    const auto largest =
        std::ranges::max_element(members_, {}, [](const auto& one) { return one.problem.m; });
    if (members_.size() < 2) return;
    std::vector<ListedCandidate>& list = lists_[static_cast<std::size_t>(largest - members_.begin())];
    Problem larger = largest->problem;
    larger.m = std::max(larger.m, any_m);
    const auto is_for_few_rows = [&](const ListedCandidate& one) {
      return !one.family->accepts(larger).ok();
    };
    if (!std::ranges::all_of(list, is_for_few_rows)) std::erase_if(list, is_for_few_rows);
  }

  /// Without those that can have no class. If none is left, the first one's reason stands for all.
  void erase_refused(std::vector<ListedCandidate>& candidates) {
    const std::size_t member = lists_.size();
    std::string first;
    std::erase_if(candidates, [&](const auto& listed) {
      const Candidate& candidate = listed.candidate;
      std::string refusal = refuse_bit_class(*listed.family, members_[member].problem, candidate.config);
      if (refusal.empty()) return false;
      if (first.empty()) first = fmt::format("{}: {}", candidate.kernel_name(), std::move(refusal));
      return true;
    });
    if (candidates.empty() && !first.empty()) reasons_[member] = std::move(first);
  }

  static std::string order_of(const Problem& problem, const ListedCandidate& listed) {
    std::string order = listed.family->sum_order(problem, listed.candidate.config);
    return order.empty() ? listed.candidate.kernel_name() : order;
  }

  std::map<std::string, double> times_of(std::size_t member) const {
    std::map<std::string, double> times;
    for (const Trial& trial : members_[member].screened)
      times[trial.candidate.kernel_name()] = time_of(trial);
    return times;
  }

  /// Kernels of an order at one M, the fastest first; those without a time are left out.
  std::vector<Finalist> kernels_of(std::size_t member, const std::string& order) const {
    std::vector<Finalist> kernels;
    for (const ListedCandidate& listed : lists_[member]) {
      if (order_of(members_[member].problem, listed) != order) continue;
      const auto trial = std::ranges::find_if(
          members_[member].screened, [&](const Trial& one) { return one.candidate == listed.candidate; });
      if (trial == members_[member].screened.end() || !std::isfinite(time_of(*trial))) continue;
      kernels.push_back(as_finalist(listed, trial->outcome.microseconds));
    }
    std::ranges::stable_sort(kernels, {}, &Finalist::screened_microseconds);
    return kernels;
  }

  /// Orders that some kernel of every M has, by their cost. An M without a time of the order has the slowest time that any of its
  /// kernels has.
  std::vector<RankedOrder> ranked_orders(std::size_t count) const {
    struct Served {
      std::size_t members = 0;
      double cost = 0;
      bool is_promised = false;
    };
    std::map<std::string, Served> costs;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const auto times = times_of(i);
      double slowest = 0;
      for (const auto& [name, time] : times)
        slowest = std::isfinite(time) ? std::max(slowest, time) : slowest;
      std::map<std::string, double> best;
      for (const ListedCandidate& listed : lists_[i]) {
        const std::string name = listed.candidate.kernel_name();
        const auto known = times.find(name);
        if (known != times.end() && !std::isfinite(known->second)) continue;  // it failed
        const double time = known == times.end() ? slowest : known->second;
        const std::string order = order_of(members_[i].problem, listed);
        const auto [found, is_new] = best.try_emplace(order, time);
        if (!is_new) found->second = std::min(found->second, time);
        costs[order].is_promised = order != name;
      }
      for (const auto& [order, time] : best) {
        Served& served = costs[order];
        ++served.members;
        served.cost += members_[i].calls * time;
      }
    }
    std::vector<RankedOrder> ranked;
    for (const auto& [order, served] : costs) {
      if (served.members == members_.size()) ranked.push_back({served.cost, order, served.is_promised});
    }
    std::ranges::stable_sort(ranked, {}, &RankedOrder::cost);
    if (ranked.size() > count) ranked.resize(count);
    return ranked;
  }

  /// The first search looked for the fastest kernels of all; this one for those of the order.
  void search(const std::string& order) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (request_.stop && request_.stop()) return;
      InvariantMember& member = members_[i];
      std::vector<ListedCandidate> of_order;
      std::ranges::copy_if(lists_[i], std::back_inserter(of_order),
                           [&](const auto& listed) { return order_of(member.problem, listed) == order; });
      SearchLimits limits;
      limits.screening_samples = request_.policy.screening_samples;
      limits.seed = request_.policy.seed;
      auto strategy = make_strategy(request_.strategy, limits);
      if (!strategy.ok()) return;
      SearchBounds bounds{Deadline::never(request_.clock), searched_kernels, true};
      const auto searched = search_problem(
          member.problem, of_order, evaluator_, **strategy, bounds, [](const Trial&) {},
          trials_of(of_order, member.screened));
      if (searched.ok()) merge_trials(searched->trials, member.screened);
    }
  }

  static std::vector<Trial> trials_of(const std::vector<ListedCandidate>& candidates,
                                      const std::vector<Trial>& trials) {
    std::vector<Trial> chosen;
    for (const Trial& trial : trials) {
      if (std::ranges::any_of(candidates,
                              [&](const auto& listed) { return listed.candidate == trial.candidate; }))
        chosen.push_back(trial);
    }
    return chosen;
  }

  /// Fully, the fastest kernels of the order at every M.
  void verify(const std::string& order) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (request_.stop && request_.stop()) return;
      std::vector<Finalist> kernels = kernels_of(i, order);
      if (kernels.size() > verified_kernels) kernels.resize(verified_kernels);
      if (kernels.empty()) continue;
      std::vector<Candidate> candidates;
      for (const Finalist& kernel : kernels) candidates.push_back(kernel.listed.candidate);
      const auto result = evaluator_.finals(members_[i].problem, candidates, 0);
      if (!result.ok()) {
        reasons_[i] = result.message();
        continue;
      }
      for (std::size_t k = 0; k < kernels.size(); ++k) note(i, order, kernels[k], result->outcomes[k]);
    }
  }

  void note(std::size_t member, const std::string& order, const Finalist& kernel, const Outcome& outcome) {
    const std::string name = kernel.listed.candidate.kernel_name();
    if (outcome.kind != OutcomeKind::ok) return;
    if (outcome.bits.id.empty()) {
      reasons_.try_emplace(member, fmt::format("{}: {}", name, outcome.bits.reason));
    } else {
      KernelsOfMembers& kernels = classes_[outcome.bits.id];
      kernels.resize(members_.size());
      kernels[member].push_back(kernel);
    }
    if (order == name) return;  // it promised nothing
    if (!outcome.bits.id.empty()) promised_.insert(outcome.bits.id);
    const auto [first, is_new] = class_of_order_.try_emplace(order, outcome.bits.id);
    if (!is_new && first->second != outcome.bits.id) {
      log(LogLevel::warning, "{} {}: its sums promise {}, whose bit class is {}; its own is {}",
          short_name(members_[member].problem), name, order, first->second,
          outcome.bits.id.empty() ? outcome.bits.reason : outcome.bits.id);
    }
  }

  /// Of the classes that a promise extends to all M; without one of all.
  std::optional<ClassCost> cheapest_class() const {
    auto promised = cheapest_class(true);
    return promised ? promised : cheapest_class(false);
  }

  std::optional<ClassCost> cheapest_class(bool is_promised) const {
    std::optional<ClassCost> cheapest;
    for (const auto& [id, kernels] : classes_) {
      if (!decided_.empty() && id != decided_) continue;
      if (is_promised && !promised_.contains(id)) continue;
      double cost = 0;
      for (std::size_t i = 0; i < members_.size(); ++i) {
        double best = std::numeric_limits<double>::infinity();
        for (const Finalist& kernel : kernels[i]) best = std::min(best, kernel.screened_microseconds);
        cost += members_[i].calls * best;
      }
      if (cost < (cheapest ? cheapest->cost : std::numeric_limits<double>::infinity()))
        cheapest = ClassCost{id, cost};
    }
    return cheapest;
  }

  std::string no_class() const {
    std::string text =
        decided_.empty() ? "no bit class has a kernel for every M"
                         : fmt::format("no kernel of bit class {}, which rows of this weight have", decided_);
    if (!reasons_.empty()) text += "; " + reasons_.begin()->second;
    return text;
  }

  Settled settle(std::size_t member, const std::string& bits) {
    const InvariantMember& own = members_[member];
    FinalsTask task{own.problem, classes_[bits][member], {}, own.layout, request_.policy};
    std::ranges::stable_sort(task.finalists, {}, &Finalist::screened_microseconds);
    const std::size_t of_class = task.finalists.size();
    add_opponents(device_, lists_[member], own.screened, task);
    for (std::size_t i = of_class; i < task.finalists.size(); ++i)
      task.finalists[i].listed.is_opponent = true;
    task.screening_deviation = screening_deviation(own.screened);
    return run_finals(task, evaluator_, Deadline::never(request_.clock));
  }

  const Device& device_;
  Evaluator& evaluator_;
  const TuneRequest& request_;
  const std::string& decided_;
  std::span<InvariantMember> members_;
  std::vector<std::vector<ListedCandidate>> lists_;    // of each member, of its layout
  std::map<std::string, KernelsOfMembers> classes_;    // verified kernels
  std::set<std::string> promised_;                     // classes of kernels that promised an order
  std::map<std::string, std::string> class_of_order_;  // of its first verified kernel
  std::map<std::size_t, std::string> reasons_;         // by member: why a kernel has no class
};

}  // namespace

InvariantChoice choose_invariant(const Device& device, Evaluator& evaluator, const TuneRequest& request,
                                 const std::string& decided, std::span<InvariantMember> members) {
  return InvariantSearch(device, evaluator, request, decided, members).choose();
}

}  // namespace gemmtune
