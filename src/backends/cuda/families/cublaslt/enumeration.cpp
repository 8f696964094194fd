#include "backends/cuda/families/cublaslt/enumeration.h"

#include <algorithm>
#include <set>

namespace gemmtune::cuda {
namespace {

constexpr int max_ids = 256;
constexpr std::uint32_t max_custom = 31;
constexpr std::uint32_t splits[] = {2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32};
/// The library's cluster shape ids, of up to 16 blocks; 0: it chooses.
constexpr std::uint32_t cluster_ids[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};

class Enumeration {
 public:
  Enumeration(const api::CublasLt& lt, api::LtHandle handle, LtProblem& problem, std::size_t workspace_bytes)
      : lt_(lt), handle_(handle), problem_(problem), workspace_bytes_(workspace_bytes) {}

  std::vector<Config> run() {
    std::vector<int> ids(max_ids);
    int count = 0;
    if (lt_.algorithm_ids(handle_, api::compute_f32, api::type_f32, problem_.element_type,
                          problem_.element_type, problem_.output_type, problem_.output_type, max_ids,
                          ids.data(), &count) != 0)
      return {};
    ids.resize(static_cast<std::size_t>(std::clamp(count, 0, max_ids)));
    std::ranges::sort(ids);
    for (const int id : ids) algorithm(id);
    return std::move(found_);
  }

 private:
  /// A capability of an algorithm, one number or a list; empty if the library does not state it.
  std::vector<std::uint32_t> capability(const api::LtAlgorithm& algorithm, int what) const {
    std::size_t bytes = 0;
    if (lt_.algorithm_capability(&algorithm, what, nullptr, 0, &bytes) != 0) return {};
    std::vector<std::uint32_t> values(bytes / sizeof(std::uint32_t));
    if (values.empty() || lt_.algorithm_capability(&algorithm, what, values.data(), bytes, &bytes) != 0)
      return {};
    return values;
  }
  std::uint32_t number(const api::LtAlgorithm& algorithm, int what) const {
    const auto values = capability(algorithm, what);
    return values.empty() ? 0 : values.front();
  }
  std::vector<std::uint32_t> choices(const api::LtAlgorithm& algorithm, int what) const {
    auto values = capability(algorithm, what);
    if (values.empty()) values.push_back(0);
    return values;
  }

  bool set(api::LtAlgorithm& algorithm, int what, std::uint32_t value, std::size_t bytes = 4) const {
    return lt_.algorithm_set(&algorithm, what, &value, bytes) == 0;
  }

  /// Keeps the algorithm if it supports the problem.
  bool take(const api::LtAlgorithm& algorithm) {
    api::LtHeuristic result{};
    if (lt_.algorithm_check(handle_, &problem_.matmul, &problem_.w, &problem_.x, &problem_.y, &problem_.y,
                            &algorithm, &result) != 0 ||
        result.state != 0 || result.workspace_bytes > workspace_bytes_)
      return false;
    Config config = config_of(lt_, problem_, algorithm);
    if (seen_.insert(config.text()).second) found_.push_back(std::move(config));
    return true;
  }

  void algorithm(int id) {
    api::LtAlgorithm base{};
    if (lt_.algorithm_init(handle_, api::compute_f32, api::type_f32, problem_.element_type,
                           problem_.element_type, problem_.output_type, problem_.output_type, id, &base) != 0)
      return;
    for (const std::uint32_t tile : choices(base, api::capability_tiles)) {
      for (const std::uint32_t stages : choices(base, api::capability_stages)) {
        api::LtAlgorithm one = base;
        if (set(one, api::algorithm_tile, tile) && set(one, api::algorithm_stages, stages) && take(one))
          variants(base, one);
      }
    }
  }

  /// Variants of a tile and stages that work: each custom option and swizzle alone, each cluster shape with
  /// each split-K.
  void variants(const api::LtAlgorithm& base, const api::LtAlgorithm& one) {
    const std::uint32_t custom = std::min(number(base, api::capability_custom), max_custom);
    for (std::uint32_t option = 1; option <= custom; ++option) {
      api::LtAlgorithm other = one;
      if (set(other, api::algorithm_custom, option)) take(other);
    }
    if (number(base, api::capability_swizzle) != 0) {
      api::LtAlgorithm other = one;
      if (set(other, api::algorithm_swizzle, 1)) take(other);
    }
    split(base, one);
    for (const std::uint32_t cluster : cluster_ids) {
      api::LtAlgorithm other = one;
      if (set(other, api::algorithm_cluster, cluster, 2) && take(other)) split(base, other);
    }
  }

  void split(const api::LtAlgorithm& base, const api::LtAlgorithm& one) {
    if (number(base, api::capability_split_k) == 0) return;
    const std::uint32_t reductions = number(base, api::capability_reductions);
    for (const int reduction : {api::reduction_in_place, api::reduction_compute_type}) {
      if ((reductions & static_cast<std::uint32_t>(reduction)) == 0) continue;
      for (const std::uint32_t parts : splits) {
        api::LtAlgorithm other = one;
        if (set(other, api::algorithm_split_k, parts) &&
            set(other, api::algorithm_reduction, static_cast<std::uint32_t>(reduction)))
          take(other);
      }
    }
  }

  const api::CublasLt& lt_;
  api::LtHandle handle_;
  LtProblem& problem_;
  std::size_t workspace_bytes_;
  std::vector<Config> found_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<Config> enumerate_algorithms(const api::CublasLt& lt, api::LtHandle handle, LtProblem& problem,
                                         std::size_t workspace_bytes) {
  return Enumeration(lt, handle, problem, workspace_bytes).run();
}

}  // namespace gemmtune::cuda
