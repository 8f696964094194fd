// How much a test of GPU kernels compiles and runs: `make test` a sample.
#pragma once

#include <cstdlib>

namespace gemmtune::test {

/// `make soak`: everything.
inline bool is_soak() { return std::getenv("GEMMTUNE_SOAK") != nullptr; }

/// .ci/run: what an hour allows.
inline bool is_thorough() { return is_soak() || std::getenv("GEMMTUNE_THOROUGH") != nullptr; }

}  // namespace gemmtune::test
