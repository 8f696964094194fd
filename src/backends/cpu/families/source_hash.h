// A hash of our own kernels' sources and of the flags that compile them; its value is made by the build
// (hash_sources.cmake).
#pragma once

#include <string_view>

namespace gemmtune::cpu {

/// 12 hexadecimal digits: another build of the same sources with the same flags has the same.
std::string_view kernel_source_hash();

}  // namespace gemmtune::cpu
