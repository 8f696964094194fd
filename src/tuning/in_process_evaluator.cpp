#include "tuning/in_process_evaluator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "base/random.h"
#include "measure/sampler.h"
#include "measure/statistics.h"
#include "tuning/correctness_gate.h"
#include "tuning/weight_pools.h"

namespace gemmtune {
namespace {

Outcome failed(OutcomeKind kind, std::string reason) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.reason = std::move(reason);
  return outcome;
}

struct BuiltKernel {
  std::unique_ptr<Kernel> kernel;
  std::string thread_pool;
};

// The family's kernel for this problem, or the outcome that says why there is none.
Outcome build(Device& device, const Problem& problem, const Candidate& candidate, BuiltKernel& built) {
  const auto families = device.families();
  const auto found = std::find_if(families.begin(), families.end(), [&](const KernelFamily* family) {
    return family->name() == candidate.family;
  });
  if (found == families.end())
    return failed(OutcomeKind::refused, fmt::format("this device has no family '{}'", candidate.family));
  const KernelFamily& family = **found;
  if (candidate.revision != family.revision())
    return failed(OutcomeKind::refused, fmt::format("{} is of revision {}, this build has {}",
                                                    candidate.family, candidate.revision, family.revision()));
  if (const Status accepted = family.accepts(problem); !accepted.ok())
    return failed(OutcomeKind::refused, accepted.message());
  auto kernel = family.build(problem, candidate.config);
  if (!kernel.ok())
    return failed(kernel.code() == StatusCode::unsupported ? OutcomeKind::refused : OutcomeKind::build_failed,
                  kernel.message());
  built.kernel = std::move(kernel).value();
  built.thread_pool = family.thread_pool();
  return {};
}

GateOptions gate_options(const InProcessOptions& options) {
  return {options.largest_err_ratio, options.reference_threads, options.policy.seed};
}

/// Nothing where no lock is asked for, or where it cannot be had: times are then as good as the machine is
/// quiet.
std::optional<FileLock> lock_for_timing(const InProcessOptions& options, std::string_view kernel_name) {
  if (options.timing_lock.empty()) return std::nullopt;
  if (options.on_step) options.on_step(Step::waiting, kernel_name);
  auto lock = FileLock::acquire(options.timing_lock);
  if (!lock.ok()) return std::nullopt;
  return std::move(lock).value();
}

}  // namespace

// One problem's workplace.
class InProcessEvaluator::Bench {
 public:
  Bench(Device& device, const Problem& problem, const InProcessOptions& options, CorrectnessGate gate)
      : device_(device),
        problem_(problem),
        options_(options),
        gate_(std::move(gate)),
        sampler_(device, options_.policy),
        pools_(device, problem, options_.policy),
        random_(hash64(print(problem)) ^ options.policy.seed) {}

  const Problem& problem() const { return problem_; }
  const WeightPools& pools() const { return pools_; }
  Outcome screen(const Candidate& candidate, int samples);
  Result<FinalsResult> finals(std::span<const Candidate> candidates, int rounds);

 private:
  struct Entry {
    std::string name;
    BuiltKernel built;
    Outcome checked;  // by the quick gate; then by the full one. No times.
    bool fully_checked = false;
    std::optional<Timed> timed;  // once it was looked at
    std::unique_ptr<Buffer> workspace;
  };
  // What is measured in a round: a finalist, or the first one a second time.
  struct Entrant {
    Entry* entry = nullptr;
    std::size_t column = 0;
  };

  void step(Step step, std::string_view kernel_name = {}) const {
    if (options_.on_step) options_.on_step(step, kernel_name);
  }
  Entry& entry_of(const Candidate& candidate);
  Status set_up_timing(Entry& entry);
  Outcome take_samples(Entry& entry, int samples);
  Status check_fully(std::span<Entry* const> entries);
  std::vector<Entrant> round_order(std::vector<Entrant> entrants);
  void run_round(std::vector<Entrant>& entrants, std::vector<double>& times);
  std::vector<std::vector<double>> quiet_rounds(std::vector<Entrant>& entrants, std::size_t columns,
                                                int wanted, Quietness& quietness);

  Device& device_;
  Problem problem_;
  InProcessOptions options_;
  CorrectnessGate gate_;
  Sampler sampler_;
  WeightPools pools_;
  Random random_;
  std::map<std::string, Entry> entries_;  // by kernel name
  double fastest_microseconds_ = 0;       // median of the fastest candidate so far; 0: none
  std::string current_pool_;
};

InProcessEvaluator::Bench::Entry& InProcessEvaluator::Bench::entry_of(const Candidate& candidate) {
  const auto [found, is_new] = entries_.try_emplace(candidate.kernel_name());
  Entry& entry = found->second;
  if (!is_new) return entry;
  entry.name = found->first;
  step(Step::candidate, entry.name);
  entry.checked = build(device_, problem_, candidate, entry.built);
  if (entry.checked.kind == OutcomeKind::ok) entry.checked = gate_.quick(*entry.built.kernel);
  if (entry.checked.kind != OutcomeKind::ok) entry.built.kernel.reset();
  return entry;
}

Status InProcessEvaluator::Bench::set_up_timing(Entry& entry) {
  const Kernel& kernel = *entry.built.kernel;
  step(Step::preparing, entry.name);
  const auto rotation = pools_.rotation(kernel.weight_layout(), gate_.operands());
  if (!rotation.ok()) return rotation.status();
  Timed timed;
  timed.kernel = &kernel;
  timed.rotation = *rotation;
  if (kernel.workspace_bytes() > 0) {
    auto workspace = device_.allocate(kernel.workspace_bytes(), Placement::plain);
    if (!workspace.ok()) return workspace.status();
    entry.workspace = std::move(workspace).value();
    GEMMTUNE_RETURN_IF_ERROR(device_.fill(entry.workspace->data(), 0, entry.workspace->bytes()));
    timed.workspace = entry.workspace->data();
  }
  entry.timed = timed;
  return {};
}

Outcome InProcessEvaluator::Bench::take_samples(Entry& entry, int samples) {
  Outcome outcome = entry.checked;
  const auto not_measured = [](const Status& status) {
    return failed(OutcomeKind::launch_failed, status.message());
  };
  const bool first_time = !entry.timed;
  if (first_time) {
    if (const Status status = set_up_timing(entry); !status.ok()) return not_measured(status);
  }
  const auto lock = lock_for_timing(options_, entry.name);
  step(Step::candidate, entry.name);
  if (entry.built.thread_pool != current_pool_) {
    current_pool_ = entry.built.thread_pool;
    device_.quiesce(current_pool_);
  }
  if (first_time) {
    const double limit = options_.too_slow_factor * fastest_microseconds_;
    const auto look = sampler_.first_look(*entry.timed, limit);
    if (!look.ok()) return not_measured(look.status());
    if (!look->has_value())
      return failed(OutcomeKind::too_slow,
                    fmt::format("its first calls took more than {:.6g} us, {:g} times the fastest so far",
                                limit, options_.too_slow_factor));
    if (const Status status = sampler_.prepare(*entry.timed); !status.ok()) return not_measured(status);
  }
  for (int i = 0; i < samples; ++i) {
    const Result<double> sample = sampler_.sample(*entry.timed);
    if (!sample.ok()) return not_measured(sample.status());
    outcome.microseconds.push_back(*sample);
  }
  if (samples > 0) {
    const double time = median(outcome.microseconds);
    if (fastest_microseconds_ == 0 || time < fastest_microseconds_) fastest_microseconds_ = time;
  }
  return outcome;
}

Outcome InProcessEvaluator::Bench::screen(const Candidate& candidate, int samples) {
  Entry& entry = entry_of(candidate);
  if (entry.checked.kind != OutcomeKind::ok) return entry.checked;
  Outcome outcome = take_samples(entry, samples);
  if (outcome.kind != OutcomeKind::ok) {
    entry.checked = outcome;
    entry.timed.reset();
    entry.workspace.reset();
    entry.built.kernel.reset();
  }
  return outcome;
}

Status InProcessEvaluator::Bench::check_fully(std::span<Entry* const> entries) {
  std::vector<Entry*> pending;
  std::vector<const Kernel*> kernels;
  for (Entry* entry : entries) {
    if (entry->fully_checked || entry->checked.kind != OutcomeKind::ok) continue;
    if (std::find(pending.begin(), pending.end(), entry) != pending.end()) continue;
    pending.push_back(entry);
    kernels.push_back(entry->built.kernel.get());
  }
  if (pending.empty()) return {};
  const auto outcomes = gate_.full(kernels, [&](const Kernel* kernel) {
    const auto at = std::find(kernels.begin(), kernels.end(), kernel);
    if (at == kernels.end()) {
      step(Step::preparing);
    } else {
      step(Step::candidate, pending[static_cast<std::size_t>(at - kernels.begin())]->name);
    }
  });
  if (!outcomes.ok()) return outcomes.status();
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const double err_ratio = std::max(pending[i]->checked.err_ratio, (*outcomes)[i].err_ratio);
    pending[i]->checked = (*outcomes)[i];
    pending[i]->checked.err_ratio = err_ratio;
    pending[i]->fully_checked = true;
  }
  return {};
}

// In random order, but kernels of one thread pool after one another: the threads of a pool that was just left
// spin on for a while and would slow the next one down.
std::vector<InProcessEvaluator::Bench::Entrant> InProcessEvaluator::Bench::round_order(
    std::vector<Entrant> entrants) {
  for (std::size_t i = entrants.size(); i > 1; --i)
    std::swap(entrants[i - 1], entrants[random_.below(static_cast<std::uint64_t>(i))]);
  std::vector<std::string> pools;
  for (const Entrant& entrant : entrants)
    if (std::find(pools.begin(), pools.end(), entrant.entry->built.thread_pool) == pools.end())
      pools.push_back(entrant.entry->built.thread_pool);
  const auto place = [&](const Entrant& entrant) {
    return std::find(pools.begin(), pools.end(), entrant.entry->built.thread_pool) - pools.begin();
  };
  std::stable_sort(entrants.begin(), entrants.end(),
                   [&](const Entrant& a, const Entrant& b) { return place(a) < place(b); });
  return entrants;
}

// `times` has a place for each entrant's column. An entrant that fails is taken out.
void InProcessEvaluator::Bench::run_round(std::vector<Entrant>& entrants, std::vector<double>& times) {
  const auto lock = lock_for_timing(options_, {});
  for (const Entrant& entrant : round_order(entrants)) {
    Entry& entry = *entrant.entry;
    if (entry.checked.kind != OutcomeKind::ok) continue;
    step(Step::candidate, entry.name);
    if (entry.built.thread_pool != current_pool_) {
      current_pool_ = entry.built.thread_pool;
      device_.quiesce(current_pool_);
    }
    const Result<double> sample = sampler_.sample_interleaved(*entry.timed);
    if (sample.ok()) {
      times[entrant.column] = *sample;
    } else {
      entry.checked = failed(OutcomeKind::launch_failed, sample.message());
    }
  }
  std::erase_if(entrants, [](const Entrant& e) { return e.entry->checked.kind != OutcomeKind::ok; });
}

// As many rounds as are wanted; those that the machine disturbed are repeated, once each at most. The canary
// is the last column.
std::vector<std::vector<double>> InProcessEvaluator::Bench::quiet_rounds(std::vector<Entrant>& entrants,
                                                                         std::size_t columns, int wanted,
                                                                         Quietness& quietness) {
  std::vector<std::vector<double>> rounds;
  std::vector<double> canary;
  std::vector<std::size_t> disturbed;
  const auto enough = static_cast<std::size_t>(std::max(0, wanted));
  while (rounds.size() - disturbed.size() < enough && rounds.size() < 2 * enough) {
    rounds.emplace_back(columns, std::numeric_limits<double>::quiet_NaN());
    run_round(entrants, rounds.back());
    canary.push_back(rounds.back().back());
    if (rounds.size() >= enough) disturbed = disturbed_rounds(canary);
  }
  // Where quiet rounds are wanting, the least disturbed ones stand in for them.
  std::vector<std::size_t> order = disturbed;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return canary[a] > canary[b]; });
  order.resize(std::min(order.size(), rounds.size() - enough));
  quietness = {wanted, static_cast<int>(disturbed.size() - order.size()),
               static_cast<int>(rounds.size() - enough)};
  std::sort(order.rbegin(), order.rend());
  for (const std::size_t left_out : order)
    rounds.erase(rounds.begin() + static_cast<std::ptrdiff_t>(left_out));
  rounds.resize(enough);
  return rounds;
}

Result<FinalsResult> InProcessEvaluator::Bench::finals(std::span<const Candidate> candidates, int rounds) {
  std::vector<Entry*> entries;
  for (const Candidate& candidate : candidates) entries.push_back(&entry_of(candidate));
  GEMMTUNE_RETURN_IF_ERROR(check_fully(entries));
  step(Step::preparing);
  GEMMTUNE_RETURN_IF_ERROR(pools_.place_packed_again());
  std::vector<Entrant> entrants;
  for (std::size_t column = 0; column < entries.size(); ++column) {
    Entry& entry = *entries[column];
    if (entry.checked.kind != OutcomeKind::ok) continue;
    Status ready = entry.timed ? Status() : set_up_timing(entry);
    step(Step::candidate, entry.name);
    if (ready.ok()) ready = sampler_.prepare(*entry.timed);
    if (!ready.ok()) {
      entry.checked = failed(OutcomeKind::launch_failed, ready.message());
      continue;
    }
    entrants.push_back({&entry, column});
  }
  // A against A: the first finalist once more, under no name, anywhere in the order.
  const std::size_t again = entries.size();
  const std::size_t first = entrants.empty() ? 0 : entrants.front().column;
  if (!entrants.empty()) entrants.push_back({entrants.front().entry, again});

  FinalsResult result;
  for (auto& times : quiet_rounds(entrants, again + 1, rounds, result.quietness)) {
    if (const double ratio = times[again] / times[first]; std::isfinite(ratio))
      result.same_ratios.push_back(ratio);
    times.pop_back();
    result.times.push_back(std::move(times));
  }
  if (!result.same_ratios.empty()) {
    const Interval interval = median_interval(result.same_ratios, 0.95);
    result.noise_floor = (interval.high - interval.low) / 2;
  }
  for (std::size_t column = 0; column < entries.size(); ++column) {
    Outcome outcome = entries[column]->checked;
    for (auto& times : result.times) {
      if (outcome.kind != OutcomeKind::ok) times[column] = std::numeric_limits<double>::quiet_NaN();
      if (std::isfinite(times[column])) outcome.microseconds.push_back(times[column]);
    }
    result.outcomes.push_back(std::move(outcome));
  }
  return result;
}

InProcessEvaluator::InProcessEvaluator(Device& device, const InProcessOptions& options)
    : device_(device), options_(options) {}

InProcessEvaluator::~InProcessEvaluator() = default;

Result<InProcessEvaluator::Bench*> InProcessEvaluator::bench_for(const Problem& problem) {
  if (bench_ && bench_->problem() == problem) return bench_.get();
  bench_.reset();
  step(Step::preparing);
  auto gate = CorrectnessGate::make(device_, problem, gate_options(options_));
  if (!gate.ok()) return gate.status();
  bench_ = std::make_unique<Bench>(device_, problem, options_, std::move(gate).value());
  return bench_.get();
}

Result<std::vector<Outcome>> InProcessEvaluator::screen(const Problem& problem,
                                                        std::span<const Candidate> candidates, int samples,
                                                        const std::function<bool()>& stop) {
  try {
    const Result<Bench*> bench = bench_for(problem);
    if (!bench.ok()) return bench.status();
    std::vector<Outcome> outcomes;
    for (const Candidate& candidate : candidates) {
      if (stop && stop()) break;
      outcomes.push_back((*bench)->screen(candidate, samples));
    }
    return outcomes;
  } catch (const std::bad_alloc&) {
    bench_.reset();
    return Status::out_of_memory("no memory to judge {}", print(problem));
  }
}

Result<FinalsResult> InProcessEvaluator::finals(const Problem& problem, std::span<const Candidate> candidates,
                                                int rounds) {
  try {
    const Result<Bench*> bench = bench_for(problem);
    if (!bench.ok()) return bench.status();
    return (*bench)->finals(candidates, rounds);
  } catch (const std::bad_alloc&) {
    bench_.reset();
    return Status::out_of_memory("no memory to judge {}", print(problem));
  }
}

Outcome InProcessEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                              std::int64_t m) {
  bench_.reset();
  Problem neighbour = problem;
  neighbour.m = m;
  try {
    return check_at(neighbour, candidate);
  } catch (const std::bad_alloc&) {
    return failed(OutcomeKind::launch_failed, fmt::format("no memory to judge {}", print(neighbour)));
  }
}

Outcome InProcessEvaluator::check_at(const Problem& problem, const Candidate& candidate) {
  const std::string name = candidate.kernel_name();
  step(Step::candidate, name);
  BuiltKernel built;
  if (Outcome outcome = build(device_, problem, candidate, built); outcome.kind != OutcomeKind::ok)
    return outcome;
  step(Step::preparing, name);
  auto gate = CorrectnessGate::make(device_, problem, gate_options(options_));
  if (!gate.ok()) return failed(OutcomeKind::launch_failed, gate.message());
  step(Step::candidate, name);
  Outcome outcome = gate->quick(*built.kernel);
  if (outcome.kind != OutcomeKind::ok) return outcome;
  const Kernel* kernels[] = {built.kernel.get()};
  const auto outcomes = gate->full(kernels, [&](const Kernel* kernel) {
    step(kernel == nullptr ? Step::preparing : Step::candidate, name);
  });
  if (!outcomes.ok()) return failed(OutcomeKind::launch_failed, outcomes.message());
  return outcomes->front();
}

InProcessEvaluator::PoolReport InProcessEvaluator::pool() const {
  if (!bench_) return {};
  const PoolShape shape = bench_->pools().largest();
  return {shape.wanted_copies, shape.copies, shape.bytes()};
}

}  // namespace gemmtune
