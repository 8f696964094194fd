#include "backends/cpu/families/openblas/openblas_family.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "backends/cpu/threads/openmp_team.h"
#include "backends/refusal.h"
#include "problem/operands.h"

namespace gemmtune::cpu {
namespace {

class OpenblasKernel final : public Kernel {
 public:
  OpenblasKernel(std::shared_ptr<const OpenblasLibrary> library, int threads, const Problem& problem)
      : library_(std::move(library)),
        threads_(threads),
        m_(static_cast<int>(problem.m)),
        n_(static_cast<int>(problem.n)),
        k_(static_cast<int>(problem.k)),
        x_(operand_shapes(problem).x),
        w_(operand_shapes(problem).w),
        bias_(problem.bias) {}

  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

  Status run(const Operands& operands, void*, Stream) const override {
    const std::int64_t ldx = x_.lines() == 1 ? x_.line_elements() : operands.ldx;
    const std::int64_t ldy = m_ == 1 ? n_ : operands.ldy;
    if (std::max(ldx, ldy) > std::numeric_limits<int>::max()) {
      return Status::unsupported("openblas: ldx = {}, ldy = {}: above the library's 32-bit sizes", ldx, ldy);
    }
    // The flavour with threads of its own starts them again after fork().
    if (library_->threading() != OpenblasLibrary::Threads::openmp) return multiply(operands, ldx, ldy);
    return with_openmp_team(threads_, RegionsOf::program, [&] { return multiply(operands, ldx, ldy); });
  }

 private:
  Status multiply(const Operands& operands, std::int64_t ldx, std::int64_t ldy) const {
    library_->set_threads(threads_);
    const float beta = prepare(operands, ldy);
    library_->multiply(
        m_, n_, k_,
        {static_cast<const float*>(operands.x), static_cast<int>(ldx), x_.order == Order::column_major},
        {static_cast<const float*>(operands.w), static_cast<int>(w_.line_elements()),
         w_.order == Order::column_major},
        beta, {static_cast<float*>(operands.y), static_cast<int>(ldy)});
    return {};
  }

  /// Puts what the product is added to into y; returns beta. At M = 1 y is cleared even without a bias: some
  /// versions' gemv multiplies what was there by 0, which keeps a NaN.
  float prepare(const Operands& operands, std::int64_t ldy) const {
    auto* y = static_cast<float*>(operands.y);
    const auto row_bytes = static_cast<std::size_t>(n_) * sizeof(float);
    if (bias_) {
      for (std::int64_t row = 0; row < m_; ++row) std::memcpy(y + row * ldy, operands.bias, row_bytes);
      return 1.0F;
    }
    if (m_ > 1) return 0.0F;
    std::memset(y, 0, row_bytes);
    return 1.0F;
  }

  std::shared_ptr<const OpenblasLibrary> library_;
  int threads_;
  int m_;
  int n_;
  int k_;
  MatrixShape x_;
  MatrixShape w_;
  bool bias_;
};

}  // namespace

OpenblasFamily::OpenblasFamily(std::shared_ptr<const OpenblasLibrary> library, int threads)
    : library_(std::move(library)), threads_(threads) {
  // Threads beyond those that it started with are started here, not in the first timed call.
  library_->set_threads(threads_);
}

Status OpenblasFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(refusal::check_plain_gemm(problem, refusal::Orders::any_input));
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  if (problem.x_type != DataType::f32 || problem.y_type != DataType::f32) {
    return refusal::refuse(refusal::types, "{} to {}, only f32 to f32", to_string(problem.x_type),
                           to_string(problem.y_type));
  }
  if (problem.weight_layout != WeightLayout::plain) {
    return refusal::refuse(refusal::layout, "{}, only plain", to_string(problem.weight_layout));
  }
  return {};
}

Result<std::unique_ptr<Kernel>> OpenblasFamily::build(const Problem& problem, const Config&) const {
  return std::make_unique<OpenblasKernel>(library_, threads_, problem);
}

std::string_view OpenblasFamily::thread_pool() const {
  return library_->threading() == OpenblasLibrary::Threads::openmp ? "openmp" : "openblas";
}

}  // namespace gemmtune::cpu
