#include "speed/round_member.h"

#include <algorithm>
#include <optional>

#include "measure/statistics.h"

namespace gemmtune::speed {
namespace {

bool is_ours(const KernelFamily& family) {
  return family.name() != "onednn" && family.name() != "openblas" && family.name() != "reference";
}

/// The default, and the configs with the smallest predicted times.
std::vector<Config> promising(const KernelFamily& family, const Problem& problem, int tries) {
  std::vector<Config> configs = family.space(problem).enumerate(20000);
  std::stable_sort(configs.begin(), configs.end(), [&](const Config& a, const Config& b) {
    return family.predicted_microseconds(problem, a) < family.predicted_microseconds(problem, b);
  });
  if (configs.size() > static_cast<std::size_t>(tries)) configs.resize(static_cast<std::size_t>(tries));
  configs.insert(configs.begin(), family.default_config(problem));
  return configs;
}

/// The least of three samples; fewer if they are far above `best` (0: none).
Result<double> quick_time(Sampler& sampler, const Timed& timed, double best) {
  double least = 0;
  for (int look = 0; look < 3; ++look) {
    const auto time = sampler.sample(timed);
    if (!time.ok()) return time;
    if (look == 0 || *time < least) least = *time;
    if (best > 0 && least > 1.3 * best) break;
  }
  return least;
}

}  // namespace

Status make_ready(Device& device, Sampler& sampler, RoundMember& member) {
  member.timed.kernel = member.kernel.get();
  if (const std::size_t bytes = member.kernel->workspace_bytes(); bytes > 0) {
    auto workspace = device.allocate(bytes, Placement::plain);
    if (!workspace.ok()) return workspace.status();
    member.workspace = std::move(*workspace);
    GEMMTUNE_RETURN_IF_ERROR(device.fill(member.workspace->data(), 0, bytes));
    member.timed.workspace = member.workspace->data();
  }
  sampler.enter_pool(member.timed.thread_pool);
  return sampler.prepare(member.timed);
}

Result<RoundMember> make_member(Device& device, Sampler& sampler, const Problem& problem,
                                const Candidate& candidate, const RotationOf& rotation_of) {
  auto kernel = device.build(candidate, problem);
  if (!kernel.ok()) return kernel.status();
  const auto rotation = rotation_of(**kernel);
  if (!rotation.ok()) return rotation.status();
  RoundMember made;
  made.name = candidate.kernel_name();
  made.kernel = std::move(*kernel);
  made.timed.rotation = *rotation;
  made.timed.thread_pool = device.find_family(candidate.family)->thread_pool();
  GEMMTUNE_RETURN_IF_ERROR(make_ready(device, sampler, made));
  return made;
}

Result<RoundMember> fastest_of_ours(Device& device, Sampler& sampler, const Problem& problem, int tries,
                                    const RotationOf& rotation_of) {
  std::optional<RoundMember> best;
  double best_time = 0;
  for (const KernelFamily* family : device.families()) {
    if (!is_ours(*family) || !family->accepts(problem).ok()) continue;
    for (const Config& config : promising(*family, problem, tries)) {
      const Candidate candidate{std::string(family->name()), family->revision(), config};
      auto made = make_member(device, sampler, problem, candidate, rotation_of);
      if (!made.ok()) return made.status();
      const auto time = quick_time(sampler, made->timed, best_time);
      if (!time.ok()) return time.status();
      if (best && *time >= best_time) continue;
      best_time = *time;
      best = std::move(*made);
    }
  }
  if (!best) return Status::not_found("no family of ours takes {}", print(problem));
  return std::move(*best);
}

Result<std::vector<std::vector<double>>> run_rounds(Sampler& sampler, std::span<RoundMember* const> members,
                                                    int rounds) {
  std::vector<const Timed*> timed;
  for (const RoundMember* member : members) timed.push_back(&member->timed);
  std::vector<std::vector<double>> times(members.size());
  for (int round = 0; round < rounds; ++round) {
    const auto samples = sampler.round(timed);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (!samples[i].ok()) return samples[i].status();
      times[i].push_back(*samples[i]);
    }
  }
  return times;
}

Ratio ratio_of(std::span<const double> above, std::span<const double> below) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < above.size(); ++i) ratios.push_back(above[i] / below[i]);
  return {median(ratios), spread(ratios)};
}

}  // namespace gemmtune::speed
