#include "backends/gpu/graph_timer.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "backends/gpu/counter_slope.h"
#include "base/clock.h"
#include "base/quiet_thread.h"

namespace gemmtune::gpu {
namespace {

constexpr double uncounted_seconds = 0.3;  // in front of an energy batch: clocks and power settle
constexpr double update_seconds = 0.1;     // of NVIDIA's counter
constexpr double spare_seconds = 0.2;      // that the GPU is still at work when the last update is read
constexpr auto pause_between_readings = std::chrono::milliseconds(1);

/// Reads the counter beside the thread that enqueues, which waits where the driver's queue is full.
class CounterReader {
 public:
  /// Until `longest` seconds from now, or updates are `seconds` apart.
  CounterReader(const Driver& driver, double longest, double seconds)
      : thread_(start_quiet_thread([this, &driver, longest, seconds] { run(driver, longest, seconds); })) {
    if (!thread_.joinable()) status_ = Status::internal("no thread to read the energy counter");
  }
  ~CounterReader() { stop(); }
  CounterReader(const CounterReader&) = delete;
  CounterReader& operator=(const CounterReader&) = delete;

  CounterSlope stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return slope_;
  }
  /// After stop().
  const Status& status() const { return status_; }

 private:
  void run(const Driver& driver, double longest, double seconds) {
    const double begin = steady_seconds();
    double now = 0;  // since the begin
    while (!stopping_ && status_.ok() && now < longest && slope_.seconds() < seconds) {
      std::this_thread::sleep_for(pause_between_readings);
      now = steady_seconds() - begin;
      const auto joules = driver.joules();
      status_ = joules.status();
      // A reading may take 20 ms: it is of some moment between.
      const double after = steady_seconds() - begin;
      if (joules.ok() && now >= uncounted_seconds) slope_.add((now + after) / 2, *joules);
    }
  }

  std::atomic<bool> stopping_ = false;
  Status status_;
  CounterSlope slope_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

GraphTimer::~GraphTimer() {
  driver_.enter();
  if (begin_ != nullptr) driver_.destroy(begin_);
  if (end_ != nullptr) driver_.destroy(end_);
}

Status GraphTimer::make_events() {
  for (Event* event : {&begin_, &end_}) {
    if (*event != nullptr) continue;
    GEMMTUNE_TRY(*event, driver_.create_event());
  }
  return {};
}

Status GraphTimer::enqueue(const SampleRequest& request, Stream stream) {
  Status status;
  for (int i = 0; i < request.launches && status.ok(); ++i) {
    const Operands& operands =
        request.rotation[(request.first + static_cast<std::size_t>(i)) % request.rotation.size()];
    status = request.kernel->run(operands, request.workspace, stream);
  }
  return status;
}

Status GraphTimer::enqueue_timed(const SampleRequest& request, Stream stream) {
  GEMMTUNE_RETURN_IF_ERROR(driver_.record(begin_, stream));
  GEMMTUNE_RETURN_IF_ERROR(enqueue(request, stream));
  return driver_.record(end_, stream);
}

Result<Graph> GraphTimer::capture(const SampleRequest& request, bool timed) {
  const Stream stream = driver_.own_stream();
  GEMMTUNE_RETURN_IF_ERROR(driver_.begin_capture(stream));
  const Status status = timed ? enqueue_timed(request, stream) : enqueue(request, stream);
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
  const Status enqueued = enqueue_timed(request, stream);
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
    GEMMTUNE_TRY(const auto graph, capture(request, true));
    milliseconds = run(graph);
    driver_.destroy(graph);
  }
  if (!milliseconds.ok()) return milliseconds.status();
  return *milliseconds * 1e3 / request.launches;
}

Status GraphTimer::enqueue_runs(Graph graph, int runs) {
  const Stream stream = driver_.own_stream();
  GEMMTUNE_RETURN_IF_ERROR(driver_.record(begin_, stream));
  for (int i = 0; i < runs; ++i) GEMMTUNE_RETURN_IF_ERROR(driver_.launch_graph(graph, stream));
  return driver_.record(end_, stream);
}

Result<double> GraphTimer::wait_for_runs(int runs) {
  GEMMTUNE_RETURN_IF_ERROR(driver_.wait(driver_.own_stream()));
  GEMMTUNE_TRY(const auto milliseconds, driver_.milliseconds_between(begin_, end_));
  if (!(milliseconds > 0)) return Status::internal("the device measured {} milliseconds", milliseconds);
  return milliseconds / runs;
}

Result<EnergySample> GraphTimer::run_counted(Graph graph, int launches, double seconds) {
  Result<double> milliseconds = 0.0;
  for (int i = 0; i < 2; ++i) {  // the first one pays for cold code
    GEMMTUNE_RETURN_IF_ERROR(enqueue_runs(graph, 1));
    milliseconds = wait_for_runs(1);
    if (!milliseconds.ok()) return milliseconds.status();
  }
  const double longest = uncounted_seconds + seconds + 2 * update_seconds;
  const int runs = static_cast<int>(std::ceil(1e3 * (longest + spare_seconds) / *milliseconds));
  CounterReader reader(driver_, longest, seconds);
  const Status enqueued = enqueue_runs(graph, runs);
  milliseconds = wait_for_runs(runs);
  const CounterSlope slope = reader.stop();
  GEMMTUNE_RETURN_IF_ERROR(enqueued);
  if (!milliseconds.ok()) return milliseconds.status();
  GEMMTUNE_RETURN_IF_ERROR(reader.status());
  const auto watts = slope.watts();
  if (!watts || slope.seconds() < seconds / 2)
    return Status::internal("the energy counter was updated too seldom: {:.3g} s of {:.3g} s",
                            slope.seconds(), seconds);
  const double microseconds = *milliseconds * 1e3 / launches;
  return EnergySample{microseconds, *watts * microseconds * 1e-6};
}

Result<EnergySample> GraphTimer::energy(const SampleRequest& request, double seconds) {
  driver_.enter();
  GEMMTUNE_RETURN_IF_ERROR(make_events());
  GEMMTUNE_TRY(const auto graph, capture(request, false));
  auto sample = run_counted(graph, request.launches, seconds);
  driver_.destroy(graph);
  return sample;
}

}  // namespace gemmtune::gpu
