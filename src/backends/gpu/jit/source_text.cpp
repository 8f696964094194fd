#include "backends/gpu/jit/source_text.h"

namespace gemmtune::gpu {

std::string_view layout_arguments_text();  // layout_arguments.h

std::string source_text(std::initializer_list<std::string_view> parts) {
  std::string text(layout_arguments_text());
  for (const std::string_view part : parts) text += part;
  return text;
}

}  // namespace gemmtune::gpu
