// A compiler that is a library with NVRTC's functions: NVRTC itself, and hipRTC, which has them under names of its own.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/jit/compiler.h"
#include "backends/gpu/jit/device_files.h"
#include "base/file.h"

namespace gemmtune::gpu {

/// How a library's compiler is called, beside its functions.
struct CompilerWords {
  std::string_view library;      // "NVRTC"
  std::string_view create_call;  // "nvrtcCreateProgram", for errors
  std::string_view extension;    // ".cu"
  std::string_view define;       // "--define-macro="
};

/// `Functions` and `Program`: the library's table and its handle of a program.
template <typename Functions, typename Program>
class LibraryCompiler : public Compiler {
 public:
  LibraryCompiler(const Functions& functions, const Library& library, const CompilerWords& words)
      : functions_(functions),
        words_(words),
        version_(fmt::format("{} {}", words.library, library.version)),
        identity_(fmt::format("{} {}", version_, file_identity(library.path))) {}

  const std::string& version() const override { return version_; }
  const std::string& identity() const override { return identity_; }
  std::string flags(std::string_view architecture) const override {
    std::string text;
    for (const std::string& option : options(architecture)) text += option + " ";
    return text;
  }
  Result<Binary> compile(const Source& source, std::string_view architecture) const override;

 protected:
  virtual std::vector<std::string> options(std::string_view architecture) const = 0;

 private:
  std::string log_of(Program program) const;

  const Functions& functions_;
  CompilerWords words_;
  std::string version_;
  std::string identity_;
};

template <typename Functions, typename Program>
std::string LibraryCompiler<Functions, Program>::log_of(Program program) const {
  std::size_t bytes = 0;
  if (functions_.log_size(program, &bytes) != 0 || bytes == 0) return {};
  std::string log(bytes, '\0');
  if (functions_.log(program, log.data()) != 0) return {};
  log.resize(std::min(log.find('\0'), log.size()));
  return log;
}

template <typename Functions, typename Program>
Result<Binary> LibraryCompiler<Functions, Program>::compile(const Source& source,
                                                            std::string_view architecture) const {
  Program program = nullptr;
  const std::string file = fmt::format("{}{}", source.name, words_.extension);
  std::vector<const char*> texts;
  std::vector<const char*> paths;
  for (const DeviceFile& included : included_files(source.text)) {
    texts.push_back(included.text);
    paths.push_back(included.path);
  }
  if (const int result = functions_.create(&program, source.text.c_str(), file.c_str(),
                                           static_cast<int>(texts.size()), texts.data(), paths.data());
      result != 0)
    return Status::internal("{}: {}: {}", source.name, words_.create_call, functions_.error_text(result));
  struct Destroy {
    const Functions& functions;
    Program& program;
    ~Destroy() { functions.destroy(&program); }
  } const destroy{functions_, program};
  std::vector<std::string> all = options(architecture);
  for (const std::string& define : source.defines) all.push_back(fmt::format("{}{}", words_.define, define));
  std::vector<const char*> words;
  for (const std::string& option : all) words.push_back(option.c_str());
  const int compiled = functions_.compile(program, static_cast<int>(words.size()), words.data());
  Binary binary;
  binary.log = log_of(program);
  if (compiled != 0) {
    std::string defines;
    for (const std::string& define : source.defines) defines += " " + define;
    return Status::invalid("{} for {}{}: {}: {}", source.name, architecture, defines,
                           functions_.error_text(compiled), binary.log.substr(0, 2000));
  }
  std::size_t bytes = 0;
  if (functions_.code_size(program, &bytes) == 0 && bytes != 0) {
    binary.code.resize(bytes);
    if (functions_.code(program, binary.code.data()) == 0) return binary;
  }
  return Status::internal("{}: {} gave no machine code for {}", source.name, words_.library, architecture);
}

}  // namespace gemmtune::gpu
