// libhiprtc: a program's code object holds its source and options; the emulation compiles it where it is loaded.
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backends/hip/hip_api.h"
#include "support/hip_double/hip_double.h"

namespace {

struct ProgramState {
  std::string source;
  std::string code;
  std::string log;
};

ProgramState& state_of(gemmtune::hip::api::Program program) {
  return *reinterpret_cast<ProgramState*>(program);
}

/// The text with the named headers in place of the lines that include them; each is included once.
std::string preprocess(const std::string& text, std::map<std::string, std::string>& files) {
  std::istringstream lines(text);
  std::string whole;
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find('"');
    const auto last = line.rfind('"');
    if (line == "#pragma once") continue;
    if (!line.starts_with("#include \"") || first == last) {
      whole += line + "\n";
      continue;
    }
    const auto file = files.find(line.substr(first + 1, last - first - 1));
    if (file == files.end()) {
      whole += "#error no header: " + line + "\n";
      continue;
    }
    const std::string content = std::exchange(file->second, {});
    whole += preprocess(content, files);
  }
  return whole;
}

}  // namespace

using namespace gemmtune::hip_double;
using gemmtune::hip::api::Program;

extern "C" {

int hiprtcVersion(int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}

const char* hiprtcGetErrorString(int result) {
  return result == 6 ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR";
}

int hiprtcCreateProgram(Program* program, const char* source, const char*, int header_count,
                        const char** headers, const char** include_names) {
  if (const int failed = enter("hiprtcCreateProgram"); failed != 0) return failed;
  std::map<std::string, std::string> files;
  for (int i = 0; i < header_count; ++i) files[include_names[i]] = headers[i];
  *program = reinterpret_cast<Program>(new ProgramState{preprocess(source, files), {}, {}});
  return 0;
}

int hiprtcDestroyProgram(Program* program) {
  delete &state_of(*program);
  *program = nullptr;
  return 0;
}

int hiprtcCompileProgram(Program program, int count, const char** options) {
  ProgramState& state = state_of(program);
  if (const int failed = enter("hiprtcCompileProgram"); failed != 0) {
    state.log = "refused by the double";
    return failed;
  }
  std::vector<std::string> words(options, options + count);
  bool has_architecture = false;
  for (const std::string& word : words) has_architecture |= word.starts_with("--offload-arch=gfx");
  if (!has_architecture) {
    state.log = "no --offload-arch";
    return 6;
  }
  state.code = make_code_object(state.source, words);
  return 0;
}

int hiprtcGetCodeSize(Program program, std::size_t* bytes) {
  *bytes = state_of(program).code.size();
  return 0;
}

int hiprtcGetCode(Program program, char* code) {
  std::memcpy(code, state_of(program).code.data(), state_of(program).code.size());
  return 0;
}

int hiprtcGetProgramLogSize(Program program, std::size_t* bytes) {
  *bytes = state_of(program).log.size() + 1;
  return 0;
}

int hiprtcGetProgramLog(Program program, char* log) {
  std::strcpy(log, state_of(program).log.c_str());
  return 0;
}

}  // extern "C"
