// The hook for problems that no row answers. Dispatch knows no tuning: who tunes online registers one.
#pragma once

#include <string>

#include "problem/problem.h"

namespace gemmtune {

struct Miss {
  Problem problem;
  std::string file;             // where a row of it would be kept; empty: nowhere
  std::string fallback;         // the kernel that runs meanwhile
  std::string proven_families;  // comma list: those that rows of this device name, and the fallback's
  std::string tuned_files;      // colon list: the files that were asked in vain, missing ones too
};

class MissHandler {
 public:
  /// No call of missed() is running then or later.
  virtual ~MissHandler() = default;
  /// On the thread that plans, once a plan that no row answered, never while the caller's stream is recorded
  /// into a graph. True: the online rows were read again, look once more.
  virtual bool missed(const Miss& miss) = 0;
};

}  // namespace gemmtune
