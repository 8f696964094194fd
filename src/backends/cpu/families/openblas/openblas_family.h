// The `openblas` family: OpenBLAS on fp32 operands and plain weights.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cpu/families/openblas/openblas_library.h"

namespace gemmtune::cpu {

class OpenblasFamily final : public LeafFamily {
 public:
  OpenblasFamily(std::shared_ptr<const OpenblasLibrary> library, int threads);

  std::string_view name() const override { return "openblas"; }
  int tie_rank() const override { return 1; }
  Status accepts(const Problem& problem) const override;
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }
  /// Without parameters.
  Space space(const Problem&) const override { return {}; }
  Config default_config(const Problem&) const override { return {}; }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override;
  std::string_view thread_pool() const override;

 private:
  std::shared_ptr<const OpenblasLibrary> library_;
  int threads_;
};

}  // namespace gemmtune::cpu
