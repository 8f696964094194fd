#include "backends/cpu/families/openblas/openblas_library.h"

#include <mutex>
#include <string_view>
#include <vector>

#include "backends/cpu/machine/address_space.h"
#include "backends/cpu/machine/load_time_setting.h"
#include "base/shared_library.h"

namespace gemmtune::cpu {
namespace {

constexpr std::string_view how_to_get_openblas = "apt-get install libopenblas0-pthread";

// Values of cblas.h.
constexpr int row_major = 101;
constexpr int no_transpose = 111;
constexpr int transpose = 112;

/// OpenBLAS's name of the processor whose kernels stay within the level; nullptr: its own choice.
const char* core_type(std::optional<Isa> cap) {
  if (!cap || *cap >= Isa::avx512) return nullptr;
  return *cap == Isa::avx2 ? "Haswell" : "Nehalem";
}

/// Without room its threads try to get their buffers for ever, and whoever joins them, fork() and exit() among
/// others, waits for ever.
Status check_room(std::size_t threads) {
  constexpr std::size_t library_bytes = std::size_t{48} << 20;
  constexpr std::size_t bytes_per_thread = std::size_t{128 + 8}
                                           << 20;  // the buffer of builds for any CPU; a stack
  return check_address_space("OpenBLAS", library_bytes + threads * bytes_per_thread);
}

std::vector<std::string> library_paths() {
  std::vector<std::string> paths;
  const std::string name = "libopenblas.so.0";
  for (const char* folder :
       {"/usr/lib/" GEMMTUNE_ARCHITECTURE "/openblas-pthread/", "/usr/lib64/", "/usr/lib/"}) {
    paths.push_back(folder + name);
  }
  paths.insert(paths.begin() + 1, name);
  paths.push_back(name);
  return paths;
}

Result<SharedLibrary> open_library(const CoreList& cores, std::optional<Isa> cap, bool bounded_spin) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  // Its threads start in its constructor, with this thread's cores.
  const ScopedAffinity on_cores(cores);
  // 2⁴ processor cycles instead of 2²⁸ (100 ms) until an idle thread sleeps: a spinning one slows whatever
  // runs next.
  const LoadTimeSetting timeout("OPENBLAS_THREAD_TIMEOUT", "4");
  const LoadTimeSetting kernels("OPENBLAS_CORETYPE", core_type(cap));
  const BoundedOpenmpSpin spin(bounded_spin);  // of a build with OpenMP
  return SharedLibrary::open(library_paths());
}

/// "OpenBLAS 0.3.21 DYNAMIC_ARCH …" → "0.3.21".
std::string version_in(std::string_view configuration) {
  const auto blank = configuration.find(' ');
  if (blank == std::string_view::npos) return std::string(configuration);
  configuration.remove_prefix(blank + 1);
  return std::string(configuration.substr(0, configuration.find(' ')));
}

}  // namespace

Result<std::shared_ptr<const OpenblasLibrary>> OpenblasLibrary::load(const CoreList& cores,
                                                                     std::optional<Isa> cap,
                                                                     bool bounded_spin) {
  GEMMTUNE_RETURN_IF_ERROR(check_room(cores.size()));
  const auto opened = open_library(cores, cap, bounded_spin);
  if (!opened.ok()) return Status::not_found("{} ({})", opened.message(), how_to_get_openblas);
  std::shared_ptr<OpenblasLibrary> library(new OpenblasLibrary());
  char* (*configuration)() = nullptr;
  int (*parallel)() = nullptr;
  const bool complete =
      opened->find("cblas_sgemm", library->gemm_) && opened->find("cblas_sgemv", library->gemv_) &&
      opened->find("openblas_set_num_threads", library->set_threads_) &&
      opened->find("openblas_get_num_threads", library->get_threads_) &&
      opened->find("openblas_get_config", configuration) && opened->find("openblas_get_parallel", parallel);
  if (!complete)
    return Status::not_found("libopenblas.so.0 lacks a function that is needed ({})", how_to_get_openblas);
  library->version_ = version_in(configuration());
  library->path_ = SharedLibrary::file_of(reinterpret_cast<const void*>(library->gemm_));
  const int kind = parallel();
  library->threading_ = kind == 2 ? Threads::openmp : kind == 1 ? Threads::posix : Threads::none;
  // The calling thread's buffer, which stays: later there might be no room.
  if (has_limited_address_space()) library->multiply_once();
  return std::shared_ptr<const OpenblasLibrary>(std::move(library));
}

void OpenblasLibrary::multiply_once() const {
  constexpr int size = 64;
  const std::vector<float> operand(std::size_t{size} * size);
  std::vector<float> y(operand.size());
  const Input input{operand.data(), size, false};
  multiply(size, size, size, input, input, 0, {y.data(), size});
}

void OpenblasLibrary::multiply(int m, int n, int k, const Input& x, const Input& w, float beta,
                               const Output& y) const {
  if (m == 1) {
    const int step = x.columns ? x.leading : 1;
    gemv_(row_major, w.columns ? transpose : no_transpose, w.columns ? k : n, w.columns ? n : k, 1.0F, w.data,
          w.leading, x.data, step, beta, y.data, 1);
  } else {
    gemm_(row_major, x.columns ? transpose : no_transpose, w.columns ? no_transpose : transpose, m, n, k,
          1.0F, x.data, x.leading, w.data, w.leading, beta, y.data, y.leading);
  }
}

}  // namespace gemmtune::cpu
