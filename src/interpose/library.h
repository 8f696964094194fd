// gemmtune's C functions, opened when they are first needed.
#pragma once

#include <gemmtune/c.h>

namespace gemmtune::interpose {

struct Library {
  decltype(&gemmtune_context_create) context_create = nullptr;
  decltype(&gemmtune_capture_flush) capture_flush = nullptr;
  decltype(&gemmtune_plan_create) plan_create = nullptr;
  decltype(&gemmtune_plan_get_info) plan_get_info = nullptr;
  decltype(&gemmtune_plan_run) plan_run = nullptr;
  decltype(&gemmtune_plan_release) plan_release = nullptr;
  decltype(&gemmtune_kernel_erratum) kernel_erratum = nullptr;
  decltype(&gemmtune_last_error) last_error = nullptr;
};

/// Null if libgemmtune is not beside this library, nor where the loader looks; the first call says so.
const Library* library();

}  // namespace gemmtune::interpose
