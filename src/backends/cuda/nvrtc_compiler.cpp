#include "backends/cuda/nvrtc_compiler.h"

#include "backends/cuda/cubin.h"
#include "backends/gpu/jit/library_compiler.h"

namespace gemmtune::cuda {
namespace {

class NvrtcCompiler final : public gpu::LibraryCompiler<api::Nvrtc, api::Program> {
 public:
  NvrtcCompiler(const api::Nvrtc& functions, const Library& library)
      : LibraryCompiler(functions, library, {"NVRTC", "nvrtcCreateProgram", ".cu", "--define-macro="}) {}

  Result<gpu::Resources> resources(const gpu::Binary& binary) const override {
    return read_cubin(binary.code);
  }
  Status check(const gpu::Binary& binary, std::string_view architecture) const override {
    return check_cubin(binary.code, architecture);
  }

 protected:
  std::vector<std::string> options(std::string_view architecture) const override {
    return {fmt::format("--gpu-architecture={}", architecture), "--std=c++17", "--ptxas-options=-v",
            "--diag-suppress=177"};
  }
};

}  // namespace

Result<std::unique_ptr<gpu::Compiler>> make_nvrtc_compiler(const std::string& library_folder) {
  const auto& opened = nvrtc(library_folder);
  if (!opened.ok()) return opened.found;
  return std::make_unique<NvrtcCompiler>(opened.functions, opened.description);
}

}  // namespace gemmtune::cuda
