#include "backends/gpu/graph_timer.h"

namespace gemmtune::gpu {

GraphTimer::~GraphTimer() {
  driver_.enter();
  if (begin_ != nullptr) driver_.destroy(begin_);
  if (end_ != nullptr) driver_.destroy(end_);
}

Status GraphTimer::make_events() {
  for (Event* event : {&begin_, &end_}) {
    if (*event != nullptr) continue;
    const auto made = driver_.create_event();
    if (!made.ok()) return made.status();
    *event = *made;
  }
  return {};
}

Status GraphTimer::enqueue(const SampleRequest& request, Stream stream) {
  Status status = driver_.record(begin_, stream);
  for (int i = 0; i < request.launches && status.ok(); ++i) {
    const Operands& operands =
        request.rotation[(request.first + static_cast<std::size_t>(i)) % request.rotation.size()];
    status = request.kernel->run(operands, request.workspace, stream);
  }
  return status.ok() ? driver_.record(end_, stream) : status;
}

Result<Graph> GraphTimer::capture(const SampleRequest& request) {
  const Stream stream = driver_.own_stream();
  GEMMTUNE_RETURN_IF_ERROR(driver_.begin_capture(stream));
  const Status status = enqueue(request, stream);
  if (status.ok()) return driver_.end_capture(stream);
  // Without it the stream stays in the capture.
  driver_.abandon_capture(stream);
  return status;
}

Result<double> GraphTimer::run(Graph graph) {
  const Stream stream = driver_.own_stream();
  GEMMTUNE_RETURN_IF_ERROR(driver_.launch_graph(graph, stream));
  GEMMTUNE_RETURN_IF_ERROR(driver_.wait(stream));
  return driver_.milliseconds_between(begin_, end_);
}

Result<double> GraphTimer::run_eagerly(const SampleRequest& request) {
  const Stream stream = driver_.own_stream();
  const Status enqueued = enqueue(request, stream);
  // What was enqueued before a failure still reads the operands.
  const Status done = driver_.wait(stream);
  if (!enqueued.ok()) return enqueued;
  if (!done.ok()) return done;
  return driver_.milliseconds_between(begin_, end_);
}

Result<double> GraphTimer::time(const SampleRequest& request) {
  driver_.enter();
  GEMMTUNE_RETURN_IF_ERROR(make_events());
  Result<double> milliseconds = 0.0;
  if (request.eager) {
    milliseconds = run_eagerly(request);
  } else {
    const auto graph = capture(request);
    if (!graph.ok()) return graph.status();
    milliseconds = run(*graph);
    driver_.destroy(*graph);
  }
  if (!milliseconds.ok()) return milliseconds.status();
  return *milliseconds * 1e3 / request.launches;
}

}  // namespace gemmtune::gpu
