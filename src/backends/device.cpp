// The parts of Device that are the same on every backend.
#include <algorithm>
#include <string>
#include <utility>

#include "backends/backend.h"
#include "backends/output_checker.h"
#include "base/text.h"

namespace gemmtune {
namespace {

/// The config with every absent key at what its absence means, keys in the space's order: what constraints
/// and kernels are written for.
Config complete(const Space& space, const Config& config) {
  Config full;
  for (const Parameter& parameter : space.parameters()) {
    full.set(parameter.key, std::string(config.word(parameter.key, parameter.absent)));
  }
  return full;
}

/// Empty, or why the space does not hold the complete config.
std::string refusal_of(const Space& space, const Config& full) {
  for (const Parameter& parameter : space.parameters()) {
    const std::string_view value = full.word(parameter.key);
    // What absence means need not be among the values that are tried.
    if (value == parameter.absent) continue;
    if (parameter.holds(value)) continue;
    return fmt::format("{} ({}) is {}, expected one of {}", parameter.key, parameter.meaning, value,
                       parameter.allowed_text());
  }
  return space.build_refusal(full);
}

/// ok, or the family's refusal under its name.
Status check_accepts(const KernelFamily& family, const Problem& problem) {
  const Status accepted = family.accepts(problem);
  if (accepted.ok()) return {};
  return Status(accepted.code(), fmt::format("{}: {}", family.name(), accepted.message()));
}

Result<CheckedCandidate> check_candidate(const KernelFamily& family, const Space& space,
                                         const Problem& problem, Candidate candidate) {
  if (candidate.revision != family.revision()) {
    return Status::unsupported("{}: revision {} of {}, this build has {}", candidate.kernel_name(),
                               candidate.revision, family.name(), family.revision());
  }
  const auto keys = space.keys();
  for (const auto& [key, value] : candidate.config.settings()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return Status::invalid("{}: {} has no parameter {}", candidate.kernel_name(), family.name(), key);
    }
  }
  Config full = complete(space, candidate.config);
  const std::string refusal = refusal_of(space, full);
  if (!refusal.empty()) return Status::unsupported("{}: {}", candidate.kernel_name(), refusal);
  return CheckedCandidate{&family, problem, std::move(candidate), std::move(full)};
}

}  // namespace

const KernelFamily* Device::find_family(std::string_view name) const {
  for (const KernelFamily* family : families()) {
    if (family->name() == name) return family;
  }
  return nullptr;
}

std::string Device::family_identity(std::string_view name) const {
  const KernelFamily* family = find_family(name);
  if (family == nullptr) return std::string(name);
  std::string identity = family->identity();
  for (const Library& library : info().libraries) {
    if (to_lower(library.name) == name) identity += fmt::format(" {}", library.version);
  }
  return identity;
}

Status LeafDevice::unpack_weight(const Problem& problem, WeightLayout layout, const void*, void*) const {
  return Status::unsupported("weight layout {} of {} has no inverse on {}", to_string(layout),
                             short_name(problem), info().name);
}

Status LeafDevice::fill_random(void*, const RandomFill&) {
  return Status::unsupported("{} has no random fill", info().name);
}

Status LeafDevice::silu_and_mul(const SiluAndMul&, Stream) {
  return Status::unsupported("{} has no silu_and_mul", info().name);
}

Result<std::unique_ptr<OutputChecker>> LeafDevice::output_checker(const Problem&) {
  return Status::unsupported("{} compares no outputs by itself", info().name);
}

Status LeafDevice::copy_within(void* to, const void* from, std::size_t bytes) {
  std::vector<std::byte> chunk(std::min<std::size_t>(bytes, std::size_t{1} << 24));
  for (std::size_t at = 0; at < bytes; at += chunk.size()) {
    const std::size_t size = std::min(chunk.size(), bytes - at);
    GEMMTUNE_RETURN_IF_ERROR(copy_out(chunk.data(), static_cast<const std::byte*>(from) + at, size));
    GEMMTUNE_RETURN_IF_ERROR(copy_in(static_cast<std::byte*>(to) + at, chunk.data(), size));
  }
  return {};
}

Status LeafDevice::counts_energy() { return Status::unsupported("{} counts no joules", info().name); }

Result<EnergySample> LeafDevice::sample_energy(const SampleRequest&, double) { return counts_energy(); }

std::unique_ptr<Kernel> LeafDevice::reading_kernel(std::size_t) const { return nullptr; }

Problem LeafDevice::probe_problem() const {
  Problem problem = default_problem(Operation::a16w16);
  problem.m = 16;
  problem.n = 64;
  problem.k = 64;
  return problem;
}

std::string Library::text() const {
  std::string text = name + ' ' + version;
  return year == 0 ? text : fmt::format("{} ({})", text, year);
}

std::string DeviceInfo::vendor_text(std::string_view family) const {
  if (!opponent.empty() && family == opponent) return opponent_text;
  for (const Library& library : libraries)
    if (to_lower(library.name) == family) return library.text();
  return {};
}

Status Device::missing_family(std::string_view name) const {
  for (const Library& library : info().libraries) {
    if (to_lower(library.name) == name && !library.why.empty()) {
      return Status::not_found("family {} is not here: {}", name, library.why);
    }
  }
  const std::string known = joined(families(), ", ", &KernelFamily::name);
  return Status::not_found("'{}' is no kernel family of {}; it has {}", name, info().name, known);
}

Accuracy Device::accuracy(const Candidate& candidate, const Problem& problem) const {
  const KernelFamily* family = find_family(candidate.family);
  return family == nullptr ? Accuracy::fp32 : family->accuracy(problem, candidate.config);
}

Result<CheckedCandidate> Device::checked(std::string_view kernel_name, const Problem& problem) const {
  const auto family_name = family_of_kernel_name(kernel_name);
  if (!family_name) return Status::not_found("kernelName '{}' is none of gemmtune's", kernel_name);
  const KernelFamily* family = find_family(*family_name);
  if (family == nullptr) return missing_family(*family_name);
  GEMMTUNE_RETURN_IF_ERROR(check_accepts(*family, problem));
  const Space space = family->space(problem);
  GEMMTUNE_TRY(auto candidate, parse_kernel_name(kernel_name, space.keys()));
  return check_candidate(*family, space, problem, std::move(candidate));
}

Result<CheckedCandidate> Device::checked(const Candidate& candidate, const Problem& problem) const {
  const KernelFamily* family = find_family(candidate.family);
  if (family == nullptr) return missing_family(candidate.family);
  GEMMTUNE_RETURN_IF_ERROR(check_accepts(*family, problem));
  return check_candidate(*family, family->space(problem), problem, candidate);
}

Result<Candidate> Device::resolve(std::string_view kernel_name, const Problem& problem) const {
  GEMMTUNE_TRY(auto found, checked(kernel_name, problem));
  return std::move(found.candidate);
}

Result<std::unique_ptr<Kernel>> Device::build(const CheckedCandidate& checked) const {
  return checked.family->build(checked.problem, checked.config);
}

Result<std::unique_ptr<Kernel>> Device::build(const Candidate& candidate, const Problem& problem) const {
  const auto found = checked(candidate, problem);
  return found.ok() ? build(*found) : found.status();
}

}  // namespace gemmtune
