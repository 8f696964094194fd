// Paths that will be written: refused before anything slow starts.
#pragma once

#include <string>

#include "base/status.h"

namespace gemmtune::cli {

/// ok where a file can be written at `path` (an existing one replaced): no folder, the folder above is there
/// and takes a file with some bytes in it. The text names the option, the path and the reason.
Status check_writable(const std::string& option, const std::string& path);

}  // namespace gemmtune::cli
