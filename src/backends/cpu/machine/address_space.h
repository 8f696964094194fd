// Room for libraries that cannot do without.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace gemmtune::cpu {

/// The address space is limited (ulimit -v).
bool has_limited_address_space();
/// ok if the limit, where there is one, leaves `bytes`: for a library that would end or hang the process
/// without. The text names it.
Status check_address_space(std::string_view library, std::size_t bytes);

}  // namespace gemmtune::cpu
