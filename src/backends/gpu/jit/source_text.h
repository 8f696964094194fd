// The text of a kernel source from the embedded files that it consists of.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace gemmtune::gpu {

/// layout_arguments.h, then `parts` in their order: headers of arguments come before the code that uses them.
std::string source_text(std::initializer_list<std::string_view> parts);

}  // namespace gemmtune::gpu
