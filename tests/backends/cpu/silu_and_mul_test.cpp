// silu_and_mul of every level of this machine, against float64.
#include "backends/cpu/silu_and_mul.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/executors.h"
#include "support/fenced_memory.h"
#include "support/silu_and_mul_case.h"

namespace gemmtune::cpu {
namespace {

using gemmtune::testing::SiluAndMulCase;

/// On memory that ends at an unreadable page.
void expect_silu_and_mul(SiluAndMulCase one, Isa level, Executor& executor) {
  const FencedMemory inputs(one.inputs().size(), Fence::after);
  const FencedMemory output(one.output().size(), Fence::after);
  std::memcpy(inputs.data(), one.inputs().data(), one.inputs().size());
  std::memcpy(output.data(), one.output().data(), one.output().size());
  silu_and_mul(one.call(inputs.data(), output.data()), level, executor);
  EXPECT_EQ(one.wrong(output.data()), "");
}

TEST(SiluAndMulOnCpu, EveryLevelTypeAndTail) {
  SerialExecutor one(1);
  TwoThreadExecutor two;
  for (int level = 0; level <= static_cast<int>(detect_isa(std::nullopt)); ++level)
    for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
      SCOPED_TRACE(::testing::Message() << level << ' ' << to_string(type));
      for (const std::int64_t columns : {1, 5, 31, 32, 33, 1023, 1024, 1029})
        expect_silu_and_mul({type, 3, columns, 3, 1}, static_cast<Isa>(level), one);
      expect_silu_and_mul({type, 40, 700}, static_cast<Isa>(level), two);
    }
}

TEST(SiluAndMulOnCpu, InPlaceAndOfNothing) {
  SerialExecutor executor(1);
  SiluAndMulCase one(DataType::f32, 2, 50);
  std::vector<std::byte> memory = one.inputs();
  SiluAndMul call = one.call(memory.data(), memory.data());
  call.ldy = call.ldgate;
  silu_and_mul(call, Isa::scalar, executor);
  std::vector<std::byte> result = one.output();
  for (int row = 0; row < 2; ++row) std::memcpy(result.data() + row * 200, memory.data() + row * 400, 200);
  EXPECT_EQ(one.wrong(result.data()), "");
  silu_and_mul(SiluAndMul{}, Isa::scalar, executor);
}

}  // namespace
}  // namespace gemmtune::cpu
