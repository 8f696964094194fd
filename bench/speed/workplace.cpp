#include "speed/workplace.h"

#include <optional>

#include "measure/statistics.h"
#include "speed/reading.h"
#include "verify/inputs.h"

namespace gemmtune::speed {

Result<std::unique_ptr<Workplace>> Workplace::make(Device& device, Sampler& sampler, const Problem& largest,
                                                   const Policy& policy) {
  auto host = make_inputs(largest, 1);
  if (!host.ok()) return host.status();
  auto operands = DeviceOperands::make(device, largest, Placement::plain);
  if (!operands.ok()) return operands.status();
  GEMMTUNE_RETURN_IF_ERROR(operands->fill(*host));
  return std::unique_ptr<Workplace>(new Workplace(device, sampler, largest, policy, std::move(*operands)));
}

Problem Workplace::problem_of(std::int64_t m, WeightLayout layout) const {
  Problem problem = largest_;
  problem.m = m;
  problem.weight_layout = layout;
  return problem;
}

Result<RoundMember> Workplace::make_member(const Problem& problem, const Candidate& candidate) {
  return speed::make_member(device_, sampler_, problem, candidate,
                            [this](const Kernel& kernel) { return rotation_of(kernel); });
}

Result<RoundMember> Workplace::fastest(std::int64_t m, int tries) {
  return fastest_of_ours(device_, sampler_, problem_of(m, largest_.weight_layout), tries,
                         [this](const Kernel& kernel) { return rotation_of(kernel); });
}

Result<RoundMember> Workplace::library(std::int64_t m, WeightLayout layout) {
  const Problem problem = problem_of(m, layout);
  const auto candidate = device_.baseline(problem);
  if (!candidate.ok()) return candidate.status();
  return make_member(problem, *candidate);
}

Result<RoundMember> Workplace::blas(std::int64_t m) {
  return make_member(problem_of(m, WeightLayout::plain), {"openblas", 1, {}});
}

Result<RoundMember> Workplace::roofline(WeightLayout layout) {
  const auto bytes = device_.packed_bytes(largest_, layout);
  if (!bytes.ok()) return bytes.status();
  std::optional<RoundMember> best;
  double best_time = 0;
  for (const std::size_t ahead : {0, 1024, 4096}) {
    RoundMember made;
    made.name = "read";
    made.kernel = make_reading_kernel(*bytes, ahead, layout);
    const auto rotation = rotation_of(*made.kernel);
    if (!rotation.ok()) return rotation.status();
    made.timed.rotation = *rotation;
    GEMMTUNE_RETURN_IF_ERROR(make_ready(device_, sampler_, made));
    RoundMember* const alone[] = {&made};
    const auto times = run_rounds(sampler_, alone, 5);
    if (!times.ok()) return times.status();
    const double time = median(times->front());
    if (best && time >= best_time) continue;
    best_time = time;
    best = std::move(made);
  }
  return std::move(*best);
}

}  // namespace gemmtune::speed
