// One sample on a GPU: back-to-back launches captured in a graph, timed by two events inside it.
#pragma once

#include "backends/backend.h"
#include "backends/cuda/cuda_runtime.h"

namespace gemmtune::cuda {

/// Not for several threads at once. The runtime must outlive it.
class GraphTimer {
 public:
  explicit GraphTimer(CudaRuntime& runtime) : runtime_(runtime) {}
  ~GraphTimer();
  GraphTimer(const GraphTimer&) = delete;
  GraphTimer& operator=(const GraphTimer&) = delete;

  /// Microseconds of one launch, averaged over request.launches. The events are nodes of the graph, so that
  /// what starting a graph costs is not counted. Waits for the result, and so reports faults.
  Result<double> time(const SampleRequest& request);

 private:
  Status make_events();
  Result<api::GraphExec> capture(const SampleRequest& request);

  CudaRuntime& runtime_;
  api::Event begin_ = nullptr;
  api::Event end_ = nullptr;
};

}  // namespace gemmtune::cuda
