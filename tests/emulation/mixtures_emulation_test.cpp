// Families of fused_moe on the emulation of AMD GPUs, against the float64 reference: types, scales, routes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "backends/gpu/families/simt_moe/simt_moe.h"
#include "backends/hip/families/mfma_moe/mfma_moe.h"
#include "support/emulation/check_mixture.h"
#include "support/emulation/emulated_runtime.h"
#include "support/operation_problems.h"

namespace gemmtune::emulation {
namespace {

using testing_problems::mixtures;
using testing_problems::moe_problem;

/// The default config of the mixture with these settings: "bm=64 nw=8".
Config mixture_config(const KernelFamily& family, const Problem& problem, const std::string& settings) {
  Config config = family.default_config(problem);
  std::istringstream words(settings);
  for (std::string word; words >> word;)
    config.set(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  return config;
}

void expect_mixture(const KernelFamily& family, const Problem& problem, const std::string& settings = "",
                    const MixtureRun& run = {}) {
  const Config config = mixture_config(family, problem, settings);
  EXPECT_EQ(check_mixture(family, problem, config, run), "") << print(problem) << " " << config.text();
}

Problem routed(Problem problem, std::int32_t experts, std::int32_t topk) {
  problem.moe.experts = experts;
  problem.moe.topk = topk;
  return problem;
}

/// Empty experts, all tokens to one, as many slots as experts, ids that are none, one token.
void expect_every_route(const KernelFamily& family, const Problem& problem, const std::string& settings) {
  const auto tokens = static_cast<std::size_t>(problem.m);
  expect_mixture(family, routed(problem, 40, 1), settings);
  expect_mixture(family, routed(problem, 3, 1), settings,
                 {.ids = std::vector<std::int32_t>(tokens, 2), .gaps = false});
  expect_mixture(family, routed(problem, 4, 4), settings);
  std::vector<std::int32_t> ids(tokens * 2);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 5);
  ids[2] = -1;
  ids[5] = 5;
  ids[ids.size() - 1] = 1 << 30;
  expect_mixture(family, routed(problem, 5, 2), settings, {.ids = ids, .gaps = false});
  Problem one = routed(problem, 6, 3);
  one.m = 1;
  expect_mixture(family, one, settings);
}

TEST(MixturesOnTheEmulation, SimtOfEveryTypeAndScale) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_moe_family(runtime);
  bool large = false;  // tiles in turn: kernels take longer to compile than to run
  for (const Problem& problem : mixtures({9, 70, 46})) {
    expect_mixture(*family, problem, large ? "bm=64" : "bm=16",
                   {.ids = {}, .gaps = bits(problem.x_type) != 4});
    large = !large;
  }
}

TEST(MixturesOnTheEmulation, SimtOfEveryRoute) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_moe_family(runtime);
  expect_every_route(*family, moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {37, 34, 40}),
                     "bm=16");
  expect_every_route(
      *family, moe_problem(DataType::f8_e4m3fnuz, DataType::f8_e4m3fnuz, QuantType::per_1x128, {7, 130, 40}),
      "bm=64");
}

/// More pairs than the sort's threads, and more experts than a wave has lanes.
TEST(MixturesOnTheEmulation, ManyTokensAreSorted) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_moe_family(runtime);
  expect_mixture(*family,
                 routed(moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {700, 2, 3}), 90, 2),
                 "bm=16");
}

/// Types, scales, activations, with gate and without, in tiles of both instructions and one and two buffers.
TEST(MixturesOnTheEmulation, MfmaOfEveryTypeAndScale) {
  for (const char* architecture : {"gfx942", "gfx90a"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_mfma_moe_family(runtime);
    int taken = 0;
    for (Problem problem : mixtures({21, 112, 200})) {
      if (!family->accepts(problem).ok()) continue;
      ++taken;
      expect_mixture(*family, problem, "bm=16 bn=64 bn2=32 nw=2", {.ids = {}, .gaps = true});
      expect_mixture(*family, problem,
                     "bm=32 bn=64 bn2=128 nw=1 nb=2 mi=" +
                         std::string(problem.moe.quant_type == QuantType::per_1x128 ? "16" : "32"));
    }
    EXPECT_EQ(taken, runtime.architecture() == "gfx942" ? 5 : 4);
  }
}

TEST(MixturesOnTheEmulation, MfmaOfEveryRoute) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_moe_family(runtime);
  expect_every_route(*family, moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {37, 34, 40}),
                     "bm=16 bn=64 bn2=64 nw=2");
  expect_every_route(
      *family,
      moe_problem(DataType::f8_e4m3fnuz, DataType::f8_e4m3fnuz, QuantType::per_1x128, {37, 144, 136}),
      "bm=32 bn=64 bn2=64 nw=1");
}

}  // namespace
}  // namespace gemmtune::emulation
