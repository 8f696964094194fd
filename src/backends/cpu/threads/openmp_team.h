// OpenMP libraries (oneDNN, OpenBLAS of that flavour) and the program's own regions in processes that fork.
//
// libgomp keeps a team of threads for each thread that enters a parallel region. fork() copies the record of
// the forking thread's team into the child, but not its threads: the next parallel region of that thread
// waits for them for ever. Other threads of the child have no such record and start teams of their own.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace gemmtune::cpu {

/// Whose parallel regions may have started the team of a thread.
enum class RegionsOf {
  ours,     // of a libgomp that no one else uses
  program,  // too
};

/// Marks the calling thread as one with an OpenMP team; false if fork() has, or may have, taken the team's threads away.
bool start_openmp_team(RegionsOf whose) noexcept;
/// The same answer without the mark.
bool has_lost_openmp_team(RegionsOf whose) noexcept;

/// This process is a child that fork() made while its parent had several threads: a pool of the program's may have none of its own.
bool has_lost_programs_pool() noexcept;

/// Runs `body`, which returns a Status and does not throw, if it enters parallel regions of `threads` threads:
/// on the calling thread, or, if that has lost its team, on one created for this call.
template <typename Body>
Status with_openmp_team(int threads, RegionsOf whose, Body&& body) {
  if (threads <= 1 || start_openmp_team(whose)) return std::forward<Body>(body)();
  Status status;
  try {
    std::thread stand_in([&] { status = body(); });
    stand_in.join();
  } catch (const std::system_error& error) {
    return Status::unsupported(
        "after fork() this thread has lost its OpenMP threads, and there is no other thread to run on: {}",
        error.what());
  }
  return status;
}

}  // namespace gemmtune::cpu
