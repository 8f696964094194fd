// How often the threads of a call wait for each other.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/tiled/tiled.h"
#include "base/random.h"
#include "numbers/bfloat16.h"
#include "problem/operands.h"
#include "support/executors.h"
#include "support/fenced_memory.h"

namespace gemmtune::cpu {
namespace {

class CountingExecutor final : public Executor {
 public:
  int threads() const override { return two_.threads(); }
  void parallel_for(std::int64_t parts, Body body, void* context) override {
    ++regions;
    two_.parallel_for(parts, body, context);
  }
  int regions = 0;

 private:
  TwoThreadExecutor two_;
};

/// Numbers from -2 to 2, so that every order of sums is exact.
std::vector<std::int64_t> small_numbers(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  for (std::int64_t& number : numbers) number = static_cast<std::int64_t>(random.next() % 5) - 2;
  return numbers;
}

std::vector<std::uint16_t> as_bf16(const std::vector<std::int64_t>& numbers) {
  std::vector<std::uint16_t> bits;
  for (const std::int64_t number : numbers) bits.push_back(f32_to_bf16(static_cast<float>(number)));
  return bits;
}

/// Beside other programs each parallel region takes turns of the scheduler. Rounds of rows and packing them share one.
TEST(ParallelRegions, ManyRowsOfTiledRunInOne) {
  Problem problem{.m = 300, .n = 130, .k = 600, .y_type = DataType::f32};
  const auto x = small_numbers(problem.m * problem.k, 1);
  const auto w = small_numbers(problem.n * problem.k, 2);
  std::vector<float> expected;
  for (std::int64_t m = 0; m < problem.m; ++m)
    for (std::int64_t n = 0; n < problem.n; ++n) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < problem.k; ++k) sum += x[m * problem.k + k] * w[n * problem.k + k];
      expected.push_back(static_cast<float>(sum));
    }
  const auto x_bits = as_bf16(x);
  const auto w_bits = as_bf16(w);
  const auto tiled = make_tiled_family(kernel_set(detect_isa()), 2);
  for (const bool packed : {false, true}) {
    if (packed) problem.weight_layout = WeightLayout::panel16;
    std::vector<char> panels(static_cast<std::size_t>(panel16_of(problem).bytes()));
    if (packed) pack_panel16(panel16_of(problem), w_bits.data(), panels.data());
    for (const std::string_view split : {"m", "n"}) {
      Config config = tiled->default_config(problem);
      config.set("mc", "64");
      config.set("split", std::string(split));
      config.set("sk", "1");
      const auto kernel = tiled->build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      const FencedMemory workspace(((*kernel)->workspace_bytes() + 63) / 64 * 64, Fence::after);
      std::vector<float> y(expected.size());
      const Operands operands{.x = x_bits.data(),
                              .w = packed ? static_cast<const void*>(panels.data()) : w_bits.data(),
                              .y = y.data(),
                              .ldx = problem.k,
                              .ldy = problem.n};
      CountingExecutor executor;
      ASSERT_TRUE((*kernel)->run(operands, workspace.data(), Stream{&executor}).ok());
      EXPECT_EQ(executor.regions, 1) << config.text();
      EXPECT_EQ(y, expected) << config.text();
    }
  }
}

}  // namespace
}  // namespace gemmtune::cpu
