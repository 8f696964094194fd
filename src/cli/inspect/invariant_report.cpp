#include "cli/inspect/invariant_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "backends/default_kernels.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/interrupt.h"
#include "base/random.h"
#include "cli/command.h"
#include "cli/shared/report_parts.h"
#include "cli/shared/worker_evaluator.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "formats/json.h"
#include "resolve/bind.h"
#include "resolve/row_kernel.h"
#include "tuned/choice.h"
#include "tuned/key.h"
#include "tuned/table.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

Result<Candidate> candidate_of(const Device& device, const TunedEntry& row) {
  const auto name = row_kernel_name(device, row, row.problem);
  return name.ok() ? resolve_name(device, *name, row.problem) : Result<Candidate>(name.status());
}

ServedKernel served_by(const Problem& problem, const Result<Candidate>& candidate) {
  ServedKernel served{problem, {}};
  if (candidate.ok()) {
    served.candidate = *candidate;
  } else {
    served.refusal = candidate.message();
  }
  return served;
}

/// M between those of the rows of a bit class, where the nearest row changes.
std::vector<std::int64_t> ms_between(std::vector<std::int64_t> ms) {
  std::ranges::sort(ms);
  std::vector<std::int64_t> between;
  for (std::size_t i = 1; i < ms.size(); ++i) {
    const auto middle =
        static_cast<std::int64_t>(std::sqrt(static_cast<double>(ms[i - 1]) * static_cast<double>(ms[i])));
    for (const std::int64_t m : {middle, middle + 1}) {
      if (m > ms[i - 1] && m < ms[i]) between.push_back(m);
    }
  }
  return between;
}

/// "M = 1, 7, 128".
std::string ms_text(const InvariantReport& report) {
  std::vector<std::int64_t> ms;
  for (const ServedClass& one : report.kernels) ms.push_back(one.served.problem.m);
  return fmt::format("M = {}", fmt::join(ms, ", "));
}

std::string weight_text(const Problem& problem) {
  Problem one = problem;
  one.m = 1;
  const std::string text = short_name(one);
  return fmt::format("{} {}", to_string(form_of(problem)), text.substr(text.find('x') + 1));
}

std::string report_text(const InvariantReport& report) {
  const Problem& problem = report.kernels.front().served.problem;
  if (report.bits.empty())
    return fmt::format("{}: not invariant: {}\n", weight_text(problem), report.difference);
  const std::string order =
      report.sum_order.empty() ? "" : fmt::format(", order of sums {}", report.sum_order);
  std::string ranks;
  for (const auto& [side, counts] : {std::pair{"N", &report.ranks_by_n}, {"K", &report.ranks_by_k}})
    if (!counts->empty())
      ranks += fmt::format("{}{} by {}", ranks.empty() ? ", the same bits of ranks: " : ", ",
                           fmt::join(*counts, ", "), side);
  return fmt::format("{}: invariant, class {}, {}{}{}\n", weight_text(problem), report.bits, ms_text(report),
                     order, ranks);
}

Json report_json(const InvariantReport& report) {
  Json kernels = Json::array();
  for (const ServedClass& one : report.kernels) {
    kernels.push_back(
        {{"problem", print(one.served.problem)},
         {"kernelName", one.served.refusal.empty() ? Json(one.served.candidate.kernel_name()) : Json()},
         {"other_m", one.served.other_ms},
         {"bits", one.bits.id},
         {"no_bits", one.bits.reason}});
  }
  return {{"weight", weight_text(report.kernels.front().served.problem)},
          {"invariant", !report.bits.empty()},
          {"bits", report.bits},
          {"sum_order", report.sum_order},
          {"ranks_by_n", report.ranks_by_n},
          {"ranks_by_k", report.ranks_by_k},
          {"difference", report.difference},
          {"kernels", std::move(kernels)}};
}

std::string summary_text(const InvariantCommand& command, std::size_t weights, std::size_t invariant) {
  return fmt::format("{}: {} of {} invariant\n",
                     command.subject.empty() ? "what runs without tuning" : command.subject, invariant,
                     counted(weights, "weight"));
}

}  // namespace

std::vector<ServedKernel> kernels_of_rows(const Device& device, const std::vector<TunedEntry>& entries) {
  std::vector<ServedKernel> kernels;
  std::vector<const TunedEntry*> rows;
  for (const TunedEntry& row : entries) {
    if (!row_is_of(row, device.info()) || !row.bucket.empty() || !may_be_chosen(row)) continue;
    rows.push_back(&row);
    kernels.push_back(served_by(row.problem, candidate_of(device, row)));
  }
  const TunedTable table(entries);
  std::unordered_map<Problem, std::vector<std::int64_t>, SameKeyHash, SameKey> groups;
  for (const TunedEntry* row : rows) {
    if (!row->bits.empty()) groups[group_of(row->problem)].push_back(row->problem.m);
  }
  for (const auto& [group, ms] : groups) {
    for (const std::int64_t m : ms_between(ms)) {
      Problem problem = group;
      problem.m = m;
      for (const LookupHit& hit :
           table.lookup_invariant({device.info().gfx, device.info().cu_num, problem})) {
        const auto name = row_kernel_name(device, *hit.entry, problem);
        const auto candidate = name.ok() ? device.resolve(*name, problem) : Result<Candidate>(name.status());
        if (!candidate.ok() || !check_bit_class(device, *hit.entry, *candidate, problem).ok()) continue;
        for (ServedKernel& kernel : kernels) {
          if (same_key(kernel.problem, hit.entry->problem)) kernel.other_ms.push_back(m);
        }
        break;
      }
    }
  }
  return kernels;
}

std::vector<ServedKernel> untuned_kernels(const Device& device, OperationForm operation, std::uint64_t seed,
                                          int weights) {
  constexpr std::array<std::int64_t, 6> ms{1, 2, 7, 16, 33, 128};
  constexpr std::array<std::int64_t, 5> sizes{512, 1024, 2048, 3072, 4096};
  Random random(seed);
  std::vector<ServedKernel> kernels;
  for (int weight = 0; weight < weights; ++weight) {
    Problem problem = default_problem(operation, device.info().gfx);
    problem.n = sizes[random.below(sizes.size())];
    problem.k = sizes[random.below(sizes.size())];
    for (const std::int64_t m : ms) {
      problem.m = m;
      kernels.push_back(served_by(problem, default_kernel(device, problem, AccuracyPolicy::keep)));
    }
  }
  return kernels;
}

int report_invariant(const InvariantCommand& command, Device& device,
                     const std::vector<ServedKernel>& kernels, Console& console) {
  InProcessOptions evaluation =
      in_process_options(device, default_policy(device.info()), command.max_err_ratio);
  evaluation.bit_classes = true;
  watch_for_interrupts();
  const auto evaluator = make_worker(device, command.device, read_environment(), evaluation);
  const double begin = steady_seconds();
  std::size_t begun = 0;
  const auto reports = check_invariant(device, *evaluator, kernels, [&](const ServedKernel& served) {
    console.live_line(fmt::format("[{}/{}] {}", ++begun, kernels.size(), short_name(served.problem)));
    const bool is_spent = command.budget_seconds > 0 && steady_seconds() - begin > command.budget_seconds;
    return interrupted() || is_spent;
  });
  console.clear_live_line();
  std::size_t invariant = 0;
  Json json = {{"command", command.command},
               {"file", command.subject.empty() ? Json() : Json(command.subject)},
               {"device", device_json(device.info())},
               {"weights", Json::array()}};
  std::string text;
  for (const InvariantReport& report : reports) {
    invariant += report.bits.empty() ? 0 : 1;
    text += report_text(report);
    json["weights"].push_back(report_json(report));
  }
  text += summary_text(command, reports.size(), invariant);
  print_answer(command.json, command.json ? json_document(json) : text);
  if (interrupted()) return exit_interrupted;
  return invariant == reports.size() && invariant > 0 ? exit_done : exit_findings;
}

}  // namespace gemmtune::cli
