// MXFP4 weights on a GPU: every family that takes them against the reference, the layout fragment64, and every value and scale. Skips where there is no
// GPU.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "numbers/weight_layout.h"
#include "support/dense_problem.h"
#include "support/first_gpu.h"
#include "support/gpu_kernels.h"

namespace gemmtune {
namespace {

class CudaFp4 : public OnGpu {};

Problem in_fragments(Problem problem) {
  problem.weight_layout = WeightLayout::fragment64;
  return problem;
}

std::vector<Problem> fp4_problems(const Size& size) {
  const bool bias = size.m % 2 == 0;
  std::vector<Problem> plain{of_fp4(Operation::a16w4, size.m, size.n, size.k, bias),
                             of_fp4(Operation::a16w4, size.m, size.n, size.k, !bias),
                             of_fp4(Operation::a8w4, size.m, size.n, size.k, bias),
                             of_fp4(Operation::a4w4_blockscale, size.m, size.n, size.k)};
  plain[1].x_type = plain[1].y_type = DataType::f16;
  plain[2].y_type = DataType::f16;
  std::vector<Problem> problems;
  for (const Problem& problem : plain) {
    problems.push_back(problem);
    problems.push_back(in_fragments(problem));
  }
  return problems;
}

/// Of the problems whose activations are bf16, or of the others.
void expect_awkward_shapes_right(bool bf16, int at_least) {
  const Size sizes[] = {{1, 1, 32},        {1, 65, 96},     {3, 130, 4096},  {8, 1280, 8192},
                        {9, 4097, 160},    {16, 264, 640},  {17, 100, 224},  {31, 72, 2080},
                        {64, 2112, 7168},  {65, 129, 96},   {200, 333, 352}, {300, 576, 2880},
                        {129, 1440, 1440}, {1030, 4160, 96}};
  int taken = 0;
  for (const KernelFamily* family : gpu()->families()) {
    for (std::size_t i = 0; i < std::size(sizes); i += bf16 ? 1 : 2) {
      for (const Problem& problem : fp4_problems(sizes[i])) {
        if ((problem.x_type == DataType::bf16) != bf16 || !family->accepts(problem).ok()) continue;
        ++taken;
        // The mainloop sees bf16 activations, whatever they were.
        const std::size_t configs = family->name() == "simt" ? 1 : bf16 ? 6 : 2;
        expect_right(*family, problem, some_configs(*family, problem, configs));
        ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
      }
    }
  }
  EXPECT_GE(taken, at_least);
}

TEST_F(CudaFp4, Fp4WeightsOnAwkwardShapesAreRight) { expect_awkward_shapes_right(true, 14 * 2); }
TEST_F(CudaFp4, OtherActivationsOnAwkwardShapesAreRight) { expect_awkward_shapes_right(false, 7 * 6); }

/// What few drawn configs have: three warp groups, long stages, blocks that compute several tiles.
TEST_F(CudaFp4, NamedTilesAreRight) {
  const KernelFamily* family = gpu()->find_family("mxfp4");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4").message();
  const auto expect_named_right = [&](const Size& size, std::initializer_list<const char*> names) {
    for (const Operation operation : {Operation::a16w4, Operation::a8w4}) {
      const Problem problem = in_fragments(of_fp4(operation, size.m, size.n, size.k, true));
      std::vector<Config> configs;
      for (const char* name : names) {
        const auto candidate = gpu()->resolve(std::string("mxfp4_r1_") + name + "_pdl0", problem);
        ASSERT_TRUE(candidate.ok()) << candidate.message();
        configs.push_back(candidate->config);
      }
      expect_right(*family, problem, configs);
    }
  };
  expect_named_right({9, 1000, 2880},
                     {"wg1_bm64_bn16_mma1_bk512_csk2_smem110", "wg2_bm128_bn16_mma1_bk512_csk3_smem220",
                      "wg1_bm128_bn16_mma1_bk512_csk1_smem220", "wg2_bm256_bn16_mma1_bk256_csk4_smem110"});
  expect_named_right({1030, 4160, 672},
                     {"wg3_bm192_bn128_mma0_bk128_csk1_smem220", "wg3_bm192_bn128_mma0_bk256_csk1_smem220",
                      "wg2_bm256_bn128_mma0_bk256_csk1_smem220", "wg2_bm128_bn208_mma0_bk128_csk1_smem220",
                      "wg1_bm64_bn64_mma0_bk128_csk1_smem75", "wg3_bm192_bn96_mma0_bk128_csk2_smem110",
                      "wg2_bm256_bn112_mma0_bk128_csk1_smem220", "wg1_bm128_bn96_mma0_bk128_csk1_smem110",
                      "wg2_bm128_bn128_mma0_bk256_csk1_smem220", "wg2_bm128_bn256_mma0_bk128_csk2_smem220",
                      "wg2_bm128_bn64_mma0_bk256_csk2_smem220"});
  expect_named_right({130, 333, 352}, {"wg2_bm128_bn64_mma0_bk128_csk1_smem110"});
}

/// Warps and blocks of a cluster that divide k evenly or not, one strip of the weight for a block and many, pipelines of less than a strip and of several, x by lanes and through shared
/// memory, bf16 and MXFP4, both layouts.
TEST_F(CudaFp4, FewRowsAreRight) {
  const KernelFamily* family = gpu()->find_family("mxfp4_skinny");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4_skinny").message();
  for (const Size& size :
       {Size{1, 48, 320}, Size{4, 5760, 2880}, Size{16, 16, 1024}, Size{7, 1040, 8192}, Size{13, 272, 1472},
        Size{16, 12672, 64}, Size{24, 1040, 2880}, Size{31, 272, 2048}}) {
    const Problem plain = of_fp4(Operation::a16w4, size.m, size.n, size.k, size.m % 2 == 0);
    const Problem both = of_fp4(Operation::a4w4_blockscale, size.m, size.n, size.k);
    for (const Problem& problem : {plain, in_fragments(plain), both, in_fragments(both)}) {
      ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
      expect_right(*family, problem,
                   some_configs(*family, problem, problem.x_type == DataType::bf16 ? 5 : 3));
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
}

/// For compute-sanitizer.
TEST_F(CudaFp4, SanitizerSample) {
  const KernelFamily* family = gpu()->find_family("mxfp4");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4").message();
  for (const std::int64_t m : {9, 72}) {
    const Problem plain = of_fp4(Operation::a16w4, m, 264, 736, true);
    for (const Problem& problem : {plain, in_fragments(plain)})
      expect_right(*family, problem, some_configs(*family, problem, 10));
    for (const Problem& problem : fp4_problems({m, 264, 736}))
      if (problem.x_type != DataType::bf16) expect_right(*family, problem, some_configs(*family, problem, 2));
  }
}

/// Few rows, in both layouts, for compute-sanitizer: warps without k and with a rest, two groups of rows, several strips for a block.
TEST_F(CudaFp4, SanitizerSampleOfFewRows) {
  const KernelFamily* family = gpu()->find_family("mxfp4_skinny");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4_skinny").message();
  for (const Size& size : {Size{1, 48, 320}, Size{7, 4240, 192}, Size{13, 80, 1472}}) {
    const Problem plain = of_fp4(Operation::a16w4, size.m, size.n, size.k, size.m % 2 == 0);
    for (const Problem& problem : {plain, in_fragments(plain)})
      expect_right(*family, problem, some_configs(*family, problem, 4));
  }
}

/// Every element of x by the identity: fp8 and fp16 as they are, fp4 with every scale. y is exact.
TEST_F(CudaFp4, EveryActivationIsExact) {
  for (const char* name : {"mxfp4", "mxfp4_skinny"})
    if (gpu()->find_family(name) == nullptr) GTEST_SKIP() << gpu()->missing_family(name).message();
  const auto on_gpu = [&](const auto& host) {
    auto buffer = gpu()->allocate(host.size() * sizeof(host[0]), Placement::plain);
    EXPECT_TRUE(buffer.ok()) << buffer.message();
    EXPECT_TRUE(gpu()->copy_in((*buffer)->data(), host.data(), (*buffer)->bytes()).ok());
    return std::move(*buffer);
  };
  struct Form {
    const char* family;
    Operation operation;
    DataType x, y;
    std::int64_t rows, k;
    std::int64_t first;  // exponent of the rows' scales
  };
  std::vector<Form> forms{
      {"mxfp4", Operation::a16w4, DataType::f16, DataType::f16, 65536 / 32, 32, 0},
      {"mxfp4", Operation::a8w4, DataType::f8_e4m3fn, DataType::bf16, 256 / 32, 32, 0},
      {"mxfp4", Operation::a4w4_blockscale, DataType::f4_e2m1, DataType::bf16, 253, 32, 0}};
  for (std::int64_t first = 0; first < 253; first += 23)
    forms.push_back(
        {"mxfp4_skinny", Operation::a4w4_blockscale, DataType::f4_e2m1, DataType::bf16, 23, 64, first});
  for (const Form& form : forms) {
    const KernelFamily* family = gpu()->find_family(form.family);
    const std::int64_t k = form.k;
    std::vector<unsigned char> identity(static_cast<std::size_t>(k * k / 2));
    for (std::int64_t row = 0; row < k; ++row)
      identity[static_cast<std::size_t>((row * k + row) / 2)] = row % 2 == 0 ? 0x02 : 0x20;
    const auto there_w = on_gpu(identity);
    const auto there_ones = on_gpu(std::vector<unsigned char>(static_cast<std::size_t>(k * k / 32), 127));
    Problem problem = of_fp4(form.operation, form.rows, k, k);
    problem.x_type = form.x;
    problem.y_type = form.y;
    const std::int64_t wide = bits(form.x);
    const auto code = [&](std::int64_t at) {
      auto value = static_cast<std::uint32_t>(at) & ((1U << wide) - 1);
      // Not a number would be the whole row's.
      return std::isfinite(traits(form.x).to_f32(value)) ? value : 0U;
    };
    std::vector<unsigned char> x(static_cast<std::size_t>(form.rows * k * wide / 8));
    for (std::int64_t at = 0; at < form.rows * k; ++at)
      for (std::int64_t bit = 0; bit < wide; ++bit)
        if ((code(at) >> bit & 1U) != 0)
          x[static_cast<std::size_t>((at * wide + bit) / 8)] |=
              static_cast<unsigned char>(1U << (at * wide + bit) % 8);
    // fp4: 2^(row - 127); fp8: powers of two.
    std::vector<unsigned char> exponents;
    std::vector<float> factors;
    for (std::int64_t row = 0; row < form.rows; ++row) {
      for (std::int64_t block = 0; block < k / 32; ++block)
        exponents.push_back(static_cast<unsigned char>((form.first + row) % 256));
      factors.push_back(form.x == DataType::f16
                            ? 1.0F
                            : std::ldexp(1.0F, form.x == DataType::f4_e2m1
                                                   ? static_cast<int>(form.first + row) - 127
                                                   : static_cast<int>(row % 5) - 2));
    }
    const auto there_x = on_gpu(x);
    const auto there_exponents = on_gpu(exponents);
    const auto there_factors = on_gpu(factors);
    std::vector<std::uint16_t> y(static_cast<std::size_t>(form.rows * k));
    const auto there_y = on_gpu(y);
    Config config = family->default_config(problem);
    for (int other = 0; other < (family->name() == "mxfp4" ? 2 : 1); ++other) {
      if (other == 1) {
        config.set("bn", std::int64_t{32});
        config.set("mma", 1 - config.number("mma"));
      }
      auto kernel = family->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      const auto workspace = gpu()->allocate((*kernel)->workspace_bytes(), Placement::plain);
      ASSERT_TRUE(workspace.ok());
      Operands operands;
      operands.x = there_x->data();
      operands.w = there_w->data();
      operands.w_scale = there_ones->data();
      operands.x_scale = form.x == DataType::f4_e2m1 ? there_exponents->data() : there_factors->data();
      operands.y = there_y->data();
      operands.ldx = operands.ldy = k;
      ASSERT_TRUE((*kernel)->run(operands, (*workspace)->data(), {}).ok());
      ASSERT_TRUE(gpu()->synchronize().ok());
      ASSERT_TRUE(gpu()->copy_out(y.data(), there_y->data(), y.size() * 2).ok());
      int wrong = 0;
      for (std::int64_t at = 0; at < form.rows * k; ++at) {
        const float exact = traits(form.x).to_f32(code(at)) * factors[static_cast<std::size_t>(at / k)];
        const float found = traits(form.y).to_f32(y[static_cast<std::size_t>(at)]);
        if (found != exact && ++wrong < 10)
          ADD_FAILURE() << print(problem) << " " << config.text() << " element " << at << ": " << found
                        << ", expected " << exact;
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}

TEST_F(CudaFp4, AnFp4WeightIsPackedAndComesBack) {
  for (const Size& size : {Size{1, 1, 32}, Size{1, 65, 96}, Size{1, 130, 640}, Size{1, 2112, 7168}}) {
    const Problem problem = in_fragments(of_fp4(Operation::a16w4, 1, size.n, size.k));
    const auto bytes = gpu()->packed_bytes(problem, WeightLayout::fragment64);
    ASSERT_TRUE(bytes.ok()) << bytes.message();
    EXPECT_EQ(*bytes, static_cast<std::size_t>((size.n + 63) / 64 * ((size.k + 63) / 64) * 2048));
    EXPECT_FALSE(gpu()->packed_bytes(problem, WeightLayout::tile64x128).ok());
    std::vector<unsigned char> host(static_cast<std::size_t>(size.n * size.k / 2));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<unsigned char>(i * 7 + i / 256 + 1);
    auto plain = gpu()->allocate(host.size(), Placement::guarded);
    auto packed_there = gpu()->allocate(*bytes, Placement::guarded);
    ASSERT_TRUE(plain.ok() && packed_there.ok());
    ASSERT_TRUE(gpu()->copy_in((*plain)->data(), host.data(), host.size()).ok());
    ASSERT_TRUE(gpu()->fill((*packed_there)->data(), 0xa5, *bytes).ok());
    ASSERT_TRUE(
        gpu()
            ->pack_weight(problem, WeightLayout::fragment64, (*plain)->data(), (*packed_there)->data())
            .ok());
    ASSERT_TRUE(gpu()->fill((*plain)->data(), 0x5a, host.size()).ok());
    ASSERT_TRUE(
        gpu()
            ->unpack_weight(problem, WeightLayout::fragment64, (*packed_there)->data(), (*plain)->data())
            .ok());
    std::vector<unsigned char> back(host.size());
    ASSERT_TRUE(gpu()->copy_out(back.data(), (*plain)->data(), back.size()).ok());
    EXPECT_TRUE(back == host) << short_name(problem);
    EXPECT_TRUE((*plain)->guards_intact().ok() && (*packed_there)->guards_intact().ok());
  }
}

/// All values of e2m1 with all scales: row n of the weight has the scale 2^(n - 127). Sums of 32 small whole numbers, times powers of two, are exact.
TEST_F(CudaFp4, EveryFp4ValueAndScaleIsExact) {
  constexpr std::int64_t k = 32;
  constexpr std::int64_t n = 256;
  constexpr std::int64_t m = 2;
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const auto element = [&](std::int64_t row, std::int64_t at) {
    return static_cast<unsigned>((row * 5 + at * (row % 2 == 0 ? 1 : 7)) % 16);
  };
  const auto bf16 = [](float value) {
    return static_cast<std::uint16_t>(traits(DataType::bf16).from_f32(value));
  };
  // Large scales meet the second row of x, small ones the first.
  std::vector<std::uint16_t> x;
  std::vector<double> exact_x;
  for (std::int64_t i = 0; i < m * k; ++i) {
    const double value = static_cast<double>(i % 7 - 3) * (i < k ? 0x1p60 : 0x1p-60);
    exact_x.push_back(value);
    x.push_back(bf16(static_cast<float>(value)));
  }
  std::vector<unsigned char> w(static_cast<std::size_t>(n * k / 2));
  std::vector<unsigned char> scales(static_cast<std::size_t>(n));
  for (std::int64_t row = 0; row < n; ++row) {
    scales[static_cast<std::size_t>(row)] = static_cast<unsigned char>(row);
    for (std::int64_t at = 0; at < k; at += 2)
      w[static_cast<std::size_t>((row * k + at) / 2)] =
          static_cast<unsigned char>(element(row, at) | element(row, at + 1) << 4);
  }
  const auto on_gpu = [&](const auto& host) {
    auto buffer = gpu()->allocate(host.size() * sizeof(host[0]), Placement::plain);
    EXPECT_TRUE(buffer.ok()) << buffer.message();
    EXPECT_TRUE(gpu()->copy_in((*buffer)->data(), host.data(), (*buffer)->bytes()).ok());
    return std::move(*buffer);
  };
  const Problem plain = of_fp4(Operation::a16w4, m, n, k);
  const auto there_x = on_gpu(x);
  const auto there_w = on_gpu(w);
  const auto there_scales = on_gpu(scales);
  std::vector<std::uint16_t> y(static_cast<std::size_t>(m * n));
  const auto there_y = on_gpu(y);
  auto fragments =
      gpu()->allocate(*gpu()->packed_bytes(in_fragments(plain), WeightLayout::fragment64), Placement::plain);
  ASSERT_TRUE(fragments.ok());
  ASSERT_TRUE(
      gpu()
          ->pack_weight(in_fragments(plain), WeightLayout::fragment64, there_w->data(), (*fragments)->data())
          .ok());
  for (const char* name : {"mxfp4", "mxfp4_skinny", "simt"}) {
    const KernelFamily* family = gpu()->find_family(name);
    if (family == nullptr || !family->accepts(plain).ok()) continue;
    std::vector<std::pair<Problem, Config>> kernels;
    for (const Problem& problem : {plain, in_fragments(plain)}) {
      Config config = family->default_config(problem);
      kernels.emplace_back(problem, config);
      if (config.find("mma") == nullptr) continue;
      config.set("mma", 1 - config.number("mma"));
      kernels.emplace_back(problem, config);
    }
    for (const auto& [problem, config] : kernels) {
      auto kernel = family->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      Operands operands;
      operands.x = there_x->data();
      operands.w = is_packed(problem) ? (*fragments)->data() : there_w->data();
      operands.w_scale = there_scales->data();
      operands.y = there_y->data();
      operands.ldx = k;
      operands.ldy = n;
      ASSERT_TRUE((*kernel)->run(operands, nullptr, {}).ok());
      ASSERT_TRUE(gpu()->synchronize().ok());
      ASSERT_TRUE(gpu()->copy_out(y.data(), there_y->data(), y.size() * 2).ok());
      int compared = 0;
      for (std::int64_t at = 0; at < m * n; ++at) {
        const std::int64_t row = at % n;
        const auto found =
            std::bit_cast<float>(static_cast<std::uint32_t>(y[static_cast<std::size_t>(at)]) << 16);
        if (row == 255) {
          EXPECT_TRUE(std::isnan(found)) << name;
          continue;
        }
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const unsigned bits_of = element(row, i);
          sum += exact_x[static_cast<std::size_t>(at / n * k + i)] * values[bits_of & 7] *
                 ((bits_of & 8) != 0 ? -1 : 1);
        }
        sum = std::ldexp(sum, static_cast<int>(row) - 127);
        // An element times the largest scales is beyond float32's range; its product with x is not.
        if (sum != 0 && (std::abs(sum) < 0x1p-126 || std::abs(sum) > 0x1p127)) continue;
        ++compared;
        EXPECT_EQ(found,
                  std::bit_cast<float>(static_cast<std::uint32_t>(bf16(static_cast<float>(sum))) << 16))
            << name << " " << config.text() << " packed " << is_packed(problem) << " scale " << row
            << " row of x " << at / n;
      }
      EXPECT_GT(compared, 300);
    }
  }
}

}  // namespace
}  // namespace gemmtune
