#include "interpose/vendor.h"

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "interpose/counts.h"
#include "interpose/symbol.h"

namespace gemmtune::interpose {
namespace {

/// The library behind this one, or the one of these names that the process has loaded: what was loaded with dlopen()
/// for its caller alone, as Python loads extensions, is not behind anyone. Null: neither.
void* library_of(const char* symbol, std::initializer_list<const char*> names) {
  if (::dlsym(RTLD_NEXT, symbol) != nullptr) return RTLD_NEXT;
  for (const char* name : names) {
    void* const opened = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (opened != nullptr && ::dlsym(opened, symbol) != nullptr) return opened;
  }
  return nullptr;
}

CublasLt find_cublas_lt() {
  CublasLt found;
  void* const library =
      library_of("cublasLtMatmul", {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"});
  if (library == nullptr) {
    say("cublasLtMatmul was called, but the process has no libcublasLt.so.13, .12 or .11");
    return found;
  }
  find_symbol(library, "cublasLtMatmul", found.matmul);
  find_symbol(library, "cublasLtMatmulDescGetAttribute", found.matmul_get);
  find_symbol(library, "cublasLtMatrixLayoutGetAttribute", found.layout_get);
  find_symbol(library, "cublasLtMatmulAlgoConfigGetAttribute", found.algorithm_get);
  std::size_t (*version)() = nullptr;
  find_symbol(library, "cublasLtGetVersion", version);
  // 13.0 to 13.x, whose header says so. Descriptors may lie in the caller's memory and have no end there.
  found.plain_descriptors = version != nullptr && version() / 10000 == 13;
  return found;
}

Cublas find_cublas() {
  Cublas found;
  void* const library = library_of("cublasGemmEx", {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"});
  if (library == nullptr) {
    say("cublasGemmEx was called, but the process has no libcublas.so.13, .12 or .11");
    return found;
  }
  find_symbol(library, "cublasGemmEx", found.gemm);
  find_symbol(library, "cublasGemmEx_64", found.gemm_64);
  find_symbol(library, "cublasGemmStridedBatchedEx", found.strided);
  find_symbol(library, "cublasGemmStridedBatchedEx_64", found.strided_64);
  find_symbol(library, "cublasGetStream_v2", found.stream);
  find_symbol(library, "cublasGetPointerMode_v2", found.pointer_mode);
  find_symbol(library, "cublasGetMathMode", found.math_mode);
  return found;
}

}  // namespace

bool is_on() {
  static const bool on = [] {
    const char* const value = std::getenv("GEMMTUNE_CUBLAS");
    return value == nullptr || std::string_view(value) != "0";
  }();
  return on;
}

const CublasLt& cublas_lt() {
  static const CublasLt found = find_cublas_lt();
  return found;
}

const Cublas& cublas() {
  static const Cublas found = find_cublas();
  return found;
}

}  // namespace gemmtune::interpose
