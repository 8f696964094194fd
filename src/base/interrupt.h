// Ctrl-C and SIGTERM as a flag that long work and waits look at.
#pragma once

namespace gemmtune {

/// Installs the handlers; for programs, never for a library. The second signal ends the process at once.
void watch_for_interrupts();
/// False for ever in a process that does not watch.
bool interrupted();

}  // namespace gemmtune
