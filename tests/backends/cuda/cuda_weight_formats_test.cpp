// NVFP4 and int4 weights on a GPU: every family that takes them against the reference, and every element, scale and zero point. Skips where there is no
// GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "numbers/weight_layout.h"
#include "support/dense_problem.h"
#include "support/first_gpu.h"
#include "support/gpu_kernels.h"

namespace gemmtune::weight_formats_test {
namespace {

class CudaWeightFormats : public OnGpu {};

Problem in_fragments(Problem problem) {
  problem.weight_layout = WeightLayout::fragment64;
  return problem;
}

/// bf16 x, plain and packed weights.
std::vector<Problem> of_bf16_x(const Size& size) {
  std::vector<Problem> problems;
  for (const Problem& problem : nvfp4_and_int4(size.m, size.n, size.k)) {
    problems.push_back(problem);
    problems.push_back(in_fragments(problem));
  }
  return problems;
}

std::vector<Problem> of_other_x(const Size& size) {
  std::vector<Problem> problems{
      of_fp4(Operation::a16w4_nvfp4, size.m, size.n, size.k, true),
      of_fp4(Operation::a8w4_nvfp4, size.m, size.n, size.k, size.m % 2 == 0),
      of_fp4(Operation::a4w4_nvfp4, size.m, size.n, size.k),
      of_int4(Operation::a16w4_int4, size.m, size.n, size.k, groups_of(size.k).front(), size.m % 2 == 0),
      of_int4(Operation::a8w4_int4, size.m, size.n, size.k, groups_of(size.k).front(), size.m % 2 == 1),
      of_int4(Operation::a8w4_int4, size.m, size.n, size.k, size.k, true, true)};
  for (const std::size_t i : {0, 3}) problems[i].x_type = problems[i].y_type = DataType::f16;
  problems[1].y_type = DataType::f16;
  problems[5].y_type = DataType::f16;
  for (std::size_t i = 0; i < 6; ++i) problems.push_back(in_fragments(problems[i]));
  return problems;
}

void expect_all_right(const std::vector<Problem>& problems, std::size_t configs) {
  for (const KernelFamily* family : gpu()->families()) {
    for (const Problem& problem : problems) {
      if (!family->accepts(problem).ok()) continue;
      expect_right(*family, problem, some_configs(*family, problem, family->name() == "simt" ? 1 : configs));
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
}

TEST_F(CudaWeightFormats, AwkwardShapesAreRight) {
  for (const Size& size : {Size{1, 1, 32}, Size{1, 65, 96}, Size{3, 130, 4096}, Size{9, 4097, 160},
                           Size{16, 264, 640}, Size{31, 72, 2080}, Size{65, 129, 192}, Size{200, 333, 352},
                           Size{300, 576, 2816}, Size{129, 1440, 1408}, Size{1030, 4160, 128}})
    expect_all_right(of_bf16_x(size), 4);
}

TEST_F(CudaWeightFormats, OtherActivationsAreRight) {
  for (const Size& size :
       {Size{1, 65, 96}, Size{8, 1280, 8192}, Size{17, 100, 224}, Size{64, 2112, 1792}, Size{300, 576, 2880}})
    expect_all_right(of_other_x(size), 2);
}

/// Warps and blocks of a cluster that divide k evenly or not, warps that begin within a group, pipelines of less than a strip and of several.
TEST_F(CudaWeightFormats, FewRowsAreRight) {
  const KernelFamily* family = gpu()->find_family("mxfp4_skinny");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4_skinny").message();
  for (const Size& size :
       {Size{1, 48, 320}, Size{4, 5760, 2880}, Size{16, 16, 1024}, Size{7, 1040, 8192}, Size{13, 272, 1408},
        Size{16, 12672, 64}, Size{24, 1040, 2816}, Size{31, 272, 2048}}) {
    for (const Problem& problem : of_bf16_x(size)) {
      ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
      expect_right(*family, problem, some_configs(*family, problem, 5));
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
}

constexpr const char* rescaled_tiles[] = {"mxfp4_r1_wg2_bm256_bn128_mma0_bk128_csk1_smem220_pdl0",
                                          "mxfp4_r1_wg2_bm256_bn96_mma0_bk128_csk2_smem220_pdl0",
                                          "mxfp4_r1_wg2_bm128_bn208_mma0_bk128_csk1_smem220_pdl0",
                                          "mxfp4_r1_wg2_bm128_bn256_mma0_bk128_csk2_smem220_pdl0"};

constexpr const char* scaled_tiles[] = {"mxfp4_r1_wg2_bm256_bn128_mma0_bk128_csk1_smem226_scaled1_pdl0",
                                        "mxfp4_r1_wg2_bm256_bn64_mma0_bk128_csk2_smem226_scaled1_pdl0",
                                        "mxfp4_r1_wg2_bm128_bn256_mma0_bk128_csk1_smem226_scaled1_pdl0",
                                        "mxfp4_r1_wg2_bm128_bn128_mma0_bk256_csk2_smem226_scaled1_pdl0",
                                        "mxfp4_r1_wg1_bm64_bn64_mma0_bk256_csk1_smem226_scaled1_pdl0",
                                        "mxfp4_r1_wg3_bm192_bn128_mma0_bk128_csk1_smem226_scaled1_pdl0"};

/// What few drawn configs have: long stages, two tiles a warp group, blocks that compute several tiles.
TEST_F(CudaWeightFormats, NamedTilesAreRight) {
  const KernelFamily* family = gpu()->find_family("mxfp4");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4").message();
  const auto expect_named_right = [&](const Size& size, const std::vector<const char*>& common,
                                      const std::vector<const char*>& without_zero_points = {}) {
    for (const Problem& problem : {of_fp4(Operation::a16w4_nvfp4, size.m, size.n, size.k, true),
                                   of_int4(Operation::a16w4_int4, size.m, size.n, size.k, 128, false, true),
                                   of_int4(Operation::a16w4_int4, size.m, size.n, size.k, 64, true),
                                   of_int4(Operation::a16w4_int4, size.m, size.n, size.k, 32),
                                   of_int4(Operation::a16w4_int4, size.m, size.n, size.k, size.k, true)}) {
      std::vector<const char*> names = common;
      if (!problem.zero_points)
        names.insert(names.end(), without_zero_points.begin(), without_zero_points.end());
      std::vector<Config> configs;
      for (const char* name : names) {
        const auto candidate =
            gpu()->resolve(std::string("mxfp4_r1_") + name + "_pdl0", in_fragments(problem));
        ASSERT_TRUE(candidate.ok()) << candidate.message();
        configs.push_back(candidate->config);
      }
      expect_right(*family, in_fragments(problem), configs);
    }
  };
  expect_named_right({9, 1000, 2816},
                     {"wg1_bm64_bn16_mma1_bk512_csk2_smem110", "wg2_bm128_bn16_mma1_bk512_csk3_smem220",
                      "wg1_bm128_bn16_mma1_bk512_csk1_smem220", "wg2_bm256_bn16_mma1_bk256_csk4_smem110"});
  expect_named_right({1030, 4160, 640},
                     {"wg2_bm128_bn128_mma0_bk256_csk1_smem220", "wg2_bm256_bn64_mma0_bk128_csk1_smem220",
                      "wg1_bm64_bn64_mma0_bk128_csk1_smem75", "wg1_bm128_bn48_mma0_bk128_csk1_smem110",
                      "wg2_bm128_bn112_mma0_bk128_csk2_smem220", "wg2_bm128_bn64_mma0_bk256_csk2_smem220"},
                     {"wg2_bm256_bn64_mma0_bk256_csk1_smem220"});
}

/// Tiles whose sums are in units of the latest group's scale, with blocks that compute several or divide k.
TEST_F(CudaWeightFormats, RescaledTilesAreRight) {
  const KernelFamily* family = gpu()->find_family("mxfp4");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4").message();
  for (Problem problem : {of_int4(Operation::a16w4_int4, 1030, 4160, 640, 128),
                          of_int4(Operation::a16w4_int4, 513, 1344, 2816, 128, true, true),
                          of_int4(Operation::a8w4_int4, 300, 712, 1408, 128, true)}) {
    problem = in_fragments(problem);
    std::vector<Config> configs;
    for (const char* name : rescaled_tiles) {
      const auto candidate = gpu()->resolve(name, problem);
      ASSERT_TRUE(candidate.ok()) << candidate.message();
      configs.push_back(candidate->config);
    }
    expect_right(*family, problem, configs);
  }
}

/// Elements that are multiplied by the scales of groups, with blocks that compute several tiles or divide k.
TEST_F(CudaWeightFormats, ScaledTilesAreRight) {
  const KernelFamily* family = gpu()->find_family("mxfp4");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4").message();
  for (Problem problem : {of_int4(Operation::a16w4_int4, 1030, 4160, 640, 128),
                          of_int4(Operation::a16w4_int4, 513, 1344, 2816, 128, true, true),
                          of_int4(Operation::a16w4_int4, 300, 712, 1408, 64, true),
                          of_int4(Operation::a16w4_int4, 65, 577, 1376, 32)}) {
    problem = in_fragments(problem);
    std::vector<Config> configs;
    for (const char* name : scaled_tiles) {
      const auto candidate = gpu()->resolve(name, problem);
      // Zero points leave too few registers for some.
      ASSERT_TRUE(candidate.ok() || problem.zero_points) << candidate.message();
      if (!candidate.ok()) continue;
      EXPECT_EQ(family->accuracy(problem, candidate->config), Accuracy::tensor_core);
      configs.push_back(candidate->config);
    }
    EXPECT_GE(configs.size(), 3U) << print(problem);
    expect_right(*family, problem, configs);
  }
}

constexpr const char* stream_tiles[] = {
    "mxfp4_r1_wg2_bm128_bn256_mma0_bk128_csk1_smem226_stream1_pdl0",
    "mxfp4_r1_wg2_bm256_bn128_mma0_bk128_csk1_smem226_stream1_pdl0",
    "mxfp4_r1_wg2_bm128_bn208_mma0_bk256_csk1_smem226_stream1_pdl1",
    "mxfp4_r1_wg2_bm256_bn96_mma0_bk256_csk1_smem226_stream1_pdl0",
    "mxfp4_r1_wg2_bm128_bn256_mma0_bk128_csk1_smem226_scaled1_stream1_pdl0",
    "mxfp4_r1_wg2_bm256_bn128_mma0_bk256_csk1_smem226_scaled1_stream1_pdl0",
    "mxfp4_r1_wg2_bm128_bn208_mma0_bk128_csk1_smem226_scaled1_stream1_pdl0"};

/// Blocks that divide tiles behind one or several whole waves: shares of a whole tile's k, of less than one of its stages, of several tiles.
TEST_F(CudaWeightFormats, StreamKIsRight) {
  const KernelFamily* family = gpu()->find_family("mxfp4");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4").message();
  std::size_t kernels = 0;
  for (const Problem& problem :
       {in_fragments(of_int4(Operation::a16w4_int4, 1030, 4160, 128, 64)),
        in_fragments(of_int4(Operation::a16w4_int4, 1030, 4160, 640, 128, true, true)),
        in_fragments(of_int4(Operation::a16w4_int4, 260, 8500, 2816, 32)),
        in_fragments(of_int4(Operation::a8w4_int4, 520, 9312, 1408, 128, true)),
        in_fragments(of_fp4(Operation::a16w4_nvfp4, 1030, 4160, 1056, true)),
        of_fp4(Operation::a16w4, 1500, 4160, 704),
        in_fragments(of_fp4(Operation::a4w4_blockscale, 2100, 4160, 1024))}) {
    std::vector<Config> configs;
    for (const char* name : stream_tiles) {
      const auto candidate = gpu()->resolve(name, problem);
      if (!candidate.ok()) continue;  // tiles that a form of weight refuses
      EXPECT_EQ(family->sum_order(problem, candidate->config), "");
      configs.push_back(candidate->config);
    }
    kernels += configs.size();
    EXPECT_GE(configs.size(), 1U) << print(problem);
    expect_right(*family, problem, configs);
    ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
  }
  EXPECT_GE(kernels, 14U);
}

/// More of x than neighbouring blocks go through while they share rows of the weight.
TEST_F(CudaWeightFormats, ManyRowsInTurnsAreRight) {
  const KernelFamily* family = gpu()->find_family("mxfp4");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mxfp4").message();
  const Problem problem = in_fragments(of_int4(Operation::a16w4_int4, 9000, 320, 1024, 128));
  std::vector<Config> configs;
  for (const char* name : {"mxfp4_r1_wg2_bm128_bn128_mma0_bk128_csk1_smem220_pdl0",
                           "mxfp4_r1_wg2_bm128_bn208_mma0_bk128_csk1_smem220_pdl0"}) {
    const auto candidate = gpu()->resolve(name, problem);
    ASSERT_TRUE(candidate.ok()) << candidate.message();
    configs.push_back(candidate->config);
  }
  expect_right(*family, problem, configs);
}

/// For compute-sanitizer.
TEST_F(CudaWeightFormats, SanitizerSample) {
  for (const Size& size : {Size{9, 272, 704}, Size{72, 264, 640}}) {
    expect_all_right(of_bf16_x(size), 3);
    expect_all_right(of_other_x(size), 1);
  }
}

std::unique_ptr<Buffer> on_gpu(const void* data, std::size_t bytes) {
  auto buffer = gpu()->allocate(bytes, Placement::plain);
  EXPECT_TRUE(buffer.ok()) << buffer.message();
  EXPECT_TRUE(gpu()->copy_in((*buffer)->data(), data, bytes).ok());
  return std::move(*buffer);
}
template <typename Element>
std::unique_ptr<Buffer> on_gpu(const std::vector<Element>& host) {
  return on_gpu(host.data(), host.size() * sizeof(Element));
}

/// A weight of `rows` rows of 256 elements, whose y with 32 rows of the identity as x is the first 32 of them, each rounded once.
struct Weight {
  static constexpr std::int64_t k = 256;
  static constexpr std::int64_t m = 32;
  std::int64_t rows = 0;
  std::vector<unsigned char> elements;  // codes, one each
  std::vector<unsigned char> scales;
  std::vector<signed char> zero_points;
  std::vector<float> expected;  // [m][rows]

  std::vector<unsigned char> packed_codes() const {
    std::vector<unsigned char> bytes(elements.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<unsigned char>(elements[2 * i] | elements[2 * i + 1] << 4);
    return bytes;
  }
};

void expect_exact(const Problem& plain, const Weight& weight, float global) {
  std::vector<std::uint16_t> x(static_cast<std::size_t>(Weight::m * Weight::k));
  for (std::int64_t row = 0; row < Weight::m; ++row)
    x[static_cast<std::size_t>(row * Weight::k + row)] =
        static_cast<std::uint16_t>(traits(DataType::bf16).from_f32(1.0F));
  std::vector<std::uint16_t> y(static_cast<std::size_t>(Weight::m * weight.rows));
  const auto there_x = on_gpu(x);
  const auto there_w = on_gpu(weight.packed_codes());
  const auto there_scales = on_gpu(weight.scales);
  const auto there_zeros = weight.zero_points.empty() ? nullptr : on_gpu(weight.zero_points);
  const auto there_global = on_gpu(&global, sizeof(global));
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
      if (config.number("bk") == 512) config.set("bk", std::int64_t{128});  // which is for mma 1
      kernels.emplace_back(problem, config);
    }
    if (family->name() == "mxfp4" && plain.operation == Operation::a16w4_int4) {
      for (const auto& tiles :
           {std::span<const char* const>(rescaled_tiles), std::span<const char* const>(scaled_tiles)}) {
        for (const char* tile : tiles) {
          const auto candidate = gpu()->resolve(tile, in_fragments(plain));
          if (candidate.ok()) kernels.emplace_back(in_fragments(plain), candidate->config);
        }
      }
    }
    for (const auto& [problem, config] : kernels) {
      auto kernel = family->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      Operands operands;
      operands.x = there_x->data();
      operands.w = is_packed(problem) ? (*fragments)->data() : there_w->data();
      operands.w_scale = there_scales->data();
      operands.w_global_scale = there_global->data();
      operands.w_zero_points = there_zeros ? there_zeros->data() : nullptr;
      operands.y = there_y->data();
      operands.ldx = Weight::k;
      operands.ldy = weight.rows;
      ASSERT_TRUE((*kernel)->run(operands, nullptr, {}).ok());
      ASSERT_TRUE(gpu()->synchronize().ok());
      ASSERT_TRUE(gpu()->copy_out(y.data(), there_y->data(), y.size() * 2).ok());
      int wrong = 0;
      for (std::size_t at = 0; at < y.size(); ++at) {
        const float found = traits(plain.y_type).to_f32(y[at]);
        const float expected = weight.expected[at];
        // Elements times a scale below 2^-120 may be subnormal numbers of bf16.
        const bool is_tiny = config.number("scaled", 0) == 1 && std::fabs(found - expected) <= 0x1p-127F;
        const bool equal = std::isnan(expected) ? std::isnan(found) : found == expected || is_tiny;
        if (!equal && ++wrong < 10)
          ADD_FAILURE() << name << " " << print(problem) << " " << config.text() << " row "
                        << at % static_cast<std::size_t>(weight.rows)
                        << ", k = " << at / static_cast<std::size_t>(weight.rows) << ": " << found
                        << ", expected " << expected;
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}

/// All values of e2m1 with all scales of e4m3, its NaNs, subnormal and negative ones and zeros.
TEST_F(CudaWeightFormats, EveryNvfp4ValueAndScaleIsExact) {
  constexpr float global = 0.375F;
  Weight weight;
  weight.rows = 256;
  weight.expected.resize(static_cast<std::size_t>(Weight::m * weight.rows));
  const auto scale_of = [](std::int64_t row, std::int64_t block) {
    return static_cast<unsigned char>((row + block * 37) % 256);
  };
  const auto element_of = [](std::int64_t row, std::int64_t at) {
    return static_cast<unsigned char>((row / 3 + at * (row % 2 == 0 ? 1 : 7)) % 16);
  };
  const auto e4m3 = [](unsigned code) { return traits(DataType::f8_e4m3fn).to_f32(code); };
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    bool is_nan = false;
    for (std::int64_t block = 0; block < Weight::k / 16; ++block) {
      weight.scales.push_back(scale_of(row, block));
      is_nan = is_nan || std::isnan(e4m3(scale_of(row, block)));
    }
    for (std::int64_t at = 0; at < Weight::k; ++at) {
      weight.elements.push_back(element_of(row, at));
      if (at >= Weight::m) continue;
      // Zero times what is not a number is none either.
      const float value =
          traits(DataType::f4_e2m1).to_f32(element_of(row, at)) * e4m3(scale_of(row, at / 16)) * global;
      const float rounded = traits(DataType::bf16).to_f32(traits(DataType::bf16).from_f32(value));
      weight.expected[static_cast<std::size_t>(at * weight.rows + row)] = is_nan ? NAN : rounded;
    }
  }
  expect_exact(of_fp4(Operation::a16w4_nvfp4, Weight::m, weight.rows, Weight::k), weight, global);
}

/// All elements with all zero points, in every group. Scales are of all sizes, from the smallest subnormal one to the largest power of two, and zero.
TEST_F(CudaWeightFormats, EveryInt4ElementAndZeroPointIsExact) {
  const auto bf16 = traits(DataType::bf16);
  for (const std::int64_t group : {32, 64, 128}) {
    for (const bool zero_points : {false, true}) {
      Weight weight;
      weight.rows = 528;
      weight.expected.resize(static_cast<std::size_t>(Weight::m * weight.rows));
      const auto scale_of = [](std::int64_t row, std::int64_t block) {
        // Of a row with the same mantissa, so that quotients of two are powers of two; past 256 with the largest exponents and the smallest.
        const auto mantissa = 1.0F + static_cast<float>(row % 128) / 128;
        if (row < 256) return std::ldexp(mantissa, static_cast<int>(row + block) % 40 - 20);
        if ((row + block) % 5 == 0) return 0.0F;
        if (row < 392) return std::ldexp(mantissa, static_cast<int>(row + block) % 4 + 120);
        return std::ldexp(1.0F, -static_cast<int>(row + block) % 20 - 114);
      };
      for (std::int64_t row = 0; row < weight.rows; ++row) {
        for (std::int64_t block = 0; block < Weight::k / group; ++block) {
          const auto bits = static_cast<std::uint16_t>(bf16.from_f32(scale_of(row, block)));
          weight.scales.push_back(static_cast<unsigned char>(bits & 0xffU));
          weight.scales.push_back(static_cast<unsigned char>(bits >> 8U));
          if (zero_points) weight.zero_points.push_back(static_cast<signed char>((row + block) % 17 - 8));
        }
        for (std::int64_t at = 0; at < Weight::k; ++at) {
          const std::int64_t element = (row + at * 3) % 16 - 8;
          weight.elements.push_back(static_cast<unsigned char>(element & 15));
          if (at >= Weight::m) continue;
          const std::int64_t block = at / group;
          const std::int64_t zero = zero_points ? (row + block) % 17 - 8 : 0;
          const float value = static_cast<float>(element - zero) * scale_of(row, block);
          weight.expected[static_cast<std::size_t>(at * weight.rows + row)] =
              bf16.to_f32(bf16.from_f32(value));
        }
      }
      expect_exact(of_int4(Operation::a16w4_int4, Weight::m, weight.rows, Weight::k, group, zero_points),
                   weight, 1.0F);
    }
  }
}

}  // namespace
}  // namespace gemmtune::weight_formats_test
