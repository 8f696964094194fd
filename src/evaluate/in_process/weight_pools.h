// The rotations of operands over which the kernels of one problem are timed. All candidates share x, y and,
// for each weight layout, one pool, so that addresses favour no candidate. Scales rotate with their weights,
// and so does the second weight of a mixture of experts. Calls of a mixture differ in their routes where the experts of one
// call would stay in a cache.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "measure/cold_pool.h"
#include "measure/policy.h"
#include "measure/sampler.h"

namespace gemmtune {

class WeightPools {
 public:
  WeightPools(Device& device, const Problem& problem, const Policy& policy)
      : device_(device), problem_(problem), policy_(policy) {}

  /// Made at the first request. The pointer stays good for the life of the pools. `checked` is what
  /// the kernels were checked on, on the policy's routing; y has memory of its own. `routing` is one of check_routing().ok().
  Result<Rotation*> rotation(WeightLayout layout, RoutingKind routing, DeviceOperands& checked);
  /// Moves the pools of packed layouts; their rotations stay where they are.
  Status place_packed_again();
  /// Of the largest pool; zeros where there is none.
  PoolShape largest() const;

 private:
  /// What one copy holds, and where.
  struct Part {
    const void* Operands::*pointer;
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  struct Layout {
    Layout(ColdPool weights, std::vector<Part> what) : pool(std::move(weights)), parts(std::move(what)) {}
    ColdPool pool;
    std::vector<Part> parts;
    std::map<RoutingKind, Rotation> rotations;
  };
  /// Ids and weights of calls that follow one another.
  struct RoutedCalls {
    std::unique_ptr<Buffer> ids;
    std::unique_ptr<Buffer> weights;
    std::vector<std::size_t> offsets;  // of each call in both, bytes
  };

  Result<std::size_t> weight_size(WeightLayout layout) const;
  Result<std::vector<Part>> parts_of(WeightLayout layout) const;
  /// Copies of x and y of the cold mode; none in the other modes.
  Status make_activations(const Operands& operands);
  /// As many calls as make the weights that they read cold; null for problems that are no mixtures.
  Result<const RoutedCalls*> routed_calls(RoutingKind routing);
  Result<Layout*> layout_of(WeightLayout layout, const Operands& operands);
  Rotation make_rotation(const Layout& layout, const RoutedCalls* calls, const Operands& operands) const;
  static void point_at_weights(const Layout& layout, Rotation& rotation);

  Device& device_;
  Problem problem_;
  Policy policy_;
  std::map<WeightLayout, Layout> layouts_;
  std::map<RoutingKind, RoutedCalls> routed_calls_;
  std::unique_ptr<Buffer> warm_y_;
  std::optional<ColdPool> x_;
  std::optional<ColdPool> y_;
};

}  // namespace gemmtune
