#include "tuning/hunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "backends/default_kernels.h"
#include "backends/traits.h"
#include "base/clock.h"
#include "base/text.h"
#include "resolve/candidate_list.h"
#include "resolve/errata.h"
#include "tuning/hunt_minimize.h"
#include "tuning/hunt_problems.h"

namespace gemmtune {
namespace {

constexpr int max_fruitless = 2000;  // random problems in a row that no family takes
constexpr int max_minimizing_tries = 60;
constexpr double max_host_flops = 4e8;  // of a problem: the reference takes a core a second
constexpr double max_gpu_flops = 4e11;
constexpr double share_of_free_memory = 1.0 / 16;  // operands, copies at the page's end, outputs, references

bool is_finding(const Outcome& outcome) {
  return outcome.kind == OutcomeKind::wrong || outcome.kind == OutcomeKind::crashed;
}

/// What findings of one cause have in common.
std::string cause_of(const Problem& problem, const Candidate& candidate, const Outcome& outcome) {
  const std::string phrase = outcome.reason.substr(0, outcome.reason.find_first_of(":;("));
  return fmt::format("{} {} {} {} {}", candidate.family, to_string(form_of(problem)),
                     to_string(problem.x_type), to_string(outcome.kind), phrase);
}

/// What is to be verified of one problem.
struct Work {
  std::vector<Candidate> candidates;  // those that run untuned first
  std::size_t untuned = 0;            // how many of these
};

class Hunt {
 public:
  Hunt(Device& device, Evaluator& evaluator, const HuntRequest& request, const HuntObserver& observer)
      : device_(device),
        evaluator_(evaluator),
        request_(request),
        observer_(observer),
        errata_(device.info()),
        random_(request.seed),
        deadline_(Deadline::in(request.budget_seconds, request.clock)) {}

  Result<HuntSummary> run();

 private:
  bool stopped() const { return request_.stop && request_.stop(); }
  Status find_families();
  /// A problem that a family takes; an error if there seems to be none.
  Result<Problem> next_problem();
  Work work_of(const Problem& problem);
  void add(const Candidate& candidate, const Problem& problem, Work& work);
  void verify(const Problem& problem, const Work& work);
  void note(const Problem& problem, const Candidate& candidate, Outcome outcome, bool untuned);
  Outcome verify_fully(const Problem& problem, const Candidate& candidate) {
    return evaluator_.check_neighbour_m(problem, candidate, problem.m);
  }
  Erratum suggest(const HuntFinding& finding, const FailsAt& fails) const;

  Device& device_;
  Evaluator& evaluator_;
  const HuntRequest& request_;
  const HuntObserver& observer_;
  const DeviceErrata errata_;
  Random random_;
  Deadline deadline_;
  HuntLimits limits_;
  std::vector<const KernelFamily*> families_;
  std::vector<OperationForm> operations_;
  std::map<std::string, std::size_t> causes_;  // cause → index of its finding
  HuntSummary summary_;
};

Status Hunt::find_families() {
  GEMMTUNE_RETURN_IF_ERROR(check_libtypes(device_, request_.libtypes));
  for (const std::string& libtype : request_.libtypes) families_.push_back(device_.find_family(libtype));
  if (!request_.libtypes.empty()) return {};
  std::string missing;
  for (const FamilyInfo* info : traits_of(device_.info()).families) {
    if (!info->vendor) continue;
    const KernelFamily* const family = device_.find_family(info->name);
    if (family != nullptr) {
      families_.push_back(family);
    } else {
      missing +=
          fmt::format("{}{}", missing.empty() ? "" : "; ", device_.missing_family(info->name).message());
    }
  }
  if (!families_.empty()) return {};
  return Status::not_found("{} has no vendor library: {}", device_.info().name, missing);
}

Result<Problem> Hunt::next_problem() {
  for (int fruitless = 0; fruitless < max_fruitless; ++fruitless) {
    const OperationForm operation = operations_[random_.below(operations_.size())];
    const Problem problem = random_problem(operation, limits_, random_);
    if (!check(problem).ok()) continue;
    const bool taken = std::ranges::any_of(
        families_, [&](const KernelFamily* family) { return family->accepts(problem).ok(); });
    if (taken) return problem;
  }
  return Status::unsupported("none of {} random problems is taken by a family of {}", max_fruitless,
                             device_.info().name);
}

void Hunt::add(const Candidate& candidate, const Problem& problem, Work& work) {
  const auto& known = work.candidates;
  if (std::find(known.begin(), known.end(), candidate) != known.end()) return;
  if (!request_.with_known && errata_.find(problem, candidate) != nullptr) {
    ++summary_.left_out;
    return;
  }
  work.candidates.push_back(candidate);
}

Work Hunt::work_of(const Problem& problem) {
  Work work;
  for (const AccuracyPolicy policy : {AccuracyPolicy::keep, AccuracyPolicy::fast}) {
    if (const auto library = library_kernel(device_, problem, policy); library.ok())
      add(*library, problem, work);
  }
  if (const auto fallback = usable_fallback(device_, problem); fallback.ok())
    add(fallback->candidate, problem, work);
  work.untuned = work.candidates.size();
  for (const KernelFamily* family : families_) {
    if (!family->accepts(problem).ok()) continue;
    Candidate candidate{std::string(family->name()), family->revision(), family->default_config(problem)};
    add(candidate, problem, work);
    for (Config& config : family->space(problem).enumerate()) {
      candidate.config = std::move(config);
      if (!is_dependent(candidate.config)) add(candidate, problem, work);
    }
  }
  return work;
}

void Hunt::verify(const Problem& problem, const Work& work) {
  const auto over = [&] { return stopped() || deadline_.over(); };
  auto outcomes = evaluator_.screen(problem, work.candidates, 0, over);
  if (!outcomes.ok()) {
    ++summary_.unverified;
    return;
  }
  ++summary_.problems;
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    ++summary_.kernels;
    Outcome& outcome = (*outcomes)[i];
    const bool untuned = i < work.untuned;
    if (untuned && outcome.kind == OutcomeKind::ok && !over())
      outcome = verify_fully(problem, work.candidates[i]);
    if (is_finding(outcome)) note(problem, work.candidates[i], std::move(outcome), untuned);
  }
}

Erratum Hunt::suggest(const HuntFinding& finding, const FailsAt& fails) const {
  const DeviceInfo& info = device_.info();
  Erratum erratum;
  erratum.name = fmt::format("{}-{}", finding.candidate.family, finding.problem.k);
  erratum.family = finding.candidate.family;
  for (const Library& library : info.libraries) {
    if (to_lower(library.name) == erratum.family)
      erratum.first_version = erratum.last_version = library.version;
  }
  erratum.architectures = {info.gfx};
  erratum.operations = {form_of(finding.problem)};
  erratum.types = {std::string(to_string(finding.problem.x_type))};
  std::string condition = failing_sizes(finding.problem, fails);
  const auto add = [&](std::string_view term) {
    condition += fmt::format("{}{}", condition.empty() ? "" : " and ", term);
  };
  if (finding.problem.x_order == Order::column_major) add("x_columns == 1");
  if (finding.problem.w_order == Order::column_major) add("w_columns == 1");
  for (const auto& [key, value] : finding.candidate.config.settings()) {
    if (!parse_integer(value)) continue;
    erratum.parameters.push_back(key);
    add(fmt::format("{} == {}", key, value));
  }
  if (auto parsed = IntegerExpression::parse(condition.empty() ? "1" : condition); parsed.ok())
    erratum.condition = std::move(parsed).value();
  erratum.effect = finding.outcome.kind == OutcomeKind::crashed ? ErratumEffect::crash : ErratumEffect::wrong;
  erratum.what = finding.outcome.reason;
  erratum.found = fmt::format("gemmtune hunt on {}, {}: first {}", info.model, utc_text().substr(0, 10),
                              print(finding.first));
  erratum.repro = check_command(info, finding.problem, finding.candidate);
  return erratum;
}

void Hunt::note(const Problem& problem, const Candidate& candidate, Outcome outcome, bool untuned) {
  const std::string cause = cause_of(problem, candidate, outcome);
  if (const auto known = causes_.find(cause); known != causes_.end()) {
    HuntFinding& finding = summary_.findings[known->second];
    ++finding.more;
    finding.untuned = finding.untuned || untuned;
    return;
  }
  HuntFinding finding{problem, problem, candidate, std::move(outcome), untuned, 0, {}};
  const FailsAt fails = [&, kind = finding.outcome.kind](const Problem& other) {
    if (stopped() || !check(other).ok() || !device_.resolve(candidate.kernel_name(), other).ok())
      return false;
    return verify_fully(other, candidate).kind == kind;
  };
  finding.problem = minimize(problem, fails, max_minimizing_tries);
  if (!(finding.problem == problem)) finding.outcome = verify_fully(finding.problem, candidate);
  finding.erratum = suggest(finding, fails);
  causes_[cause] = summary_.findings.size();
  summary_.findings.push_back(std::move(finding));
  summary_.seconds = deadline_.seconds_elapsed();
  observer_(summary_, &summary_.findings.back());
}

Result<HuntSummary> Hunt::run() {
  GEMMTUNE_RETURN_IF_ERROR(find_families());
  operations_ = request_.operations;
  if (operations_.empty()) operations_.assign(all_operation_forms().begin(), all_operation_forms().end());
  const DeviceTraits& traits = traits_of(device_.info());
  limits_.max_flops = traits.runs_on_host ? max_host_flops : max_gpu_flops;
  if (request_.max_flops > 0) limits_.max_flops = request_.max_flops;
  limits_.max_bytes = share_of_free_memory * static_cast<double>(device_.free_memory_bytes());
  while (!deadline_.over() && !stopped()) {
    GEMMTUNE_TRY(const auto problem, next_problem());
    verify(problem, work_of(problem));
    summary_.seconds = deadline_.seconds_elapsed();
    observer_(summary_, nullptr);
  }
  return std::move(summary_);
}

}  // namespace

Result<HuntSummary> hunt(Device& device, Evaluator& evaluator, const HuntRequest& request,
                         const HuntObserver& observer) {
  return Hunt(device, evaluator, request, observer).run();
}

std::string check_command(const DeviceInfo& device, const Problem& problem, const Candidate& candidate) {
  return fmt::format("gemmtune check --backend {} --problem '{}' --kernel {}", device.backend, print(problem),
                     candidate.kernel_name());
}

}  // namespace gemmtune
