// Runs of a CPU kernel on the operands of an operation, beside the float64 reference, in memory that ends at an unreadable page.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "numbers/bfloat16.h"
#include "support/fenced_memory.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune::cpu::testing_runs {

constexpr std::int64_t pad = 6;  // of rows of x and y, in elements

struct Truth {
  HostOperands host;
  Reference reference;
};

inline Truth truth_of(const Problem& problem, HostOperands host) {
  auto reference = compute_reference(problem, host, {});
  EXPECT_TRUE(reference.ok()) << reference.message();
  return {std::move(host), std::move(*reference)};
}

inline Truth truth_of(const Problem& problem) {
  auto host = make_inputs(problem, 9);
  EXPECT_TRUE(host.ok()) << host.message();
  return truth_of(problem, std::move(*host));
}

/// With scales of all values that their type has.
inline Truth truth_of_all_scales(const Problem& problem) {
  auto inputs = plan_inputs(problem, 3, Signs::both, InitType::randn, {}, ScaleCodes::whole);
  EXPECT_TRUE(inputs.ok()) << inputs.message();
  EXPECT_TRUE(inputs->fill_all(1).ok());
  return truth_of(problem, std::move(inputs->host));
}

/// NaN in the elements of y, [m, n] in bf16, for which is_nan(row, column) holds, and in no others.
template <typename IsNan>
void check_nans(const Problem& problem, const std::vector<std::byte>& y, IsNan&& is_nan) {
  for (std::int64_t i = 0; i < problem.m * problem.n; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, y.data() + i * 2, 2);
    ASSERT_EQ(std::isnan(bf16_to_f32(bits)), is_nan(i / problem.n, i % problem.n)) << "element " << i;
  }
}

/// Bytes that end at an unreadable page.
class Fenced {
 public:
  explicit Fenced(const std::vector<std::byte>& bytes) : memory_(bytes.size(), Fence::after) {
    if (!bytes.empty()) std::memcpy(memory_.data(), bytes.data(), bytes.size());
  }
  const void* data() const { return memory_.data(); }

 private:
  FencedMemory memory_;
};

inline std::vector<std::byte> packed(const MatrixShape& shape, WeightLayout layout,
                                     const std::vector<std::byte>& plain) {
  if (layout == WeightLayout::plain) return plain;
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.count * layout_bytes(shape, layout)));
  pack_matrices(shape, layout, plain.data(), bytes.data());
  return bytes;
}

/// Rows of x `pad` elements further apart than they are long; nothing behind the last one.
inline std::vector<std::byte> with_gaps(const MatrixShape& x, const std::vector<std::byte>& dense) {
  const std::int64_t row = bytes_of(x.type, x.columns);
  const std::int64_t stride = bytes_of(x.type, x.columns + pad);
  std::vector<std::byte> bytes(static_cast<std::size_t>((x.count * x.rows - 1) * stride + row),
                               std::byte{0xff});
  for (std::int64_t i = 0; i < x.count * x.rows; ++i)
    std::memcpy(bytes.data() + i * stride, dense.data() + i * row, static_cast<std::size_t>(row));
  return bytes;
}

/// y of a run, dense; empty where the kernel failed or wrote elsewhere.
inline std::vector<std::byte> run_kernel(const Kernel& kernel, const Problem& problem, const Truth& truth,
                                         Executor& executor) {
  const OperandShapes shapes = operand_shapes(problem);
  const HostOperands& host = truth.host;
  const Fenced x(with_gaps(shapes.x, host.x));
  const Fenced w(packed(shapes.w, kernel.weight_layout(), host.w));
  const Fenced w2(host.w2);
  const Fenced bias(host.bias);
  const Fenced x_scale(host.x_scale);
  const Fenced w_scale(host.w_scale);
  const Fenced x_global(host.x_global_scale);
  const Fenced w_global(host.w_global_scale);
  const Fenced zero_points(host.w_zero_points);
  const Fenced w2_scale(host.w2_scale);
  const Fenced w2_global(host.w2_global_scale);
  const Fenced w2_zero_points(host.w2_zero_points);
  const Fenced bias2(host.bias2);
  const std::int64_t columns = output_columns(problem);
  const std::int64_t ldy = columns + pad;
  const std::int64_t size = bytes_of(problem.y_type, 1);
  const std::int64_t rows = problem.batch * problem.m;
  FencedMemory y(static_cast<std::size_t>(((rows - 1) * ldy + columns) * size), Fence::after);
  FencedMemory workspace((kernel.workspace_bytes() + 63) / 64 * 64, Fence::after);
  const auto or_null = [](const Fenced& memory, const std::vector<std::byte>& bytes) {
    return bytes.empty() ? nullptr : memory.data();
  };
  const Operands operands{.x = x.data(),
                          .w = w.data(),
                          .bias = or_null(bias, host.bias),
                          .x_scale = or_null(x_scale, host.x_scale),
                          .w_scale = or_null(w_scale, host.w_scale),
                          .y = y.data(),
                          .ldx = problem.k + pad,
                          .ldy = ldy,
                          .x_batch_stride = problem.m * (problem.k + pad),
                          .y_batch_stride = problem.m * ldy,
                          .w2 = or_null(w2, host.w2),
                          .w2_scale = or_null(w2_scale, host.w2_scale),
                          .bias2 = reinterpret_cast<const float*>(or_null(bias2, host.bias2)),
                          .topk_ids = host.topk_ids.data(),
                          .topk_weights = host.topk_weights.data(),
                          .x_global_scale = or_null(x_global, host.x_global_scale),
                          .w_global_scale = or_null(w_global, host.w_global_scale),
                          .w_zero_points = or_null(zero_points, host.w_zero_points),
                          .w2_global_scale = or_null(w2_global, host.w2_global_scale),
                          .w2_zero_points = or_null(w2_zero_points, host.w2_zero_points)};
  const Status status = kernel.run(operands, workspace.data(), Stream{&executor});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(workspace.surroundings_intact()) << "workspace";
  EXPECT_TRUE(y.surroundings_intact()) << "y";
  std::vector<std::byte> dense(static_cast<std::size_t>(rows * columns * size));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(dense.data() + row * columns * size, y.data() + row * ldy * size,
                static_cast<std::size_t>(columns * size));
    for (std::int64_t byte = columns * size; row + 1 < rows && byte < ldy * size; ++byte)
      EXPECT_EQ(y.data()[row * ldy * size + byte], FencedMemory::poison) << "behind row " << row;
  }
  return dense;
}

inline std::string verdict(const Problem& problem, const Truth& truth, const std::vector<std::byte>& y) {
  const CheckReport report =
      check_output(problem, truth.reference, y, output_columns(problem), tolerance_for(problem, 0.05));
  return report.right ? "" : report.reason;
}

}  // namespace gemmtune::cpu::testing_runs
