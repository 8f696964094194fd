#include "backends/cpu/machine/timer.h"

#include <chrono>
#include <cstddef>

namespace gemmtune::cpu {

Result<double> time_batch(const SampleRequest& request, Stream stream,
                          const std::function<void()>& before_each) {
  if (request.kernel == nullptr) return Status::invalid("sample: no kernel");
  if (request.rotation.empty()) return Status::invalid("sample: the rotation holds no operands");
  if (request.launches < 1)
    return Status::invalid("sample: launches = {}, expected 1 or more", request.launches);
  std::size_t next = request.first % request.rotation.size();
  std::chrono::duration<double, std::micro> taken{};
  auto begin = std::chrono::steady_clock::now();
  for (int launch = 0; launch < request.launches; ++launch) {
    if (before_each) {
      before_each();
      begin = std::chrono::steady_clock::now();
    }
    GEMMTUNE_RETURN_IF_ERROR(request.kernel->run(request.rotation[next], request.workspace, stream));
    if (before_each) taken += std::chrono::steady_clock::now() - begin;
    if (++next == request.rotation.size()) next = 0;
  }
  if (!before_each) taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / request.launches;
}

}  // namespace gemmtune::cpu
