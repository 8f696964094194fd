// One sample on a GPU: back-to-back launches between two events, captured in a graph or (eager) enqueued one by one.
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
  /// what starting a graph costs is not counted; what enqueuing a launch costs is, if request.eager. Waits for the result, and so reports faults.
  Result<double> time(const SampleRequest& request);

 private:
  Status make_events();
  /// Both events, and the launches between them.
  Status enqueue(const SampleRequest& request, Stream stream);
  Result<Graph> capture(const SampleRequest& request);
  Result<double> run(Graph graph);
  Result<double> run_eagerly(const SampleRequest& request);

  Driver& driver_;
  Event begin_ = nullptr;
  Event end_ = nullptr;
};

}  // namespace gemmtune::gpu
