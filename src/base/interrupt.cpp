#include "base/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace gemmtune {
namespace {

volatile std::sig_atomic_t seen = 0;
volatile std::sig_atomic_t watches = 0;

void remember(int signal) {
  seen = 1;
  std::signal(signal, SIG_DFL);
}

void wait_for_end(int pipe) {
  pollfd end{pipe, 0, 0};  // POLLHUP is always reported
  while (poll(&end, 1, -1) <= 0 || (end.revents & (POLLHUP | POLLERR)) == 0) {
  }
  // The signal of the parent's death may come too, and a second one would end this process at once.
  if (watches != 0) {
    seen = 1;
  } else {
    kill(getpid(), SIGTERM);
  }
}

}  // namespace

void watch_for_interrupts() {
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
  watches = 1;
}

bool interrupted() { return seen != 0; }

// The signal alone is not enough: the parent may be gone before it is asked for. The pipe alone is not: children that the parent
// made by fork() hold it too.
Status end_with_parent(int pipe) {
  struct stat information {};
  if (fstat(pipe, &information) != 0 || !S_ISFIFO(information.st_mode))
    return Status::invalid("descriptor {} is no pipe", pipe);
  fcntl(pipe, F_SETFD, FD_CLOEXEC);  // children of this process have ends of their own
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  std::thread(wait_for_end, pipe).detach();
  return {};
}

}  // namespace gemmtune
