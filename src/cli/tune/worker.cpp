// gemmtune worker: what `tune` and online tuning start to measure in; not for people, and not in the list of commands.
#include <cstdio>

#include "cli/command.h"
#include "evaluate/external/external_device.h"
#include "evaluate/worker/worker_main.h"

namespace gemmtune::cli {

int run_worker_command() {
  if (!has_worker_descriptors()) {
    std::fputs("gemmtune worker: is started by gemmtune tune and by online tuning; it has no use by itself\n",
               stderr);
    return exit_usage;
  }
  return run_worker([](const std::string& backend, const DeviceRequest& request) {
    return open_device_of(backend, request);
  });
}

}  // namespace gemmtune::cli
