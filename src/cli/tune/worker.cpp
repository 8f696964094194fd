// gemmtune worker: what `tune` starts to measure in; not for people, and not in the list of commands.
#include <cstdio>

#include "cli/command.h"
#include "cli/commands.h"
#include "evaluate/external/external_device.h"
#include "evaluate/worker/worker_main.h"

namespace gemmtune::cli {

int run_worker_command() {
  if (!has_worker_descriptors()) {
    std::fputs("gemmtune worker: is started by gemmtune tune; it has no use by itself\n", stderr);
    return exit_usage;
  }
  return run_worker(open_device_of);
}

}  // namespace gemmtune::cli
