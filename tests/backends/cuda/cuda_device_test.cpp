// The cuda backend on a GPU: memory, timing, and every family on awkward shapes and all types against the
// reference of verify/. Skips where there is no GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
#include "support/gpu_kernels.h"
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
                                quantized(Operation::a8w8_blockscale, size.m, size.n, size.k, fp8),
                                with_e8m0_scales(size.m, size.n, size.k)};
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

/// Quantized operands of one size.
class QuantizedOperandsOfSize : public OnGpu, public ::testing::WithParamInterface<Size> {};

TEST_P(QuantizedOperandsOfSize, AreRightByEveryWayThroughWgmma) {
  const KernelFamily* family = gpu()->find_family("wgmma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma").message();
  const Size& size = GetParam();
  for (const Problem& problem : quantized_problems(size, size.m % 2 == 0)) {
    ASSERT_TRUE(family->accepts(problem).ok()) << print(problem);
    expect_right(*family, problem, wgmma_configs(*family, problem));
    ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
  }
}

INSTANTIATE_TEST_SUITE_P(, QuantizedOperandsOfSize,
                         ::testing::Values(Size{1, 8, 16}, Size{1, 65, 144}, Size{17, 100, 208},
                                           Size{33, 1280, 1040}, Size{64, 2112, 640}, Size{65, 129, 80},
                                           Size{96, 264, 528}, Size{129, 777, 576}, Size{300, 520, 2048},
                                           Size{513, 1000, 784}, Size{1500, 3000, 1200},
                                           Size{1500, 3000, 1536}),
                         [](const auto& one) {
                           return fmt::format("m{}n{}k{}", one.param.m, one.param.n, one.param.k);
                         });

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
