#include "online/online_job.h"

#include <algorithm>
#include <utility>

#include "backends/default_kernels.h"
#include "base/file.h"
#include "evaluate/in_process/memory_need.h"
#include "evaluate/journal/journal_texts.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "measure/timing_lock.h"
#include "online/online_evaluator.h"
#include "resolve/bind.h"
#include "resolve/errata.h"
#include "resolve/known_rows.h"
#include "tuned/key.h"
#include "tuning/problem_tuner.h"
#include "tuning/row_environment.h"
#include "tuning/transfer.h"

namespace gemmtune {
namespace {

constexpr std::size_t pool_bytes = std::size_t{128} << 20;
constexpr std::size_t min_free_bytes = std::size_t{128} << 20;  // as AITER asks for
constexpr std::int64_t max_m_of_table = 512;                    // likewise
constexpr int first_own_tie_rank = 10;                          // families below are vendors' libraries

// For an estimate of what checking costs: float64 multiplications a second and thread, seconds for an element
// of random data.
constexpr double reference_rate = 4e9;
constexpr double seconds_per_element = 6e-9;
constexpr double max_complete_flops = 6e9;  // ReferenceOptions: above it the reference samples
constexpr double seeds = 2;

OnlineResult answer(OnlineState state, std::string text) { return {state, std::move(text)}; }

double check_seconds(const Problem& problem, int threads) {
  const auto m = static_cast<double>(problem.m);
  const auto n = static_cast<double>(problem.n);
  const auto k = static_cast<double>(problem.k);
  const double all = flops(problem);
  const double reference = all <= max_complete_flops ? all : 2 * k * (8 * n + 32 * m) + 2 * (n + m) * k;
  const double elements = (m + n) * k;
  return seeds * (reference / (reference_rate * threads) + elements * seconds_per_element);
}

/// Seconds of the checks at the other M of the row.
double neighbour_seconds(const Problem& problem, int threads) {
  double sum = 0;
  Problem neighbour = problem;
  for (const std::int64_t m : neighbour_ms(problem)) {
    neighbour.m = m;
    sum += check_seconds(neighbour, threads);
  }
  return sum;
}

/// Empty, or why this problem is not tuned online.
std::string reason_to_decline(Device& device, const OnlineProblem& asked, const OnlineSettings& settings) {
  const Problem& problem = asked.problem;
  if (settings.hipblaslt_table) {
    if (const auto row = to_hipblaslt_row(problem); !row.ok()) return row.message();
    if (problem.m > max_m_of_table) {
      return fmt::format("M = {}, and AITER tunes up to {} online", problem.m, max_m_of_table);
    }
  } else if (const Status status = check_expressible(problem); !status.ok()) {
    return status.message();
  }
  const MemoryNeed need = memory_need(problem, online_policy(device).cache, true);
  const auto needed = static_cast<double>(min_free_bytes) + static_cast<double>(bytes_on(device, need));
  if (const auto free = static_cast<double>(device.free_memory_bytes()); free < needed) {
    return fmt::format("{:.0f} MiB of memory are free, expected {:.0f}", free / 0x1p20, needed / 0x1p20);
  }
  const int threads = reference_threads(device);
  const double seconds = check_seconds(problem, threads) + neighbour_seconds(problem, threads);
  if (seconds > settings.budget_seconds) {
    return fmt::format(
        "checking it takes about {:.1f} s of a budget of {:.1f} s: tune it offline, or raise the budget",
        seconds, settings.budget_seconds);
  }
  return {};
}

/// Does this kernel serve the problem here?
enum class KnownRow { no, other_layout, yes };
KnownRow fit_of(const Device& device, const Problem& problem, const std::string& kernel_name) {
  const Binding binding = bind_name(device, kernel_name, problem);
  if (binding.bound) return KnownRow::yes;
  return binding.refusal == Refusal::weight_layout ? KnownRow::other_layout : KnownRow::no;
}

/// What the file says of the problem already; an error where it cannot be read.
Result<KnownRow> known_row(const Device& device, const OnlineProblem& asked, bool hipblaslt_table) {
  if (!file_exists(asked.file)) return KnownRow::no;
  if (hipblaslt_table) {
    GEMMTUNE_TRY(const auto table, read_hipblaslt_csv(asked.file));
    Problem without_bias = asked.problem;
    without_bias.bias = false;
    for (const HipblasltRow& row : table.rows) {
      const auto problem = to_problem(row);
      if (!problem.ok() || !same_key(*problem, without_bias)) continue;
      if (const KnownRow fit = fit_of(device, asked.problem, row.kernel_name); fit != KnownRow::no)
        return fit;
    }
    return KnownRow::no;
  }
  GEMMTUNE_TRY(const auto rows, KnownRows::read({asked.file}, form_of(asked.problem), device.info()));
  const KnownRows::Row* row = rows.find(asked.problem);
  return row == nullptr ? KnownRow::no : fit_of(device, asked.problem, row->entry.kernel_name);
}

/// Vendors' libraries, and what rows of this device (or the running fallback) have proven.
std::vector<std::string> allowed_families(const Device& device, const OnlineProblem& asked) {
  std::vector<std::string> names;
  for (const KernelFamily* family : device.families()) {
    const auto& proven = asked.proven_families;
    const bool is_proven = std::find(proven.begin(), proven.end(), family->name()) != proven.end();
    if (is_proven || family->tie_rank() < first_own_tie_rank) names.emplace_back(family->name());
  }
  return names;
}

struct JobSettings : OnlineSettings {
  Policy policy;
  OnlineWorker* worker = nullptr;

  /// Of the budget.
  SecondsClock budget_clock() const {
    if (worker == nullptr || !worker->gives_way()) return clock;
    return [this] { return worker->machine_seconds(); };
  }
};

OnlineEvaluation evaluation_of(const Device& device, const OnlineProblem& asked, const JobSettings& settings,
                               const std::atomic<bool>& stopping) {
  OnlineEvaluation evaluation;
  evaluation.in_process = in_process_options(device, settings.policy, settings.max_err_ratio);
  evaluation.in_process.timing_lock = timing_lock_path(settings.runtime_folder, device.info());
  evaluation.device_text = journal_device_text(device.info());
  // As offline tuning has it: what fails does so by either clock.
  Policy by_wall_clock = settings.policy;
  by_wall_clock.processor_time = false;
  evaluation.policy_text = journal_policy_text(by_wall_clock, settings.max_err_ratio);
  evaluation.trusted.insert(asked.fallback);
  evaluation.stopping = &stopping;
  return evaluation;
}

std::vector<Journal> journals_of(const std::vector<std::string>& tuned_files) {
  std::vector<Journal> journals;
  for (const std::string& file : tuned_files) {
    if (!file_exists(journal_path(file))) continue;
    if (auto journal = Journal::open(journal_path(file)); journal.ok())
      journals.push_back(std::move(*journal));
  }
  return journals;
}

RunText run_text(const Device& device, const OnlineProblem& asked, const JobSettings& settings) {
  RunText text;
  text.request = "online " + print(asked.problem);
  text.command = fmt::format("online budget={}", settings.budget_seconds);
  text.policy = journal_policy_text(settings.policy, settings.max_err_ratio);
  text.environment = row_environment(device, settings.policy).hash;
  text.device = journal_device_text(device.info());
  return text;
}

Status publish_row(const OnlineProblem& asked, const TunedEntry& entry, const RowEnvironment& environment,
                   bool hipblaslt_table) {
  if (!hipblaslt_table) {
    PublishOptions options;
    options.environment_json = environment.json;
    return publish(asked.file, {entry}, options);
  }
  GEMMTUNE_TRY(auto row, to_hipblaslt_row(asked.problem));
  // A number of one build of hipBLASLt; -1 lets AITER ask hipBLASLt where the kernel is none of it.
  row.algo_index = entry.libtype == "hipblaslt" ? entry.solidx : -1;
  row.kernel_name = entry.kernel_name;
  return append_hipblaslt_row(asked.file, row);
}

/// What rows say of the problem's nearest: it goes first.
std::vector<Candidate> hints_of(const Device& device, const OnlineProblem& asked,
                                const JobSettings& settings) {
  if (settings.worker == nullptr) return {};
  std::vector<std::string> files = asked.tuned_files;
  if (!settings.hipblaslt_table) files.insert(files.begin(), asked.file);
  const auto rows = KnownRows::read(files, form_of(asked.problem), device.info());
  if (!rows.ok()) return {};
  Transfer winners;
  for (const KnownRows::Row& row : rows->rows()) winners.learn(row.entry.problem, row.entry.kernel_name);
  return candidates_named(winners.winners_near(asked.problem), device, asked.problem);
}

/// The winner of the layout in question; an error says why there is none.
Result<Settled> search(Device& device, Evaluator& evaluator, const OnlineProblem& asked,
                       const JobSettings& settings) {
  TuneRequest request;
  if (settings.worker == nullptr) {
    request.libtypes = allowed_families(device, asked);
    if (request.libtypes.empty()) return Status::unsupported("no family is proven on this device");
  }
  request.policy = settings.policy;
  request.max_err_ratio = settings.max_err_ratio;
  request.clock = settings.budget_clock();
  const Problem& problem = asked.problem;
  std::optional<WeightLayout> layout = problem.weight_layout;
  if (layout == WeightLayout::any) layout.reset();
  const Deadline deadline = Deadline::in(settings.budget_seconds, request.clock);
  ProblemResult result = tune_problem(device, evaluator, request, problem, layout, TuningVisit(deadline),
                                      {[](const Trial&) {}}, hints_of(device, asked, settings));
  if (result.layouts.empty()) return Status::unsupported("{}", result.reason);
  const auto fastest =
      std::ranges::min_element(result.layouts, [](const LayoutResult& a, const LayoutResult& b) {
        return a.settled.microseconds < b.settled.microseconds;
      });
  return std::move(fastest->settled);
}

/// AITER's table has one row for both: what is right with a bias must be right without.
std::string other_bias_failure(const Problem& problem, const Candidate& candidate, Evaluator& evaluator) {
  Problem other = problem;
  other.bias = !problem.bias;
  const Outcome outcome = evaluator.check_neighbour_m(other, candidate, other.m);
  if (outcome.kind == OutcomeKind::ok) return {};
  return fmt::format("{} {} bias: {}: {}", candidate.kernel_name(), other.bias ? "with a" : "without",
                     to_string(outcome.kind), outcome.reason);
}

OnlineResult online_failure(const OnlineProblem& asked, const std::string& why, bool hopeless) {
  return {OnlineState::failed, fmt::format("{}: not tuned online: {}", short_name(asked.problem), why),
          hopeless};
}

/// After what the file knows and what speaks against it.
OnlineResult tune_unknown(Device& device, const OnlineProblem& asked, const JobSettings& settings,
                          const std::atomic<bool>& stopping) {
  const Deadline clock = Deadline::never(settings.clock);
  auto journal = Journal::open(journal_path(asked.file));
  if (!journal.ok()) return online_failure(asked, journal.message(), true);
  const auto run = journal->begin_run(run_text(device, asked, settings), /*go_on=*/false);
  if (!run.ok()) return online_failure(asked, run.message(), true);
  auto others = journals_of(asked.tuned_files);
  auto evaluation = evaluation_of(device, asked, settings, stopping);
  if (const auto library = library_kernel(device, asked.problem, settings.policy.accuracy);
      library.ok() && check_errata(device, asked.problem, *library).ok())
    evaluation.trusted.insert(library->kernel_name());
  auto evaluator = settings.worker == nullptr ? OnlineEvaluator(device, *journal, run->id, others, evaluation)
                                              : OnlineEvaluator(settings.worker->evaluator(), device,
                                                                *journal, run->id, others, evaluation);
  const auto settled = search(device, evaluator, asked, settings);
  std::string wrong;
  if (settled.ok() && settings.hipblaslt_table && !stopping) {
    wrong = other_bias_failure(asked.problem, settled->winner->candidate, evaluator);
  }
  (void)journal->end_run(run->id, !stopping);
  if (stopping) return answer(OnlineState::stopped, {});
  if (!settled.ok() || !wrong.empty())
    return online_failure(asked, settled.ok() ? wrong : settled.message(), false);

  const RowEnvironment environment = row_environment(device, settings.policy);
  const TunedEntry entry =
      make_entry(device.info(), asked.problem, *settled, environment.hash, settings.policy);
  if (const Status status = publish_row(asked, entry, environment, settings.hipblaslt_table); !status.ok()) {
    return online_failure(asked, status.message(), true);
  }
  return answer(OnlineState::tuned,
                fmt::format("{}: tuned online in {:.2f} s: {}, {:.4g} us ({}); kept in {}",
                            short_name(asked.problem), clock.seconds_elapsed(), entry.kernel_name, entry.us,
                            to_string(entry.verdict), asked.file));
}

}  // namespace

Policy online_policy(Device& device) {
  Policy policy = default_policy(device.info());
  policy.finalists = 3;
  policy.round_limit = 15;
  policy.pool_limit_bytes = std::min(pool_bytes, device.free_memory_bytes() / 4);
  return policy;
}

Problem online_key_problem(const Problem& problem) {
  Problem key = problem;
  key.alignment = std::min(problem.alignment, Problem().alignment);
  return key;
}

OnlineResult tune_online(Device& device, OnlineWorker* worker, const OnlineProblem& asked,
                         const OnlineSettings& settings, const std::atomic<bool>& stopping) {
  const auto known = known_row(device, asked, settings.hipblaslt_table);
  if (!known.ok()) return online_failure(asked, known.message(), true);
  if (*known == KnownRow::yes) return answer(OnlineState::known, {});
  if (*known == KnownRow::other_layout) {
    return answer(OnlineState::declined,
                  fmt::format("{}: not tuned online: {} has it for another weight layout",
                              short_name(asked.problem), asked.file));
  }
  if (const std::string reason = reason_to_decline(device, asked, settings); !reason.empty()) {
    return answer(OnlineState::declined,
                  fmt::format("{}: not tuned online: {}", short_name(asked.problem), reason));
  }
  const Policy policy = worker == nullptr ? online_policy(device) : worker->policy();
  return tune_unknown(device, asked, {settings, policy, worker}, stopping);
}

}  // namespace gemmtune
