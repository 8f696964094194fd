// The cuda backend on a GPU: memory, timing, and every family on awkward shapes and all types against the
// reference of verify/. Skips where there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "numbers/weight_layout.h"
#include "support/dense_problem.h"
#include "support/first_gpu.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

class CudaDevice : public OnGpu {};

TEST_F(CudaDevice, SaysWhatItIs) {
  const DeviceInfo& info = gpu()->info();
  EXPECT_EQ(info.backend, "cuda");
  EXPECT_EQ(info.name, "cuda:0");
  EXPECT_TRUE(info.gfx.starts_with("sm_")) << info.gfx;
  EXPECT_GT(info.cu_num, 0);
  EXPECT_THAT(info.bus_id, ::testing::MatchesRegex("[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+[.][0-9]"));
  EXPECT_GT(gpu()->free_memory_bytes(), std::size_t{1} << 28);
  EXPECT_GT(gpu()->last_level_cache_bytes(), std::size_t{1} << 20);
  EXPECT_TRUE(gpu()->health().ok());
}

TEST_F(CudaDevice, CopiesAndFills) {
  std::vector<unsigned char> host(100003);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<unsigned char>(i * 7);
  auto first = gpu()->allocate(host.size(), Placement::plain);
  auto second = gpu()->allocate(host.size(), Placement::page_end);
  ASSERT_TRUE(first.ok() && second.ok()) << first.message() << second.message();
  ASSERT_TRUE(gpu()->copy_in((*first)->data(), host.data(), host.size()).ok());
  ASSERT_TRUE(gpu()->copy_within((*second)->data(), (*first)->data(), host.size()).ok());
  std::vector<unsigned char> back(host.size());
  ASSERT_TRUE(gpu()->copy_out(back.data(), (*second)->data(), back.size()).ok());
  EXPECT_EQ(back, host);
  ASSERT_TRUE(gpu()->fill((*first)->data(), 0xff, 10).ok());
  ASSERT_TRUE(gpu()->copy_out(back.data(), (*first)->data(), back.size()).ok());
  EXPECT_EQ(back[9], 0xff);
  EXPECT_EQ(back[10], host[10]);
}

TEST_F(CudaDevice, GuardsTellWhatWasOverwritten) {
  auto buffer = gpu()->allocate(100, Placement::guarded);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  EXPECT_TRUE((*buffer)->guards_intact().ok());
  ASSERT_TRUE(gpu()->fill((*buffer)->data(), 0, 103).ok());
  EXPECT_THAT((*buffer)->guards_intact().message(),
              ::testing::HasSubstr("3 byte(s) were overwritten after the end"));
}

TEST_F(CudaDevice, RefusesWhatIsNotThere) {
  EXPECT_EQ(gpu()->allocate(std::size_t{1} << 46, Placement::plain).code(), StatusCode::out_of_memory);
  EXPECT_TRUE(gpu()->health().ok());
  DeviceRequest request;
  request.text = "cuda:99";
  EXPECT_THAT(open_device("cuda", request).message(), ::testing::HasSubstr("'cuda:99', expected cuda:0"));
}

/// At most `count` configs of a space, the default first, drawn the same way each time.
std::vector<Config> some_configs(const KernelFamily& family, const Problem& problem, std::size_t count) {
  std::vector<Config> all = family.space(problem).enumerate();
  Random random(7);
  shuffle(all, random);
  all.insert(all.begin(), family.default_config(problem));
  if (all.size() > count) all.resize(count);
  return all;
}

void expect_right(const KernelFamily& family, const Problem& problem, const std::vector<Config>& configs) {
  KernelVerifierOptions options;
  options.reference_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  auto verifier = KernelVerifier::make(*gpu(), problem, options);
  ASSERT_TRUE(verifier.ok()) << verifier.message();
  std::vector<Candidate> candidates;
  for (const Config& config : configs)
    candidates.push_back({std::string(family.name()), family.revision(), config});
  gpu()->compile_ahead(problem, candidates);
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::string> names;
  std::vector<KernelOfClass> classed;
  for (const Config& config : configs) {
    auto kernel = family.build(problem, config);
    ASSERT_TRUE(kernel.ok()) << print(problem) << " " << config.text() << ": " << kernel.message();
    const Outcome quick = verifier->verify_quickly({kernel->get(), family.accuracy(problem, config)});
    // The library also proposes splits of k whose partial sums are rounded to y's type: the verifier is right
    // to refuse them.
    const std::int64_t reduction = config.number("red");
    const bool rounds_sums = family.name() == "cublaslt" && (reduction == 1 || reduction == 4);
    if (rounds_sums && quick.kind == OutcomeKind::wrong) continue;
    EXPECT_EQ(quick.kind, OutcomeKind::ok)
        << family.name() << " " << print(problem) << " " << config.text() << ": " << quick.reason;
    if (quick.kind != OutcomeKind::ok) continue;
    kernels.push_back(std::move(*kernel));
    names.push_back(config.text());
    classed.push_back({kernels.back().get(), family.accuracy(problem, config)});
  }
  const auto outcomes = verifier->verify_fully(classed, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    const Outcome& outcome = (*outcomes)[i];
    // A vendor's algorithm may refuse the padded rows that full verification also tries.
    if (family.name() == "cublaslt" && outcome.kind == OutcomeKind::launch_failed) continue;
    EXPECT_EQ(outcome.kind, OutcomeKind::ok)
        << family.name() << " " << print(problem) << " " << names[i] << ": " << outcome.reason;
    EXPECT_TRUE(outcome.deterministic || family.name() == "cublaslt") << names[i];
  }
}

struct Size {
  std::int64_t m, n, k;
};

TEST_F(CudaDevice, EveryFamilyOnAwkwardShapesIsRight) {
  const Size sizes[] = {{1, 1, 16},       {1, 65, 144},   {3, 130, 4096}, {8, 1280, 8192},
                        {9, 4097, 48},    {16, 264, 640}, {17, 100, 208}, {31, 72, 2064},
                        {64, 2112, 7168}, {65, 129, 80},  {5, 7, 3},      {200, 333, 77}};
  const std::pair<DataType, DataType> types[] = {
      {DataType::bf16, DataType::bf16},      {DataType::bf16, DataType::f32},
      {DataType::f16, DataType::f16},        {DataType::f32, DataType::f32},
      {DataType::f8_e4m3fn, DataType::bf16}, {DataType::f8_e4m3fn, DataType::f16}};
  int taken = 0;
  for (const KernelFamily* family : gpu()->families()) {
    if (family->name() == "wgmma") continue;  // has tests of its own below
    for (const Size& size : sizes) {
      int turn = 0;
      for (const auto& [x, y] : types) {
        const Problem problem = dense(size.m, size.n, size.k, x, y, ++turn % 2 == 0);
        if (!family->accepts(problem).ok()) continue;
        ++taken;
        expect_right(*family, problem, some_configs(*family, problem, 12));
        ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
      }
    }
  }
  EXPECT_GT(taken, 60);
}

/// a8w8 of fp8 and of int8, and a8w8_blockscale, with a bias where `bias` and the operation has one.
std::vector<Problem> quantized_problems(const Size& size, bool bias) {
  constexpr DataType fp8 = DataType::f8_e4m3fn;
  std::vector<Problem> problems{quantized(Operation::a8w8, size.m, size.n, size.k, fp8, bias),
                                quantized(Operation::a8w8, size.m, size.n, size.k, DataType::i8, !bias),
                                quantized(Operation::a8w8_blockscale, size.m, size.n, size.k, fp8)};
  problems.front().y_type = DataType::f16;
  return problems;
}

TEST_F(CudaDevice, EveryFamilyOnQuantizedOperandsIsRight) {
  const Size sizes[] = {{1, 1, 16},     {1, 65, 144},   {3, 130, 4096}, {8, 1280, 8192},  {9, 4097, 48},
                        {16, 264, 640}, {17, 100, 208}, {31, 72, 2064}, {64, 2112, 7168}, {65, 129, 80},
                        {5, 7, 3},      {200, 333, 77}, {40, 576, 1664}};
  int taken = 0;
  for (const KernelFamily* family : gpu()->families()) {
    if (family->name() == "wgmma") continue;  // has tests of its own below
    for (const Size& size : sizes) {
      for (const Problem& problem : quantized_problems(size, size.m % 2 == 0)) {
        if (!family->accepts(problem).ok()) continue;
        ++taken;
        expect_right(*family, problem, some_configs(*family, problem, 8));
        ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
      }
    }
  }
  EXPECT_GE(taken, 60);
}

Problem packed(Problem problem) {
  if (traits(problem.operation).packing == Packing::never)
    problem.operation = traits(problem.operation).packed_form;
  problem.bpreshuffle = true;
  problem.weight_layout = WeightLayout::tile64x128;
  return problem;
}

/// Packed by the device as by the host, and back.
void expect_packs(const Problem& problem) {
  SCOPED_TRACE(short_name(problem));
  const auto bytes = gpu()->packed_bytes(problem, WeightLayout::tile64x128);
  ASSERT_TRUE(bytes.ok()) << bytes.message();
  const Tile64 shape{.n = problem.n, .k = problem.k, .element_bytes = bits(problem.w_type) / 8};
  std::vector<unsigned char> host(static_cast<std::size_t>(problem.n * shape.row_bytes()));
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<unsigned char>(i * 7 + i / 256 + 1);
  std::vector<unsigned char> expected(*bytes);
  pack_tile64(shape, host.data(), expected.data());
  auto plain = gpu()->allocate(host.size(), Placement::plain);
  auto tiles = gpu()->allocate(*bytes, Placement::plain);
  auto again = gpu()->allocate(host.size(), Placement::plain);
  ASSERT_TRUE(plain.ok() && tiles.ok() && again.ok());
  ASSERT_TRUE(gpu()->copy_in((*plain)->data(), host.data(), host.size()).ok());
  ASSERT_TRUE(gpu()->fill((*tiles)->data(), 0xa5, *bytes).ok());
  const Status there =
      gpu()->pack_weight(problem, WeightLayout::tile64x128, (*plain)->data(), (*tiles)->data());
  ASSERT_TRUE(there.ok()) << there.message();
  std::vector<unsigned char> packed_there(*bytes);
  ASSERT_TRUE(gpu()->copy_out(packed_there.data(), (*tiles)->data(), *bytes).ok());
  EXPECT_TRUE(packed_there == expected);
  const Status back =
      gpu()->unpack_weight(problem, WeightLayout::tile64x128, (*tiles)->data(), (*again)->data());
  ASSERT_TRUE(back.ok()) << back.message();
  std::vector<unsigned char> result(host.size());
  ASSERT_TRUE(gpu()->copy_out(result.data(), (*again)->data(), result.size()).ok());
  EXPECT_TRUE(result == host);
}

TEST_F(CudaDevice, AWeightIsPackedAndComesBack) {
  const Problem problem = packed(dense(1, 130, 72, DataType::bf16, DataType::bf16, false));
  EXPECT_EQ(*gpu()->packed_bytes(problem, WeightLayout::tile64x128), 3U * 4 * 8192);
  EXPECT_FALSE(gpu()->packed_bytes(problem, WeightLayout::panel16).ok());
  expect_packs(problem);
  // Rows of an odd number of bytes, of one unit, of whole tiles.
  expect_packs(packed(dense(1, 65, 77, DataType::f8_e4m3fn, DataType::bf16, false)));
  expect_packs(packed(dense(1, 1, 3, DataType::bf16, DataType::bf16, false)));
  expect_packs(packed(dense(1, 7, 8, DataType::bf16, DataType::bf16, false)));
  expect_packs(packed(dense(1, 2112, 7168, DataType::bf16, DataType::bf16, false)));
}

TEST_F(CudaDevice, PackedWeightsOnAwkwardShapesAreRight) {
  const Size sizes[] = {{1, 65, 144},   {16, 1280, 8192}, {31, 72, 2064},
                        {64, 264, 640}, {5, 7, 3},        {65, 129, 80}};
  int taken = 0;
  for (const char* name : {"simt", "skinny"}) {
    const KernelFamily* family = gpu()->find_family(name);
    if (family == nullptr) continue;
    for (const Size& size : sizes) {
      for (const DataType x : {DataType::bf16, DataType::f16, DataType::f8_e4m3fn}) {
        const Problem problem = packed(dense(size.m, size.n, size.k, x, DataType::bf16, size.m % 2 == 0));
        if (!family->accepts(problem).ok()) continue;
        ++taken;
        expect_right(*family, problem, some_configs(*family, problem, 12));
        ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
      }
    }
  }
  EXPECT_GT(taken, 15);
}

TEST_F(CudaDevice, PackedQuantizedWeightsAreRight) {
  int taken = 0;
  for (const char* name : {"simt", "skinny", "wgmma"}) {
    const KernelFamily* family = gpu()->find_family(name);
    if (family == nullptr) continue;
    for (const Size& size : {Size{1, 65, 144}, Size{16, 1280, 2048}, Size{300, 264, 640}}) {
      for (const Problem& plain : quantized_problems(size, false)) {
        const Problem problem = packed(plain);
        if (!family->accepts(problem).ok()) continue;
        ++taken;
        expect_right(*family, problem, some_configs(*family, problem, 6));
        ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
      }
    }
  }
  EXPECT_GE(taken, 9);
}

TEST_F(CudaDevice, APackedWeightHasAFallbackForEveryM) {
  for (const std::int64_t m : {1, 64, 65, 4096}) {
    const Problem problem = packed(dense(m, 1280, 512, DataType::bf16, DataType::bf16, false));
    const auto fallback = gpu()->fallback(problem);
    ASSERT_TRUE(fallback.ok()) << fallback.message();
    const auto kernel = gpu()->build(*fallback, problem);
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    EXPECT_EQ((*kernel)->weight_layout(), WeightLayout::tile64x128);
  }
}

/// The default and the kernels of `names` that can be built, each with every kind of promotion. The names are of
/// 2-byte elements; of 1-byte elements a stage holds twice as many.
std::vector<Config> named_configs(const KernelFamily& family, const Problem& problem,
                                  std::span<const char* const> names) {
  const Space space = family.space(problem);
  std::vector<Config> configs{family.default_config(problem)};
  for (const char* name : names) {
    auto candidate = parse_kernel_name(name, space.keys());
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    if (candidate.ok() && bits(problem.x_type) == 8 && candidate->config.find("bk") != nullptr)
      candidate->config.set("bk", 2 * candidate->config.number("bk"));
    if (!candidate.ok()) continue;
    std::vector<std::string> promotions;
    for (const Parameter& parameter : space.parameters())
      if (parameter.key == "prom") promotions = parameter.values;
    if (promotions.empty()) promotions.emplace_back();
    for (const std::string& promotion : promotions) {
      if (!promotion.empty()) candidate->config.set("prom", promotion);
      if (space.build_refusal(candidate->config).empty()) configs.push_back(candidate->config);
    }
  }
  return configs;
}

/// Each path through the kernel at least twice: tiles, warp groups, both schedules, swapped operands,
/// clusters with multicast along one side or both, with split-K, with both.
std::vector<Config> wgmma_configs(const KernelFamily& family, const Problem& problem) {
  const char* names[] = {
      "wgmma_r1_swap0_bm64_bn64_wg1_pp0_bk64_cm1_cn1_csk1_smem112",
      "wgmma_r1_swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk1_smem226",
      "wgmma_r1_swap0_bm128_bn256_wg2_pp0_bk64_cm2_cn1_csk1_smem226",
      "wgmma_r1_swap0_bm256_bn80_wg2_pp0_bk64_cm1_cn2_csk1_smem226",
      "wgmma_r1_swap0_bm128_bn80_wg2_pp1_bk64_cm2_cn1_csk1_smem226",
      "wgmma_r1_swap0_bm64_bn256_wg2_pp1_bk64_cm1_cn2_csk1_smem226",
      "wgmma_r1_swap0_bm64_bn96_wg1_pp0_bk128_cm1_cn1_csk3_smem226",
      "wgmma_r1_swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk8_smem226",
      "wgmma_r1_swap0_bm128_bn64_wg1_pp0_bk64_cm1_cn1_csk2_smem112_pdl1",
      "wgmma_r1_swap0_bm128_bn192_wg2_pp0_bk64_cm1_cn1_csk1_smem226_pdl1",
      "wgmma_r1_swap1_bm64_bn16_wg1_pp0_bk128_cm1_cn1_csk2_smem112",
      "wgmma_r1_swap1_bm64_bn32_wg1_pp0_bk64_cm2_cn1_csk1_smem112_pdl1",
      "wgmma_r1_swap1_bm64_bn64_wg1_pp0_bk128_cm1_cn1_csk7_smem112",
      "wgmma_r1_swap1_bm128_bn64_wg2_pp0_bk64_cm1_cn1_csk4_smem226_pdl1",
      "wgmma_r1_swap1_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk5_smem226",
      "wgmma_r1_swap1_bm64_bn128_wg2_pp1_bk64_cm1_cn2_csk1_smem226",
      "wgmma_r1_swap1_bm128_bn96_wg2_pp0_bk64_cm1_cn2_csk1_smem226",
      "wgmma_r1_swap0_bm128_bn112_wg2_pp0_bk64_cm2_cn4_csk1_smem226",
      "wgmma_r1_swap0_bm64_bn48_wg1_pp0_bk128_cm1_cn8_csk1_smem112",
      "wgmma_r1_swap0_bm64_bn176_wg2_pp1_bk64_cm2_cn2_csk1_smem226",
      "wgmma_r1_swap0_bm128_bn240_wg2_pp0_bk64_cm2_cn2_csk1_smem226_pdl1",
      "wgmma_r1_swap0_bm128_bn128_wg2_pp0_bk64_cm2_cn1_csk4_smem226",
      "wgmma_r1_swap0_bm128_bn80_wg2_pp0_bk64_cm2_cn2_csk2_smem226_pdl1",
      "wgmma_r1_swap1_bm64_bn64_wg1_pp0_bk64_cm4_cn1_csk2_smem226_pdl1",
      "wgmma_r1_swap1_bm128_bn128_wg2_pp0_bk64_cm8_cn1_csk1_smem226",
      "wgmma_r1_swap1_bm64_bn48_wg1_pp0_bk128_cm2_cn2_csk2_smem112",
  };
  return named_configs(family, problem, names);
}

TEST_F(CudaDevice, EveryWayThroughWgmmaIsRight) {
  const KernelFamily* family = gpu()->find_family("wgmma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma").message();
  const Size sizes[] = {{1, 8, 16},       {1, 65, 144},     {3, 130, 4096},   {17, 100, 208},
                        {33, 1280, 1032}, {64, 2112, 640},  {65, 129, 80},    {96, 264, 520},
                        {129, 777, 576},  {300, 520, 2048}, {513, 1000, 776}, {700, 4099, 144}};
  const std::pair<DataType, DataType> types[] = {{DataType::bf16, DataType::bf16},
                                                 {DataType::f8_e4m3fn, DataType::bf16},
                                                 {DataType::bf16, DataType::f32},
                                                 {DataType::f16, DataType::f16},
                                                 {DataType::f8_e4m3fn, DataType::f16}};
  int taken = 0;
  int turn = 0;
  for (const Size& size : sizes) {
    // bf16 always, and one of the others in turn.
    for (const auto& [x, y] : {types[0], types[1 + turn % 4]}) {
      const Problem problem = dense(size.m, size.n, size.k, x, y, ++turn % 3 == 0);
      if (!family->accepts(problem).ok()) continue;
      ++taken;
      expect_right(*family, problem, wgmma_configs(*family, problem));
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
  EXPECT_GE(taken, 18);
}

TEST_F(CudaDevice, EveryWayThroughWgmmaOnQuantizedOperandsIsRight) {
  const KernelFamily* family = gpu()->find_family("wgmma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma").message();
  const Size sizes[] = {{1, 8, 16},    {1, 65, 144},   {17, 100, 208},  {33, 1280, 1040}, {64, 2112, 640},
                        {65, 129, 80}, {96, 264, 528}, {129, 777, 576}, {300, 520, 2048}, {513, 1000, 784}};
  int taken = 0;
  for (const Size& size : sizes) {
    for (const Problem& problem : quantized_problems(size, ++taken % 2 == 0)) {
      ASSERT_TRUE(family->accepts(problem).ok()) << print(problem);
      expect_right(*family, problem, wgmma_configs(*family, problem));
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
}

constexpr std::pair<Order, Order> column_orders[] = {{Order::row_major, Order::column_major},
                                                     {Order::column_major, Order::row_major},
                                                     {Order::column_major, Order::column_major}};

Problem in_orders(Problem problem, const std::pair<Order, Order>& orders) {
  problem.x_order = orders.first;
  problem.w_order = orders.second;
  return problem;
}

/// MN-major operands of the tensor cores: every way through the kernel whose tile they allow, with tails of M, N and K.
TEST_F(CudaDevice, EveryWayThroughWgmmaWithColumnMajorOperandsIsRight) {
  const KernelFamily* family = gpu()->find_family("wgmma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma").message();
  const Size sizes[] = {{8, 8, 16},       {16, 136, 4096},  {24, 104, 208},   {40, 1280, 1032},
                        {64, 2112, 640},  {72, 136, 80},    {96, 264, 520},   {136, 776, 576},
                        {304, 520, 2048}, {520, 1000, 776}, {704, 4104, 144}, {96, 104, 77}};
  int taken = 0;
  for (const auto& orders : column_orders) {
    int turn = 0;
    for (const Size& size : sizes) {
      const DataType type = ++turn % 2 == 0 ? DataType::f16 : DataType::bf16;
      const Problem problem = in_orders(
          dense(size.m, size.n, size.k, type, turn % 3 == 0 ? DataType::f32 : type, turn % 4 == 0), orders);
      if (!family->accepts(problem).ok()) continue;
      ++taken;
      const std::vector<Config> configs = wgmma_configs(*family, problem);
      ASSERT_GE(configs.size(), 8U) << print(problem);
      expect_right(*family, problem, configs);
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
  EXPECT_GE(taken, 34);
}

/// The tuner's own choices too, on sizes of models.
TEST_F(CudaDevice, WgmmaOfModelSizesWithColumnMajorOperandsIsRight) {
  const KernelFamily* family = gpu()->find_family("wgmma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma").message();
  for (const auto& orders : column_orders)
    for (const Size& size : {Size{16, 1280, 8192}, Size{512, 2112, 7168}, Size{4096, 4096, 512}})
      for (const DataType type : {DataType::bf16, DataType::f16}) {
        const Problem problem = in_orders(dense(size.m, size.n, size.k, type, type), orders);
        expect_right(*family, problem, some_configs(*family, problem, 10));
        ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
      }
}

TEST_F(CudaDevice, ColumnMajorOperandsOfAnySizeAndTypeAreRight) {
  const Size sizes[] = {{1, 1, 16},      {1, 65, 144},   {3, 130, 4096}, {8, 1280, 8192},
                        {17, 100, 208},  {31, 72, 2064}, {5, 7, 3},      {200, 333, 77},
                        {64, 2112, 640}, {65, 129, 80},  {128, 256, 512}};
  const std::pair<DataType, DataType> types[] = {{DataType::bf16, DataType::bf16},
                                                 {DataType::f16, DataType::f32},
                                                 {DataType::f32, DataType::f32},
                                                 {DataType::f8_e4m3fn, DataType::bf16}};
  std::map<std::string_view, int> taken;
  for (const KernelFamily* family : gpu()->families()) {
    if (family->name() == "wgmma") continue;
    for (const auto& orders : column_orders)
      for (const Size& size : sizes) {
        int turn = 0;
        for (const auto& [x, y] : types) {
          const Problem problem = in_orders(dense(size.m, size.n, size.k, x, y, ++turn % 2 == 0), orders);
          if (!family->accepts(problem).ok()) continue;
          ++taken[family->name()];
          expect_right(*family, problem, some_configs(*family, problem, 6));
          ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
        }
      }
  }
  EXPECT_EQ(taken["simt"], 3 * 11 * 4);
  if (gpu()->find_family("cublaslt") != nullptr) {
    EXPECT_GT(taken["cublaslt"], 60);
  }
}

/// The outcome of full verification of a kernel by the bounds of a class.
Outcome verified_as(const KernelFamily& family, const Problem& problem, const Config& config,
                    Accuracy accuracy) {
  auto verifier = KernelVerifier::make(*gpu(), problem, {});
  const auto kernel = family.build(problem, config);
  EXPECT_TRUE(verifier.ok() && kernel.ok()) << verifier.message() << kernel.message();
  if (!verifier.ok() || !kernel.ok()) return {};
  const KernelOfClass kernels[] = {{kernel->get(), accuracy}};
  const auto outcomes = verifier->verify_fully(kernels, {});
  EXPECT_TRUE(outcomes.ok()) << outcomes.message();
  return outcomes.ok() ? outcomes->front() : Outcome();
}

TEST_F(CudaDevice, OperandsOfOneSignTellTheClassesApart) {
  for (const char* name : {"wgmma", "skinny"}) {
    const KernelFamily* family = gpu()->find_family(name);
    if (family == nullptr) GTEST_SKIP() << gpu()->missing_family(name).message();
    for (const std::int64_t k : {2048, 7168, 16384}) {
      const Problem problem = dense(16, 1280, k, DataType::f8_e4m3fn, DataType::bf16, false);
      Config promoted = family->default_config(problem);
      promoted.set("csk", std::int64_t{1});  // split-K shortens the chains
      Config plain = promoted;
      plain.set("prom", std::int64_t{0});
      EXPECT_EQ(family->accuracy(problem, promoted), Accuracy::fp32);
      EXPECT_EQ(family->accuracy(problem, plain), Accuracy::tensor_core);
      const Outcome right = verified_as(*family, problem, promoted, Accuracy::fp32);
      EXPECT_EQ(right.kind, OutcomeKind::ok) << name << " " << k << ": " << right.reason;
      EXPECT_LT(right.error.one_sign, 0.004) << name << " " << k;
      const Outcome fast = verified_as(*family, problem, plain, Accuracy::tensor_core);
      EXPECT_EQ(fast.kind, OutcomeKind::ok) << name << " " << k << ": " << fast.reason;
      EXPECT_GT(fast.error.one_sign, 0.01) << name << " " << k;
      const Outcome mistaken = verified_as(*family, problem, plain, Accuracy::fp32);
      EXPECT_EQ(mistaken.kind, OutcomeKind::wrong) << name << " " << k;
      EXPECT_THAT(mistaken.reason, testing::HasSubstr("operands of one sign, class fp32"));
    }
  }
}

TEST_F(CudaDevice, CublasLtProposesBothAccumulations) {
  const KernelFamily* family = gpu()->find_family("cublaslt");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("cublaslt").message();
  const Problem problem = dense(128, 4096, 7168, DataType::f8_e4m3fn, DataType::bf16, false);
  EXPECT_EQ(family->accuracy(problem, family->default_config(problem)), Accuracy::fp32);
  EXPECT_EQ(family->accuracy(problem, family->fast_config(problem)), Accuracy::tensor_core);
  int fast = 0;
  for (const Config& config : family->space(problem).enumerate())
    fast += family->accuracy(problem, config) == Accuracy::tensor_core ? 1 : 0;
  EXPECT_GT(fast, 0);
  expect_right(*family, problem, {family->default_config(problem), family->fast_config(problem)});
}

TEST_F(CudaDevice, WgmmaOnPackedWeightsIsRight) {
  const KernelFamily* family = gpu()->find_family("wgmma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma").message();
  const Size sizes[] = {{1, 8, 16},      {17, 100, 208},   {64, 2112, 640},
                        {129, 777, 576}, {300, 520, 2048}, {700, 4099, 144}};
  for (const Size& size : sizes) {
    for (const DataType x : {DataType::bf16, DataType::f8_e4m3fn}) {
      const Problem problem = packed(dense(size.m, size.n, size.k, x, DataType::bf16, size.m % 2 == 0));
      ASSERT_TRUE(family->accepts(problem).ok()) << family->accepts(problem).message();
      expect_right(*family, problem, wgmma_configs(*family, problem));
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
}

/// The default and the kernels of `names` that can be built, in three pairs of types; at least `least` of
/// them.
void expect_ways_right(const KernelFamily& family, std::span<const char* const> names,
                       std::span<const Size> sizes, std::size_t least) {
  for (const Size& size : sizes) {
    for (const auto& [x, y] :
         {std::pair{DataType::bf16, DataType::bf16}, std::pair{DataType::f16, DataType::f32},
          std::pair{DataType::f8_e4m3fn, DataType::f16}}) {
      const Problem problem = dense(size.m, size.n, size.k, x, y, size.m % 2 == 0);
      if (!family.accepts(problem).ok()) continue;
      const std::vector<Config> configs = named_configs(family, problem, names);
      ASSERT_GE(configs.size(), least);
      expect_right(family, problem, configs);
      ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
    }
  }
}

// Few and all blocks of a cluster reduce; y is stored in whole rows, in pairs and one by one.
constexpr const char* skinny_ways[] = {
    "skinny_r1_bm64_bk64_csk1_smem50",        "skinny_r1_bm64_bk128_csk3_smem75",
    "skinny_r1_bm64_bk64_csk5_smem110",       "skinny_r1_bm64_bk256_csk8_smem220",
    "skinny_r1_bm128_bk64_csk1_smem110",      "skinny_r1_bm128_bk128_csk2_smem110",
    "skinny_r1_bm128_bk64_csk7_smem75",       "skinny_r1_bm64_bk64_csk2_smem50_pdl1",
    "skinny_r1_bm128_bk128_csk1_smem220_pdl1"};
constexpr const char* mma_ways[] = {"mma_r1_bm16_bn64_nw4_st3_sk1",   "mma_r1_bm16_bn64_nw4_st6_sk3",
                                    "mma_r1_bm32_bn64_nw4_st4_sk1",   "mma_r1_bm32_bn128_nw4_st3_sk16",
                                    "mma_r1_bm64_bn64_nw4_st6_sk2",   "mma_r1_bm64_bn128_nw8_st3_sk1",
                                    "mma_r1_bm128_bn64_nw4_st3_sk8",  "mma_r1_bm64_bn128_nw4_st3_sk1",
                                    "mma_r1_bm128_bn128_nw8_st4_sk1", "mma_r1_bm128_bn128_nw8_st3_sk4"};

TEST_F(CudaDevice, EveryWayThroughSkinnyIsRight) {
  const KernelFamily* family = gpu()->find_family("skinny");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("skinny").message();
  const Size sizes[] = {{1, 65, 1040},   {7, 130, 4096},   {16, 1280, 2048}, {16, 776, 2048},
                        {13, 777, 1032}, {32, 1280, 2048}, {33, 130, 4096},  {64, 1284, 2056}};
  expect_ways_right(*family, skinny_ways, sizes, 5);
}

TEST_F(CudaDevice, EveryWayThroughMmaIsRight) {
  const KernelFamily* family = gpu()->find_family("mma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mma").message();
  const Size sizes[] = {{1, 8, 16},      {3, 130, 4096}, {17, 100, 208},  {33, 1280, 1032},
                        {64, 2112, 640}, {65, 129, 80},  {129, 777, 576}, {300, 520, 2048}};
  expect_ways_right(*family, mma_ways, sizes, 1);
}

TEST_F(CudaDevice, EveryWayThroughMmaWithColumnMajorOperandsIsRight) {
  const KernelFamily* family = gpu()->find_family("mma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("mma").message();
  for (const auto& orders : column_orders)
    for (const Size& size : {Size{8, 8, 16}, Size{16, 136, 4096}, Size{24, 104, 208}, Size{40, 1280, 1032},
                             Size{136, 776, 576}, Size{304, 520, 2048}, Size{72, 136, 77}})
      for (const DataType type : {DataType::bf16, DataType::f16}) {
        const Problem problem =
            in_orders(dense(size.m, size.n, size.k, type, type, size.m % 16 == 0), orders);
        if (!family->accepts(problem).ok()) continue;
        expect_right(*family, problem, named_configs(*family, problem, mma_ways));
        ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
      }
}

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
TEST_F(CudaDevice, BatchesMayLieSideBySide) {
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
  for (const KernelFamily* family : gpu()->families()) {
    ASSERT_TRUE(family->accepts(problem).ok()) << family->name() << family->accepts(problem).message();
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
}

/// One scale a matrix in place of one a row, of either operand and of both.
TEST_F(CudaDevice, ScalesMayBeOneForAllRows) {
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

/// Under compute-sanitizer a kernel takes hundreds of times as long: every way through a family of ours once,
/// on one small shape, with the plain and the packed weight, with column-major operands, and in batches.
class SanitizerSample : public OnGpu, public ::testing::WithParamInterface<const char*> {};

TEST_P(SanitizerSample, IsRight) {
  const std::string_view name = GetParam();
  const KernelFamily* family = gpu()->find_family(name);
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family(name).message();
  const Problem plain = dense(33, 264, 640, DataType::bf16, DataType::bf16, false);
  const Problem columns = in_orders(dense(40, 264, 640, DataType::bf16, DataType::bf16, false),
                                    {Order::column_major, Order::column_major});
  const Problem batches = batched(3, 33, 264, 640);
  for (const Problem& problem : {plain, packed(plain), columns, batches}) {
    if (!family->accepts(problem).ok()) continue;
    const std::vector<Config> configs = name == "wgmma"    ? wgmma_configs(*family, problem)
                                        : name == "skinny" ? named_configs(*family, problem, skinny_ways)
                                        : name == "mma"    ? named_configs(*family, problem, mma_ways)
                                                           : some_configs(*family, problem, 12);
    expect_right(*family, problem, configs);
    ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
  }
}

INSTANTIATE_TEST_SUITE_P(, SanitizerSample, ::testing::Values("skinny", "wgmma", "mma", "simt"),
                         [](const auto& one) { return std::string(one.param); });

/// y = x · wᵀ by kernels that each read what the one in front of them has written.
class DependentChain {
 public:
  static constexpr std::int64_t size = 1024;

  DependentChain() {
    const Problem problem = shape();
    auto operands = DeviceOperands::make(*gpu(), problem, Placement::plain);
    const auto host = make_inputs(problem, 3);
    EXPECT_TRUE(operands.ok() && host.ok());
    EXPECT_TRUE(operands->fill(*host).ok());
    operands_.emplace(std::move(*operands));
    for (auto& buffer : outputs_) {
      auto made = gpu()->allocate(bytes(), Placement::plain);
      EXPECT_TRUE(made.ok());
      buffer = std::move(*made);
    }
  }
  static Problem shape() { return dense(16, size, size, DataType::bf16, DataType::bf16, false); }

  /// `links` products, the weight the same in all; the last result.
  std::vector<unsigned short> run(const Kernel& kernel, int links) {
    auto made = operands_->operands(WeightLayout::plain);
    EXPECT_TRUE(made.ok());
    Operands call = *made;
    for (int i = 0; i < links; ++i) {
      call.y = outputs_[i % 2]->data();
      call.ldy = size;
      EXPECT_TRUE(kernel.run(call, nullptr, {}).ok());
      call.x = call.y;
      call.ldx = size;
    }
    EXPECT_TRUE(gpu()->synchronize().ok());
    std::vector<unsigned short> result(bytes() / 2);
    EXPECT_TRUE(gpu()->copy_out(result.data(), outputs_[(links - 1) % 2]->data(), bytes()).ok());
    return result;
  }

 private:
  static std::size_t bytes() { return 16 * size * 2; }
  std::optional<DeviceOperands> operands_;
  std::unique_ptr<Buffer> outputs_[2];
};

TEST_F(CudaDevice, ADependentLaunchSeesWhatTheKernelInFrontWrote) {
  const char* pairs[][2] = {{"skinny_r1_bm64_bk64_csk4_smem110", "skinny_r1_bm64_bk64_csk4_smem110_pdl1"},
                            {"skinny_r1_bm64_bk128_csk1_smem50", "skinny_r1_bm64_bk128_csk1_smem50_pdl1"},
                            {"wgmma_r1_swap1_bm64_bn16_wg1_pp0_bk64_cm1_cn1_csk2_smem112",
                             "wgmma_r1_swap1_bm64_bn16_wg1_pp0_bk64_cm1_cn1_csk2_smem112_pdl1"},
                            {"wgmma_r1_swap1_bm64_bn16_wg1_pp0_bk64_cm2_cn1_csk1_smem112",
                             "wgmma_r1_swap1_bm64_bn16_wg1_pp0_bk64_cm2_cn1_csk1_smem112_pdl1"}};
  if (gpu()->find_family("skinny") == nullptr) GTEST_SKIP() << gpu()->missing_family("skinny").message();
  DependentChain chain;
  for (const auto& [plain, dependent] : pairs) {
    const auto build = [&](const char* name) {
      const auto candidate = gpu()->resolve(name, DependentChain::shape());
      EXPECT_TRUE(candidate.ok()) << candidate.message();
      return gpu()->build(*candidate, DependentChain::shape());
    };
    const auto first = build(plain);
    const auto second = build(dependent);
    ASSERT_TRUE(first.ok() && second.ok()) << first.message() << second.message();
    const auto expected = chain.run(**first, 12);
    for (int repeat = 0; repeat < 20; ++repeat) EXPECT_EQ(chain.run(**second, 12), expected) << dependent;
  }
}

/// A kernel that is no dependent launch may start early, but reads nothing before the one in front of it has
/// ended, its weight neither.
TEST_F(CudaDevice, APlainLaunchSeesAWeightThatTheKernelInFrontWrote) {
  if (gpu()->find_family("skinny") == nullptr) GTEST_SKIP() << gpu()->missing_family("skinny").message();
  const Problem writing = dense(64, 2048, 4096, DataType::bf16, DataType::bf16, false);
  const Problem reading = dense(16, 64, 2048, DataType::bf16, DataType::bf16, false);
  auto operands = DeviceOperands::make(*gpu(), writing, Placement::plain);
  auto weight = gpu()->allocate(64 * 2048 * 2, Placement::plain);
  auto y = gpu()->allocate(16 * 64 * 2, Placement::plain);
  ASSERT_TRUE(operands.ok() && weight.ok() && y.ok());
  const auto build = [&](const char* name, const Problem& problem) {
    const auto candidate = gpu()->resolve(name, problem);
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    return gpu()->build(*candidate, problem);
  };
  // In front is a dependent launch, which lets the next one start at once.
  const auto writer = build("skinny_r1_bm64_bk64_csk2_smem110_pdl1", writing);
  for (const char* name :
       {"skinny_r1_bm64_bk64_csk4_smem110", "skinny_r1_bm64_bk128_csk1_smem50",
        "wgmma_r1_swap1_bm64_bn16_wg1_smem112", "wgmma_r1_swap1_bm64_bn16_wg1_csk2_smem112"}) {
    const auto reader = build(name, reading);
    ASSERT_TRUE(writer.ok() && reader.ok());
    std::vector<unsigned short> results[2];
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto host = make_inputs(writing, 3 + static_cast<std::uint64_t>(repeat % 2));
      ASSERT_TRUE(host.ok() && operands->fill(*host).ok());
      auto made = operands->operands(WeightLayout::plain);
      ASSERT_TRUE(made.ok());
      Operands call = *made;
      call.y = (*weight)->data();
      call.ldy = 2048;
      ASSERT_TRUE((*writer)->run(call, nullptr, {}).ok());
      if (repeat < 2) {
        ASSERT_TRUE(gpu()->synchronize().ok());
      }
      call.w = (*weight)->data();
      call.y = (*y)->data();
      call.ldx = 2048;  // the first elements of what x is there
      call.ldy = 64;
      ASSERT_TRUE((*reader)->run(call, nullptr, {}).ok());
      ASSERT_TRUE(gpu()->synchronize().ok());
      std::vector<unsigned short> result(16 * 64);
      ASSERT_TRUE(gpu()->copy_out(result.data(), (*y)->data(), result.size() * 2).ok());
      if (repeat < 2) results[repeat] = result;
      EXPECT_EQ(result, results[repeat % 2]) << name << ", repetition " << repeat;
    }
    EXPECT_NE(results[0], results[1]);
  }
}

/// Asks the device whether it is being captured while a sample captures it.
class AskingKernel final : public Kernel {
 public:
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands&, void*, Stream stream) const override {
    capturing = gpu()->is_capturing(stream);
    return {};
  }
  mutable bool capturing = false;
};

TEST_F(CudaDevice, KnowsThatAStreamIsBeingCaptured) {
  EXPECT_FALSE(gpu()->is_capturing({}));
  const AskingKernel kernel;
  const Operands rotation[] = {Operands{}};
  (void)gpu()->sample({&kernel, rotation, 0, 1, nullptr});
  EXPECT_TRUE(kernel.capturing);
  EXPECT_FALSE(gpu()->is_capturing({}));
}

TEST_F(CudaDevice, ASampleOfDependentLaunches) {
  if (gpu()->find_family("skinny") == nullptr) GTEST_SKIP() << gpu()->missing_family("skinny").message();
  const Problem problem = dense(16, 8192, 8192, DataType::bf16, DataType::bf16, false);
  auto operands = DeviceOperands::make(*gpu(), problem, Placement::plain);
  auto y = gpu()->allocate(16 * 8192 * 2, Placement::plain);
  ASSERT_TRUE(operands.ok() && y.ok());
  auto made = operands->operands(WeightLayout::plain);
  ASSERT_TRUE(made.ok());
  made->y = (*y)->data();
  made->ldy = problem.n;
  const Operands rotation[] = {*made};
  for (const char* name : {"skinny_r1_bm64_bk64_csk2_smem110", "skinny_r1_bm64_bk64_csk2_smem110_pdl1"}) {
    const auto candidate = gpu()->resolve(name, problem);
    ASSERT_TRUE(candidate.ok()) << candidate.message();
    const auto kernel = gpu()->build(*candidate, problem);
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    const SampleRequest request{kernel->get(), rotation, 0, 50, nullptr};
    ASSERT_TRUE(gpu()->sample(request).ok());
    const auto time = gpu()->sample(request);
    ASSERT_TRUE(time.ok()) << time.message();
    EXPECT_GT(*time, 13);
    EXPECT_LT(*time, 1000);
  }
}

TEST_F(CudaDevice, ASampleIsTheTimeOfOneLaunch) {
  const Problem problem = dense(64, 8192, 8192, DataType::bf16, DataType::bf16, false);
  const auto fallback = gpu()->fallback(problem);
  ASSERT_TRUE(fallback.ok()) << fallback.message();
  const auto kernel = gpu()->build(*fallback, problem);
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  auto operands = DeviceOperands::make(*gpu(), problem, Placement::plain);
  ASSERT_TRUE(operands.ok());
  auto made = operands->operands(WeightLayout::plain);
  ASSERT_TRUE(made.ok());
  auto y = gpu()->allocate(64 * 8192 * 2, Placement::plain);
  auto workspace = gpu()->allocate(std::max<std::size_t>((*kernel)->workspace_bytes(), 1), Placement::plain);
  ASSERT_TRUE(y.ok() && workspace.ok());
  made->y = (*y)->data();
  made->ldy = problem.n;
  const Operands rotation[] = {*made};
  SampleRequest request{kernel->get(), rotation, 0, 50, (*workspace)->data()};
  ASSERT_TRUE(gpu()->sample(request).ok());
  const auto time = gpu()->sample(request);
  ASSERT_TRUE(time.ok()) << time.message();
  // 134 MB of weights at no more than 10 TB/s, and less than a millisecond on any GPU of this kind.
  EXPECT_GT(*time, 13);
  EXPECT_LT(*time, 1000);
}

}  // namespace
}  // namespace gemmtune
