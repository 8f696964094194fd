#include "backends/cpu/machine/timer.h"

#include <chrono>
#include <cstddef>

namespace gemmtune::cpu {

Result<double> time_batch(const SampleRequest& request, Stream stream) {
  if (request.kernel == nullptr) return Status::invalid("sample: no kernel");
  if (request.rotation.empty()) return Status::invalid("sample: the rotation holds no operands");
  if (request.launches < 1)
    return Status::invalid("sample: launches = {}, expected 1 or more", request.launches);
  std::size_t next = request.first % request.rotation.size();
  const auto begin = std::chrono::steady_clock::now();
  for (int launch = 0; launch < request.launches; ++launch) {
    GEMMTUNE_RETURN_IF_ERROR(request.kernel->run(request.rotation[next], request.workspace, stream));
    if (++next == request.rotation.size()) next = 0;
  }
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / request.launches;
}

}  // namespace gemmtune::cpu
