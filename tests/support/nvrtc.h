// A compile-only device: what NVRTC makes for an architecture, checked and never launched.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cuda/cubin.h"
#include "backends/cuda/nvrtc_compiler.h"
#include "backends/gpu/jit/compiler.h"
#include "backends/gpu/runtime.h"
#include "support/code_folder.h"

namespace gemmtune {

inline bool nvrtc_required() {
  const char* required = std::getenv("GEMMTUNE_REQUIRE");
  return required != nullptr && std::string(required).find("nvrtc") != std::string::npos;
}

class CompiledProgram final : public gpu::Program {
 public:
  CompiledProgram(gpu::Resources resources, std::size_t most) : resources_(resources), most_(most) {}
  const gpu::Resources& resources() const override { return resources_; }
  const gpu::LoadedKernel& loaded() const override { return loaded_; }
  Status reserve_shared(std::size_t bytes) override {
    if (bytes + resources_.static_shared_bytes <= most_) return {};
    return Status::unsupported("{} bytes of shared memory, {} are there", bytes, most_);
  }
  Status launch(const gpu::LaunchShape&, void**, Stream) const override {
    return Status::unsupported("compile-only device");
  }

 private:
  gpu::Resources resources_;
  gpu::LoadedKernel loaded_;  // none
  std::size_t most_;
};

/// An H200 (or another architecture with its limits) without the GPU.
class CompileOnlyRuntime final : public gpu::Runtime {
 public:
  CompileOnlyRuntime(const gpu::Compiler& compiler, std::string architecture, gpu::Limits limits)
      : compiler_(compiler), architecture_(std::move(architecture)), limits_(limits) {}
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }

  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override {
    // Configs that differ in arguments of the launch alone are one source.
    auto [found, is_new] =
        sources_.try_emplace({source.name, source.text, source.defines}, Status::internal("not compiled"));
    if (is_new) found->second = compile(source);
    if (!found->second.ok()) return found->second.status();
    last = found->second->resources;
    log += found->second->log;
    return std::shared_ptr<gpu::Program>(
        std::make_shared<CompiledProgram>(last, limits_.shared_bytes_per_block));
  }

  int compiled = 0;  // sources that differ
  gpu::Resources last;
  std::string log;  // of all sources since it was cleared

 private:
  struct Compiled {
    gpu::Resources resources;
    std::string log;
  };
  Result<Compiled> compile(const gpu::Source& source) {
    const auto binary = compiler_.compile(source, architecture_);
    if (!binary.ok()) return binary.status();
    GEMMTUNE_RETURN_IF_ERROR(test::leave_code(source, architecture_, binary->code));
    const auto resources = cuda::read_cubin(binary->code);
    if (!resources.ok()) return resources.status();
    GEMMTUNE_RETURN_IF_ERROR(resources->acceptable(source.name));
    ++compiled;
    return Compiled{*resources, binary->log};
  }

  std::map<std::tuple<std::string, std::string, std::vector<std::string>>, Result<Compiled>> sources_;
  const gpu::Compiler& compiler_;
  std::string architecture_;
  gpu::Limits limits_;
};

/// The limits of an architecture's largest device: A100, H200, B200.
inline gpu::Limits limits_of(const std::string& architecture) {
  gpu::Limits limits;
  const bool ampere = architecture == "sm_80";
  limits.multiprocessors = ampere ? 108 : architecture == "sm_90a" ? 132 : 148;
  limits.shared_bytes_per_block = ampere ? 166912 : 232448;
  limits.shared_bytes_per_multiprocessor = ampere ? 167936 : 233472;
  limits.cache_bytes = ampere ? 41943040 : 62914560;
  return limits;
}

/// An H200 that compiles nothing; remembers what was asked for last.
class NoCompiler final : public gpu::Runtime {
 public:
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override {
    source_ = source;
    return Status::unsupported("no compiler");
  }
  const gpu::Source& last() const { return source_; }

 private:
  gpu::Limits limits_ = limits_of("sm_90a");
  std::string architecture_ = "sm_90a";
  gpu::Source source_;
};

}  // namespace gemmtune

// Declares `name`, NVRTC as a compiler; skips the test visibly where there is none, or fails it where
// GEMMTUNE_REQUIRE names nvrtc.
#define GEMMTUNE_NEEDS_NVRTC(name)                                                                \
  const auto name##_result = ::gemmtune::cuda::make_nvrtc_compiler(                               \
      std::getenv("GEMMTUNE_LIBRARY_DIR") != nullptr ? std::getenv("GEMMTUNE_LIBRARY_DIR") : ""); \
  if (!name##_result.ok()) {                                                                      \
    if (::gemmtune::nvrtc_required()) FAIL() << name##_result.message();                          \
    GTEST_SKIP() << name##_result.message();                                                      \
  }                                                                                               \
  const ::gemmtune::gpu::Compiler& name = *name##_result.value()
