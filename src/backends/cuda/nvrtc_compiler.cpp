#include "backends/cuda/nvrtc_compiler.h"

#include <string>
#include <vector>

#include "backends/cuda/cubin.h"

namespace gemmtune::cuda {
namespace {

class NvrtcCompiler final : public gpu::Compiler {
 public:
  NvrtcCompiler(const api::Nvrtc& nvrtc, std::string version)
      : nvrtc_(nvrtc), version_("NVRTC " + std::move(version)) {}

  const std::string& version() const override { return version_; }
  std::string flags(std::string_view architecture) const override {
    std::string text;
    for (const std::string& option : options(architecture)) text += option + " ";
    return text;
  }
  Result<gpu::Binary> compile(const gpu::Source& source, std::string_view architecture) const override;
  Result<gpu::Resources> resources(const gpu::Binary& binary) const override {
    return read_cubin(binary.code);
  }

 private:
  static std::vector<std::string> options(std::string_view architecture) {
    return {fmt::format("--gpu-architecture={}", architecture), "--std=c++17", "--ptxas-options=-v",
            "--diag-suppress=177"};
  }
  std::string log_of(api::Program program) const;

  const api::Nvrtc& nvrtc_;
  std::string version_;
};

std::string NvrtcCompiler::log_of(api::Program program) const {
  std::size_t bytes = 0;
  if (nvrtc_.log_size(program, &bytes) != 0 || bytes == 0) return {};
  std::string log(bytes, '\0');
  if (nvrtc_.log(program, log.data()) != 0) return {};
  log.resize(log.find('\0') == std::string::npos ? log.size() : log.find('\0'));
  return log;
}

Result<gpu::Binary> NvrtcCompiler::compile(const gpu::Source& source, std::string_view architecture) const {
  api::Program program = nullptr;
  const std::string file = source.name + ".cu";
  if (const int result = nvrtc_.create(&program, source.text.c_str(), file.c_str(), 0, nullptr, nullptr);
      result != 0)
    return Status::internal("{}: nvrtcCreateProgram: {}", source.name, nvrtc_.error_text(result));
  struct Destroy {
    const api::Nvrtc& nvrtc;
    api::Program& program;
    ~Destroy() { nvrtc.destroy(&program); }
  } const destroy{nvrtc_, program};
  std::vector<std::string> all = options(architecture);
  for (const std::string& define : source.defines) all.push_back("--define-macro=" + define);
  std::vector<const char*> words;
  for (const std::string& option : all) words.push_back(option.c_str());
  const int compiled = nvrtc_.compile(program, static_cast<int>(words.size()), words.data());
  gpu::Binary binary;
  binary.log = log_of(program);
  if (compiled != 0) {
    std::string defines;
    for (const std::string& define : source.defines) defines += " " + define;
    return Status::invalid("{} for {}{}: {}: {}", source.name, architecture, defines,
                           nvrtc_.error_text(compiled), binary.log.substr(0, 2000));
  }
  std::size_t bytes = 0;
  if (nvrtc_.code_size(program, &bytes) != 0 || bytes == 0)
    return Status::internal("{}: NVRTC gave no machine code for {}", source.name, architecture);
  binary.code.resize(bytes);
  if (nvrtc_.code(program, binary.code.data()) != 0)
    return Status::internal("{}: NVRTC gave no machine code for {}", source.name, architecture);
  return binary;
}

}  // namespace

Result<std::unique_ptr<gpu::Compiler>> make_nvrtc_compiler(const std::string& library_folder) {
  const auto& opened = nvrtc(library_folder);
  if (!opened.ok()) return opened.found;
  return std::unique_ptr<gpu::Compiler>(
      std::make_unique<NvrtcCompiler>(opened.functions, opened.description.version));
}

}  // namespace gemmtune::cuda
