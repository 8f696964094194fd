// OpenBLAS as this process has it, opened at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/cpu/machine/affinity.h"
#include "backends/cpu/machine/isa.h"
#include "base/status.h"

namespace gemmtune::cpu {

/// Immutable once loaded; safe from any thread. Never unloaded.
class OpenblasLibrary {
 public:
  enum class Threads { none, posix, openmp };

  /// Opens it with its threads allowed on `cores`. Fails with what is missing and how to get it. `cap`
  /// chooses the kernels of an older processor; like the cores it has an effect at the process's first load
  /// only.
  static Result<std::shared_ptr<const OpenblasLibrary>> load(const CoreList& cores, std::optional<Isa> cap,
                                                             bool bounded_spin = false);

  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }
  Threads threading() const { return threading_; }

  void set_threads(int threads) const {
    if (get_threads_() != threads) set_threads_(threads);
  }
  /// An input: its elements, the leading dimension, and whether it is column-major.
  struct Input {
    const float* data;
    int leading;
    bool columns;
  };
  struct Output {
    float* data;
    int leading;
  };
  /// y[m, n] = x[m, k] · w[n, k]ᵀ + beta · y. Sizes and leading dimensions fit an int.
  void multiply(int m, int n, int k, const Input& x, const Input& w, float beta, const Output& y) const;

 private:
  using Gemm = void(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*,
                    int);
  using Gemv = void(int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  OpenblasLibrary() = default;
  void multiply_once() const;

  std::string version_;
  std::string path_;
  Threads threading_ = Threads::none;
  void (*set_threads_)(int) = nullptr;
  int (*get_threads_)() = nullptr;
  Gemm* gemm_ = nullptr;
  Gemv* gemv_ = nullptr;
};

}  // namespace gemmtune::cpu
