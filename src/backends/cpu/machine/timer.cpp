#include "backends/cpu/machine/timer.h"

#include <chrono>
#include <cstddef>

namespace gemmtune::cpu {

Result<double> time_batch(const SampleRequest& request, Stream stream,
                          const std::function<void()>& before_each, ProcessorClock* processor) {
  if (request.kernel == nullptr) return Status::invalid("sample: no kernel");
  if (request.rotation.empty()) return Status::invalid("sample: the rotation holds no operands");
  if (request.launches < 1)
    return Status::invalid("sample: launches = {}, expected 1 or more", request.launches);
  std::size_t next = request.first % request.rotation.size();
  std::chrono::steady_clock::time_point begin;
  const auto start = [&] {
    if (processor != nullptr) processor->begin();
    begin = std::chrono::steady_clock::now();
  };
  const auto microseconds = [&] {
    if (processor != nullptr) return processor->microseconds();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  };
  double taken = 0;
  start();
  for (int launch = 0; launch < request.launches; ++launch) {
    if (before_each) {
      before_each();
      start();
    }
    GEMMTUNE_RETURN_IF_ERROR(request.kernel->run(request.rotation[next], request.workspace, stream));
    if (before_each) taken += microseconds();
    if (++next == request.rotation.size()) next = 0;
  }
  if (!before_each) taken = microseconds();
  return taken / request.launches;
}

}  // namespace gemmtune::cpu
