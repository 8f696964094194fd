#include "interpose/library.h"

#include <dlfcn.h>

#include <string>

#include "interpose/counts.h"
#include "interpose/symbol.h"

namespace gemmtune::interpose {
namespace {

struct Opened {
  Library functions;
  bool complete = false;
};

Opened open() {
  Opened opened;
  // Searched beside this library first: its RUNPATH.
  void* const handle = ::dlopen(GEMMTUNE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    say((std::string("every call is the library's own: ") + (why != nullptr ? why : GEMMTUNE_LIBRARY))
            .c_str());
    return opened;
  }
  bool complete = true;
  const auto find = [&](const char* name, auto& function) {
    find_symbol(handle, name, function);
    if (function != nullptr) return;
    complete = false;
    say((std::string("every call is the library's own: " GEMMTUNE_LIBRARY " is another version, without ") +
         name)
            .c_str());
  };
  Library& f = opened.functions;
  find("gemmtune_context_create", f.context_create);
  find("gemmtune_capture_flush", f.capture_flush);
  find("gemmtune_plan_create", f.plan_create);
  find("gemmtune_plan_get_info", f.plan_get_info);
  find("gemmtune_plan_run", f.plan_run);
  find("gemmtune_plan_release", f.plan_release);
  find("gemmtune_kernel_erratum", f.kernel_erratum);
  find("gemmtune_last_error", f.last_error);
  opened.complete = complete;
  return opened;
}

}  // namespace

const Library* library() {
  static const Opened opened = open();
  return opened.complete ? &opened.functions : nullptr;
}

}  // namespace gemmtune::interpose
