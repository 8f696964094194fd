#include "backends/cpu/families/bound_family.h"

#include <utility>

#include "backends/cpu/families/source_hash.h"
#include "backends/refusal.h"

namespace gemmtune::cpu {
namespace {

class BoundKernel final : public Kernel {
 public:
  BoundKernel(std::unique_ptr<Kernel> kernel, Executor& executor)
      : kernel_(std::move(kernel)), executor_(executor) {}

  std::size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  WeightLayout weight_layout() const override { return kernel_->weight_layout(); }
  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    if (stream.handle == nullptr) stream.handle = &executor_;
    return kernel_->run(operands, workspace, stream);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  Executor& executor_;
};

class BoundFamily final : public KernelFamily {
 public:
  BoundFamily(std::unique_ptr<KernelFamily> family, Executor& executor)
      : family_(std::move(family)), executor_(executor) {}

  std::string_view name() const override { return family_->name(); }
  int revision() const override { return family_->revision(); }
  std::string identity() const override {
    return fmt::format("{} source {}", family_->identity(), kernel_source_hash());
  }
  int tie_rank() const override { return family_->tie_rank(); }
  Status accepts(const Problem& problem) const override { return family_->accepts(problem); }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    return family_->packed_layout(problem);
  }
  Space space(const Problem& problem) const override { return family_->space(problem); }
  Config default_config(const Problem& problem) const override { return family_->default_config(problem); }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    auto kernel = family_->build(problem, config);
    if (!kernel.ok()) return kernel.status();
    // A workspace is a tensor: legal problems have them far beyond any memory.
    if ((*kernel)->workspace_bytes() > static_cast<std::size_t>(max_tensor_bytes))
      return refusal::refuse(refusal::size, "a workspace of {} bytes, at most {} are taken",
                             (*kernel)->workspace_bytes(), max_tensor_bytes);
    return std::unique_ptr<Kernel>(std::make_unique<BoundKernel>(std::move(*kernel), executor_));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return family_->predicted_microseconds(problem, config);
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    return family_->resources(problem, config);
  }
  std::string_view thread_pool() const override { return family_->thread_pool(); }

 private:
  std::unique_ptr<KernelFamily> family_;
  Executor& executor_;
};

}  // namespace

std::unique_ptr<KernelFamily> bind_family(std::unique_ptr<KernelFamily> family, Executor& executor) {
  return std::make_unique<BoundFamily>(std::move(family), executor);
}

}  // namespace gemmtune::cpu
