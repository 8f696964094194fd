// hipblaslt: AMD's library, solution by solution.
#pragma once

#include <memory>
#include <string>

#include "backends/hip/hip_driver.h"

namespace gemmtune::hip {

/// nullptr where the library is missing. The driver must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_hipblaslt_family(const HipDriver& driver,
                                                    const std::string& library_folder);

}  // namespace gemmtune::hip
