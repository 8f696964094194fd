// libdnnl's OpenMP: its calls go to the runtime that the running call names, so that a process has one team of
// threads. Part of libgemmtune_onednn.so and libgemmtune_onednn3.so.
#pragma once

#include "backends/cpu/threads/openmp_functions.h"

namespace gemmtune::onednn {

/// Puts functions of ours in the place of those that libdnnl imports from its OpenMP runtime. `code`: a function of
/// libdnnl. Nothing happens if it has none, or imports one that is not known here. For the first caller only.
void route_openmp(const void* code);

/// What OpenMP is to libdnnl on one thread.
struct OpenmpTarget {
  const gemmtune_openmp_functions* runtime = nullptr;  // null: libdnnl's own
  bool alone = false;  // the runtime gives one thread: libdnnl starts no region, as inside of one
};

/// While it lives, libdnnl's parallel regions of this thread run on `runtime` (null: on libdnnl's own).
class OpenmpRoute {
 public:
  explicit OpenmpRoute(const gemmtune_openmp_functions* runtime);
  explicit OpenmpRoute(const OpenmpTarget& target);
  ~OpenmpRoute();
  OpenmpRoute(const OpenmpRoute&) = delete;
  OpenmpRoute& operator=(const OpenmpRoute&) = delete;

 private:
  OpenmpTarget before_;
};

/// Sets the size of this thread's team. Answers what it was; 0 if it is left as it is: libdnnl's calls are not known, or
/// the runtime gives one thread.
int set_team_size(int threads);

/// The functions that libdnnl's calls on this thread reach; null if they are not known.
const gemmtune_openmp_functions* routed_openmp();

}  // namespace gemmtune::onednn
