// The worker program of the isolation tests: as `gemmtune worker`, on the faulty device.
#include "evaluate/worker/worker_main.h"
#include "support/faulty_device.h"

int main() {
  return gemmtune::run_worker(
      [](const std::string&,
         const gemmtune::DeviceRequest&) -> gemmtune::Result<std::unique_ptr<gemmtune::Device>> {
        return std::unique_ptr<gemmtune::Device>(gemmtune::testing::make_faulty_device());
      });
}
