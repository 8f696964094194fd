// Counts the process's allocations through operator new; linked into one test program only.
#pragma once

namespace gemmtune::test {

long allocations();

}  // namespace gemmtune::test
