// A function of an opened library.
#pragma once

#include <dlfcn.h>

namespace gemmtune::interpose {

/// Null where the library has no such symbol.
template <typename Function>
void find_symbol(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace gemmtune::interpose
