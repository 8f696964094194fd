// libhiprtc: a program's code object holds its source and options; the emulation compiles it where it is loaded.
#include <cstring>
#include <string>
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

int hiprtcCreateProgram(Program* program, const char* source, const char*, int, const char**, const char**) {
  if (const int failed = enter("hiprtcCreateProgram"); failed != 0) return failed;
  *program = reinterpret_cast<Program>(new ProgramState{source, {}, {}});
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
