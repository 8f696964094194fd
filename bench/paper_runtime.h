// A GPU of which only the limits are known: families say what they would run, and nothing is compiled.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backends/gpu/runtime.h"

namespace gemmtune {

class PaperRuntime final : public gpu::Runtime {
 public:
  PaperRuntime(std::string architecture, const gpu::Limits& limits)
      : architecture_(std::move(architecture)), limits_(limits) {}
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source&) override {
    return Status::unsupported("no compiler");
  }

 private:
  std::string architecture_;
  gpu::Limits limits_;
};

}  // namespace gemmtune
