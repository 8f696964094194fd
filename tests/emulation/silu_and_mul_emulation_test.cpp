// The kernel of silu_and_mul on the emulation, against float64: types, vectors and what has none, several blocks a row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/gpu/activation/silu_and_mul.h"
#include "backends/gpu/jit/device_files.h"
#include "support/emulation/emulated_runtime.h"
#include "support/silu_and_mul_case.h"

namespace gemmtune::emulation {
namespace {

using testing::SiluAndMulCase;

std::string run_silu_and_mul(gpu::Runtime& runtime, SiluAndMulCase one) {
  gpu::SiluAndMulKernels kernels(runtime, nullptr);
  register_buffer(one.inputs().data(), one.inputs().size(), "inputs");
  register_buffer(one.output().data(), one.output().size(), "output");
  const SiluAndMul call = one.call(one.inputs().data(), one.output().data());
  EXPECT_FALSE(kernels.is_loaded(call.type));
  const Status done = kernels.run(call, {});
  EXPECT_TRUE(kernels.is_loaded(call.type));
  unregister_buffer(one.inputs().data());
  unregister_buffer(one.output().data());
  return done.ok() ? one.wrong(one.output().data()) : done.message();
}

TEST(SiluAndMulOnTheEmulation, EveryTypeWithVectorsAndWithout) {
  for (const char* architecture : {"gfx942", "sm_80"}) {
    EmulatedRuntime runtime(architecture);
    for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
      SCOPED_TRACE(::testing::Message() << architecture << ' ' << to_string(type));
      EXPECT_EQ(run_silu_and_mul(runtime, {type, 3, 64, 8}), "");
      EXPECT_EQ(run_silu_and_mul(runtime, {type, 2, 1288}), "");
      EXPECT_EQ(run_silu_and_mul(runtime, {type, 3, 61, 3, 1}), "");
      EXPECT_EQ(run_silu_and_mul(runtime, {type, 1, 1}), "");
    }
  }
}

/// The kernel without its look at the end of a row is found.
class WithoutTheEnd final : public gpu::Runtime {
 public:
  const gpu::Limits& limits() const override { return runtime_.limits(); }
  const std::string& architecture() const override { return runtime_.architecture(); }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override {
    gpu::Source broken = source;
    broken.text = gpu::resolved_text(source.text);
    const std::string right = "i < first + WIDTH && i < a.columns";
    const auto at = broken.text.find(right);
    EXPECT_NE(at, std::string::npos);
    broken.text.replace(at, right.size(), "i < first + WIDTH");
    return runtime_.load(broken);
  }

 private:
  EmulatedRuntime runtime_{"gfx942"};
};

TEST(SiluAndMulOnTheEmulation, AWriteBehindTheRowIsFound) {
  WithoutTheEnd runtime;
  EXPECT_THAT(run_silu_and_mul(runtime, {DataType::bf16, 2, 61, 3}),
              ::testing::HasSubstr("behind it was written"));
}

}  // namespace
}  // namespace gemmtune::emulation
