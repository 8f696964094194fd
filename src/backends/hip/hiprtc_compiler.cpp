#include "backends/hip/hiprtc_compiler.h"

#include <vector>

#include "backends/hip/code_object.h"
#include "backends/hip/libraries.h"

namespace gemmtune::hip {
namespace {

class HiprtcCompiler final : public gpu::Compiler {
 public:
  HiprtcCompiler(const api::Rtc& rtc, std::string version)
      : rtc_(rtc), version_("hipRTC " + std::move(version)) {}

  const std::string& version() const override { return version_; }
  std::string flags(std::string_view architecture) const override {
    std::string text;
    for (const std::string& option : options_for(architecture)) text += option + " ";
    return text;
  }
  Result<gpu::Binary> compile(const gpu::Source& source, std::string_view architecture) const override;
  Result<gpu::Resources> resources(const gpu::Binary& binary) const override {
    return read_code_object(binary.code);
  }

 private:
  static std::vector<std::string> options_for(std::string_view architecture) {
    return {fmt::format("--offload-arch={}", architecture), "-std=c++17", "-O3"};
  }
  std::string log_of(api::Program program) const;

  const api::Rtc& rtc_;
  std::string version_;
};

std::string HiprtcCompiler::log_of(api::Program program) const {
  std::size_t bytes = 0;
  if (rtc_.log_size(program, &bytes) != 0 || bytes == 0) return {};
  std::string log(bytes, '\0');
  if (rtc_.log(program, log.data()) != 0) return {};
  log.resize(std::min(log.find('\0'), log.size()));
  return log;
}

Result<gpu::Binary> HiprtcCompiler::compile(const gpu::Source& source, std::string_view architecture) const {
  api::Program program = nullptr;
  const std::string file = source.name + ".hip";
  if (const int result = rtc_.create(&program, source.text.c_str(), file.c_str(), 0, nullptr, nullptr);
      result != 0)
    return Status::internal("{}: hiprtcCreateProgram: {}", source.name, rtc_.error_text(result));
  struct Destroy {
    const api::Rtc& rtc;
    api::Program& program;
    ~Destroy() { rtc.destroy(&program); }
  } const destroy{rtc_, program};
  std::vector<std::string> all = options_for(architecture);
  for (const std::string& define : source.defines) all.push_back("-D" + define);
  std::vector<const char*> words;
  for (const std::string& option : all) words.push_back(option.c_str());
  const int compiled = rtc_.compile(program, static_cast<int>(words.size()), words.data());
  gpu::Binary binary;
  binary.log = log_of(program);
  if (compiled != 0) {
    std::string defines;
    for (const std::string& define : source.defines) defines += " " + define;
    return Status::invalid("{} for {}{}: {}: {}", source.name, architecture, defines,
                           rtc_.error_text(compiled), binary.log.substr(0, 2000));
  }
  std::size_t bytes = 0;
  if (rtc_.code_size(program, &bytes) != 0 || bytes == 0)
    return Status::internal("{}: hipRTC gave no code object for {}", source.name, architecture);
  binary.code.resize(bytes);
  if (rtc_.code(program, binary.code.data()) != 0)
    return Status::internal("{}: hipRTC gave no code object for {}", source.name, architecture);
  return binary;
}

}  // namespace

Result<std::unique_ptr<gpu::Compiler>> make_hiprtc_compiler(const std::string& library_folder) {
  const auto& opened = rtc(library_folder);
  if (!opened.ok()) return opened.found;
  return std::unique_ptr<gpu::Compiler>(
      std::make_unique<HiprtcCompiler>(opened.functions, opened.description.version));
}

}  // namespace gemmtune::hip
