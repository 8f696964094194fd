// Ctrl-C and SIGTERM as a flag that long work and waits look at.
#pragma once

#include "base/status.h"

namespace gemmtune {

/// Installs the handlers; for programs, never for a library. The second signal ends the process at once.
void watch_for_interrupts();
/// False for ever in a process that does not watch.
bool interrupted();

/// From now on this process ends with its parent, however that ends: as by SIGTERM. `pipe` is the reading end of a pipe whose other
/// end the parent holds and never writes to; an error if it is none.
Status end_with_parent(int pipe);

}  // namespace gemmtune
