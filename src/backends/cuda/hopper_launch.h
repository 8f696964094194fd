// What only Hopper and its successors have in a launch: clusters of blocks and dependent launches.
#pragma once

#include <array>
#include <cstdint>

#include "backends/gpu/driver.h"

namespace gemmtune::cuda {

/// A family of such GPUs sets LaunchShape::extension to one of these.
struct HopperLaunch final : gpu::LaunchExtension {
  unsigned cluster = 1;  // blocks of a cluster, along x
  /// May start while the kernel before it on the stream still runs: the program waits for what it needs of
  /// it. A driver that cannot do that starts it after that kernel.
  bool dependent = false;
  /// Starts only when all of its blocks can be resident at once: they may wait for each other.
  bool cooperative = false;
};

/// A dependent launch without clusters.
inline const HopperLaunch& starts_early() {
  static const HopperLaunch launch = [] {
    HopperLaunch made;
    made.dependent = true;
    return made;
  }();
  return launch;
}

/// Clusters of 1 to 8 blocks that run at once, a block a multiprocessor; 0: unknown.
using ClusterCounts = std::array<int, 9>;

struct HopperLimits : gpu::Limits {
  // NOLINTNEXTLINE(google-explicit-constructor)
  HopperLimits(const gpu::Limits& limits, const ClusterCounts& counts = {})
      : gpu::Limits(limits), clusters(counts) {}

  ClusterCounts clusters;

  /// Of `blocks` blocks each. Groups of multiprocessors differ in size from GPU to GPU of a kind; where the
  /// driver does not say, one in eleven is left over by clusters of more than two, as on most H200s.
  int clusters_at_once(std::int64_t blocks) const {
    const int known = blocks < 9 ? clusters[static_cast<std::size_t>(blocks)] : 0;
    if (known > 0) return known;
    const std::int64_t usable = blocks > 2 ? multiprocessors * std::int64_t{10} / 11 : multiprocessors;
    return static_cast<int>(usable / blocks);
  }
};

}  // namespace gemmtune::cuda
