#include "backends/hip/hiprtc_compiler.h"

#include "backends/gpu/jit/library_compiler.h"
#include "backends/hip/code_object.h"
#include "backends/hip/libraries.h"

namespace gemmtune::hip {
namespace {

class HiprtcCompiler final : public gpu::LibraryCompiler<api::Rtc, api::Program> {
 public:
  HiprtcCompiler(const api::Rtc& functions, const Library& library)
      : LibraryCompiler(functions, library, {"hipRTC", "hiprtcCreateProgram", ".hip", "-D"}) {}

  Result<gpu::Resources> resources(const gpu::Binary& binary) const override {
    return read_code_object(binary.code);
  }
  Status check(const gpu::Binary& binary, std::string_view architecture) const override {
    return check_code_object(binary.code, architecture);
  }

 protected:
  std::vector<std::string> options(std::string_view architecture) const override {
    return {fmt::format("--offload-arch={}", architecture), "-std=c++17", "-O3"};
  }
};

}  // namespace

Result<std::unique_ptr<gpu::Compiler>> make_hiprtc_compiler(const std::string& library_folder) {
  const auto& opened = rtc(library_folder);
  if (!opened.ok()) return opened.found;
  return std::make_unique<HiprtcCompiler>(opened.functions, opened.description);
}

}  // namespace gemmtune::hip
