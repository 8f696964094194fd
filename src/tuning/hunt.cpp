#include "tuning/hunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "backends/default_kernels.h"
#include "backends/traits.h"
#include "base/clock.h"
#include "base/rounding.h"
#include "base/text.h"
#include "problem/operands.h"
#include "resolve/candidate_list.h"
#include "resolve/errata.h"

namespace gemmtune {
namespace {

using Dimension = std::int64_t Problem::*;

constexpr std::array<std::pair<std::string_view, Dimension>, 3> dimensions{
    {{"m", &Problem::m}, {"n", &Problem::n}, {"k", &Problem::k}}};
constexpr std::int64_t max_modulus = 64;

Problem with(Problem problem, Dimension dimension, std::int64_t value) {
  problem.*dimension = value;
  return problem;
}

/// Smaller values, the smallest first.
std::vector<std::int64_t> smaller_than(std::int64_t value) {
  std::vector<std::int64_t> list{1,          value / 8, value / 4, value / 2, value / 2 + 1, 3 * value / 4,
                                 value - 64, value - 8, value - 2, value - 1};
  std::erase_if(list, [&](std::int64_t one) { return one < 1 || one >= value; });
  std::ranges::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

/// The condition of one dimension; empty: it fails at every size.
std::string failing_values(const Problem& minimal, std::string_view name, Dimension dimension,
                           const FailsAt& fails) {
  const std::int64_t value = minimal.*dimension;
  const auto fails_at = [&](std::int64_t other) {
    return other >= 1 && other <= max_dimension && fails(with(minimal, dimension, other));
  };
  for (std::int64_t modulus = 1; modulus <= max_modulus; modulus *= 2) {
    if (!fails_at(value + modulus) || !fails_at(value + 3 * modulus) || !fails_at(value + 2 * modulus))
      continue;
    std::string text =
        modulus == 1 ? std::string() : fmt::format("{} % {} == {}", name, modulus, value % modulus);
    if (value - modulus < 1) return text;
    return fmt::format("{}{}{} >= {}", text, text.empty() ? "" : " and ", name, value);
  }
  return fmt::format("{} == {}", name, value);
}

constexpr std::uint64_t problems_per_huge_one = 24;
constexpr std::int64_t huge_elements = std::int64_t{1} << 31;

template <typename Value>
Value any_of(std::span<const Value> values, Random& random) {
  return values[random.below(values.size())];
}

/// Of first … last, both included.
std::int64_t between(std::int64_t first, std::int64_t last, Random& random) {
  return first + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(last - first + 1)));
}

bool one_in(std::uint64_t count, Random& random) { return random.below(count) == 0; }

std::int64_t random_k(Random& random) {
  constexpr std::int64_t rests[] = {1, 2, 3, 7, 8, 9, 15, 16, 24, 31, 33, 56, 63};
  switch (random.below(5)) {
    case 0:
      return between(1, 130, random);
    case 1:  // beside a multiple of a block
      return 64 * between(1, 64, random) + any_of<std::int64_t>(rests, random);
    case 2: {  // splits of whole blocks, and a rest
      const std::int64_t splits = between(2, 24, random);
      return splits * 64 * between(1, 24, random) + 8 * between(0, splits - 1, random);
    }
    case 3:  // deep
      return 64 * between(128, 1024, random) + 8 * between(0, 7, random);
    default:  // beside a power of two
      return std::max<std::int64_t>(1, (std::int64_t{1} << between(1, 15, random)) + between(-1, 1, random));
  }
}

std::int64_t random_rows(Random& random) {
  switch (random.below(4)) {
    case 0:
      return between(1, 8, random);
    case 1:
      return (std::int64_t{1} << between(3, 8, random)) + between(-1, 1, random);
    case 2:
      return between(1, 300, random);
    default:
      return between(1, 3000, random);
  }
}

std::int64_t random_columns(Random& random) {
  switch (random.below(3)) {
    case 0:
      return 8 * between(1, 64, random);
    case 1:
      return between(1, 600, random);
    default:
      return (std::int64_t{1} << between(4, 13, random)) + between(-1, 1, random);
  }
}

bool fits(const Problem& problem, const HuntLimits& limits) {
  return flops(problem) <= limits.max_flops && bytes(problem) <= limits.max_bytes;
}

/// x, w or y has more than 2^31 elements; a small problem stays if that does not fit.
void make_huge(const HuntLimits& limits, Random& random, Problem& problem) {
  Problem huge = problem;
  const std::int64_t small = between(1, 16, random);
  const std::int64_t large = std::int64_t{1} << between(14, 17, random);
  const std::int64_t other = huge_elements / large + between(1, 64, random);
  const std::array<std::int64_t, 3> orders[] = {
      {small, large, other}, {large, small, other}, {large, other, small}};
  const auto& sizes = orders[random.below(3)];
  huge.m = sizes[0];
  huge.n = sizes[1];
  huge.k = sizes[2];
  if (fits(huge, limits)) problem = huge;
}

void set_mixture(Random& random, Problem& problem) {
  problem.moe.experts = static_cast<std::int32_t>(between(1, 16, random));
  problem.moe.topk = static_cast<std::int32_t>(between(1, problem.moe.experts, random));
  problem.moe.gated = !one_in(4, random);
}

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

Problem minimize(const Problem& problem, const FailsAt& fails, int max_tries) {
  Problem smallest = problem;
  int tries = 0;
  const auto take = [&](const Problem& other) {
    if (other == smallest || tries >= max_tries) return false;
    ++tries;
    if (!fails(other)) return false;
    smallest = other;
    return true;
  };
  Problem plain = smallest;
  plain.bias = false;
  plain.alignment = Problem().alignment;
  take(plain);
  for (Order Problem::*const order : {&Problem::x_order, &Problem::w_order}) {
    Problem rows = smallest;
    rows.*order = Order::row_major;
    take(rows);
  }
  for (bool smaller = true; smaller && tries < max_tries;) {
    smaller = false;
    for (const auto& [name, dimension] : dimensions) {
      for (const std::int64_t value : smaller_than(smallest.*dimension)) {
        if (!take(with(smallest, dimension, value))) continue;
        smaller = true;
        break;
      }
    }
  }
  return smallest;
}

std::string failing_sizes(const Problem& minimal, const FailsAt& fails) {
  std::string text;
  for (const auto& [name, dimension] : dimensions) {
    const std::string one = failing_values(minimal, name, dimension, fails);
    if (!one.empty()) text += (text.empty() ? "" : " and ") + one;
  }
  return text;
}

Problem random_problem(OperationForm operation, const HuntLimits& limits, Random& random) {
  Problem problem = default_problem(operation);
  const OperationTraits& row = traits(problem.operation);
  problem.x_type = any_of(row.x_types, random);
  problem.w_type = row.w_types.empty() ? problem.x_type : any_of(row.w_types, random);
  problem.y_type =
      one_in(4, random) ? any_of(row.y_types, random) : default_y_type(problem.operation, problem.x_type);
  problem.bias = row.bias && one_in(3, random);
  problem.batch = row.batched ? between(1, 5, random) : 1;
  if (row.mixture) set_mixture(random, problem);
  constexpr std::int32_t alignments[] = {16, 16, 8, 4, 2};
  problem.alignment = std::max(any_of<std::int32_t>(alignments, random), bits(problem.x_type) / 8);
  problem.m = random_rows(random);
  problem.n = random_columns(random);
  problem.k = random_k(random);
  if (!row.mixture && one_in(problems_per_huge_one, random)) make_huge(limits, random, problem);
  if (row.key_switches && bits(problem.w_type) != 4) {
    if (one_in(4, random)) problem.x_order = Order::column_major;
    if (one_in(4, random)) problem.w_order = Order::column_major;
  }
  if (has_weight_groups(problem)) {
    problem.w_group = any_of<std::int32_t>(weight_groups, random);
    problem.zero_points = one_in(2, random);
  }
  // Of 4 bits the dimensions that are reduced are whole blocks.
  const std::int64_t multiple = k_multiple(problem);
  const auto step_of = [&](const std::int64_t* dimension) {
    const bool reduced = dimension == &problem.k || (row.mixture && dimension == &problem.n);
    return reduced ? multiple : std::int64_t{1};
  };
  for (std::int64_t* const dimension : {&problem.n, &problem.k})
    *dimension = round_up(*dimension, step_of(dimension));
  while (!fits(problem, limits)) {
    std::int64_t* const largest =
        std::max({&problem.m, &problem.n, &problem.k}, [](const auto* a, const auto* b) { return *a < *b; });
    const std::int64_t step = step_of(largest);
    if (*largest <= step) break;
    *largest = std::max(step, *largest / 2 / step * step);
  }
  if (has_weight_groups(problem) && one_in(4, random)) problem.w_group = static_cast<std::int32_t>(problem.k);
  return problem;
}

Result<HuntSummary> hunt(Device& device, Evaluator& evaluator, const HuntRequest& request,
                         const HuntObserver& observer) {
  return Hunt(device, evaluator, request, observer).run();
}

std::string check_command(const DeviceInfo& device, const Problem& problem, const Candidate& candidate) {
  return fmt::format("gemmtune check --backend {} --problem '{}' --kernel {}", device.backend, print(problem),
                     candidate.kernel_name());
}

}  // namespace gemmtune
