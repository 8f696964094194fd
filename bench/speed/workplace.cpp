#include "speed/workplace.h"

#include <algorithm>

#include "measure/statistics.h"
#include "speed/reading.h"
#include "verify/inputs.h"

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

}  // namespace

void PoolTurns::next(const RoundMember& member) {
  if (member.thread_pool == current_) return;
  current_ = member.thread_pool;
  device_.quiesce(current_);
}

Result<std::unique_ptr<Workplace>> Workplace::make(Device& device, const Problem& largest,
                                                   const Policy& policy) {
  auto host = make_inputs(largest, 1);
  if (!host.ok()) return host.status();
  auto operands = DeviceOperands::make(device, largest, Placement::plain);
  if (!operands.ok()) return operands.status();
  GEMMTUNE_RETURN_IF_ERROR(operands->fill(*host));
  return std::unique_ptr<Workplace>(new Workplace(device, largest, policy, std::move(*operands)));
}

Status Workplace::enter(RoundMember& member) {
  const auto rotation = pools_.rotation(member.kernel->weight_layout(), operands_);
  if (!rotation.ok()) return rotation.status();
  member.timed.rotation = *rotation;
  return prepare(member);
}

Status Workplace::prepare(RoundMember& member) {
  member.timed.kernel = member.kernel.get();
  if (const std::size_t bytes = member.kernel->workspace_bytes(); bytes > 0) {
    auto workspace = device_.allocate(bytes, Placement::plain);
    if (!workspace.ok()) return workspace.status();
    member.workspace = std::move(*workspace);
    GEMMTUNE_RETURN_IF_ERROR(device_.fill(member.workspace->data(), 0, bytes));
    member.timed.workspace = member.workspace->data();
  }
  return sampler_.prepare(member.timed);
}

Result<RoundMember> Workplace::make_member(const KernelFamily& family, const Problem& problem,
                                           const Config& config) {
  auto kernel = family.build(problem, config);
  if (!kernel.ok()) return kernel.status();
  RoundMember made;
  made.name = Candidate{std::string(family.name()), family.revision(), config}.kernel_name();
  made.kernel = std::move(*kernel);
  made.thread_pool = family.thread_pool();
  GEMMTUNE_RETURN_IF_ERROR(enter(made));
  return made;
}

Result<RoundMember> Workplace::fastest(std::int64_t m, int tries) {
  Problem problem = largest_;
  problem.m = m;
  device_.quiesce("own");
  std::optional<RoundMember> best;
  double best_time = 0;
  for (const KernelFamily* family : device_.families()) {
    if (!is_ours(*family) || !family->accepts(problem).ok()) continue;
    for (const Config& config : promising(*family, problem, tries)) {
      auto made = make_member(*family, problem, config);
      if (!made.ok()) return made.status();
      double time = 0;
      for (int look = 0; look < 3; ++look) {
        const auto sampled = sampler_.sample(made->timed);
        if (!sampled.ok()) return sampled.status();
        if (look == 0 || *sampled < time) time = *sampled;
        if (best && time > 1.3 * best_time) break;
      }
      if (best && time >= best_time) continue;
      best_time = time;
      best = std::move(*made);
    }
  }
  if (!best) return Status::not_found("no family of ours takes {}", print(problem));
  return std::move(*best);
}

Result<RoundMember> Workplace::library(std::int64_t m, WeightLayout layout) {
  Problem problem = largest_;
  problem.m = m;
  problem.weight_layout = layout;
  problem.bpreshuffle = layout != WeightLayout::plain;
  const auto candidate = device_.baseline(problem);
  if (!candidate.ok()) return candidate.status();
  const KernelFamily* family = device_.find_family(candidate->family);
  device_.quiesce(family->thread_pool());
  return make_member(*family, problem, candidate->config);
}

Result<RoundMember> Workplace::blas(std::int64_t m) {
  Problem problem = largest_;
  problem.m = m;
  problem.weight_layout = WeightLayout::plain;
  problem.bpreshuffle = false;
  const KernelFamily* family = device_.find_family("openblas");
  if (family == nullptr) return Status::not_found("no OpenBLAS on this machine");
  GEMMTUNE_RETURN_IF_ERROR(family->accepts(problem));
  device_.quiesce(family->thread_pool());
  return make_member(*family, problem, family->default_config(problem));
}

Result<RoundMember> Workplace::roofline(WeightLayout layout) {
  const auto bytes = device_.packed_bytes(largest_, layout);
  if (!bytes.ok()) return bytes.status();
  device_.quiesce("own");
  std::optional<RoundMember> best;
  double best_time = 0;
  for (const std::size_t ahead : {0, 1024, 4096}) {
    RoundMember made;
    made.name = "read";
    made.kernel = make_reading_kernel(*bytes, ahead, layout);
    GEMMTUNE_RETURN_IF_ERROR(enter(made));
    std::vector<double> times;
    for (int look = 0; look < 5; ++look) {
      const auto sampled = sampler_.sample(made.timed);
      if (!sampled.ok()) return sampled.status();
      times.push_back(*sampled);
    }
    const double time = median(times);
    if (best && time >= best_time) continue;
    best_time = time;
    best = std::move(made);
  }
  return std::move(*best);
}

Result<double> Workplace::sample(RoundMember& member) { return sampler_.sample(member.timed); }

}  // namespace gemmtune::speed
