// A library of a program that uses OpenMP.
#include <omp.h>

extern "C" __attribute__((visibility("default"))) int gemmtune_test_openmp_threads() {
  return omp_get_max_threads();
}
