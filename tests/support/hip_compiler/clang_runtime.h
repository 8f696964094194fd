// A compile-only AMD GPU: what clang makes for an architecture without ROCm, read as code objects and never launched.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/gpu/runtime.h"

namespace gemmtune::test {

/// What the metadata and the disassembly of a code object with one kernel say.
struct CodeObject {
  int registers = 0;  // of a lane: vector and accumulation registers
  int scalar_registers = 0;
  int spilled_registers = 0;                // vector and scalar
  int scratch_bytes = 0;                    // of a lane
  int lds_bytes = 0;                        // static
  std::map<std::string, int> instructions;  // by opcode, without _e32 and _e64
  /// How many instructions begin with `prefix`.
  int count(const std::string& prefix) const;
  /// What a lane reads from LDS if each instruction runs once.
  int lds_read_bytes() const;
};

class ClangRuntime final : public gpu::Runtime {
 public:
  /// clang++ of a version that knows MFMA; empty: there is none here.
  static std::string compiler();

  explicit ClangRuntime(std::string architecture);
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override;

  CodeObject last;   // of the kernel that load() answered last, a reduction aside
  int compiled = 0;  // sources that differ

 private:
  Result<CodeObject> compile(const gpu::Source& source) const;

  std::string architecture_;
  gpu::Limits limits_;
  std::map<std::tuple<std::string, std::string, std::vector<std::string>>, Result<CodeObject>> objects_;
};

}  // namespace gemmtune::test

// Skips the test visibly where there is no clang with its tools, or fails it where GEMMTUNE_REQUIRE names clang-amdgpu.
#define GEMMTUNE_NEEDS_CLANG()                                                                     \
  if (::gemmtune::test::ClangRuntime::compiler().empty()) {                                        \
    const char* required = std::getenv("GEMMTUNE_REQUIRE");                                        \
    const char* why =                                                                              \
        "no clang++-19 with llvm-readelf-19 and llvm-objdump-19 (install_dependencies.sh amdgpu)"; \
    if (required != nullptr && std::string(required).find("clang-amdgpu") != std::string::npos)    \
      FAIL() << why;                                                                               \
    GTEST_SKIP() << why;                                                                           \
  }
