#include "tuning/compute_roof.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "backends/default_kernels.h"
#include "backends/traits.h"
#include "measure/statistics.h"

namespace gemmtune {
namespace {

// Of a core, and of a GPU's multiprocessor: a millisecond or more. The reference of a host's takes about a second.
constexpr double host_operations_per_unit = 1.2e8;
constexpr double gpu_operations_per_unit = 8e9;
constexpr std::int64_t min_edge = 512;
constexpr std::int64_t max_edge = 16384;
constexpr double near_fastest = 1.5;  // of predicted times
constexpr int roof_samples = 5;

std::vector<Candidate> candidates_of(const Device& device, const Problem& product) {
  std::vector<Candidate> candidates;
  const auto add = [&](Result<Candidate> candidate) {
    if (candidate.ok() && std::find(candidates.begin(), candidates.end(), *candidate) == candidates.end())
      candidates.push_back(std::move(*candidate));
  };
  add(default_kernel(device, product, AccuracyPolicy::keep));
  add(device.baseline(product));
  std::vector<std::pair<double, Candidate>> predicted;
  double fastest = std::numeric_limits<double>::infinity();
  for (const KernelFamily* family : device.families()) {
    if (!family->accepts(product).ok()) continue;
    Candidate candidate{std::string(family->name()), family->revision(), family->default_config(product)};
    const double microseconds = family->predicted_microseconds(product, candidate.config);
    if (microseconds <= 0) continue;
    fastest = std::min(fastest, microseconds);
    predicted.emplace_back(microseconds, std::move(candidate));
  }
  for (auto& [microseconds, candidate] : predicted)
    if (microseconds <= near_fastest * fastest) add(std::move(candidate));
  return candidates;
}

}  // namespace

std::optional<Problem> large_product(const Problem& like, const DeviceInfo& device) {
  if (is_mixture(like) || like.batch != 1) return std::nullopt;
  const double operations =
      std::max(1, device.cu_num) *
      (traits_of(device).runs_on_host ? host_operations_per_unit : gpu_operations_per_unit);
  std::int64_t edge = min_edge;
  while (edge < max_edge &&
         2.0 * static_cast<double>(edge) * static_cast<double>(edge) * static_cast<double>(edge) < operations)
    edge *= 2;
  Problem product = like;
  product.m = product.n = product.k = edge;
  product.bias = false;
  product.alignment = Problem().alignment;
  product.weight_layout = WeightLayout::plain;
  // Some operations have packed weights alone.
  return check(product).ok() ? std::optional(product) : std::nullopt;
}

std::optional<ComputeRoof> measure_compute_roof(const Device& device, Evaluator& evaluator,
                                                const Problem& product, const std::function<bool()>& stop) {
  const std::vector<Candidate> candidates = candidates_of(device, product);
  if (candidates.empty()) return std::nullopt;
  const auto outcomes = evaluator.screen(product, candidates, roof_samples, stop);
  if (!outcomes.ok()) return std::nullopt;
  std::optional<ComputeRoof> roof;
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    const Outcome& outcome = (*outcomes)[i];
    if (outcome.kind != OutcomeKind::ok || outcome.microseconds.empty()) continue;
    const double tflops = flops(product) / (median(outcome.microseconds) * 1e6);
    if (!roof || tflops > roof->tflops) roof = {tflops, print(product), candidates[i].kernel_name()};
  }
  return roof;
}

}  // namespace gemmtune
