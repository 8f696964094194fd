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
  /// A graph of the launches runs again and again while the driver's counter is read. Monitors update it some ten times a
  /// second, so the joules are the slope between updates times the mean time of a launch. Never eager: the GPU would wait
  /// for the host.
  Result<EnergySample> energy(const SampleRequest& request, double seconds);

 private:
  Status make_events();
  Status enqueue(const SampleRequest& request, Stream stream);
  /// Both events, and the launches between them.
  Status enqueue_timed(const SampleRequest& request, Stream stream);
  Result<Graph> capture(const SampleRequest& request, bool timed);
  Result<double> run(Graph graph);
  /// Enqueues both events and `runs` of the graph between them.
  Status enqueue_runs(Graph graph, int runs);
  /// Milliseconds of one run of the graph.
  Result<double> wait_for_runs(int runs);
  Result<EnergySample> run_counted(Graph graph, int launches, double seconds);
  Result<double> run_eagerly(const SampleRequest& request);

  Driver& driver_;
  Event begin_ = nullptr;
  Event end_ = nullptr;
};

}  // namespace gemmtune::gpu
