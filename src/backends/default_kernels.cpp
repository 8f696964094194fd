#include "backends/default_kernels.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/traits.h"

namespace gemmtune {
namespace {

/// The family's default config, else that of its space which is predicted to be the fastest, that is allowed. No programmatic dependent launch.
std::optional<Candidate> first_allowed(const KernelFamily& family, const Problem& problem,
                                       const KernelFilter& allowed) {
  Candidate candidate{std::string(family.name()), family.revision(), family.default_config(problem)};
  if (!allowed || allowed(candidate)) return candidate;
  std::optional<std::pair<double, Candidate>> fastest;
  for (Config& config : family.space(problem).enumerate()) {
    candidate.config = std::move(config);
    if (is_dependent(candidate.config) || !allowed(candidate)) continue;
    const double predicted = family.predicted_microseconds(problem, candidate.config);
    if (!fastest || predicted < fastest->first) fastest.emplace(predicted, candidate);
  }
  if (!fastest) return std::nullopt;
  return std::move(fastest->second);
}

/// An allowed kernel of the family, or why there is none.
Result<Candidate> kernel_of(const FamilyInfo& info, const Device& device, const Problem& problem,
                            const KernelFilter& allowed) {
  const KernelFamily* family = device.find_family(info.name);
  if (family == nullptr) return device.missing_family(info.name);
  if (const Status accepted = family->accepts(problem); !accepted.ok())
    return Status(accepted.code(), fmt::format("{}: {}", info.name, accepted.message()));
  if (auto candidate = first_allowed(*family, problem, allowed)) return std::move(*candidate);
  return Status::unsupported("{}: no kernel is allowed", info.name);
}

bool leads(const FamilyInfo& info, const Problem& problem, std::string_view architecture) {
  return info.leads_untuned != nullptr && info.leads_untuned(problem, architecture);
}

double predicted_microseconds(const Device& device, const Problem& problem, const Candidate& candidate) {
  return device.find_family(candidate.family)->predicted_microseconds(problem, candidate.config);
}

/// Of the first family that has one; if its times are fitted, of that one of the others with fitted times whose kernel is
/// predicted to be faster. A family that leads stays ahead.
Result<Candidate> first_that_accepts(const std::vector<const FamilyInfo*>& order, const Device& device,
                                     const Problem& problem, StatusCode otherwise,
                                     const KernelFilter& allowed) {
  std::string reasons;
  std::optional<Candidate> fastest;
  for (const FamilyInfo* info : order) {
    if (fastest && !info->fitted) continue;
    auto candidate = kernel_of(*info, device, problem, allowed);
    if (!candidate.ok()) {
      if (!reasons.empty()) reasons += "; ";
      reasons += candidate.status().message();
      continue;
    }
    if (!info->fitted || (!fastest && leads(*info, problem, device.info().gfx))) return candidate;
    if (!fastest || predicted_microseconds(device, problem, *candidate) <
                        predicted_microseconds(device, problem, *fastest))
      fastest = std::move(*candidate);
  }
  if (fastest) return std::move(*fastest);
  return Status(otherwise, fmt::format("{}: {}", short_name(problem), reasons));
}

/// Smaller ranks run first.
int fallback_rank(const FamilyInfo& info, const Problem& problem, std::string_view architecture) {
  if (leads(info, problem, architecture)) return 0;
  if (info.row_scales_rank != 0 && quantization(problem) == QuantType::per_token) return info.row_scales_rank;
  return problem.m <= FamilyInfo::few_rows && info.few_rows_rank != 0 ? info.few_rows_rank
                                                                      : info.fallback_rank;
}

/// With `fast` its family's fast config.
Result<Candidate> under_policy(const Device& device, const Problem& problem, AccuracyPolicy policy,
                               Result<Candidate> candidate) {
  if (!candidate.ok() || policy != AccuracyPolicy::fast) return candidate;
  if (const KernelFamily* family = device.find_family(candidate->family); family != nullptr)
    candidate->config = family->fast_config(problem);
  return candidate;
}

}  // namespace

Result<Candidate> choose_baseline(FamilyInfos known, const Device& device, const Problem& problem) {
  std::vector<const FamilyInfo*> order;
  std::copy_if(known.begin(), known.end(), std::back_inserter(order),
               [](const FamilyInfo* info) { return info->vendor; });
  return first_that_accepts(order, device, problem, StatusCode::not_found, {});
}

Result<Candidate> choose_fallback(FamilyInfos known, const Device& device, const Problem& problem,
                                  const KernelFilter& allowed) {
  const std::string_view architecture = device.info().gfx;
  std::vector<const FamilyInfo*> order;
  std::copy_if(known.begin(), known.end(), std::back_inserter(order), [&](const FamilyInfo* info) {
    return info->fallback_rank != 0 &&
           (info->runs_untuned == nullptr || info->runs_untuned(problem, architecture));
  });
  std::ranges::stable_sort(order, [&](const FamilyInfo* a, const FamilyInfo* b) {
    return fallback_rank(*a, problem, architecture) < fallback_rank(*b, problem, architecture);
  });
  return first_that_accepts(order, device, problem, StatusCode::unsupported, allowed);
}

Result<Candidate> library_kernel(const Device& device, const Problem& problem, AccuracyPolicy policy) {
  return under_policy(device, problem, policy, device.baseline(problem));
}

Result<Candidate> default_kernel(const Device& device, const Problem& problem, AccuracyPolicy policy) {
  auto library = library_kernel(device, problem, policy);
  if (library.ok() && (policy == AccuracyPolicy::fast || library->family == device.info().opponent))
    return library;
  auto untuned = device.fallback(problem);
  if (policy == AccuracyPolicy::fp32 && untuned.ok() && device.accuracy(*untuned, problem) < Accuracy::fp32)
    return choose_fallback(
        traits_of(device.info()).families, device, problem,
        [&](const Candidate& candidate) { return device.accuracy(candidate, problem) == Accuracy::fp32; });
  return under_policy(device, problem, policy, std::move(untuned));
}

}  // namespace gemmtune
