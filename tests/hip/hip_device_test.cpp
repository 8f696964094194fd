// The hip backend on doubles of its libraries: identity, memory, compiled kernels, graphs, hipBLASLt's solutions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "backends/hip/code_object.h"
#include "backends/hip/hip_backend.h"
#include "backends/hip/hip_driver.h"
#include "backends/hip/libraries.h"
#include "base/environment.h"
#include "dispatch/context.h"
#include "dispatch/planner.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "formats/aiter/schema.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "formats/shapes/shape_list.h"
#include "measure/policy.h"
#include "resolve/answer.h"
#include "resolve/bind.h"
#include "resolve/online_rows.h"
#include "resolve/row_kernel.h"
#include "support/captures.h"
#include "support/dense_problem.h"
#include "support/fixtures.h"
#include "support/hip_double/hip_double.h"
#include "support/subprocess.h"
#include "support/temporary_folder.h"

namespace gemmtune::hip {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// An environment variable of the double, for a test.
class Set {
 public:
  Set(const char* variable, const char* value) : variable_(variable) { setenv(variable, value, 1); }
  ~Set() { unsetenv(variable_); }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

 private:
  const char* variable_;
};

std::unique_ptr<Device> open_hip(const std::string& text = "hip:0") {
  DeviceRequest request;
  request.text = text;
  auto device = hip_backend().open(request);
  EXPECT_TRUE(device.ok()) << device.message();
  return device.ok() ? std::move(*device) : nullptr;
}

Outcome verified(Device& device, const Problem& problem, const Candidate& candidate) {
  InProcessEvaluator evaluator(device, in_process_options(device, Policy(), 0.05));
  return evaluator.check_neighbour_m(problem, candidate, problem.m);
}

TEST(HipDevice, IsNamedAsAitersTablesNameIt) {
  struct Case {
    const char* architecture;
    const char* units;
    const char* gfx;
    int cu_num;
  };
  for (const Case& one :
       {Case{"gfx942:sramecc+:xnack-", "304", "gfx942", 304}, Case{"gfx942", "80", "gfx942", 80},
        Case{"gfx942:sramecc+:xnack-", "20", "gfx942", 20},
        Case{"gfx950:sramecc+:xnack-", "256", "gfx950", 256},
        Case{"gfx90a:sramecc+:xnack+", "104", "gfx90a", 104}}) {
    const Set architecture("HIP_DOUBLE_ARCH", one.architecture);
    const Set units("HIP_DOUBLE_UNITS", one.units);
    const auto device = open_hip();
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->info().gfx, one.gfx);
    EXPECT_EQ(device->info().cu_num, one.cu_num);
    EXPECT_EQ(device->info().bus_id, "0000:c1:00.0");
  }
}

TEST(HipDevice, TakesDevicesByNumber) {
  const Set devices("HIP_DOUBLE_DEVICES", "8");
  EXPECT_EQ(hip_backend().devices({}).size(), 8U);
  EXPECT_EQ(open_hip("hip:7")->info().name, "hip:7");
  DeviceRequest request;
  request.text = "hip:8";
  EXPECT_EQ(hip_backend().open(request).message(), "device 'hip:8', expected hip:0 to hip:7");
}

TEST(HipDevice, PacksBusIdsAsAmdSmiDoes) {
  EXPECT_EQ(packed_bus_id("0000:c1:00.0"), 0xc100U);
  EXPECT_EQ(packed_bus_id("0001:05:1f.3"), 0x105fbU);
  EXPECT_EQ(packed_bus_id("no bus"), 0U);
}

/// The families with configs of our own kernels that take the problem; `simt` has what is for correctness.
std::vector<std::string> tunable_families(const Device& device, const Problem& problem) {
  std::vector<std::string> names;
  for (const KernelFamily* family : device.families()) {
    const bool ours = family->name() != "hipblaslt" && family->name() != "simt";
    if (!ours || !family->accepts(problem).ok()) continue;
    EXPECT_EQ(family->space(problem).build_refusal(family->default_config(problem)), "") << print(problem);
    names.emplace_back(family->name());
  }
  return names;
}

/// A size in any order is tuned, not only run by the library: of few rows and many, of every type.
TEST(HipDevice, EveryOrderHasAFamilyToTune) {
  for (const std::string architecture : {"gfx90a", "gfx942", "gfx950"}) {
    const Set gfx("HIP_DOUBLE_ARCH", architecture.c_str());
    const auto device = open_hip();
    ASSERT_NE(device, nullptr);
    std::vector<DataType> types{DataType::bf16, DataType::f16};
    if (architecture == "gfx942") types.push_back(DataType::f8_e4m3fnuz);
    if (architecture == "gfx950") types.push_back(DataType::f8_e4m3fn);
    for (const DataType type : types)
      for (const int m : {1, 16, 4864})
        for (const Order x : {Order::row_major, Order::column_major})
          for (const Order w : {Order::row_major, Order::column_major}) {
            Problem problem = dense(m, 4096, 4097, type);
            problem.scale_ab = traits(type).fp8;
            problem.x_order = x;
            problem.w_order = w;
            const std::vector<std::string> names = tunable_families(*device, problem);
            const bool streams_weight = m <= 16 && x == Order::row_major;
            EXPECT_EQ(names, streams_weight ? (std::vector<std::string>{"skinny", "mfma"})
                                            : std::vector<std::string>{"mfma"})
                << architecture << " " << print(problem);
          }
  }
}

/// tune_gemm's own list of sizes, 25 of which have rowMajorB: T.
TEST(HipDevice, EverySizeOfTuneGemmHasAFamilyToTune) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  const auto list = read_shape_list(fixtures + "/tune_gemm/tuning_gemm_sizes.yaml", {});
  ASSERT_TRUE(list.ok()) << list.message();
  const auto device = open_hip();
  ASSERT_NE(device, nullptr);
  int columns = 0;
  EXPECT_EQ(list->rows.size(), 63U);
  for (const ShapeRow& row : list->rows) {
    columns += row.problem.w_order == Order::column_major ? 1 : 0;
    EXPECT_FALSE(tunable_families(*device, row.problem).empty()) << print(row.problem);
  }
  EXPECT_EQ(columns, 25);
}

TEST(HipDevice, ReadsClocksAndJoules) {
  const auto device = open_hip();
  const auto seen = device->observe();
  EXPECT_EQ(seen.at("sm_clock_mhz"), 2100);
  EXPECT_EQ(seen.at("memory_clock_mhz"), 1300);
  EXPECT_EQ(seen.at("temperature_celsius"), 47);
  EXPECT_TRUE(device->counts_energy().ok());
}

TEST(HipDevice, KeepsAPageBehindTheEnd) {
  const auto device = open_hip();
  auto buffer = device->allocate(100, Placement::page_end);
  ASSERT_TRUE(buffer.ok()) << buffer.message();
  EXPECT_EQ((reinterpret_cast<std::uintptr_t>((*buffer)->data()) + 100) % 4096, 0U);
  EXPECT_TRUE(device->fill((*buffer)->data(), 7, 100).ok());
  EXPECT_THAT(device->fill((*buffer)->data(), 7, 101).message(), HasSubstr("fill: hipErrorInvalidValue"));
}

TEST(HipDevice, MoreMemoryThanThereIsIsOutOfMemory) {
  const auto device = open_hip();
  EXPECT_EQ(device->allocate(std::size_t{1} << 40, Placement::plain).code(), StatusCode::out_of_memory);
  EXPECT_TRUE(device->allocate(4096, Placement::plain).ok());
}

// Awkward shapes of every type that hipBLASLt or simt takes, against the float64 reference.
TEST(HipDevice, SimtIsRightForEveryTypeAndShape) {
  const auto device = open_hip();
  for (const DataType x :
       {DataType::bf16, DataType::f16, DataType::f32, DataType::f8_e4m3fn, DataType::f8_e4m3fnuz}) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {3, 65, 17}, {17, 63, 130}}) {
      Problem problem = dense(m, n, k, x, DataType::bf16, n == 65);
      problem.scale_ab = traits(x).fp8;
      const KernelFamily* simt = device->find_family("simt");
      const Outcome outcome = verified(*device, problem, {"simt", 1, simt->default_config(problem)});
      EXPECT_EQ(outcome.kind, OutcomeKind::ok) << print(problem) << ": " << outcome.reason;
    }
  }
}

TEST(HipDevice, QuantizedOperationsRunOnSimt) {
  const auto device = open_hip();
  const KernelFamily* simt = device->find_family("simt");
  for (const Problem& problem : {quantized(Operation::a8w8, 5, 48, 96, DataType::i8),
                                 quantized(Operation::a8w8_blockscale, 5, 130, 256, DataType::f8_e4m3fn)}) {
    const Outcome outcome = verified(*device, problem, {"simt", 1, simt->default_config(problem)});
    EXPECT_EQ(outcome.kind, OutcomeKind::ok) << print(problem) << ": " << outcome.reason;
  }
}

/// As large problems are: the device draws their operands and computes their reference, the host confirms some of it.
TEST(HipDevice, VerifiesEveryTypeOnTheDevice) {
  const auto device = open_hip();
  const KernelFamily* simt = device->find_family("simt");
  KernelVerifierOptions options;
  options.max_host_flops = 0;
  for (const Problem& problem :
       {dense(5, 48, 192, DataType::bf16, DataType::bf16),
        quantized(Operation::a8w8, 5, 48, 192, DataType::i8), of_fp4(Operation::a16w4, 5, 48, 192),
        of_fp4(Operation::a8w4, 5, 48, 192), of_fp4(Operation::a4w4_blockscale, 5, 48, 192)}) {
    auto verifier = KernelVerifier::make(*device, problem, options);
    ASSERT_TRUE(verifier.ok()) << verifier.message();
    const auto kernel = simt->build(problem, simt->default_config(problem));
    ASSERT_TRUE(kernel.ok()) << kernel.message();
    EXPECT_EQ(verifier->verify_quickly({kernel->get(), Accuracy::fp32}).kind, OutcomeKind::ok)
        << print(problem);
  }
}

/// The device packs an fp4 weight for the families that read AITER's layout.
TEST(HipDevice, Mxfp4RunsOnEveryFamily) {
  for (const char* architecture : {"gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-"}) {
    const Set opened("HIP_DOUBLE_ARCH", architecture);
    const auto device = open_hip();
    for (const Operation operation : {Operation::a4w4_blockscale, Operation::a16w4, Operation::a8w4}) {
      for (const char* name : {"simt", "skinny", "mfma"}) {
        const KernelFamily* family = device->find_family(name);
        ASSERT_NE(family, nullptr) << name << " " << architecture;
        for (const bool packed : {false, true}) {
          const bool is_a4w4 = operation == Operation::a4w4_blockscale;
          if (packed && !is_a4w4) continue;
          if (device->info().gfx == "gfx950" && (!is_a4w4 || name != std::string("mfma"))) continue;
          Problem problem = of_fp4(operation, 5, 48, 192);
          if (packed) problem.weight_layout = *family->packed_layout(problem);
          const Outcome outcome = verified(*device, problem, {name, 1, family->default_config(problem)});
          EXPECT_EQ(outcome.kind, OutcomeKind::ok) << name << " " << print(problem) << ": " << outcome.reason;
        }
      }
    }
  }
}

TEST(HipDevice, UntunedMxfp4IsServedAndCaptured) {
  const gemmtune::test::TemporaryFolder folder;
  ContextOptions options;
  options.capture = true;
  options.config_folder = folder.path();
  auto context = std::make_unique<Context>(options, Environment{}, open_hip());
  for (const auto& [m, family] : {std::pair(3, "skinny_"), std::pair(40, "mfma_")}) {
    const Problem problem = of_fp4(Operation::a4w4_blockscale, m, 64, 128);
    const auto plan = context->plan(problem);
    ASSERT_TRUE(plan.ok()) << plan.message();
    EXPECT_EQ((*plan)->account().match, Match::untuned);
    EXPECT_THAT((*plan)->account().kernel_name, StartsWith(family));
  }
  context.reset();
  const auto read = read_capture(folder.path() + "/" + untuned_file_name(Operation::a4w4_blockscale),
                                 Operation::a4w4_blockscale);
  ASSERT_TRUE(read.ok()) << read.message();
  ASSERT_EQ(read->problems.size(), 2U);
  EXPECT_EQ(read->problems[0].problem.m, 3);
}

TEST(HipDevice, SpilledKernelsAreRefused) {
  const Set spilled("HIP_DOUBLE_SPILLED", "64");
  const auto device = open_hip();
  const Problem problem = dense(4, 64, 64);
  const auto kernel = device->build({"simt", 1, {}}, problem);
  EXPECT_THAT(kernel.message(), HasSubstr("keeps 64 bytes a thread in device memory"));
}

TEST(HipDevice, TimesAGraphOfLaunches) {
  const auto device = open_hip();
  const Problem problem = dense(4, 64, 64);
  const auto kernel = device->build({"simt", 1, {}}, problem);
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  auto memory = device->allocate(1 << 16, Placement::plain);
  Operands operands{.x = (*memory)->data(), .w = (*memory)->data()};
  operands.y = static_cast<char*>((*memory)->data()) + (1 << 15);
  operands.ldx = operands.ldy = 64;
  SampleRequest request{.kernel = kernel->get(), .rotation = {&operands, 1}, .launches = 5};
  const auto graph = device->sample(request);
  ASSERT_TRUE(graph.ok()) << graph.message();
  EXPECT_NEAR(*graph, 6, 0.1);
  request.eager = true;
  EXPECT_NEAR(device->sample(request).value(), 6, 0.1);
}

// ---- code objects

TEST(CodeObject, TellsWhatAKernelUses) {
  const std::string code = hip_double::make_code_object("extern \"C\" __global__ void k(int a) {}", {});
  const auto resources = read_code_object(code);
  ASSERT_TRUE(resources.ok()) << resources.message();
  EXPECT_EQ(resources->registers, 64);
  EXPECT_EQ(resources->stack_bytes, 0);
  EXPECT_EQ(resources->static_shared_bytes, 4096U);
}

TEST(CodeObject, IsOfTheProcessorThatItWasMadeFor) {
  const std::string source = "extern \"C\" __global__ void k(int a) {}";
  for (const std::string made : {"gfx90a", "gfx942", "gfx950"}) {
    const std::string code =
        hip_double::make_code_object(source, {"--offload-arch=" + made + ":sramecc+:xnack-"});
    for (const std::string wanted : {"gfx90a", "gfx942", "gfx950"})
      EXPECT_EQ(check_code_object(code, wanted).ok(), made == wanted) << made << " " << wanted;
  }
}

// Debian's clang-19 makes code objects of AMD GPUs without ROCm.
TEST(CodeObject, OfTheRealCompilerIsRead) {
  const gemmtune::test::TemporaryFolder folder;
  const std::string source = folder.path() + "/k.hip";
  std::ofstream(source)
      << "#define __global__ __attribute__((global))\n#define __shared__ __attribute__((shared))\n"
         "extern \"C\" __global__ void k(float* y, int at) {\n  __shared__ float tile[64];\n"
         "  tile[at] = y[1];\n  y[0] = tile[at + 1];\n}\n";
  const std::string command =
      "clang++-19 -x hip --cuda-device-only -nogpulib -nogpuinc --no-gpu-bundle-output -O3 "
      "--offload-arch=gfx942 -c " +
      source + " -o " + folder.path() + "/k.o 2>/dev/null";
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "no clang++-19 (apt-get install clang-19)";
  const std::string code = gemmtune::test::read_text(folder.path() + "/k.o");
  EXPECT_TRUE(check_code_object(code, "gfx942:sramecc+:xnack-").ok());
  EXPECT_FALSE(check_code_object(code, "gfx90a").ok());
  const auto resources = read_code_object(code);
  ASSERT_TRUE(resources.ok()) << resources.message();
  EXPECT_GT(resources->registers, 0);
  EXPECT_LT(resources->registers, 32);
  EXPECT_EQ(resources->stack_bytes, 0);
  EXPECT_EQ(resources->static_shared_bytes, 256U);
}

TEST(CodeObject, OfAnyDamageIsAnErrorAndNoCrash) {
  const std::string code = hip_double::make_code_object("extern \"C\" __global__ void k(int a) {}", {});
  EXPECT_THAT(read_code_object("").message(), HasSubstr("no 64-bit ELF file"));
  EXPECT_THAT(read_code_object("__CLANG_OFFLOAD_BUNDLE__").message(), HasSubstr("no 64-bit ELF file"));
  for (std::size_t bytes = 0; bytes < code.size(); ++bytes) (void)read_code_object(code.substr(0, bytes));
  for (std::size_t at = 0; at < code.size(); ++at) {
    std::string damaged = code;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xff);
    (void)read_code_object(damaged);
  }
}

// ---- hipBLASLt

class Solutions : public ::testing::Test {
 protected:
  Problem problem_ = dense(5, 64, 48);
  std::unique_ptr<Device> device_ = open_hip();
  const KernelFamily& family_ = *device_->find_family("hipblaslt");
};

TEST_F(Solutions, AreProposedOrAllOfThem) {
  const auto proposed = family_.space(problem_).enumerate();
  const auto all = family_.exhaustive_space(problem_).enumerate();
  EXPECT_EQ(proposed.size(), 7U);  // every third of 24 that the problem has
  EXPECT_EQ(all.size(), 20U);      // four of five
  EXPECT_EQ(all.front(), family_.default_config(problem_));
  EXPECT_EQ(all.front().word("lib"), "0.10.0-bb5fd0e");
}

TEST_F(Solutions, AreRightWithBiasScalesAndStrides) {
  for (const Problem& problem :
       {dense(5, 64, 48, DataType::f16, DataType::f16, true), dense(1, 7, 9, DataType::f32, DataType::f32),
        dense(33, 16, 20, DataType::bf16, DataType::f32)}) {
    const Outcome outcome = verified(*device_, problem, {"hipblaslt", 1, family_.default_config(problem)});
    EXPECT_EQ(outcome.kind, OutcomeKind::ok) << print(problem) << ": " << outcome.reason;
  }
  Problem scaled = dense(16, 32, 64);
  scaled.x_type = scaled.w_type = DataType::f8_e4m3fnuz;
  scaled.scale_ab = true;
  const Outcome outcome = verified(*device_, scaled, {"hipblaslt", 1, family_.default_config(scaled)});
  EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
}

TEST_F(Solutions, OfBatchesAreRight) {
  for (const Problem& problem : {batched(3, 5, 64, 48), batched(2, 1, 7, 9, DataType::bf16, true)}) {
    const Outcome outcome = verified(*device_, problem, {"hipblaslt", 1, family_.default_config(problem)});
    EXPECT_EQ(outcome.kind, OutcomeKind::ok) << print(problem) << ": " << outcome.reason;
  }
  EXPECT_THAT(family_.accepts(batched(3, 5, 64, 48, DataType::i8)).message(),
              HasSubstr("batched_a8w8 is not a16w16, batched"));
}

/// One kernel, called with batches behind one another and with [M, B, K] and [M, B, N], in turn.
TEST_F(Solutions, OfBatchesHaveTheStridesOfTheirCall) {
  constexpr std::int64_t b = 3, m = 2, n = 4, k = 8;
  const auto kernel = device_->build({"hipblaslt", 1, {}}, batched(b, m, n, k));
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  auto memory = device_->allocate(1 << 16, Placement::plain);
  ASSERT_TRUE(memory.ok());
  auto* const values = static_cast<std::uint16_t*>((*memory)->data());  // the double's memory is the host's
  std::uint16_t* const w = values + 1024;
  std::uint16_t* const y = values + 2048;
  const std::uint16_t numbers[] = {0x3f80, 0x4000, 0x4040};  // 1, 2, 3
  for (const bool side_by_side : {false, true, false}) {
    Operands operands{.x = values, .w = w};
    operands.y = y;
    operands.ldx = side_by_side ? b * k : k;
    operands.ldy = side_by_side ? b * n : n;
    operands.x_batch_stride = side_by_side ? k : m * k;
    operands.y_batch_stride = side_by_side ? n : m * n;
    for (std::int64_t batch = 0; batch < b; ++batch)
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t i = 0; i < k; ++i)
          values[batch * operands.x_batch_stride + row * operands.ldx + i] = numbers[batch];
    std::fill_n(w, b * n * k, std::uint16_t{0x3f80});
    std::fill_n(y, b * m * n, std::uint16_t{0});
    ASSERT_TRUE((*kernel)->run(operands, nullptr, {}).ok());
    for (std::int64_t batch = 0; batch < b; ++batch)
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t column = 0; column < n; ++column)
          EXPECT_EQ(y[batch * operands.y_batch_stride + row * operands.ldy + column],
                    (std::array{0x4100, 0x4180, 0x41c0})[static_cast<std::size_t>(batch)])  // 8, 16, 24
              << side_by_side << " batch " << batch;
  }
}

/// The double refuses a handle on two streams, but where one captures.
TEST_F(Solutions, OfOtherStreamsHaveHandlesOfTheirOwn) {
  const auto kernel = device_->build({"hipblaslt", 1, {}}, problem_);
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  auto memory = device_->allocate(1 << 16, Placement::plain);
  Operands operands{.x = (*memory)->data(), .w = (*memory)->data()};
  operands.y = static_cast<char*>((*memory)->data()) + (1 << 15);
  operands.ldx = problem_.k;
  operands.ldy = problem_.n;
  const api::Runtime& f = runtime().functions;
  std::array<api::HipStream, 3> streams{};
  for (api::HipStream& stream : streams) ASSERT_EQ(f.stream_create(&stream, 0), api::success);
  for (int call = 0; call < 2; ++call) {
    EXPECT_TRUE((*kernel)->run(operands, nullptr, {}).ok());
    for (const std::size_t i : {0, 1}) {
      const Status ran = (*kernel)->run(operands, nullptr, {streams[i]});
      EXPECT_TRUE(ran.ok()) << ran.message();
    }
  }
  ASSERT_EQ(f.capture_begin(streams[2], api::capture_mode_thread_local), api::success);
  const Status captured = (*kernel)->run(operands, nullptr, {streams[2]});
  EXPECT_TRUE(captured.ok()) << captured.message();
  api::Graph graph = nullptr;
  ASSERT_EQ(f.capture_end(streams[2], &graph), api::success);
  f.graph_destroy(graph);
  EXPECT_TRUE((*kernel)->run(operands, nullptr, {streams[2]}).ok());
  for (const api::HipStream stream : streams) f.stream_destroy(stream);
}

/// What an untuned call of batches runs, launched alone and in a graph.
TEST(HipDevice, UntunedBatchesRunTheirFallback) {
  const auto device = open_hip();
  const TableSet none;
  const LookupTables tables(none);
  for (const auto& [problem, family] : {std::pair{batched(3, 40, 64, 48), "hipblaslt"},
                                        std::pair{batched(3, 4, 64, 48, DataType::i8), "skinny"},
                                        std::pair{batched(3, 40, 64, 48, DataType::f8_e4m3fnuz), "mfma"}}) {
    const Answer answer = answer_problem(*device, tables, problem, {});
    ASSERT_TRUE(answer.status.ok()) << answer.status.message();
    EXPECT_EQ(answer.bound.candidate.family, family) << print(problem);
    const Outcome outcome = verified(*device, problem, answer.bound.candidate);
    EXPECT_EQ(outcome.kind, OutcomeKind::ok) << print(problem) << ": " << outcome.reason;
    auto memory = device->allocate(1 << 17, Placement::plain);
    auto workspace = device->allocate(answer.bound.kernel->workspace_bytes() + 1, Placement::plain);
    auto* const bytes = static_cast<char*>((*memory)->data());
    Operands operands{.x = bytes, .w = bytes};
    operands.x_scale = operands.w_scale = bytes;
    operands.y = bytes + (1 << 16);
    operands.ldx = problem.k;
    operands.ldy = problem.n;
    operands.x_batch_stride = problem.m * problem.k;
    operands.y_batch_stride = problem.m * problem.n;
    SampleRequest request{.kernel = answer.bound.kernel.get(), .rotation = {&operands, 1}, .launches = 3};
    request.workspace = (*workspace)->data();
    const auto microseconds = device->sample(request);
    EXPECT_TRUE(microseconds.ok()) << microseconds.message();
  }
}

TEST(HipDevice, UntunedBatchesAreCaptured) {
  const gemmtune::test::TemporaryFolder folder;
  ContextOptions options;
  options.capture = true;
  options.config_folder = folder.path();
  {
    Context context(options, {}, open_hip());
    ASSERT_TRUE(context.plan(batched(3, 5, 64, 48)).ok());
    ASSERT_TRUE(context.plan(batched(3, 5, 64, 48)).ok());
    ASSERT_TRUE(context.plan(batched(2, 4, 64, 48, DataType::i8)).ok());
  }
  for (const auto& [operation, calls] : {std::pair{OperationForm(Operation::batched_bf16), 2U},
                                         std::pair{OperationForm(Operation::batched_a8w8), 1U}}) {
    const auto read = read_capture(folder.path() + "/" + untuned_file_name(operation), operation);
    ASSERT_TRUE(read.ok()) << read.message();
    ASSERT_EQ(read->problems.size(), 1U);
    EXPECT_EQ(read->problems[0].calls, calls);
  }
}

TEST_F(Solutions, ThatAreWrongAreFound) {
  const Set wrong("HIP_DOUBLE_LT_WRONG", "1003");
  Config config;
  config.set("sol", std::int64_t{1003});
  EXPECT_EQ(verified(*device_, problem_, {"hipblaslt", 1, config}).kind, OutcomeKind::wrong);
  config.set("sol", std::int64_t{1000});
  EXPECT_EQ(verified(*device_, problem_, {"hipblaslt", 1, config}).kind, OutcomeKind::ok);
}

TEST_F(Solutions, OfTheOtherFp8AreNotThere) {
  EXPECT_THAT(family_.accepts(dense(16, 32, 64, DataType::f8_e4m3fn)).message(),
              HasSubstr("the library proposes nothing for 16x32x64"));
  const Set architecture("HIP_DOUBLE_ARCH", "gfx950");
  EXPECT_TRUE(open_hip()->find_family("hipblaslt")->accepts(dense(16, 32, 64, DataType::f8_e4m3fn)).ok());
}

TEST_F(Solutions, ThatMovedAreRefused) {
  const Candidate candidate{"hipblaslt", 1, family_.default_config(problem_)};
  EXPECT_TRUE(device_->build(candidate, problem_).ok());
  const Set moved("HIP_DOUBLE_LT_MOVED", "1");
  const auto built = open_hip()->build(candidate, problem_);
  EXPECT_THAT(built.message(), HasSubstr("solution 1000 is Cijk_"));
  EXPECT_THAT(built.message(), HasSubstr("another one than was tuned"));
}

TEST_F(Solutions, OfAnotherBuildAreRefused) {
  auto built = device_->resolve("hipblaslt_r1_sol1000_lib0.9.0-1234567", problem_);
  EXPECT_THAT(built.message(), HasSubstr("lib (build of hipBLASLt) is 0.9.0-1234567, expected one of"));
  EXPECT_THAT(device_
                  ->build({"hipblaslt", 1,
                           [] {
                             Config config;
                             config.set("sol", std::int64_t{77});
                             return config;
                           }()},
                          problem_)
                  .message(),
              HasSubstr("has no solution 77"));
}

// ---- AITER's rows

TunedEntry row_of(const Problem& problem, const char* libtype, std::int64_t solidx, const char* kernel) {
  TunedEntry row;
  row.gfx = "gfx942";
  row.cu_num = 304;
  row.problem = problem;
  row.libtype = libtype;
  row.solidx = solidx;
  row.kernel_name = kernel;
  row.us = 5;
  return row;
}

TEST_F(Solutions, OfAitersRowsRunByIndexAndName) {
  const auto bind = [&](const char* libtype, std::int64_t solidx, const char* kernel) {
    return bind_row(*device_, row_of(problem_, libtype, solidx, kernel), "", problem_, {});
  };
  const std::string first = "Cijk_Alik_Bljk_BBS_BH_Bias_UserArgs_MT16x64x64_SN_SK0";
  for (const char* libtype : {"hipblaslt", "hipblast"}) {
    EXPECT_TRUE(bind(libtype, 1000, first.c_str()).bound) << libtype;
    EXPECT_TRUE(bind(libtype, 1000, "").bound) << libtype;
    EXPECT_TRUE(bind(libtype, -1, "None").bound) << libtype;
  }
  EXPECT_TRUE(bind("torch", 0, "native").bound);
  EXPECT_TRUE(bind("skinny", 2, "sol2").bound);
  EXPECT_THAT(bind("hipblaslt", 1001, first.c_str()).status.message(),
              HasSubstr("another one than was tuned"));
  EXPECT_THAT(bind("hipblaslt", 1004, "").status.message(),
              HasSubstr("solution 1004 does not do this problem"));
}

// An index without a name may be another kernel by now: its first result decides.
TEST_F(Solutions, OfAForeignRowAreReplacedIfWrong) {
  const gemmtune::test::TemporaryFolder folder;
  const std::string file = folder.path() + "/bf16_tuned_gemm.csv";
  std::ofstream(file)
      << "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,"
         "err_ratio,tflops,bw\n"
         "gfx942,304,5,64,48,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,1003,0,5.0,,0,1,1\n";
  const TableSet tables = load_table_set({{OperationForm(Operation::a16w16), file}});
  const Set wrong("HIP_DOUBLE_LT_WRONG", "1003");
  const auto shared = std::make_shared<DispatchDevice>();
  shared->device = open_hip();
  Device& device = *shared->device;
  const auto plan = make_plan(shared, tables, problem_, {});
  ASSERT_TRUE(plan.ok()) << plan.message();
  EXPECT_EQ((*plan)->account().match, Match::exact);
  auto memory = device.allocate(1 << 16, Placement::plain);
  ASSERT_TRUE(memory.ok());
  const std::vector<std::uint16_t> ones(1 << 15, 0x3f80);  // bf16
  ASSERT_TRUE(device.copy_in((*memory)->data(), ones.data(), 1 << 16).ok());
  Operands operands{.x = (*memory)->data(), .w = (*memory)->data()};
  operands.y = static_cast<char*>((*memory)->data()) + (1 << 15);
  operands.ldx = 48;
  operands.ldy = 64;
  for (int call = 0; call < 2; ++call) {
    ASSERT_TRUE((*plan)->run(operands, nullptr, {}).ok());
    std::uint16_t first = 0;
    ASSERT_TRUE(device.copy_out(&first, operands.y, sizeof(first)).ok());
    EXPECT_EQ(first, 0x4240) << "48, not the 47 of a kernel that leaves out an element of k";
  }
}

// What AITER's own online tuning wrote, and what ours writes.
TEST_F(Solutions, OfTheOnlineTuningTableAreRows) {
  const gemmtune::test::TemporaryFolder folder;
  const std::string file = folder.path() + "/hip_online_tuning_res.csv";
  HipblasltRow row = to_hipblaslt_row(problem_).value();
  row.algo_index = 1003;
  row.kernel_name = "Cijk_Alik_Bljk_BBS_BH_Bias_UserArgs_MT128x64x64_SN_SK3";
  ASSERT_TRUE(append_hipblaslt_row(file, row).ok());
  Problem other = problem_;
  other.m = 6;
  row = to_hipblaslt_row(other).value();
  row.algo_index = 1006;
  row.kernel_name = "Cijk_of_another_build";
  ASSERT_TRUE(append_hipblaslt_row(file, row).ok());
  const auto rows = load_online_rows({file, OnlineFormat::hipblaslt_table}, *device_);
  ASSERT_EQ(rows->table.entries().size(), 4U);  // of each line one with a bias and one without
  const LookupTables tables(*rows);
  const Answer first = answer_problem(*device_, tables, problem_, {});
  ASSERT_TRUE(first.status.ok()) << first.status.message();
  EXPECT_EQ(first.tables, rows.get());
  EXPECT_EQ(first.bound.candidate.config.number("sol"), 1003);
  const Answer second = answer_problem(*device_, tables, other, {});
  EXPECT_EQ(second.tables, nullptr);
  EXPECT_THAT(second.rule(), HasSubstr("another one than was tuned"));
}

TEST_F(Solutions, OfOtherLibrariesAreMissesThatSaySo) {
  for (const auto& [libtype, what] :
       {std::pair<const char*, const char*>{"asm", "an assembly kernel of AITER"},
        {"ck", "a Composable Kernel of AITER"},
        {"cktile", "a CK Tile kernel of AITER"},
        {"triton", "a Triton kernel of AITER"},
        {"flydsl", "a FlyDSL kernel of AITER"},
        {"opus", "an Opus kernel of AITER"},
        {"rocblas", "a rocBLAS solution"}}) {
    const Binding binding = bind_row(*device_, row_of(problem_, libtype, 3, "some_kernel"), "", problem_, {});
    EXPECT_FALSE(binding.bound);
    EXPECT_EQ(binding.refusal, Refusal::unknown_kernel);
    EXPECT_THAT(binding.status.message(), HasSubstr(what));
  }
}

}  // namespace
}  // namespace gemmtune::hip
