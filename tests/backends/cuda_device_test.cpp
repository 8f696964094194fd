// The cuda backend on a GPU: memory, timing, and every family on awkward shapes and all types against the
// reference of verify/. Skips where there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "tuning/correctness_gate.h"

namespace gemmtune {
namespace {

/// The first GPU; nullptr where there is none.
Device* gpu() {
  static const std::unique_ptr<Device> device = [] {
    DeviceRequest request;
    request.text = "cuda:0";
    auto opened = open_device("cuda", request);
    return opened.ok() ? std::move(*opened) : nullptr;
  }();
  return device.get();
}

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << "no NVIDIA GPU here";
  }
};

TEST_F(CudaDevice, SaysWhatItIs) {
  const DeviceInfo& info = gpu()->info();
  EXPECT_EQ(info.backend, "cuda");
  EXPECT_EQ(info.name, "cuda:0");
  EXPECT_TRUE(info.gfx.starts_with("sm_")) << info.gfx;
  EXPECT_GT(info.cu_num, 0);
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
              testing::HasSubstr("3 byte(s) were overwritten after the end"));
}

TEST_F(CudaDevice, RefusesWhatIsNotThere) {
  EXPECT_EQ(gpu()->allocate(std::size_t{1} << 46, Placement::plain).code(), StatusCode::out_of_memory);
  EXPECT_TRUE(gpu()->health().ok());
  DeviceRequest request;
  request.text = "cuda:99";
  EXPECT_THAT(open_device("cuda", request).message(), testing::HasSubstr("'cuda:99', expected cuda:0"));
}

Problem dense(std::int64_t m, std::int64_t n, std::int64_t k, DataType x, DataType y, bool bias) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.x_type = problem.w_type = x;
  problem.y_type = y;
  problem.bias = bias;
  problem.scale_ab = x == DataType::f8_e4m3fn;
  return problem;
}

/// At most `count` configs of a space, the default first, drawn the same way each time.
std::vector<Config> some_configs(const KernelFamily& family, const Problem& problem, std::size_t count) {
  std::vector<Config> all = family.space(problem).enumerate();
  Random random(7);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  all.insert(all.begin(), family.default_config(problem));
  if (all.size() > count) all.resize(count);
  return all;
}

void expect_right(const KernelFamily& family, const Problem& problem, std::size_t configs) {
  GateOptions options;
  options.reference_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  auto gate = CorrectnessGate::make(*gpu(), problem, options);
  ASSERT_TRUE(gate.ok()) << gate.message();
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::string> names;
  for (const Config& config : some_configs(family, problem, configs)) {
    auto kernel = family.build(problem, config);
    ASSERT_TRUE(kernel.ok()) << print(problem) << " " << config.text() << ": " << kernel.message();
    const Outcome quick = gate->quick(**kernel);
    // The library also proposes splits of k whose partial sums are rounded to y's type: the gate is right to
    // refuse them.
    const bool rounds_sums = family.name() == "cublaslt" && config.number("red") == 4;
    if (rounds_sums && quick.kind == OutcomeKind::wrong) continue;
    EXPECT_EQ(quick.kind, OutcomeKind::ok)
        << family.name() << " " << print(problem) << " " << config.text() << ": " << quick.reason;
    if (quick.kind != OutcomeKind::ok) continue;
    kernels.push_back(std::move(*kernel));
    names.push_back(config.text());
  }
  std::vector<const Kernel*> pointers;
  for (const auto& kernel : kernels) pointers.push_back(kernel.get());
  const auto outcomes = gate->full(pointers, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    const Outcome& outcome = (*outcomes)[i];
    // A vendor's algorithm may refuse the padded rows that the full gate also tries.
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
    for (const Size& size : sizes) {
      int turn = 0;
      for (const auto& [x, y] : types) {
        const Problem problem = dense(size.m, size.n, size.k, x, y, ++turn % 2 == 0);
        if (!family->accepts(problem).ok()) continue;
        ++taken;
        expect_right(*family, problem, 12);
        ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
      }
    }
  }
  EXPECT_GT(taken, 60);
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
