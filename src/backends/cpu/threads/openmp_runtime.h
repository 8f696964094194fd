// The OpenMP runtimes of this process. None is linked: they are found among the libraries that are loaded.
#pragma once

#include <string>

#include "backends/cpu/threads/openmp_functions.h"
#include "backends/cpu/threads/torch_threads.h"
#include "base/status.h"

namespace gemmtune::cpu {

/// A loaded libgomp, libiomp5 or libomp. It is never unloaded. Of the one that PyTorch runs on max_threads is PyTorch's answer: a
/// thread that has run nothing of PyTorch's has the runtime's own default otherwise, not that of torch.set_num_threads().
struct OpenmpRuntime {
  std::string path;
  bool is_libgomp = false;
  gemmtune_openmp_functions functions{};
};

/// The runtime that the program uses; null if there is none. In this order: the one that libtorch_cpu needs, the one
/// that most libraries of the process need (of two with as many the one loaded first), one that no library needs, so
/// that the program has opened it by itself. A runtime that only libraries of ours need (oneDNN's, for example) is
/// not the program's. Looks at the list of loaded libraries only if that has changed. Safe from any thread.
const OpenmpRuntime* programs_openmp();

/// PyTorch's parallel_for, if PyTorch is loaded and runs on no OpenMP runtime (its native thread pool); null otherwise.
const TorchThreads* programs_torch();

/// programs_openmp(), else one that a library of ours has brought, else libgomp, which is loaded by this call.
/// `bounded_spin`: BoundedOpenmpSpin.
Result<const OpenmpRuntime*> any_openmp(bool bounded_spin = false);

/// The calling thread is in a parallel region of `runtime`, or of any loaded libgomp.
bool in_parallel_region(const OpenmpRuntime& runtime);

}  // namespace gemmtune::cpu
