// Families of fused_moe on the emulation of AMD GPUs, against the float64 reference: types, scales, routes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/families/own_families.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/hip/families/mfma_moe/mfma_moe_launch_config.h"
#include "backends/hip/families/own_families.h"
#include "support/emulation/check_mixture.h"
#include "support/emulation/emulated_runtime.h"
#include "support/operation_problems.h"
#include "support/thoroughness.h"

namespace gemmtune::emulation {
namespace {

using ::testing::HasSubstr;
using testing_problems::mixtures;
using testing_problems::moe_problem;

constexpr DataType fnuz_type = DataType::f8_e4m3fnuz;

/// Kernels with one change.
class BrokenMixture final : public gpu::Runtime {
 public:
  BrokenMixture(std::string right, std::string wrong) : right_(std::move(right)), wrong_(std::move(wrong)) {}
  const gpu::Limits& limits() const override { return runtime_.limits(); }
  const std::string& architecture() const override { return runtime_.architecture(); }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override {
    gpu::Source broken = source;
    broken.text = gpu::resolved_text(source.text);
    if (const auto at = broken.text.find(right_); at != std::string::npos) {
      broken.text.replace(at, right_.size(), wrong_);
      changed = true;
    }
    return runtime_.load(broken);
  }

  bool changed = false;

 private:
  EmulatedRuntime runtime_{"gfx942", 1};
  std::string right_;
  std::string wrong_;
};

/// The default config of the mixture with these settings: "bm=64 nw=8".
Config mixture_config(const KernelFamily& family, const Problem& problem, const std::string& settings) {
  Config config = family.default_config(problem);
  std::istringstream words(settings);
  for (std::string word; words >> word;)
    config.set(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  return config;
}

/// Each config of a family, and each form of problem on an architecture, once or more; with routes of its own always.
void expect_mixture(const EmulatedRuntime& runtime, const KernelFamily& family, const Problem& problem,
                    const std::string& settings = "", const MixtureRun& run = {}) {
  static test::Coverage coverage;
  const Config config = mixture_config(family, problem, settings);
  const std::string name(family.name());
  const bool adds = coverage.adds(
      {name + config.text(), fmt::format("{} {} {}", name, runtime.architecture(), print(problem))});
  if (!adds && run.ids.empty()) return;
  EXPECT_EQ(check_mixture(family, problem, config, run), "") << print(problem) << " " << config.text();
}

Problem routed(Problem problem, std::int32_t experts, std::int32_t topk) {
  problem.moe.experts = experts;
  problem.moe.topk = topk;
  return problem;
}

/// Empty experts, all tokens to one, as many slots as experts, ids that are none, empty slots, one token.
void expect_every_route(const EmulatedRuntime& runtime, const KernelFamily& family, const Problem& problem,
                        const std::string& settings) {
  const auto tokens = static_cast<std::size_t>(problem.m);
  expect_mixture(runtime, family, routed(problem, 40, 1), settings);
  expect_mixture(runtime, family, routed(problem, 3, 1), settings,
                 {.ids = std::vector<std::int32_t>(tokens, 2), .gaps = false});
  expect_mixture(runtime, family, routed(problem, 4, 4), settings);
  std::vector<std::int32_t> ids(tokens * 2);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 5);
  ids[2] = -2;
  ids[5] = 5;
  ids[7] = ids[8] = ids[9] = -1;  // token 4 has no other
  ids[ids.size() - 1] = 1 << 30;
  expect_mixture(runtime, family, routed(problem, 5, 2), settings, {.ids = ids, .gaps = false});
  expect_mixture(runtime, family, routed(problem, 5, 2), settings,
                 {.ids = std::vector<std::int32_t>(tokens * 2, -1), .gaps = false});
  Problem shared = routed(problem, 6, 3);
  shared.moe.shared_experts = 1;
  shared.bias = true;
  expect_mixture(runtime, family, shared, settings, {.ids = ids, .gaps = false});
  Problem one = routed(problem, 6, 3);
  one.m = 1;
  expect_mixture(runtime, family, one, settings);
}

TEST(MixturesOnTheEmulation, SimtOfEveryTypeAndScale) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_moe_family(runtime);
  bool large = false;  // tiles in turn: kernels take longer to compile than to run
  test::Turns turns(3);
  for (const Problem& problem : mixtures({9, 70, 46})) {
    if (!turns.is_next()) continue;
    expect_mixture(runtime, *family, problem, large ? "bm=64" : "bm=16",
                   {.ids = {}, .gaps = bits(problem.x_type) != 4});
    large = !large;
  }
}

TEST(MixturesOnTheEmulation, SimtOfEveryRoute) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_moe_family(runtime);
  expect_every_route(runtime, *family,
                     moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {37, 34, 40}), "bm=16");
  expect_every_route(
      runtime, *family,
      moe_problem(DataType::f8_e4m3fnuz, DataType::f8_e4m3fnuz, QuantType::per_1x128, {7, 130, 40}), "bm=64");
}

/// More pairs than the sort's threads, and more experts than a wave has lanes; so many that two kernels sort them, with a last chunk that is not whole.
TEST(MixturesOnTheEmulation, ManyTokensAreSorted) {
  EmulatedRuntime runtime("gfx942");
  const auto family = gpu::make_simt_moe_family(runtime);
  expect_mixture(runtime, *family,
                 routed(moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {700, 2, 3}), 90, 2),
                 "bm=16");
  MixtureRun padded;
  for (std::int32_t i = 0; i < 2060 * 8; ++i)
    padded.ids.push_back(i / 8 % 7 == 6 || i % 5 == 0 ? -1 : (i * 37) % 300);
  expect_mixture(runtime, *family,
                 routed(moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {2060, 2, 3}), 300, 8),
                 "bm=16", padded);
}

Problem shuffled_mixture(Problem problem) {
  problem.weight_layout = WeightLayout::aiter16x16;
  return problem;
}

/// Types, scales, activations, with gate and without, in tiles of both instructions and with one and two buffers.
TEST(MixturesOnTheEmulation, MfmaOfEveryTypeAndScale) {
  for (const char* architecture : {"gfx942", "gfx90a", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_mfma_moe_family(runtime);
    int taken = 0;
    for (Problem problem : mixtures({21, 112, 200})) {
      if (problem.x_type == DataType::f8_e4m3fn && problem.w_type == problem.x_type)
        problem.x_type = problem.w_type = fnuz_type;
      if (!family->accepts(problem).ok()) continue;
      if (++taken % 2 == 0 && runtime.architecture() != "gfx942" && !test::is_thorough()) continue;
      const std::string rows = problem.moe.quant_type == QuantType::per_1x128 ? "16" : "32";
      if (runtime.architecture() == "gfx942" || test::is_thorough())
        expect_mixture(runtime, *family, problem, "bm=16 bn=64 bo=32 nw=2", {.ids = {}, .gaps = true});
      expect_mixture(runtime, *family, problem,
                     "bm=32 bn=64 bo=128 nb=2 nw=" + std::string(rows == "16" ? "2" : "1") + " mi=" + rows);
    }
    EXPECT_EQ(taken, runtime.architecture() == "gfx942" ? 9 : 6);
    Problem swiglu = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {5, 72, 24});
    swiglu.moe.activation = Activation::swiglu;
    expect_mixture(runtime, *family, swiglu, "bm=16 bn=32 bo=32 nw=1 bk=64");
  }
}

TEST(MixturesOnTheEmulation, MfmaOfEveryRoute) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_moe_family(runtime);
  expect_every_route(runtime, *family,
                     moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {37, 36, 44}),
                     "bm=16 bn=64 bo=64 nw=2");
  expect_every_route(runtime, *family,
                     moe_problem(fnuz_type, fnuz_type, QuantType::per_1x128, {37, 144, 136}),
                     "bm=32 bn=64 bo=64 nw=1");
}

TEST(MixturesOnTheEmulation, MfmaOfShuffledWeights) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_moe_family(runtime);
  const auto wide = moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {21, 96, 160});
  expect_mixture(runtime, *family, shuffled_mixture(wide), "bm=16 bn=64 bo=64 nw=2");
  expect_mixture(runtime, *family, shuffled_mixture(wide), "bm=32 bn=64 bo=32 nw=1 mi=32 nb=2");
  expect_mixture(
      runtime, *family,
      shuffled_mixture(moe_problem(DataType::i8, DataType::i8, QuantType::per_token, {9, 64, 160})),
      "bm=16 bn=64 bo=64 nw=2");
  for (const QuantType quant : {QuantType::per_tensor, QuantType::per_1x128})
    expect_mixture(runtime, *family,
                   shuffled_mixture(moe_problem(fnuz_type, fnuz_type, quant, {9, 160, 288})),
                   "bm=16 bn=64 bo=64 nw=2");
}

/// More tiles than blocks, which then walk over them; dies that get tiles of an expert together.
TEST(MixturesOnTheEmulation, BlocksWalkOverTiles) {
  const Problem problem =
      routed(moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {90, 40, 72}), 3, 2);
  for (const int units : {1, 76, 304}) {
    EmulatedRuntime runtime("gfx942", units);
    expect_mixture(runtime, *hip::make_mfma_moe_family(runtime), problem, "bm=16 bn=32 bo=32 nw=1");
  }
}

/// One tile of an expert: its weights are read once, whatever the tokens.
TEST(MixturesOnTheEmulation, WeightsOfTouchedExpertsAreReadOnce) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_moe_family(runtime);
  const auto bytes_of_tokens = [&](std::int64_t tokens) {
    const Problem problem =
        routed(moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {tokens, 256, 256}), 64, 2);
    MixtureRun run;
    for (std::int64_t token = 0; token < tokens; ++token) run.ids.insert(run.ids.end(), {7, 50});
    Statistics counted;
    runtime.statistics = &counted;
    EXPECT_EQ(check_mixture(*family, problem, mixture_config(*family, problem, "bm=16 bn=128 bo=128"), run),
              "");
    runtime.statistics = nullptr;
    return static_cast<double>(counted.global_read_bytes);
  };
  EXPECT_LT(bytes_of_tokens(16), 1.1 * bytes_of_tokens(1));
}

/// The model's instructions, and the emulation's.
TEST(MixturesOnTheEmulation, TheModelCountsInstructions) {
  EmulatedRuntime runtime("gfx942");
  const auto family = hip::make_mfma_moe_family(runtime);
  const Problem problem =
      routed(moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {16, 128, 256}), 4, 4);
  for (const char* settings : {"bm=16 bn=64 bo=64 nw=2 bk=128", "bm=32 bn=128 bo=64 nw=2 mi=32 nb=2 bk=64"}) {
    const Config config = mixture_config(*family, problem, settings);
    Statistics counted;
    runtime.statistics = &counted;
    EXPECT_EQ(check_mixture(*family, problem, config), "") << settings;
    runtime.statistics = nullptr;
    std::uint64_t expected = 0;
    for (const hip::MfmaMoeStage& stage : hip::mfma_moe_stages(problem, config, "gfx942"))
      expected += static_cast<std::uint64_t>(4 * stage.column_tiles * stage.tile.k_tiles * stage.tile.waves *
                                             stage.tile.mfma_instructions());
    std::uint64_t matrix = 0;
    for (const auto& [name, count] : counted.collectives)
      if (name.starts_with("v_mfma")) matrix += count;
    EXPECT_EQ(matrix, 2 * expected) << settings;  // of two runs
  }
}

/// Configs from the whole space, rules of the search aside: one of each third problem here, of each with GEMMTUNE_THOROUGH, many with
/// GEMMTUNE_SOAK.
TEST(MixturesOnTheEmulation, DrawnConfigs) {
  const int draws = test::is_soak() ? 30 : 1;
  int turn = 0;
  std::mt19937 random(29);
  for (const char* architecture : {"gfx90a", "gfx942"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_mfma_moe_family(runtime);
    std::vector<Problem> problems = mixtures({35, 100, 148});
    problems.push_back(
        shuffled_mixture(moe_problem(DataType::f16, DataType::f16, QuantType::none, {20, 96, 64})));
    problems.push_back(moe_problem(fnuz_type, fnuz_type, QuantType::per_1x128, {14, 160, 388}));
    for (const Problem& problem : problems) {
      if (!family->accepts(problem).ok()) continue;
      if (turn++ % 3 != 0 && !test::is_thorough()) continue;
      const Space space = family->space(problem);
      for (int found = 0, tries = 0; found < draws && tries < 2000; ++tries) {
        Config config;
        for (const Parameter& parameter : space.parameters())
          config.set(parameter.key, parameter.values[random() % parameter.values.size()]);
        if (!space.build_refusal(config).empty()) continue;
        ++found;
        EXPECT_EQ(check_mixture(*family, problem, config), "") << print(problem) << " " << config.text();
      }
    }
  }
}

TEST(MixturesOnTheEmulation, MfmaRefusesWhatItDoesNotHave) {
  EmulatedRuntime runtime("gfx90a");
  const auto family = hip::make_mfma_moe_family(runtime);
  const auto refusal = [&](DataType x, DataType w, QuantType quant, std::int64_t n, std::int64_t k) {
    return family->accepts(moe_problem(x, w, quant, {4, n, k})).message();
  };
  const DataType int8 = DataType::i8;
  EXPECT_EQ(refusal(fnuz_type, fnuz_type, QuantType::per_token, 64, 64),
            "data types: x f8_e4m3fnuz with w f8_e4m3fnuz, only bf16, fp16, int8 of both");
  EXPECT_EQ(refusal(int8, int8, QuantType::per_1x128, 64, 64), "data types: i8 scaled by per_1x128");
  EXPECT_EQ(refusal(int8, int8, QuantType::per_token, 66, 64), "alignment: n = 66 is no multiple of 4");
  EXPECT_EQ(refusal(DataType::bf16, DataType::bf16, QuantType::none, 64, 7),
            "k: k = 7 bf16, at least 16 bytes");
  EXPECT_EQ(family
                ->accepts(shuffled_mixture(
                    moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {4, 48, 64})))
                .message(),
            "weight layout: aiter16x16 of 48 x 64: n or k is no multiple of 32");
}

/// Each is one change of a kernel, found in a run of a shape on which the right one passes.
TEST(MixturesOnTheEmulation, BrokenMixturesAreFound) {
  struct Change {
    const char* what;
    std::string right, wrong;
    Problem problem;
    std::string found;
  };
  const Problem usual =
      routed(moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {37, 40, 72}), 5, 2);
  Problem many = routed(usual, 3, 2);  // with more tiles than blocks
  many.m = 120;
  Problem weighted = usual;
  weighted.moe.doweight_stage1 = true;
  Problem biased = usual;
  biased.bias = true;
  const Problem fp8 = moe_problem(fnuz_type, fnuz_type, QuantType::per_1x128, {21, 144, 272});
  const Problem rows = moe_problem(fnuz_type, fnuz_type, QuantType::per_token, {21, 144, 272});
  const std::vector<Change> changes{
      {"gate and up in each other's place", "return within / WAVE_RESULTS * a.columns +",
       "return (HALVES - 1 - within / WAVE_RESULTS) * a.columns +", usual, "error bound"},
      {"the next expert's weight", "a.w + work.tile.expert * a.w_matrix_bytes",
       "a.w + (work.tile.expert + 1) * a.w_matrix_bytes", usual, "reads"},
      {"a token is taken for a pair", "? a.pair_of[position] / a.topk", "? a.pair_of[position]", usual,
       "past the end of x"},
      {"a row too many is stored", "if (row < work.tile.count &&", "if (row <= work.tile.count &&", usual,
       "past the end of workspace"},
      {"no barrier before the tile of other work", "__syncthreads();  // the tile of other work was read",
       ";", many, "race in shared memory"},
      {"the routing weight is not applied", "a.weights[a.pair_of[work.tile.first + row]]", "0.5f", weighted,
       "error bound"},
      {"the first expert's bias1", "a.bias[(long long)work.tile.expert *", "a.bias[0LL *", biased,
       "error bound"},
      {"the gate's bias1 for up", "(HALVES * a.columns) + half * a.columns +", "(HALVES * a.columns) +",
       biased, "error bound"},
      {"bias2 of the first slot's expert", "a.ids[token * a.routed_topk + slot]",
       "a.ids[token * a.routed_topk]", biased, "error bound"},
      {"scales of the first block of k", "products[i][j] * (x_scales[j] * scale)",
       "products[i][j] * (tokens.at[j][0] * scale)", fp8, "error bound"},
      {"the first expert's scales", "work.tile.expert * a.w_scale_matrix", "0", rows, "error bound"},
      {"a scale of the hidden layer is another position's", "a.scales[group * a.pairs + pair]",
       "a.scales[group * a.pairs + (pair ^ 1)]", routed(fp8, 4, 2), "error bound"},
      {"the largest element of a row is not seen", "step < LANES", "step < 2", rows, "error bound"},
      {"a group of threads does not wait for another",
       "if (lane == GROUP - 1) groups[group] = inclusive;\n  __syncthreads();",
       "if (lane == GROUP - 1) groups[group] = inclusive;", usual, "race in shared memory"},
      {"groups of more threads than a wave has", "#define GROUP 32", "#define GROUP 128",
       routed(usual, 200, 2), ""},
  };
  for (const Change& change : changes) {
    BrokenMixture runtime(change.right, change.wrong);
    const auto family = hip::make_mfma_moe_family(runtime);
    const Config config = mixture_config(*family, change.problem, "bm=16 bn=64 bo=64 nw=2");
    const std::string found = check_mixture(*family, change.problem, config);
    EXPECT_TRUE(runtime.changed) << change.what;
    EXPECT_THAT(found, HasSubstr(change.found)) << change.what;
    EXPECT_NE(found, "") << change.what;
  }
}

}  // namespace
}  // namespace gemmtune::emulation
