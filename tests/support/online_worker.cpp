// The worker program of the tests of online tuning: as `gemmtune worker`, on a simulated device.
#include "evaluate/worker/worker_main.h"
#include "support/own_families.h"

int main() {
  return gemmtune::run_worker(
      [](const std::string&,
         const gemmtune::DeviceRequest&) -> gemmtune::Result<std::unique_ptr<gemmtune::Device>> {
        return std::unique_ptr<gemmtune::Device>(gemmtune::testing::make_device_with_own_families());
      });
}
