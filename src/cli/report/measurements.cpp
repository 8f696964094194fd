#include "cli/report/measurements.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gemmtune::cli {

MeasuredCandidate& MeasuredProblem::candidate(const std::string& kernel) {
  const auto [found, made] = index_.try_emplace(kernel, candidates.size());
  if (made) {
    candidates.emplace_back();
    candidates.back().kernel = kernel;
  }
  return candidates[found->second];
}

void MeasuredProblem::add_rounds(const std::vector<std::string>& kernels,
                                 const std::vector<std::vector<double>>& times) {
  calls_.push_back({kernels, times});
  for (const std::string& kernel : kernels) {
    if (std::find(finalists_.begin(), finalists_.end(), kernel) == finalists_.end())
      finalists_.push_back(kernel);
  }
}

std::optional<PairedRatio> MeasuredProblem::ratio(const std::string& a, const std::string& b,
                                                  Rounds which) const {
  std::vector<std::vector<double>> calls;  // the ratios of each call
  for (const Call& call : calls_) {
    const auto place = [&](const std::string& kernel) {
      return static_cast<std::size_t>(std::find(call.kernels.begin(), call.kernels.end(), kernel) -
                                      call.kernels.begin());
    };
    const std::size_t count = call.kernels.size();
    if (place(a) == count || place(b) == count) continue;
    std::vector<std::size_t> columns(count);
    std::iota(columns.begin(), columns.end(), std::size_t{0});
    PairedRounds rounds(count);
    rounds.add(columns, call.times);
    if (auto ratios = rounds.ratios(place(a), place(b)); !ratios.empty()) calls.push_back(std::move(ratios));
  }
  if (calls.empty()) return std::nullopt;
  if (which == Rounds::fresh && calls.size() > 1) calls.erase(calls.begin());
  std::vector<double> ratios;
  for (const auto& each : calls) ratios.insert(ratios.end(), each.begin(), each.end());
  return PairedRatio{median(ratios), median_interval(ratios, 0.95), ratios.size()};
}

MeasuredProblem& Measurements::problem(std::string_view gfx, int cu_num, const Problem& problem) {
  const auto device = problems_.try_emplace({std::string(gfx), cu_num}).first;
  const auto [found, made] = device->second.try_emplace(problem);
  if (made) in_order_.push_back({&device->first, &found->first, &found->second});
  return found->second;
}

const MeasuredProblem* Measurements::find(const TunedEntry& row) const {
  const auto device = problems_.find({row.gfx, row.cu_num});
  if (device == problems_.end()) return nullptr;
  const auto found = device->second.find(row.problem);
  return found != device->second.end() ? &found->second : nullptr;
}

void Measurements::add_missing(const Measurements& more) {
  more.for_each([&](const Device& device, const Problem& asked, const MeasuredProblem& measured) {
    MeasuredProblem& mine = problem(device.first, device.second, asked);
    if (mine.candidates.empty()) {
      mine = measured;
      return;
    }
    for (const MeasuredCandidate& candidate : measured.candidates) {
      MeasuredCandidate& known = mine.candidate(candidate.kernel);
      known.error = worst_of(known.error, candidate.error);
    }
  });
}

void Measurements::leave_out(const Problem& problem) {
  std::erase_if(in_order_, [&](const InOrder& each) { return same_key(*each.problem, problem); });
}

}  // namespace gemmtune::cli
