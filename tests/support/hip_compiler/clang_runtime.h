// A compile-only AMD GPU: what clang makes for an architecture without ROCm, read as assembly and never launched.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/gpu/runtime.h"

namespace gemmtune::test {

/// What the metadata and the instructions of a code object with one kernel say.
struct CodeObject {
  int registers = 0;  // of a lane: vector and accumulation registers
  int scalar_registers = 0;
  int spilled_registers = 0;                // vector and scalar
  int spilled_scalar_registers = 0;         // into lanes of vector registers
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
  /// The version of LLVM's tools that compiles for an architecture, all of them installed: 19; gfx950 came with 20, of which or a newer one
  /// the newest is taken. 0: there is none here.
  static int version_for(const std::string& architecture);

  explicit ClangRuntime(std::string architecture);
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override;

  CodeObject last;   // of the kernel that load() answered last, a reduction aside
  int compiled = 0;  // sources that differ

 private:
  Result<CodeObject> compile(const gpu::Source& source) const;

  std::string architecture_;
  int version_;
  gpu::Limits limits_;
  std::map<std::tuple<std::string, std::string, std::vector<std::string>>, Result<CodeObject>> objects_;
};

}  // namespace gemmtune::test

// Skips the test visibly where no clang with its tools compiles for the architecture, or fails it where GEMMTUNE_REQUIRE names
// clang-amdgpu (of gfx950: clang-gfx950).
#define GEMMTUNE_NEEDS_CLANG(architecture)                                                               \
  if (::gemmtune::test::ClangRuntime::version_for(architecture) == 0) {                                  \
    const bool newer = std::string(architecture) == "gfx950";                                            \
    const char* required = std::getenv("GEMMTUNE_REQUIRE");                                              \
    const std::string why =                                                                              \
        std::string("not compiled for ") + (architecture) +                                              \
        (newer ? ": no clang of version 20 or newer with lld and LLVM's tools (install_dependencies.sh " \
                 "gfx950)"                                                                               \
               : ": no clang-19 with lld-19 and llvm-19 (install_dependencies.sh amdgpu)");              \
    const char* name = newer ? "clang-gfx950" : "clang-amdgpu";                                          \
    if (required != nullptr && std::string(required).find(name) != std::string::npos) FAIL() << why;     \
    GTEST_SKIP() << why;                                                                                 \
  }
