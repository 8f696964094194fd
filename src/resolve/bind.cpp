#include "resolve/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "formats/triton/bucket_rows.h"
#include "resolve/errata.h"
#include "resolve/row_kernel.h"

namespace gemmtune {
namespace {

Binding refused(Refusal refusal, Status status) { return {std::nullopt, refusal, std::move(status)}; }

std::string device_text(const std::string& gfx, int cu_num) {
  return fmt::format("{} with cu_num {}", gfx.empty() ? "an AMD device (no gfx column)" : gfx, cu_num);
}

Status check_launch(const Candidate& candidate, bool dependent) {
  if (dependent || !is_dependent(candidate.config)) return {};
  return Status::unsupported(
      "a programmatic dependent launch, which only constant_weights and predecessor_triggers together allow");
}

Result<Candidate> resolve_row(const Device& device, const TunedEntry& row, const Problem& problem) {
  const auto name = row_kernel_name(device, row, problem);
  return name.ok() ? device.resolve(*name, problem) : Result<Candidate>(name.status());
}

}  // namespace

bool row_is_of(const TunedEntry& row, const DeviceInfo& device) {
  if (!row.bucket.empty()) return row.gfx.empty() || row.gfx == device.gfx;
  if (row.cu_num != device.cu_num || !row.unknown_types.empty()) return false;
  const std::string_view gfx = table_gfx(row);
  return gfx.empty() ? amd_architecture(device.gfx) : gfx == device.gfx;
}

bool is_of_fewer_threads(const TunedEntry& row, const DeviceInfo& device) {
  return cpu_architecture(device.gfx) && row.gfx == device.gfx && row.cu_num > 0 &&
         row.cu_num < device.cu_num && row.bucket.empty() && row.unknown_types.empty();
}

Status check_row_is_of(const TunedEntry& row, const DeviceInfo& device) {
  if (row_is_of(row, device)) return {};
  if (!row.bucket.empty())
    return Status::unsupported("a bucket of {}; this device is {}", row.gfx, device.gfx);
  return Status::unsupported("a row of {}; this device is {}", device_text(row.gfx, row.cu_num),
                             device_text(device.gfx, device.cu_num));
}

Status check_has_kernel(const TunedEntry& row) {
  if (row.bucket.empty() || row.libtype != triton_libtype) return {};
  return Status::unsupported("a configuration that only Triton can run (it has no kernelName)");
}

Binding bind_name(const Device& device, std::string_view kernel_name, const Problem& problem,
                  bool dependent) {
  auto checked = device.checked(kernel_name, problem);
  if (!checked.ok()) return refused(Refusal::unknown_kernel, checked.status());
  if (Status launch = check_launch(checked->candidate, dependent); !launch.ok()) {
    return refused(Refusal::dependent_launch, std::move(launch));
  }
  if (Status errata = check_errata(device, problem, checked->candidate); !errata.ok()) {
    return refused(Refusal::erratum, std::move(errata));
  }
  auto kernel = device.build(*checked);
  if (!kernel.ok()) return refused(Refusal::build, kernel.status());
  const WeightLayout layout = (*kernel)->weight_layout();
  if (problem.weight_layout != WeightLayout::any && layout != problem.weight_layout) {
    return refused(Refusal::weight_layout,
                   Status::unsupported("the kernel reads weight layout {}, the weight has {}",
                                       to_string(layout), to_string(problem.weight_layout)));
  }
  return {BoundKernel{std::move(checked->candidate), std::move(kernel).value()}, {}, {}};
}

Result<Candidate> resolve_name(const Device& device, std::string_view kernel_name, const Problem& problem,
                               bool dependent) {
  GEMMTUNE_TRY(auto candidate, device.resolve(kernel_name, problem));
  GEMMTUNE_RETURN_IF_ERROR(check_launch(candidate, dependent));
  GEMMTUNE_RETURN_IF_ERROR(check_errata(device, problem, candidate));
  return candidate;
}

Accuracy accuracy_of(const Device& device, const TunedEntry& row) {
  if (row.accuracy) return *row.accuracy;
  const auto candidate = resolve_row(device, row, row.problem);
  return candidate.ok() ? device.accuracy(*candidate, row.problem) : Accuracy::fp32;
}

Status check_accuracy(const Device& device, const TunedEntry& row, const Candidate& candidate,
                      const Problem& problem) {
  if (!row.accuracy) return {};
  const Accuracy accuracy = device.accuracy(candidate, problem);
  if (accuracy >= *row.accuracy) return {};
  return Status::unsupported("the row says accuracy {}, the kernel has {}", to_string(*row.accuracy),
                             to_string(accuracy));
}

Status check_bit_class(const Device& device, const TunedEntry& row, const Candidate& candidate,
                       const Problem& problem) {
  if (row.bits.empty() || row.problem.m == problem.m) return {};
  const KernelFamily* const family = device.find_family(candidate.family);
  Problem own = problem;
  own.m = row.problem.m;
  const std::string promised = family == nullptr ? std::string() : family->sum_order(own, candidate.config);
  if (!promised.empty() && promised == family->sum_order(problem, candidate.config)) return {};
  return Status::unsupported("its bit class was seen at M = {} alone, and {} promises no order of sums",
                             row.problem.m, candidate.family);
}

Binding bind_row(const Device& device, const TunedEntry& row, std::string_view other_environment,
                 const Problem& problem, BindRules rules) {
  const bool may_be_of_fewer = rules.fewer_threads && is_of_fewer_threads(row, device.info());
  if (Status own = check_row_is_of(row, device.info()); !own.ok() && !may_be_of_fewer) {
    return refused(Refusal::other_device, std::move(own));
  }
  if (Status kernel = check_has_kernel(row); !kernel.ok())
    return refused(Refusal::triton_only, std::move(kernel));
  if (rules.strict_environment && !other_environment.empty()) {
    return refused(Refusal::other_environment, Status::unsupported("{}", other_environment));
  }
  const auto bind = [&](const std::string& name, bool dependent) {
    Binding binding = bind_name(device, name, problem, dependent);
    if (!binding.bound) return binding;
    Status status = check_accuracy(device, row, binding.bound->candidate, problem);
    if (!status.ok()) return refused(Refusal::accuracy, std::move(status));
    status = check_bit_class(device, row, binding.bound->candidate, problem);
    if (!status.ok()) return refused(Refusal::bit_class, std::move(status));
    return binding;
  };
  if (rules.dependent_launches && !row.pdl_kernel_name.empty()) {
    Binding binding = bind(row.pdl_kernel_name, true);
    if (binding.bound) return binding;
  }
  const auto name = row_kernel_name(device, row, problem);
  return name.ok() ? bind(*name, false) : refused(Refusal::unknown_kernel, name.status());
}

Result<BoundKernel> bind_fallback(const Device& device, const Problem& problem) {
  std::vector<std::string> families;  // whose kernel cannot be built here: it spills registers, say
  std::vector<std::string> passed;
  const auto other_family = [&](const Candidate& candidate) {
    return std::find(families.begin(), families.end(), candidate.family) == families.end();
  };
  const auto text = [&] { return fmt::format("{}", fmt::join(passed, "; ")); };
  while (true) {
    auto fallback = usable_fallback(device, problem, other_family);
    if (!fallback.ok()) {
      passed.push_back(fallback.message());
      return Status(fallback.code(), text());
    }
    auto kernel = device.build(fallback->candidate, problem);
    if (kernel.ok()) {
      if (!fallback->passed.empty()) passed.push_back(std::move(fallback->passed));
      return BoundKernel{std::move(fallback->candidate), std::move(kernel).value(), text()};
    }
    if (kernel.code() != StatusCode::unsupported) return kernel.status();
    passed.push_back(fmt::format("{}: {}", fallback->candidate.kernel_name(), kernel.message()));
    families.push_back(std::move(fallback->candidate.family));
  }
}

std::optional<WeightLayout> weight_layout_of(const Device& device, const TunedEntry& row) {
  if (!is_packed(row.problem)) return WeightLayout::plain;
  Problem problem = row.problem;
  problem.weight_layout = WeightLayout::any;
  const auto candidate = resolve_row(device, row, problem);
  if (!candidate.ok()) return std::nullopt;
  return device.find_family(candidate->family)->packed_layout(problem);
}

}  // namespace gemmtune
