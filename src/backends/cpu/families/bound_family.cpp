#include "backends/cpu/families/bound_family.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/families/source_hash.h"
#include "backends/forwarding_family.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "numbers/minifloat.h"
#include "problem/operands.h"

namespace gemmtune::cpu {
namespace {

constexpr std::size_t line_bytes = 64;

void widen_scales(const void* from, std::int64_t count, float* to) {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  std::transform(bytes, bytes + count, to, e8m0_to_f32);
}

class BoundKernel final : public Kernel {
 public:
  BoundKernel(std::unique_ptr<Kernel> kernel, ThreadTeam& team, const Problem& problem)
      : kernel_(std::move(kernel)), team_(team) {
    if (!problem.e8m0_scales) return;
    const OperandShapes shapes = operand_shapes(problem);
    x_scales_ = shapes.x.scale.elements();
    w_scales_ = shapes.w.scale.elements();
  }

  std::size_t workspace_bytes() const override {
    if (w_scales_ == 0) return kernel_->workspace_bytes();
    return scales_at() + static_cast<std::size_t>(x_scales_ + w_scales_) * sizeof(float);
  }
  WeightLayout weight_layout() const override { return kernel_->weight_layout(); }
  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    if (stream.handle == nullptr) stream.handle = static_cast<Executor*>(&team_);
    if (w_scales_ == 0) return kernel_->run(operands, workspace, stream);
    auto* x_scale = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + scales_at());
    float* const w_scale = x_scale + x_scales_;
    widen_scales(operands.x_scale, x_scales_, x_scale);
    widen_scales(operands.w_scale, w_scales_, w_scale);
    Operands widened = operands;
    widened.x_scale = x_scale;
    widened.w_scale = w_scale;
    return kernel_->run(widened, workspace, stream);
  }

 private:
  std::size_t scales_at() const { return round_up(kernel_->workspace_bytes(), line_bytes); }

  std::unique_ptr<Kernel> kernel_;
  ThreadTeam& team_;
  std::int64_t x_scales_ = 0;  // e8m0 scales, which follow the kernel's workspace as float32
  std::int64_t w_scales_ = 0;
};

class BoundFamily final : public ForwardingFamily {
 public:
  BoundFamily(std::unique_ptr<KernelFamily> family, ThreadTeam& team)
      : ForwardingFamily(*family), family_(std::move(family)), team_(team) {}

  std::string identity() const override {
    return fmt::format("{} source {}", family_->identity(), kernel_source_hash());
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    GEMMTUNE_TRY(auto kernel, ForwardingFamily::build(problem, config));
    // A workspace is a tensor: legal problems have them far beyond any memory.
    if (kernel->workspace_bytes() > static_cast<std::size_t>(max_tensor_bytes))
      return refusal::refuse(refusal::size, "a workspace of {} bytes, at most {} are taken",
                             kernel->workspace_bytes(), max_tensor_bytes);
    return std::make_unique<BoundKernel>(std::move(kernel), team_, problem);
  }
  std::string_view thread_pool() const override {
    const std::string_view pool = ForwardingFamily::thread_pool();
    return pool == "own" && team_.openmp() != nullptr ? "openmp" : pool;
  }

 private:
  /// Families know float32 scales alone.
  Problem inner_problem(const Problem& problem) const override {
    Problem widened = problem;
    widened.e8m0_scales = false;
    return widened;
  }

  std::unique_ptr<KernelFamily> family_;
  ThreadTeam& team_;
};

}  // namespace

std::unique_ptr<KernelFamily> bind_family(std::unique_ptr<KernelFamily> family, ThreadTeam& team) {
  return std::make_unique<BoundFamily>(std::move(family), team);
}

}  // namespace gemmtune::cpu
