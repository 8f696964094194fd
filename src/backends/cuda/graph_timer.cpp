#include "backends/cuda/graph_timer.h"

namespace gemmtune::cuda {

GraphTimer::~GraphTimer() {
  runtime_.enter();
  if (begin_ != nullptr) runtime_.driver().event_destroy(begin_);
  if (end_ != nullptr) runtime_.driver().event_destroy(end_);
}

Status GraphTimer::make_events() {
  if (end_ != nullptr) return {};
  const api::Driver& f = runtime_.driver();
  GEMMTUNE_RETURN_IF_ERROR(driver_status(f.event_create(&begin_, api::event_default), "cuEventCreate"));
  return driver_status(f.event_create(&end_, api::event_default), "cuEventCreate");
}

Result<api::GraphExec> GraphTimer::capture(const SampleRequest& request) {
  const api::Driver& f = runtime_.driver();
  const api::CudaStream stream = runtime_.stream();
  GEMMTUNE_RETURN_IF_ERROR(
      driver_status(f.capture_begin(stream, api::capture_mode_thread_local), "cuStreamBeginCapture"));
  Status status = driver_status(f.event_record(begin_, stream, api::event_record_external), "cuEventRecord");
  for (int i = 0; i < request.launches && status.ok(); ++i) {
    const Operands& operands =
        request.rotation[(request.first + static_cast<std::size_t>(i)) % request.rotation.size()];
    status = request.kernel->run(operands, request.workspace, {stream});
  }
  if (status.ok())
    status = driver_status(f.event_record(end_, stream, api::event_record_external), "cuEventRecord");
  // The capture is ended also where a launch was refused; else the stream stays in it.
  api::Graph graph = nullptr;
  const Status ended = driver_status(f.capture_end(stream, &graph), "cuStreamEndCapture");
  if (status.ok()) status = ended;
  api::GraphExec made = nullptr;
  if (status.ok()) status = driver_status(f.graph_instantiate(&made, graph, 0), "cuGraphInstantiate");
  if (graph != nullptr) f.graph_destroy(graph);
  if (!status.ok()) return status;
  return made;
}

Result<double> GraphTimer::time(const SampleRequest& request) {
  runtime_.enter();
  GEMMTUNE_RETURN_IF_ERROR(make_events());
  const auto graph = capture(request);
  if (!graph.ok()) return graph.status();
  const api::Driver& f = runtime_.driver();
  // Else the first run also pays for bringing each node to the device: 1 µs a launch, which service does not
  // see.
  Status status = driver_status(f.graph_upload(*graph, runtime_.stream()), "cuGraphUpload");
  if (status.ok()) status = driver_status(f.graph_launch(*graph, runtime_.stream()), "cuGraphLaunch");
  if (status.ok()) status = driver_status(f.stream_synchronize(runtime_.stream()), "sample");
  float milliseconds = 0;
  if (status.ok()) status = driver_status(f.event_elapsed(&milliseconds, begin_, end_), "cuEventElapsedTime");
  f.graph_exec_destroy(*graph);
  if (!status.ok()) return status;
  return static_cast<double>(milliseconds) * 1e3 / request.launches;
}

}  // namespace gemmtune::cuda
