#include "evaluate/in_process/problem_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/default_kernels.h"
#include "base/clock.h"
#include "base/file_lock.h"
#include "measure/statistics.h"
#include "problem/operands.h"
#include "tuned/peaks.h"

namespace gemmtune {
namespace {

constexpr int reference_samples = 4;      // that the drift reference's time is taken from
constexpr double reference_excess = 0.1;  // as a share: longer, and a round was disturbed
constexpr double finalist_excess = 0.3;   // the same of the first kernel of another thread pool
constexpr double sample_excess = 0.3;     // the same of a screening sample's reference …
constexpr int sample_tries = 2;           // … which is then taken again
constexpr double loses_by = 2.5;  // times the fastest: one long call is enough to know that a kernel loses
constexpr double impossible_factor = 2;  // times the machine's own rate: no kernel is that fast
constexpr double far_off = 3;            // two samples of one kernel that differ so much: one was disturbed
constexpr int possible_tries = 3;        // of a sample that the machine cannot reach
constexpr std::int64_t min_read_bytes =
    1 << 20;  // of a smaller weight the call itself takes as long as reading
constexpr double memory_bound_flops =
    32;  // per byte of the weight: fewer, and the memory bounds a call on any CPU

double distance(double a, double b) { return std::fabs(std::log(a / b)); }

/// Empty if no lock is configured or it cannot be acquired: times are then as good as the machine is quiet.
std::optional<FileLock> lock_for_timing(const InProcessOptions& options, std::string_view kernel_name) {
  if (options.timing_lock.empty()) return std::nullopt;
  auto free = FileLock::try_acquire(options.timing_lock, options.lock_owner);
  if (!free.ok()) return std::nullopt;
  if (*free) return std::move(*free);
  const std::int64_t own = options.lock_owner != 0 ? options.lock_owner : getpid();
  const bool is_other = lock_holder(options.timing_lock) != own;
  if (options.on_step) options.on_step(is_other ? Step::waiting_for_other : Step::waiting, kernel_name);
  const double begin = steady_seconds();
  auto lock = FileLock::acquire(options.timing_lock, options.lock_owner);
  if (is_other && options.on_waited) options.on_waited(steady_seconds() - begin);
  if (!lock.ok()) return std::nullopt;
  return std::move(lock).value();
}

}  // namespace

Outcome build_kernel(Device& device, const Problem& problem, const Candidate& candidate, BuiltKernel& built) {
  auto kernel = device.build(candidate, problem);
  if (!kernel.ok()) {
    const bool refused = kernel.code() == StatusCode::unsupported || kernel.code() == StatusCode::not_found ||
                         kernel.code() == StatusCode::invalid_argument ||
                         kernel.code() == StatusCode::out_of_memory;
    return failed_outcome(refused ? OutcomeKind::refused : OutcomeKind::build_failed, kernel.message());
  }
  built.kernel = std::move(kernel).value();
  built.thread_pool = device.find_family(candidate.family)->thread_pool();
  return {};
}

ProblemBench::ProblemBench(Device& device, const Problem& problem, const InProcessOptions& options,
                           KernelVerifier verifier, EarlierTimes& earlier)
    : device_(device),
      problem_(problem),
      options_(options),
      earlier_(earlier),
      verifier_(std::move(verifier)),
      sampler_(device, options_.policy),
      pools_(device, problem, options_.policy) {
  const auto candidate = default_kernel(device, problem, options_.policy.accuracy);
  if (candidate.ok()) default_name_ = candidate->kernel_name();
}

ProblemBench::Entry& ProblemBench::entry_of(const Candidate& candidate) {
  const auto [found, is_new] = entries_.try_emplace(candidate.kernel_name());
  Entry& entry = found->second;
  if (!is_new) return entry;
  entry.name = found->first;
  entry.candidate = candidate;
  entry.accuracy = device_.accuracy(candidate, problem_);
  pause();
  step(Step::candidate, entry.name);
  entry.checked = build_kernel(device_, problem_, candidate, entry.built);
  if (entry.checked.kind == OutcomeKind::ok)
    entry.checked = verifier_.verify_quickly({entry.built.kernel.get(), entry.accuracy});
  if (entry.checked.kind != OutcomeKind::ok) entry.built.kernel.reset();
  return entry;
}

Status ProblemBench::set_up_timing(Entry& entry) {
  const Kernel& kernel = *entry.built.kernel;
  step(Step::preparing, entry.name);
  GEMMTUNE_TRY(const auto rotation,
               pools_.rotation(kernel.weight_layout(), options_.policy.routing, verifier_.operands()));
  Timed timed;
  timed.kernel = &kernel;
  timed.rotation = rotation;
  timed.thread_pool = entry.built.thread_pool;
  if (kernel.workspace_bytes() > 0) {
    GEMMTUNE_TRY(entry.workspace, device_.allocate(kernel.workspace_bytes(), Placement::plain));
    GEMMTUNE_RETURN_IF_ERROR(device_.fill(entry.workspace->data(), 0, entry.workspace->bytes()));
    timed.workspace = entry.workspace->data();
  }
  entry.timed = timed;
  return {};
}

bool ProblemBench::may_lose(const Entry& entry) const {
  return entry.name != default_name_ && !earlier_.timed.contains(entry.name);
}

std::optional<Outcome> ProblemBench::probe(Entry& entry) {
  const double limit = may_lose(entry) ? options_.too_slow_factor * fastest_microseconds_ : 0;
  const auto look = sampler_.probe(*entry.timed, limit);
  if (!look.ok()) return failed_launch(look.status());
  if (!look->has_value()) {
    return failed_outcome(
        OutcomeKind::too_slow,
        fmt::format("its first calls took more than {:.6g} us, {:g} times the fastest so far", limit,
                    options_.too_slow_factor));
  }
  const double call = **look;
  if (may_lose(entry) && sampler_.warms_itself(call) && fastest_microseconds_ > 0 &&
      call > loses_by * fastest_microseconds_) {
    sampler_.calibrate(*entry.timed, call);
    Outcome loser = entry.checked;
    loser.microseconds.push_back(call);
    return loser;
  }
  const Status ready = sampler_.prepare(*entry.timed);
  if (!ready.ok()) return failed_launch(ready);
  return std::nullopt;
}

// The entry itself becomes the drift reference if its pool has none yet.
Result<ProblemBench::DriftReference*> ProblemBench::drift_reference_for(Entry& entry) {
  DriftReference& reference = drift_references_[entry.built.thread_pool];
  if (reference.entry != nullptr) return &reference;
  const Timed* const alone[] = {&*entry.timed};
  // All samples of this pool are multiples of the level: the quieter of two counts.
  double quietest = std::numeric_limits<double>::infinity();
  for (int half = 0; half < 2; ++half) {
    GEMMTUNE_TRY(
        const auto level,
        sampler_.sample_in_turns(alone, reference_samples / 2 * Sampler::turns(*entry.timed)).front());
    quietest = std::min(quietest, level);
  }
  reference = {&entry, quietest};
  return &reference;
}

// The time of a kernel that only reads the weight, over the same cold copies, by our own threads.
void ProblemBench::measure_roof(const Entry& entry) {
  const std::string_view pool = entry.built.thread_pool;
  const bool is_on_our_threads = pool == "own" || pool == device_.info().team;
  if (options_.policy.cache == CacheMode::warm || is_mixture(problem_) || !is_on_our_threads) return;
  const WeightLayout layout = entry.built.kernel->weight_layout();
  const auto [found, is_new] = roofs_.try_emplace(layout, 0.0);
  const std::int64_t bytes = operand_shapes(problem_).w.bytes();
  if (!is_new || bytes < min_read_bytes) return;
  const auto reading = device_.reading_kernel(static_cast<std::size_t>(bytes));
  if (reading == nullptr) return;
  Timed timed;
  timed.kernel = reading.get();
  timed.rotation = entry.timed->rotation;
  timed.thread_pool = entry.built.thread_pool;
  sampler_.enter_pool(timed.thread_pool);
  if (!sampler_.prepare(timed).ok()) return;
  for (int i = 0; i < 2; ++i) {
    const auto sample = sampler_.sample(timed);
    if (sample.ok() && (found->second == 0 || *sample < found->second)) found->second = *sample;
  }
}

double ProblemBench::memory_roof() const {
  const auto bytes = static_cast<double>(operand_shapes(problem_).w.bytes());
  if (flops(problem_) > memory_bound_flops * bytes) return 0;
  for (const auto& [layout, microseconds] : roofs_)
    if (microseconds > 0) return microseconds;
  return 0;
}

bool ProblemBench::is_impossible(const Entry& entry, double microseconds) const {
  const auto roof = roofs_.find(entry.built.kernel->weight_layout());
  if (roof != roofs_.end() && impossible_factor * microseconds < roof->second) return true;
  const double peak = peak_tflops(device_.info().gfx, device_.info().cu_num, problem_);
  return flops(problem_) > impossible_factor * peak * 1e6 * microseconds;
}

Result<double> ProblemBench::possible_sample(Entry& entry) {
  Result<double> sample = screening_sample(entry);
  for (int tries = 1; tries < possible_tries && sample.ok() && is_impossible(entry, *sample); ++tries) {
    const Result<double> again = screening_sample(entry);
    if (!again.ok()) return again;
    sample = std::max(*sample, *again);
  }
  return sample;
}

Status ProblemBench::add_sample(Entry& entry, std::vector<double>& samples) {
  Result<double> sample = possible_sample(entry);
  if (!sample.ok()) return sample.status();
  if (!samples.empty() && distance(*sample, samples.back()) > std::log(far_off)) {
    GEMMTUNE_TRY(const double third, possible_sample(entry));
    // The two that agree better stay.
    const bool first_was_off = distance(third, *sample) < distance(third, samples.back());
    if (first_was_off) {
      samples.back() = third;
    } else {
      sample = third;
    }
  }
  samples.push_back(*sample);
  return {};
}

Result<double> ProblemBench::screening_sample(Entry& entry) {
  if (!device_.times_single_calls()) return sampler_.sample(*entry.timed);
  GEMMTUNE_TRY(const auto reference, drift_reference_for(entry));
  Entry* const pair[] = {&entry, reference->entry};
  const Timed* const timed[] = {&*pair[0]->timed, &*pair[1]->timed};
  const int turns = (Sampler::turns(*timed[0]) + 1) / 2;
  // A slow reference means that the machine does not treat the two alike: the quietest of a few tries counts.
  const double level = reference->microseconds;
  double min_reference = std::numeric_limits<double>::infinity();
  Result<double> sample = 0.0;
  for (int attempt = 0; attempt < sample_tries && min_reference > (1 + sample_excess) * level; ++attempt) {
    const auto samples =
        sampler_.sample_in_turns(timed, turns, [&](std::size_t i) { step(Step::candidate, pair[i]->name); });
    if (!samples[1].ok())
      drift_references_.erase(entry.built.thread_pool);  // the next candidate takes its place
    if (!samples[0].ok() || !samples[1].ok()) return samples[0];
    if (*samples[1] >= min_reference) continue;
    min_reference = *samples[1];
    sample = *samples[0] / min_reference * level;
  }
  return sample;
}

Outcome ProblemBench::take_samples(Entry& entry, int samples) {
  Outcome outcome = entry.checked;
  const auto not_measured = [](const Status& status) { return failed_launch(status); };
  const bool first_time = !entry.timed;
  if (first_time) {
    if (const Status status = set_up_timing(entry); !status.ok()) return not_measured(status);
  }
  pause();
  const auto lock = lock_for_timing(options_, entry.name);
  step(Step::candidate, entry.name);
  if (first_time) {
    measure_roof(entry);
    if (auto failure = probe(entry)) return std::move(*failure);
  }
  for (int i = 0; i < samples; ++i) {
    if (const Status status = add_sample(entry, outcome.microseconds); !status.ok())
      return not_measured(status);
  }
  if (samples > 0) {
    earlier_.timed.insert(entry.name);
    const double time = median(outcome.microseconds);
    if (fastest_microseconds_ == 0 || time < fastest_microseconds_) fastest_microseconds_ = time;
  }
  return outcome;
}

Outcome ProblemBench::screen(const Candidate& candidate, int samples) {
  Entry& entry = entry_of(candidate);
  if (entry.checked.kind != OutcomeKind::ok || samples == 0) return entry.checked;
  Outcome outcome = take_samples(entry, samples);
  if (outcome.kind != OutcomeKind::ok) {
    entry.checked = outcome;
    const auto reference = drift_references_.find(entry.built.thread_pool);
    if (reference != drift_references_.end() && reference->second.entry == &entry)
      drift_references_.erase(reference);
    entry.timed.reset();
    entry.workspace.reset();
    entry.built.kernel.reset();
  }
  return outcome;
}

Status ProblemBench::check_fully(std::span<Entry* const> entries) {
  std::vector<Entry*> pending;
  std::vector<KernelOfClass> kernels;
  for (Entry* entry : entries) {
    if (entry->fully_checked || entry->checked.kind != OutcomeKind::ok) continue;
    if (std::find(pending.begin(), pending.end(), entry) != pending.end()) continue;
    pending.push_back(entry);
    kernels.push_back({entry->built.kernel.get(), entry->accuracy});
  }
  if (pending.empty()) return {};
  GEMMTUNE_TRY(const auto outcomes, verifier_.verify_fully(kernels, [&](const Kernel* kernel) {
    pause();
    const auto at =
        std::ranges::find_if(kernels, [&](const KernelOfClass& one) { return one.kernel == kernel; });
    if (at == kernels.end()) {
      step(Step::preparing);
    } else {
      step(Step::candidate, pending[static_cast<std::size_t>(at - kernels.begin())]->name);
    }
  }));
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const double err_ratio = std::max(pending[i]->checked.err_ratio, outcomes[i].err_ratio);
    const MeasuredError error = pending[i]->checked.error;
    pending[i]->checked = outcomes[i];
    pending[i]->checked.err_ratio = err_ratio;
    pending[i]->checked.error = worst_of(error, outcomes[i].error);
    pending[i]->fully_checked = true;
  }
  return {};
}

void ProblemBench::find_classes(std::span<Entry* const> entries) {
  step(Step::preparing);
  std::vector<const Entry*> asked;
  std::vector<VerifiedCandidate> verified;
  for (Entry* entry : entries) {
    if (entry->checked.bits != BitClass()) continue;
    asked.push_back(entry);
    verified.push_back({&entry->candidate, &entry->checked});
  }
  find_bit_classes(device_, problem_, options_.policy.seed, options_.reference_threads, verified,
                   [&](std::size_t i) {
                     pause();
                     step(Step::candidate, asked[i]->name);
                   });
}

// `times` has an element for each member's column. Removes members that fail.
void ProblemBench::run_round(std::vector<RoundMember>& members, std::vector<double>& times) {
  pause();
  const auto lock = lock_for_timing(options_, {});
  std::vector<const Timed*> timed;
  for (const RoundMember& member : members) timed.push_back(&*member.entry->timed);
  const auto samples =
      sampler_.round(timed, [&](std::size_t i) { step(Step::candidate, members[i].entry->name); });
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (samples[i].ok()) {
      times[members[i].column] = *samples[i];
    } else {
      members[i].entry->checked = failed_launch(samples[i].status());
    }
  }
  std::erase_if(members, [](const RoundMember& e) { return e.entry->checked.kind != OutcomeKind::ok; });
}

double ProblemBench::quiet_level_of(const Entry& entry) const {
  const auto known = earlier_.quiet.find(entry.name);
  return known == earlier_.quiet.end() ? std::numeric_limits<double>::infinity() : known->second;
}

// A machine that takes a core from one pool of threads for a second may leave the other alone.
std::vector<double> ProblemBench::disturbances(std::span<const RoundMember> members,
                                               const std::vector<std::vector<double>>& rounds) const {
  std::vector<double> worst(rounds.size(), 0);
  std::vector<std::string> seen;
  for (std::size_t i = members.size(); i-- > 0;) {
    const Entry& entry = *members[i].entry;
    const bool reference = i + 1 == members.size();
    if (std::find(seen.begin(), seen.end(), entry.built.thread_pool) != seen.end()) continue;
    seen.push_back(entry.built.thread_pool);
    std::vector<double> times;
    for (const auto& round : rounds) times.push_back(round[members[i].column]);
    // A finalist's own changes are no disturbance unless they are large.
    const auto shares =
        disturbance(times, quiet_level_of(entry), reference ? reference_excess : finalist_excess);
    for (std::size_t r = 0; r < worst.size(); ++r) worst[r] = std::max(worst[r], shares[r]);
  }
  return worst;
}

// Measures `wanted` rounds; repeats those that the machine disturbed, each once at most.
std::vector<std::vector<double>> ProblemBench::quiet_rounds(std::vector<RoundMember>& members,
                                                            std::size_t columns, int wanted,
                                                            Quietness& quietness) {
  std::vector<std::vector<double>> rounds;
  std::vector<double> shares;
  std::vector<std::size_t> disturbed;
  const auto enough = static_cast<std::size_t>(std::max(0, wanted));
  while (rounds.size() - disturbed.size() < enough && rounds.size() < 2 * enough) {
    rounds.emplace_back(columns, std::numeric_limits<double>::quiet_NaN());
    run_round(members, rounds.back());
    if (rounds.size() < enough) continue;
    shares = disturbances(members, rounds);
    disturbed.clear();
    for (std::size_t r = 0; r < shares.size(); ++r) {
      if (shares[r] > 1) disturbed.push_back(r);
    }
  }
  // If there are too few quiet rounds, the least disturbed ones are used instead.
  std::vector<std::size_t> order = disturbed;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return shares[a] > shares[b]; });
  order.resize(std::min(order.size(), rounds.size() - enough));
  quietness = {wanted, static_cast<int>(disturbed.size() - order.size()),
               static_cast<int>(rounds.size() - enough)};
  std::sort(order.rbegin(), order.rend());
  for (const std::size_t left_out : order)
    rounds.erase(rounds.begin() + static_cast<std::ptrdiff_t>(left_out));
  rounds.resize(enough);
  return rounds;
}

// Warms the kernels up and calibrates their launches; leaves out those that fail.
std::vector<ProblemBench::RoundMember> ProblemBench::make_ready(std::span<Entry* const> entries) {
  std::vector<RoundMember> members;
  for (std::size_t column = 0; column < entries.size(); ++column) {
    Entry& entry = *entries[column];
    if (entry.checked.kind != OutcomeKind::ok) continue;
    Status ready = entry.timed ? Status() : set_up_timing(entry);
    step(Step::candidate, entry.name);
    if (ready.ok()) ready = sampler_.prepare(*entry.timed);
    if (!ready.ok()) {
      entry.checked = failed_launch(ready);
      continue;
    }
    members.push_back({&entry, column});
  }
  return members;
}

void ProblemBench::learn_quiet_levels(std::span<Entry* const> entries,
                                      const std::vector<std::vector<double>>& rounds) {
  for (std::size_t column = 0; column < entries.size(); ++column) {
    std::vector<double> times;
    for (const auto& round : rounds) times.push_back(round[column]);
    const double level = std::min(quiet_level_of(*entries[column]), quiet_level(times));
    if (std::isfinite(level)) earlier_.quiet[entries[column]->name] = level;
  }
}

Result<std::vector<ProblemBench::RoundMember>> ProblemBench::finalists(std::span<const Candidate> candidates,
                                                                       int rounds,
                                                                       std::vector<Entry*>& entries) {
  for (const Candidate& candidate : candidates) {
    // Screening gave up on it for the sake of time; who asks for rounds wants its time.
    const auto known = entries_.find(candidate.kernel_name());
    if (known != entries_.end() && known->second.checked.kind == OutcomeKind::too_slow) entries_.erase(known);
    entries.push_back(&entry_of(candidate));
  }
  GEMMTUNE_RETURN_IF_ERROR(check_fully(entries));
  if (rounds == 0) {
    if (options_.bit_classes) find_classes(entries);
    return std::vector<RoundMember>();
  }
  step(Step::preparing);
  GEMMTUNE_RETURN_IF_ERROR(pools_.place_packed_again());
  return make_ready(entries);
}

Result<FinalsResult> ProblemBench::energy(std::span<const Candidate> candidates, int rounds) {
  GEMMTUNE_RETURN_IF_ERROR(device_.counts_energy());
  std::vector<Entry*> entries;
  GEMMTUNE_TRY(const std::vector<RoundMember> members, finalists(candidates, rounds, entries));
  std::vector<const Timed*> timed;
  for (const RoundMember& member : members) timed.push_back(&*member.entry->timed);
  FinalsResult result;
  const std::vector<double> nothing(entries.size(), std::numeric_limits<double>::quiet_NaN());
  for (int round = 0; round < rounds; ++round) {
    std::vector<double>& times = result.times.emplace_back(nothing);
    std::vector<double>& joules = result.joules.emplace_back(nothing);
    pause();
    const auto lock = lock_for_timing(options_, {});
    const auto samples =
        sampler_.energy_round(timed, [&](std::size_t i) { step(Step::candidate, members[i].entry->name); });
    for (std::size_t i = 0; i < members.size(); ++i) {
      // The kernel ran before: it is the counter that failed.
      if (!samples[i].ok()) return samples[i].status();
      times[members[i].column] = samples[i]->microseconds;
      joules[members[i].column] = samples[i]->joules;
    }
  }
  for (const Entry* entry : entries) result.outcomes.push_back(entry->checked);
  result.quietness.rounds = rounds;
  return result;
}

Status ProblemBench::route(RoutingKind routing) {
  for (auto& [name, entry] : entries_) {
    if (!entry.timed) continue;
    GEMMTUNE_TRY(entry.timed->rotation,
                 pools_.rotation(entry.built.kernel->weight_layout(), routing, verifier_.operands()));
  }
  return {};
}

Result<FinalsResult> ProblemBench::finals_on(RoutingKind routing, std::span<const Candidate> candidates,
                                             int rounds) {
  GEMMTUNE_RETURN_IF_ERROR(check_routing(problem_, options_.policy.routing_of(routing)));
  // Kernels that were never timed are made ready on the policy's routing first.
  std::vector<Entry*> entries;
  if (const auto ready = finalists(candidates, rounds, entries); !ready.ok()) return ready.status();
  std::map<std::string, double>
      own_levels;  // times on another routing say nothing of the machine on this one
  std::swap(earlier_.quiet, own_levels);
  Status status = route(routing);
  Result<FinalsResult> result = status.ok() ? finals(candidates, rounds) : Result<FinalsResult>(status);
  std::swap(earlier_.quiet, own_levels);
  GEMMTUNE_RETURN_IF_ERROR(route(options_.policy.routing));
  if (result.ok()) result->routing = routing;
  return result;
}

Result<FinalsResult> ProblemBench::finals(std::span<const Candidate> candidates, int rounds) {
  std::vector<Entry*> entries;
  GEMMTUNE_TRY(std::vector<RoundMember> members, finalists(candidates, rounds, entries));
  // A against A: the first finalist once more, at a random place in each round.
  const std::size_t again = entries.size();
  const std::size_t first = members.empty() ? 0 : members.front().column;
  if (!members.empty()) members.push_back({members.front().entry, again});

  FinalsResult result;
  auto measured = quiet_rounds(members, again + 1, rounds, result.quietness);
  learn_quiet_levels(entries, measured);
  for (const Entry* entry : entries)
    if (entry->checked.kind == OutcomeKind::ok) earlier_.timed.insert(entry->name);
  result.roof_microseconds = memory_roof();
  for (auto& times : measured) {
    if (const double ratio = times[again] / times[first]; std::isfinite(ratio))
      result.same_ratios.push_back(ratio);
    times.pop_back();
    result.times.push_back(std::move(times));
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

}  // namespace gemmtune
