// operator new that counts, and fails where a test wants it; linked into one test program only.
#pragma once

namespace gemmtune::test {

/// Allocations of the process so far.
long allocations();

/// The calling thread's allocation `number` from here on throws std::bad_alloc: that one, or all from that one
/// on. Not in the constructors of libraries, which cannot answer.
void fail_allocations(long number, bool always);
/// No more of them fail; how many did.
long stop_failing();

/// While it lives, all allocations of other threads than the one that made it fail.
class NoMemoryForOtherThreads {
 public:
  NoMemoryForOtherThreads();
  ~NoMemoryForOtherThreads();
  NoMemoryForOtherThreads(const NoMemoryForOtherThreads&) = delete;
  NoMemoryForOtherThreads& operator=(const NoMemoryForOtherThreads&) = delete;
  /// How many have failed.
  static long failed();
};

}  // namespace gemmtune::test
