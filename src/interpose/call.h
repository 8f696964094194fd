// A call in the library's column-major terms, and as a problem of gemmtune's.
#pragma once

#include <gemmtune/c.h>

#include <cstdint>

#include "backends/cublas_api.h"
#include "interpose/counts.h"

namespace gemmtune::interpose {

/// d[m, n] = op(a)[m, k] · op(b)[k, n] (+ bias[m]): what is left once everything that gemmtune does not do was
/// passed through.
struct Call {
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  int a_type = 0, b_type = 0, d_type = 0;  // cudaDataType
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  std::int64_t lda = 0, ldb = 0, ldd = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_d = 0;
  const void* bias = nullptr;
  const void* a_scale = nullptr;  // one float each, on the device
  const void* b_scale = nullptr;
  bool invariant = false;  // the bits of d's columns must not depend on n
};

struct Posed {
  Outcome outcome = Outcome::served;  // else why the call is passed through
  gemmtune_problem problem{};
  gemmtune_operands operands{};
};

/// A column-major d is a row-major y[n, m]: op(b) is x, op(a) the weight.
Posed pose(const Call& call);

}  // namespace gemmtune::interpose
