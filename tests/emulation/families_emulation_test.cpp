// Our GPU families on the emulation, against the float64 reference.
#include <gtest/gtest.h>

#include "backends/gpu/families/simt/simt.h"
#include "backends/hip/families/mfma/mfma.h"
#include "support/dense_problem.h"
#include "support/emulation/emulated_runtime.h"

namespace gemmtune::emulation {
namespace {

TEST(FamiliesOnTheEmulation, Simt) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_family(runtime);
  for (const Problem& problem : {dense(17, 65, 70, DataType::bf16, DataType::f32, true), dense(3, 5, 19, DataType::f32, DataType::f32)})
    EXPECT_EQ(check_kernel(*family, problem, family->default_config(problem), Strides::odd), "") << print(problem);
}

TEST(FamiliesOnTheEmulation, Mfma) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_family(runtime);
  for (const Problem& problem : {dense(17, 65, 70, DataType::bf16, DataType::f32, true), dense(64, 64, 512, DataType::f16, DataType::bf16)})
    EXPECT_EQ(check_kernel(*family, problem, family->default_config(problem), Strides::odd), "") << print(problem);
}

}  // namespace
}  // namespace gemmtune::emulation
