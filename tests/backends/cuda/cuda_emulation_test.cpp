// The emulation (support/emulation) against an NVIDIA GPU: one instruction, and kernels of the family mma, on the same operands. Skips
// where there is no GPU.
//
// With small whole numbers every product and sum is a float32 whatever the order, so that results agree bit for bit: an element that
// the emulation takes from another lane, register or row is another number. Other operands agree as far as sums of another order and
// rounding do: the tensor core adds the products of an instruction with truncation, the emulation in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/families/own_families.h"
#include "backends/gpu/gpu_runtime.h"
#include "backends/gpu/jit/compiled_family.h"
#include "base/random.h"
#include "support/dense_problem.h"
#include "support/elements.h"
#include "support/emulation/emulated_runtime.h"

namespace gemmtune::cuda {
namespace {

/// Every tile height, warps along m, stages that are more than the k tiles, split-K.
constexpr const char* kernels[] = {"mma_r1_bm16_bn64_nw4_st3_sk1",  "mma_r1_bm16_bn64_nw4_st6_sk2",
                                   "mma_r1_bm32_bn128_nw4_st3_sk1", "mma_r1_bm64_bn64_nw4_st4_sk2",
                                   "mma_r1_bm64_bn128_nw8_st3_sk1", "mma_r1_bm128_bn64_nw4_st3_sk1",
                                   "mma_r1_bm128_bn128_nw8_st4_sk1"};

class CudaEmulation : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_runtime(0, {});
    if (!opened.ok()) GTEST_SKIP() << "no NVIDIA GPU here: " << opened.message();
    gpu_ = std::move(*opened);
    std::string log;
    if (emulation::Module::compile("extern \"C\" __global__ void kernel() {}", {}, &log) == nullptr)
      GTEST_SKIP() << "the emulation has no compiler here: " << log;
    emulated_ =
        std::make_unique<emulation::EmulatedRuntime>(gpu_->architecture(), gpu_->limits().multiprocessors);
  }
  void TearDown() override {
    for (void* memory : memory_) gpu_->driver().free(memory);
  }

  /// A copy in the GPU's memory.
  void* on_gpu(const std::vector<std::byte>& bytes) {
    if (bytes.empty()) return nullptr;
    auto memory = gpu_->driver().allocate(bytes.size());
    EXPECT_TRUE(memory.ok()) << memory.message();
    if (!memory.ok()) return nullptr;
    memory_.push_back(*memory);
    EXPECT_TRUE(gpu_->driver().copy_in(*memory, bytes.data(), bytes.size()).ok());
    return *memory;
  }

  /// y of a kernel that the GPU's runtime has built.
  std::vector<std::byte> run_on_gpu(const Kernel& kernel, const Problem& problem, const HostOperands& host) {
    const OperandShapes shapes = operand_shapes(problem);
    std::vector<std::byte> y(static_cast<std::size_t>(shapes.y.bytes()), std::byte{0xff});
    Operands operands;
    operands.x = on_gpu(host.x);
    operands.w = on_gpu(host.w);
    operands.bias = on_gpu(host.bias);
    operands.y = on_gpu(y);
    operands.ldx = shapes.x.line_elements();
    operands.ldy = problem.n;
    operands.x_batch_stride = problem.m * problem.k;
    operands.y_batch_stride = problem.m * problem.n;
    void* const workspace = on_gpu(std::vector<std::byte>(kernel.workspace_bytes()));
    const Status ran = kernel.run(operands, workspace, {});
    EXPECT_TRUE(ran.ok()) << ran.message();
    EXPECT_TRUE(gpu_->driver().synchronize().ok());
    EXPECT_TRUE(gpu_->driver().copy_out(y.data(), operands.y, y.size()).ok());
    return y;
  }

  /// Calls compare(config, y of the GPU, y of the emulation) for configs that both build.
  template <typename Compare>
  void run_both(const Problem& problem, const HostOperands& host, Compare compare) {
    const auto there = make_mma_family(*gpu_);
    const auto here = make_mma_family(*emulated_);
    ASSERT_TRUE(there->accepts(problem).ok()) << there->accepts(problem).message();
    int ran = 0;
    const Space space = here->space(problem);
    for (const char* name : kernels) {
      const auto candidate = parse_kernel_name(name, space.keys());
      ASSERT_TRUE(candidate.ok()) << candidate.message();
      const Config& config = candidate->config;
      if (!space.build_refusal(config).empty()) continue;  // fewer k tiles than its split
      const auto real = there->build(problem, config);
      const auto emulated = here->build(problem, config);
      ASSERT_TRUE(real.ok()) << config.text() << ": " << real.message();
      ASSERT_TRUE(emulated.ok()) << config.text() << ": " << emulated.message();
      const emulation::EmulatedOutput output = emulation::run_kernel(**emulated, problem, host);
      ASSERT_EQ(output.wrong, "") << print(problem) << " " << config.text();
      compare(config, run_on_gpu(**real, problem, host), output.y);
      ++ran;
    }
    EXPECT_GE(ran, 4) << print(problem);
  }

  std::unique_ptr<gpu::GpuRuntime> gpu_;
  std::unique_ptr<emulation::EmulatedRuntime> emulated_;
  std::vector<void*> memory_;
};

/// Whole numbers from −8 to 8, which all types have.
std::vector<std::byte> whole_numbers(DataType type, std::size_t count, Random& random) {
  const std::size_t bytes = static_cast<std::size_t>(bits(type) / 8);
  std::vector<std::byte> all(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t one = traits(type).from_f32(static_cast<float>(random.below(17)) - 8);
    std::memcpy(all.data() + i * bytes, &one, bytes);
  }
  return all;
}

Problem in_columns(Problem problem) {
  problem.x_order = problem.w_order = Order::column_major;
  return problem;
}

/// A warp's operands as registers hold them, A of 16 x k, B of 8 x k, C of 16 x 8, through one mma.sync.
TEST_F(CudaEmulation, OneInstructionIsTheSame) {
  const std::string kernel = R"(
extern "C" __global__ void one(const unsigned* a, const unsigned* b, const float* c, float* d) {
  const int lane = threadIdx.x;
  unsigned of_a[4];
  float sums[4];
  for (int i = 0; i < 4; ++i) {
    of_a[i] = a[lane * 4 + i];
    sums[i] = c[lane * 4 + i];
  }
  multiply(sums, of_a, b[lane * 2], b[lane * 2 + 1]);
  for (int i = 0; i < 4; ++i) d[lane * 4 + i] = sums[i];
}
)";
  Random random(3);
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f8_e4m3fn}) {
    const Problem problem = dense(64, 64, 128, type);
    Config config;
    for (const char* setting : {"bm", "bn"}) config.set(setting, std::int64_t{64});
    // The family's text has the instruction; its own kernel is compiled and not launched.
    const auto family = make_mma_family(*gpu_);
    gpu::Source source = static_cast<const gpu::CompiledFamily&>(*family).sources(problem, config).front();
    source.text += kernel;
    source.kernel = "one";
    const auto there = gpu_->load(source);
    const auto here = emulated_->load(source);
    ASSERT_TRUE(there.ok()) << to_string(type) << ": " << there.message();
    ASSERT_TRUE(here.ok()) << to_string(type) << ": " << here.message();
    const std::size_t in_register = 32 / static_cast<std::size_t>(bits(type));
    std::vector<std::byte> a = whole_numbers(type, 32 * 4 * in_register, random);
    std::vector<std::byte> b = whole_numbers(type, 32 * 2 * in_register, random);
    std::vector<std::byte> c = whole_numbers(DataType::f32, 32 * 4, random);
    std::vector<std::byte> d(32 * 4 * sizeof(float));
    gpu::LaunchShape shape;
    shape.threads = 32;
    {
      const void* pointers[] = {a.data(), b.data(), c.data(), d.data()};
      const std::vector<std::byte>* const all[] = {&a, &b, &c, &d};
      for (const auto* one : all) emulation::register_buffer(one->data(), one->size());
      void* arguments[] = {&pointers[0], &pointers[1], &pointers[2], &pointers[3]};
      const Status ran = (*here)->launch(shape, arguments, {});
      EXPECT_TRUE(ran.ok()) << ran.message();
      for (const auto* one : all) emulation::unregister_buffer(one->data());
    }
    void* pointers[] = {on_gpu(a), on_gpu(b), on_gpu(c), on_gpu(c)};
    void* arguments[] = {&pointers[0], &pointers[1], &pointers[2], &pointers[3]};
    ASSERT_TRUE((*there)->launch(shape, arguments, {}).ok());
    ASSERT_TRUE(gpu_->driver().synchronize().ok());
    std::vector<std::byte> real(d.size());
    ASSERT_TRUE(gpu_->driver().copy_out(real.data(), pointers[3], real.size()).ok());
    for (std::int64_t i = 0; i < 32 * 4; ++i)
      EXPECT_EQ(testing::load_element(DataType::f32, real.data(), i),
                testing::load_element(DataType::f32, d.data(), i))
          << to_string(type) << ": lane " << i / 4 << ", register " << i % 4;
  }
}

/// Tails of every side, split-K, column-major operands, a bias, batches.
TEST_F(CudaEmulation, KernelsAgreeBitForBitOnWholeNumbers) {
  Random random(4);
  for (const Problem& problem :
       {dense(35, 70, 200, DataType::bf16, DataType::bf16, true),
        dense(130, 70, 1032, DataType::f16, DataType::f32), in_columns(dense(72, 40, 77)),
        in_columns(dense(136, 72, 1030, DataType::f16, DataType::f16)), batched(3, 35, 66, 1024)}) {
    auto host = make_inputs(problem, 7);
    ASSERT_TRUE(host.ok()) << host.message();
    const OperandShapes shapes = operand_shapes(problem);
    host->x = whole_numbers(problem.x_type, static_cast<std::size_t>(shapes.x.elements()), random);
    host->w = whole_numbers(problem.w_type, static_cast<std::size_t>(shapes.w.elements()), random);
    run_both(problem, *host,
             [&](const Config& config, const std::vector<std::byte>& real,
                 const std::vector<std::byte>& emulated) {
               EXPECT_TRUE(real == emulated) << print(problem) << " " << config.text();
             });
  }
}

/// An instruction of 16 k truncates its addends at 2^-23 of the largest, which is no more than the sum of all magnitudes. The bound is one
/// such truncation an instruction; on an H200 results are a sixteenth of it apart.
TEST_F(CudaEmulation, KernelsAgreeWithinTheOrderOfSums) {
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    const Problem problem = dense(130, 70, 600, type, DataType::f32);
    const auto host = make_inputs(problem, 7);
    ASSERT_TRUE(host.ok()) << host.message();
    const auto element = [&](const std::vector<std::byte>& of, std::int64_t row, std::int64_t k) {
      return static_cast<double>(testing::load_element(type, of.data(), row * problem.k + k));
    };
    std::vector<double> magnitudes(static_cast<std::size_t>(problem.m * problem.n));
    for (std::int64_t i = 0; i < problem.m * problem.n; ++i)
      for (std::int64_t k = 0; k < problem.k; ++k)
        magnitudes[static_cast<std::size_t>(i)] +=
            std::fabs(element(host->x, i / problem.n, k) * element(host->w, i % problem.n, k));
    const double each = std::ldexp(std::ceil(static_cast<double>(problem.k) / 16), -23);
    double most = 0;
    run_both(problem, *host,
             [&](const Config& config, const std::vector<std::byte>& real,
                 const std::vector<std::byte>& emulated) {
               for (std::int64_t i = 0; i < problem.m * problem.n; ++i) {
                 const double apart =
                     std::fabs(static_cast<double>(testing::load_element(DataType::f32, real.data(), i)) -
                               static_cast<double>(testing::load_element(DataType::f32, emulated.data(), i)));
                 const double share = apart / (each * magnitudes[static_cast<std::size_t>(i)]);
                 most = std::max(most, share);
                 ASSERT_LE(share, 1) << print(problem) << " " << config.text() << ": row " << i / problem.n
                                     << ", column " << i % problem.n;
               }
             });
    std::printf("%s: at most %.3g of the bound apart\n", std::string(to_string(type)).c_str(), most);
  }
}

}  // namespace
}  // namespace gemmtune::cuda
