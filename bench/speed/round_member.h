// What takes part in the interleaved rounds of a case: kernels with their workspaces, and their ratios.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "measure/sampler.h"

namespace gemmtune::speed {

struct RoundMember {
  std::string name;
  std::unique_ptr<Kernel> kernel;
  std::unique_ptr<Buffer> workspace;
  Timed timed;
  std::shared_ptr<void> holds = {};  // the rotation's memory, if nothing else owns it
};

/// Gives the member's kernel a workspace, warms it up and sets its sample length. Requires the kernel and its
/// rotation.
Status make_ready(Device& device, Sampler& sampler, RoundMember& member);

/// The rotation that a kernel of ours runs over.
using RotationOf = std::function<Result<Rotation*>(const Kernel&)>;
/// Builds the candidate's kernel and makes it ready.
Result<RoundMember> make_member(Device& device, Sampler& sampler, const Problem& problem,
                                const Candidate& candidate, const RotationOf& rotation_of);
/// The fastest kernel of our families by up to three samples of the `tries` configs of each that the cost
/// model ranks first, and of the default. `not_found` if no family takes the problem.
Result<RoundMember> fastest_of_ours(Device& device, Sampler& sampler, const Problem& problem, int tries,
                                    const RotationOf& rotation_of);

/// A sample of each member in each of `rounds` interleaved rounds: times[member][round], microseconds.
Result<std::vector<std::vector<double>>> run_rounds(Sampler& sampler, std::span<RoundMember* const> members,
                                                    int rounds);

/// The median over the rounds of above / below, and half of the width of its 95 % interval.
struct Ratio {
  double median = 0;
  double spread = 0;
};
Ratio ratio_of(std::span<const double> above, std::span<const double> below);

}  // namespace gemmtune::speed
