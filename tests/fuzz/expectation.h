// What a fuzz target demands beyond not crashing.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace gemmtune::fuzz {

inline void demand(bool kept, const std::string& promise) {
  if (kept) return;
  std::fprintf(stderr, "broken: %s\n", promise.c_str());
  std::abort();
}

}  // namespace gemmtune::fuzz
