// One sample on a GPU: back-to-back launches captured in a graph, timed by two events inside it.
#pragma once

#include "backends/backend.h"
#include "backends/gpu/driver.h"

namespace gemmtune::gpu {

/// Not for several threads at once. The driver must outlive it.
class GraphTimer {
 public:
  explicit GraphTimer(Driver& driver) : driver_(driver) {}
  ~GraphTimer();
  GraphTimer(const GraphTimer&) = delete;
  GraphTimer& operator=(const GraphTimer&) = delete;

  /// Microseconds of one launch, averaged over request.launches. The events are nodes of the graph, so that
  /// what starting a graph costs is not counted. Waits for the result, and so reports faults.
  Result<double> time(const SampleRequest& request);

 private:
  Status make_events();
  Result<Graph> capture(const SampleRequest& request);
  Result<double> run(Graph graph);

  Driver& driver_;
  Event begin_ = nullptr;
  Event end_ = nullptr;
};

}  // namespace gemmtune::gpu
