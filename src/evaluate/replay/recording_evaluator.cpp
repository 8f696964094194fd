#include "evaluate/replay/recording_evaluator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "resolve/candidate_list.h"

namespace gemmtune {
namespace {

RecordedSpace record_space(const KernelFamily& family, const Problem& problem,
                           const SearchSpace& search_space) {
  RecordedSpace record;
  record.family = family.name();
  if (const Status accepted = family.accepts(problem); !accepted.ok()) {
    record.refusal = accepted.message();
    return record;
  }
  const auto name_of = [&](const Config& config) {
    return Candidate{std::string(family.name()), family.revision(), config}.kernel_name();
  };
  const Space space = family.space(problem);
  const Config first = family.default_config(problem);
  record.parameters = space.parameters();
  record.packed = family.packed_layout(problem);
  record.default_kernel = name_of(first);
  std::vector<Config> configs = space.enumerate();
  if (search_space.changes(family.name())) {
    std::set<std::string> known;
    for (const Config& config : configs) known.insert(config.text());
    for (Config& config : searched_space(family, problem, &search_space, false).enumerate())
      if (!known.contains(config.text())) configs.push_back(std::move(config));
  }
  if (std::find(configs.begin(), configs.end(), first) == configs.end()) configs.push_back(first);
  for (const Config& config : configs) {
    record.configs.push_back(
        {name_of(config), family.predicted_microseconds(problem, config), family.resources(problem, config)});
  }
  return record;
}

}  // namespace

RecordedProblem recorded_problem(const Device& device, const Problem& problem, std::int64_t calls,
                                 const SearchSpace& search_space) {
  RecordedProblem record;
  record.problem = problem;
  record.calls = calls;
  if (const auto baseline = device.baseline(problem); baseline.ok())
    record.baseline = baseline->kernel_name();
  if (const auto fallback = device.fallback(problem); fallback.ok())
    record.fallback = fallback->kernel_name();
  for (const KernelFamily* family : device.families())
    record.spaces.push_back(record_space(*family, problem, search_space));
  return record;
}

RecordingEvaluator::RecordingEvaluator(Evaluator& inner, RecordingWriter& writer, const Device& device,
                                       const std::vector<ShapeRow>& shapes, SecondsClock clock,
                                       SearchSpace search_space)
    : ForwardingEvaluator(inner),
      writer_(writer),
      device_(device),
      clock_(std::move(clock)),
      search_space_(std::move(search_space)) {
  for (const ShapeRow& shape : shapes) calls_.emplace(print(shape.problem), shape.calls);
}

void RecordingEvaluator::written(const Status& status) {
  if (status.ok() || !writes_) return;
  writes_ = false;
  log(LogLevel::warning, "the recording cannot be written any more, measuring goes on: {}", status.message());
}

std::size_t RecordingEvaluator::number_of(const Problem& problem) {
  const std::string text = print(problem);
  const auto known = numbers_.find(text);
  if (known != numbers_.end()) return known->second;
  const auto calls = calls_.find(text);
  const auto number = writer_.add(
      recorded_problem(device_, problem, calls == calls_.end() ? 1 : calls->second, search_space_));
  written(number.status());
  return numbers_[text] = number.ok() ? *number : 0;
}

Result<std::vector<Outcome>> RecordingEvaluator::screen(const Problem& problem,
                                                        std::span<const Candidate> candidates, int samples,
                                                        const std::function<bool()>& stop) {
  const std::size_t number = number_of(problem);
  std::vector<Outcome> outcomes;
  for (const Candidate& candidate : candidates) {
    const double begin = clock_();
    GEMMTUNE_TRY(auto outcome, inner().screen(problem, {&candidate, 1}, samples, stop));
    if (outcome.empty()) break;
    if (writes_) {
      written(
          writer_.add(number, RecordedScreening{candidate.kernel_name(), outcome.front(), clock_() - begin}));
    }
    outcomes.push_back(std::move(outcome.front()));
  }
  return outcomes;
}

Result<FinalsResult> RecordingEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                     std::span<const Candidate> candidates, int rounds) {
  if (kind.energy || kind.routing) return inner().take_rounds(kind, problem, candidates, rounds);
  const std::size_t number = number_of(problem);
  const double begin = clock_();
  auto result = inner().finals(problem, candidates, rounds);
  if (!result.ok() || !writes_) return result;
  RecordedFinals record{{}, *result, clock_() - begin};
  for (const Candidate& candidate : candidates) record.candidates.push_back(candidate.kernel_name());
  written(writer_.add(number, record));
  return result;
}

Outcome RecordingEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                              std::int64_t m) {
  const std::size_t number = number_of(problem);
  const double begin = clock_();
  Outcome outcome = inner().check_neighbour_m(problem, candidate, m);
  if (writes_) {
    written(writer_.add(number, RecordedNeighbour{candidate.kernel_name(), m, outcome, clock_() - begin}));
  }
  return outcome;
}

}  // namespace gemmtune
