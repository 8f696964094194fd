// Batched operations on a GPU against the reference of verify/, batches that lie side by side, and scales that are one
// for all rows. Skips where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "support/dense_problem.h"
#include "support/first_gpu.h"
#include "support/gpu_kernels.h"

namespace gemmtune {
namespace {

class CudaBatches : public OnGpu {};

/// Batches of bf16, fp8 and int8, more than one tile of each, whose last rows and columns end within a tile.
std::vector<Problem> batched_problems() {
  std::vector<Problem> problems;
  const std::pair<std::int64_t, Size> sizes[] = {
      {3, {1, 65, 144}},   {16, {5, 512, 128}}, {128, {2, 128, 512}}, {2, {17, 100, 208}},
      {1, {64, 128, 512}}, {5, {33, 130, 512}}, {7, {129, 264, 80}},  {3, {300, 520, 272}},
      {3, {5, 7, 3}},      {2, {200, 333, 77}}};
  for (const auto& [batch, size] : sizes)
    for (const DataType type : {DataType::bf16, DataType::f8_e4m3fn, DataType::i8})
      problems.push_back(
          batched(batch, size.m, size.n, size.k, type, type == DataType::bf16 && size.m % 2 == 1));
  return problems;
}

class BatchesOf : public OnGpu, public ::testing::WithParamInterface<const char*> {};

TEST_P(BatchesOf, AreRight) {
  const std::string_view name = GetParam();
  const KernelFamily* family = gpu()->find_family(name);
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family(name).message();
  int taken = 0;
  for (const Problem& problem : batched_problems()) {
    if (!family->accepts(problem).ok()) continue;
    ++taken;
    expect_right(*family, problem,
                 name == "wgmma"    ? wgmma_configs(*family, problem)
                 : name == "skinny" ? named_configs(*family, problem, skinny_ways)
                 : name == "mma"    ? named_configs(*family, problem, mma_ways)
                                    : some_configs(*family, problem, 6));
    ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
  }
  const std::map<std::string_view, int> expected{
      {"simt", 30}, {"mma", 8}, {"wgmma", 24}, {"skinny", 18}, {"cublaslt", 8}};
  EXPECT_GE(taken, expected.at(name));
}

INSTANTIATE_TEST_SUITE_P(, BatchesOf, ::testing::Values("simt", "mma", "wgmma", "skinny", "cublaslt"),
                         [](const auto& one) { return std::string(one.param); });

/// Device memory with these elements.
template <typename Element>
std::unique_ptr<Buffer> on_device(const std::vector<Element>& elements) {
  auto buffer = gpu()->allocate(elements.size() * sizeof(Element), Placement::plain);
  EXPECT_TRUE(buffer.ok()) << buffer.message();
  if (!buffer.ok()) return nullptr;
  EXPECT_TRUE(gpu()->copy_in((*buffer)->data(), elements.data(), elements.size() * sizeof(Element)).ok());
  return std::move(*buffer);
}

template <typename Element>
std::vector<Element> from_device(const Buffer& buffer) {
  std::vector<Element> elements(buffer.bytes() / sizeof(Element));
  EXPECT_TRUE(gpu()->copy_out(elements.data(), buffer.data(), buffer.bytes()).ok());
  return elements;
}

void run_on_device(const Kernel& kernel, const Operands& operands) {
  auto workspace = gpu()->allocate(std::max<std::size_t>(1, kernel.workspace_bytes()), Placement::plain);
  ASSERT_TRUE(workspace.ok());
  const Status ran = kernel.run(operands, (*workspace)->data(), {});
  ASSERT_TRUE(ran.ok()) << ran.message();
  ASSERT_TRUE(gpu()->synchronize().ok());
}

/// Rows of all batches lie side by side, as those of an attention's heads do: x is [M, B, K], y [M, B, N].
TEST_F(CudaBatches, MayLieSideBySide) {
  const Problem problem = batched(6, 37, 136, 128);
  const std::int64_t batches = problem.batch;
  std::vector<unsigned short> x(static_cast<std::size_t>(batches * problem.m * problem.k));
  std::vector<unsigned short> beside(x.size());
  std::vector<unsigned short> w(static_cast<std::size_t>(batches * problem.n * problem.k));
  Random random(5);
  // bf16 between 1 and 2, some of them negative.
  for (auto* matrix : {&x, &w})
    for (unsigned short& element : *matrix)
      element = static_cast<unsigned short>(0x3f80U | random.below(128) | random.below(2) << 15);
  for (std::int64_t batch = 0; batch < batches; ++batch)
    for (std::int64_t row = 0; row < problem.m; ++row)
      std::copy_n(x.begin() + (batch * problem.m + row) * problem.k, problem.k,
                  beside.begin() + (row * batches + batch) * problem.k);
  const auto x_there = on_device(x);
  const auto beside_there = on_device(beside);
  const auto w_there = on_device(w);
  const std::vector<unsigned short> nothing(static_cast<std::size_t>(batches * problem.m * problem.n),
                                            0xffff);
  const auto y_there = on_device(nothing);
  int families = 0;
  for (const KernelFamily* family : gpu()->families()) {
    if (!family->accepts(problem).ok()) continue;
    ++families;
    for (const Config& config : some_configs(*family, problem, 4)) {
      SCOPED_TRACE(std::string(family->name()) + " " + config.text());
      const auto kernel = family->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      Operands operands;
      operands.x = x_there->data();
      operands.w = w_there->data();
      operands.y = y_there->data();
      operands.ldx = problem.k;
      operands.ldy = problem.n;
      operands.x_batch_stride = problem.m * problem.k;
      operands.y_batch_stride = problem.m * problem.n;
      run_on_device(**kernel, operands);
      const auto apart = from_device<unsigned short>(*y_there);
      ASSERT_TRUE(gpu()->fill(y_there->data(), 0xff, y_there->bytes()).ok());
      operands.x = beside_there->data();
      operands.ldx = batches * problem.k;
      operands.ldy = batches * problem.n;
      operands.x_batch_stride = problem.k;
      operands.y_batch_stride = problem.n;
      run_on_device(**kernel, operands);
      const auto together = from_device<unsigned short>(*y_there);
      for (std::int64_t batch = 0; batch < batches; ++batch)
        for (std::int64_t row = 0; row < problem.m; ++row)
          ASSERT_TRUE(std::equal(apart.begin() + (batch * problem.m + row) * problem.n,
                                 apart.begin() + (batch * problem.m + row + 1) * problem.n,
                                 together.begin() + (row * batches + batch) * problem.n))
              << batch << " " << row;
    }
  }
  EXPECT_GE(families, 4) << "wgmma, skinny, mma, simt";
}

/// One scale a matrix in place of one a row, of either operand and of both.
TEST_F(CudaBatches, ScalesMayBeOneForAllRows) {
  const Problem problem = quantized(Operation::a8w8, 40, 272, 512, DataType::f8_e4m3fn);
  Random random(6);
  std::vector<unsigned char> x(static_cast<std::size_t>(problem.m * problem.k));
  std::vector<unsigned char> w(static_cast<std::size_t>(problem.n * problem.k));
  for (auto* matrix : {&x, &w})
    for (unsigned char& element : *matrix)
      element = static_cast<unsigned char>(0x30U | random.below(16) | random.below(2) << 7);
  std::vector<float> x_scale(static_cast<std::size_t>(problem.m));
  std::vector<float> w_scale(static_cast<std::size_t>(problem.n));
  for (auto* scales : {&x_scale, &w_scale})
    for (float& scale : *scales) scale = 0.5F + static_cast<float>(random.below(1000)) / 1000;
  const auto x_there = on_device(x);
  const auto w_there = on_device(w);
  const auto x_scale_there = on_device(x_scale);
  const auto w_scale_there = on_device(w_scale);
  const auto y_there =
      on_device(std::vector<unsigned short>(static_cast<std::size_t>(problem.m * problem.n)));
  const auto number = [](unsigned short bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<unsigned>(bits) << 16));
  };
  for (const auto& [x_step, w_step] : {std::pair{1, 1}, {0, 1}, {1, 0}, {0, 0}}) {
    std::vector<unsigned short> expected;
    for (const char* name : {"simt", "skinny", "wgmma", "cublaslt"}) {
      const KernelFamily* family = gpu()->find_family(name);
      if (family == nullptr) continue;
      ASSERT_TRUE(family->accepts(problem).ok()) << name << ": " << family->accepts(problem).message();
      const auto kernel = family->build(problem, family->default_config(problem));
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      Operands operands;
      operands.x = x_there->data();
      operands.w = w_there->data();
      operands.y = y_there->data();
      operands.x_scale = x_scale_there->data();
      operands.w_scale = w_scale_there->data();
      operands.x_scale_step = x_step;
      operands.w_scale_step = w_step;
      operands.ldx = problem.k;
      operands.ldy = problem.n;
      run_on_device(**kernel, operands);
      const auto seen = from_device<unsigned short>(*y_there);
      if (expected.empty()) expected = seen;
      for (std::size_t i = 0; i < seen.size(); ++i)
        ASSERT_NEAR(number(seen[i]), number(expected[i]), 0.5 + std::abs(number(expected[i])) / 64)
            << name << " " << x_step << w_step << " " << i;
    }
  }
}

}  // namespace
}  // namespace gemmtune
