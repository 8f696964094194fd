#include "base/interrupt.h"

#include <csignal>

namespace gemmtune {
namespace {

volatile std::sig_atomic_t seen = 0;

void remember(int signal) {
  seen = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void watch_for_interrupts() {
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
}

bool interrupted() { return seen != 0; }

}  // namespace gemmtune
