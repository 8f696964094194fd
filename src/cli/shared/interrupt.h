// Ctrl-C and SIGTERM: asked for, not thrown. The second one ends the process at once.
#pragma once

namespace gemmtune::cli {

void watch_for_interrupts();
bool interrupted();

}  // namespace gemmtune::cli
