// A fixture that compiles the corner configs of GPU families' spaces: they must fit, and not spill. Needs NVRTC, no GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "backends/backend.h"
#include "support/compiled_corners.h"
#include "support/dense_problem.h"
#include "support/kernel_names.h"
#include "support/nvrtc.h"
#include "support/operation_problems.h"
#include "support/thoroughness.h"

namespace gemmtune {

using test::is_soak;
using test::is_thorough;
using test::Turns;

inline Problem packed(Problem problem) {
  problem.weight_layout = WeightLayout::any;
  return problem;
}

inline Problem in_orders(Problem problem, Order x, Order w) {
  problem.x_order = x;
  problem.w_order = w;
  return problem;
}

class GpuCompile : public ::testing::Test {
 protected:
  /// Of a family's problems one of seven is compiled here, all with GEMMTUNE_THOROUGH.
  void expect_compiles(const KernelFamily& family, CompileOnlyRuntime& runtime, const Problem& problem);

  /// A kernel without a stack that waits for no wgmma instruction at once; null if it does not compile.
  static std::unique_ptr<Kernel> expect_builds(const KernelFamily& family, CompileOnlyRuntime& runtime,
                                               const Problem& problem, const Config& config);
  /// Each kernel is refused, or compiles: every second one, and all with GEMMTUNE_THOROUGH. Returns how many are refused.
  static std::size_t expect_refused_or_builds(const KernelFamily& family, CompileOnlyRuntime& runtime,
                                              std::span<const std::pair<Problem, const char*>> kernels);

 private:
  std::vector<Config> in_turn(std::vector<Config> configs);
  std::vector<Config> sample_of(std::vector<Config> configs, const std::string& family);

  std::set<std::string> covered_;       // by what the test compiled so far
  std::map<std::string, Turns> turns_;  // problems of a family on an architecture
  std::size_t problems_of_tiles_ = 0;
};

/// Of `configs`, the widest tile, which needs most registers, or the one with most values that the family's other problems have not had.
/// GEMMTUNE_THOROUGH=1 keeps all: conditions of the sources on two parameters, or on a parameter and what the problem is.
inline std::vector<Config> GpuCompile::sample_of(std::vector<Config> configs, const std::string& family) {
  if (is_thorough() || configs.empty()) return configs;
  const auto tile = [](const Config& config) {
    return std::max<std::int64_t>(config.number("bm"), 1) * std::max<std::int64_t>(config.number("bn"), 1);
  };
  std::stable_sort(configs.begin(), configs.end(),
                   [&](const Config& a, const Config& b) { return tile(a) > tile(b); });
  std::size_t best = 0, most = 1;
  const bool is_first = std::none_of(covered_.begin(), covered_.end(),
                                     [&](const std::string& what) { return what.starts_with(family + " "); });
  for (std::size_t i = 0; i < configs.size() && !is_first; ++i) {
    std::size_t fresh = 0;
    for (const auto& [key, value] : configs[i].settings())
      fresh += 1 - covered_.count(family + " " + key + value);
    // Among equals the smaller tile, which compiles faster.
    if (fresh < most) continue;
    most = fresh;
    best = i;
  }
  for (const auto& [key, value] : configs[best].settings()) covered_.insert(family + " " + key + value);
  return {configs[best]};
}

/// With GEMMTUNE_THOROUGH every second config, and those between for the next problem: 720 tiles of mxfp4 took CI 15 minutes.
inline std::vector<Config> GpuCompile::in_turn(std::vector<Config> configs) {
  if (!is_thorough() || is_soak()) return configs;
  std::size_t i = problems_of_tiles_++;
  std::erase_if(configs, [&](const Config&) { return i++ % 2 != 0; });
  return configs;
}

/// The problem without its sizes and what only the epilogue knows.
inline std::string source_form_of(Problem problem) {
  problem.m = problem.n = problem.k = 64;
  problem.y_type = DataType::bf16;
  problem.bias = false;
  if (problem.batch > 1) problem.batch = 2;
  return print(problem);
}

inline void GpuCompile::expect_compiles(const KernelFamily& family, CompileOnlyRuntime& runtime,
                                        const Problem& problem) {
  ASSERT_TRUE(family.accepts(problem).ok()) << family.accepts(problem).message();
  const Space space = family.space(problem);
  std::vector<Config> configs =
      family.name() == "wgmma"                                           ? widest_tiles(space)
      : family.name() == "mxfp4"                                         ? in_turn(tiles(space))
      : family.name() == "mxfp4_skinny" || family.name() == "moe_decode" ? space.enumerate()
      : family.name() == "mma" || family.name() == "wgmma_moe"           ? corners_that_build(space)
      : family.name() == "mxfp4_stream"                                  ? apart(space.enumerate(), 60)
                                                                         : corners(space);
  // A dependent launch is decided at run time: the source is the same.
  std::erase_if(configs, is_dependent);
  configs = sample_of(std::move(configs), std::string(family.name()));
  ASSERT_FALSE(configs.empty());
  // Problems of one form differ in sizes: the first one's default, unless all corners are compiled.
  const std::string form =
      fmt::format("{} {} {}", runtime.architecture(), family.name(), source_form_of(problem));
  // The fallbacks' default is one of two tiles, both of which other problems have had.
  const bool is_new = covered_.insert(form).second && !family.name().starts_with("simt");
  if (is_new || is_thorough()) configs.push_back(family.default_config(problem));
  expect_names_are_read_back(family, problem, configs);
  Turns& turns =
      turns_.try_emplace(fmt::format("{} {}", runtime.architecture(), family.name()), 7).first->second;
  if (!turns.is_next()) return;
  std::set<std::string> seen;
  for (const Config& config : configs) {
    if (is_dependent(config) || !seen.insert(config.text()).second) continue;
    expect_builds(family, runtime, problem, config);
  }
}

inline std::unique_ptr<Kernel> GpuCompile::expect_builds(const KernelFamily& family,
                                                         CompileOnlyRuntime& runtime, const Problem& problem,
                                                         const Config& config) {
  SCOPED_TRACE(fmt::format("{} {} {}", runtime.architecture(), print(problem), config.text()));
  runtime.log.clear();
  auto kernel = family.build(problem, config);
  EXPECT_TRUE(kernel.ok()) << kernel.message();
  if (!kernel.ok()) return nullptr;
  EXPECT_LE(runtime.last.registers, runtime.limits().registers_per_thread);
  EXPECT_EQ(runtime.last.stack_bytes, 0);
  // ptxas says so if it has to wait after every wgmma instruction.
  EXPECT_EQ(runtime.log.find("serialized"), std::string::npos) << runtime.log;
  return std::move(*kernel);
}

inline std::size_t GpuCompile::expect_refused_or_builds(
    const KernelFamily& family, CompileOnlyRuntime& runtime,
    std::span<const std::pair<Problem, const char*>> kernels) {
  std::size_t refused = 0;
  Turns turns(2);
  for (const auto& [problem, name] : kernels) {
    const Space space = family.space(problem);
    const auto candidate = parse_kernel_name(name, space.keys());
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    if (!candidate.ok()) continue;
    if (!space.build_refusal(candidate->config).empty())
      ++refused;
    else if (turns.is_next())
      expect_builds(family, runtime, problem, candidate->config);
  }
  return refused;
}

}  // namespace gemmtune
