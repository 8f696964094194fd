// The instruction-set levels of this machine, and configs of a CPU family to try on each.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/cpu/families/kernel_set.h"
#include "base/random.h"
#include "support/emulated_tiles.h"
#include "support/executors.h"
#include "support/operation_runs.h"

namespace gemmtune::cpu::testing_levels {

/// The default, and allowed configs at random.
inline std::vector<Config> some_configs(const KernelFamily& family, const Problem& problem, int wanted,
                                        Random& random) {
  const Space space = family.space(problem);
  std::vector<Config> configs{family.default_config(problem)};
  // A name is a promise: it reads back.
  std::vector<std::string> keys;
  for (const Parameter& parameter : space.parameters()) keys.push_back(parameter.key);
  std::size_t at = 0;
  for (const auto& [key, value] : configs[0].settings()) {
    while (at < keys.size() && keys[at] != key) ++at;
    EXPECT_LT(at, keys.size()) << key << " stands out of order in " << configs[0].text();
  }
  for (int attempt = 0; attempt < 3000 && static_cast<int>(configs.size()) <= wanted; ++attempt) {
    Config config;
    for (const Parameter& parameter : space.parameters())
      if (!parameter.values.empty())
        config.set(parameter.key, parameter.values[random.below(parameter.values.size())]);
    if (space.refusal(config).empty()) configs.push_back(config);
  }
  return configs;
}

struct Level {
  std::string name;
  KernelSet set;
};

inline std::vector<Level> levels() {
  std::vector<Level> all;
  for (int i = 0; i <= static_cast<int>(detect_isa()); ++i)
    all.push_back({std::string(to_string(static_cast<Isa>(i))), kernel_set(static_cast<Isa>(i))});
  // The level decodes weights with the machine's AVX-512: without that only the kernels of plain types are emulated
  // (cpu_kernels_test).
  if (detect_isa() >= Isa::avx512bf16) all.push_back({"emulated_amx", emulated_amx_set()});
  return all;
}

/// Kernels of a level against the truth.
class KernelsOfALevel : public ::testing::TestWithParam<Level> {
 protected:
  /// Some configs of the family, if it takes the problem.
  void check_some(const KernelFamily& family, const Problem& problem, const testing_runs::Truth& truth,
                  int configs) {
    if (!family.accepts(problem).ok()) return;
    for (const Config& config : some_configs(family, problem, configs, random_)) {
      SCOPED_TRACE(print(problem) + " " + std::string(family.name()) + "_" + config.text());
      const auto kernel = family.build(problem, config);
      ASSERT_TRUE(kernel.ok()) << kernel.message();
      ASSERT_EQ(verdict(problem, truth, run_kernel(**kernel, problem, truth, serial_)), "");
      ++runs_;
    }
  }

  Random random_{5};
  SerialExecutor serial_{3};
  int runs_ = 0;
};

}  // namespace gemmtune::cpu::testing_levels
