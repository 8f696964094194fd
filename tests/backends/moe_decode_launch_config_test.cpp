// What moe_decode's launches must hold for the kernel, without a GPU.
#include "backends/cuda/families/moe_decode/moe_decode_launch_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/families/hopper_strip.h"
#include "backends/cuda/families/moe_decode/moe_decode_cost.h"
#include "backends/cuda/families/own_families.h"
#include "support/hopper_limits.h"
#include "support/operation_problems.h"

namespace gemmtune::cuda {
namespace {

using test::hopper_limits;

Problem layer(DataType type, QuantType quantization, std::int64_t n, std::int64_t k) {
  return testing_problems::moe_problem(type, type, quantization, {1, n, k});
}

/// Knows what a device is, and compiles nothing.
class Described final : public gpu::Runtime {
 public:
  explicit Described(const gpu::Limits& limits) : limits_(limits) {}
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source&) override {
    return Status::internal("no compiler");
  }

 private:
  gpu::Limits limits_;
  std::string architecture_ = "sm_90a";
};

struct AcceptedLaunch {
  Config config;
  MoeDecodeLaunch launch;
  std::string text;  // for a failure
};

/// Of the configs that no rule refuses, of which there are some.
std::vector<AcceptedLaunch> launches_of(const Problem& problem) {
  Space space;
  for (Parameter& parameter : moe_decode_parameters(problem)) space.add(std::move(parameter));
  std::vector<AcceptedLaunch> accepted;
  for (const Config& config : space.enumerate()) {
    const MoeDecodeLaunch launch = moe_decode_launch(problem, config, hopper_limits());
    if (refuse_moe_decode(launch).empty())
      accepted.push_back({config, launch, print(problem) + " " + config.text()});
  }
  EXPECT_FALSE(accepted.empty()) << print(problem);
  return accepted;
}

TEST(MoeDecodeLaunchConfig, StagesHoldWhatIsLoadedAndRead) {
  constexpr DataType fp8 = DataType::f8_e4m3fn;
  for (const Problem& problem :
       {layer(DataType::bf16, QuantType::none, 768, 2048), layer(DataType::bf16, QuantType::none, 7168, 4096),
        layer(fp8, QuantType::per_1x128, 256, 7168), layer(fp8, QuantType::per_1x128, 4624, 272),
        layer(DataType::f16, QuantType::none, 8, 8)}) {
    for (const auto& [config, launch, text] : launches_of(problem)) {
      EXPECT_LE(launch.shared_bytes, std::min<std::int64_t>(config.number("smem") * 1024, 227 * 1024))
          << text;
      EXPECT_EQ(launch.slab % launch.warps, 0) << text;
      EXPECT_GE(launch.steps * launch.warps * 128, launch.row_bytes) << text;
      // Rows of w1 and whole rows of w2 of each entry, or slabs of them; a warp reads 128 bytes from where its k begins, in the last row too.
      const std::int64_t last = 15 * (launch.slab * 128 + 16) + launch.slab * 128;
      EXPECT_LE(last, launch.stage_bytes) << text;
      const bool whole = launch.hidden_slab * 128 >= launch.hidden_bytes;
      const std::int64_t pitch = whole ? launch.hidden_bytes : launch.hidden_slab * 128 + 16;
      EXPECT_TRUE(whole || launch.entries == 1) << text;
      EXPECT_LE((launch.entries * 16 - 1) * pitch + launch.hidden_slab * 128, launch.stage_bytes) << text;
      // Every block has its rows of w2 in registers.
      EXPECT_GE(launch.tiles * 16 * launch.grid, problem.k) << text;
    }
  }
}

// Of MXFP4 weights a stage is 16 whole rows and their scales, of w1 or of w2.
TEST(MoeDecodeLaunchConfig, StagesHoldStrips) {
  for (const auto& [n, k] :
       {std::pair{2880, 2880}, std::pair{3072, 3072}, std::pair{64, 128}, std::pair{1536, 4096}}) {
    const Problem problem =
        testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {1, n, k});
    for (const auto& [config, launch, text] : launches_of(problem)) {
      EXPECT_LE(launch.shared_bytes, config.number("smem") * 1024) << text;
      EXPECT_GE(launch.stage_bytes, 16 * (k / 2 + k / 32)) << text;
      EXPECT_GE(launch.stage_bytes, 16 * (n / 2 + n / 32)) << text;
      EXPECT_GE(launch.steps * launch.warps * 64, k) << text;
      EXPECT_GE(launch.hidden_steps * launch.warps * 64, n) << text;
      EXPECT_EQ(launch.hidden_slab * 64, n) << text;
      EXPECT_GE(launch.tiles * 16 * launch.grid, k) << text;
    }
  }
}

// The same of every format: rows, scales and zero points, which are copied at multiples of 16 bytes.
TEST(MoeDecodeLaunchConfig, StagesHoldStripsOfEveryFormat) {
  for (const testing_problems::Shape& shape :
       {testing_problems::Shape{8, 768, 2048}, testing_problems::Shape{1, 256, 7168},
        testing_problems::Shape{3, 256, 512}}) {
    for (const Problem& problem : testing_problems::mixtures_of_weight_formats(shape)) {
      if (has_whole_rows(problem)) continue;
      const OperandShapes shapes = operand_shapes(problem);
      for (const auto& [config, launch, text] : launches_of(problem)) {
        EXPECT_LE(launch.shared_bytes, config.number("smem") * 1024) << text;
        for (const MatrixShape& w : {shapes.w, shapes.w2}) {
          const StripRows rows(w.columns, launch.weight);
          EXPECT_EQ(rows.scale_row, w.scale.columns * bytes_of(w.scale.type)) << text;
          EXPECT_EQ(rows.zero_row, w.scale.zero_points ? w.scale.columns : 0) << text;
          const std::int64_t held =
              w.rows == problem.k ? ceil_div(ceil_div(problem.k, 8), launch.grid) * 8 : 16;
          EXPECT_LE(held * (rows.pitch + rows.scale_pitch + rows.zero_pitch), launch.stage_bytes) << text;
          for (const std::int64_t pitch : {rows.pitch, 8 * rows.scale_pitch, 8 * rows.zero_pitch})
            EXPECT_EQ(pitch % 16, 0) << text;
        }
        EXPECT_GE(launch.steps * (launch.warps / launch.teams) * 64, problem.k) << text;
        EXPECT_GE(launch.hidden_steps * (launch.warps / launch.hidden_teams) * 64, problem.n) << text;
        // A team's sums of a unit are added while it has the next, and a stage always is of the same team.
        EXPECT_EQ(launch.warps % launch.hidden_teams, 0) << text;
        EXPECT_EQ(launch.hidden_teams % launch.teams, 0) << text;
        EXPECT_EQ(launch.num_stages % launch.hidden_teams, 0) << text;
        EXPECT_GE(launch.slots, 2 * launch.teams) << text;
        EXPECT_EQ(launch.slots % launch.teams, 0) << text;
      }
    }
  }
}

TEST(MoeDecodeLaunchConfig, WhatItTakesOfWeightFormats) {
  Described device(hopper_limits());
  const auto family = make_moe_decode_family(device);
  const auto refusal = [&](const Problem& problem) { return family->accepts(problem).message(); };
  const auto int4 = [](std::int32_t group, bool zero_points, std::int64_t n) {
    return testing_problems::moe_of_weights_alone(DataType::bf16, QuantType::per_group, {4, n, 2048}, group,
                                                  zero_points);
  };
  EXPECT_EQ(
      refusal(testing_problems::moe_of_weights_alone(DataType::f16, QuantType::per_1x16, {8, 768, 2048})),
      "");
  for (const std::int32_t group : {32, 64, 128})
    for (const bool zero_points : {false, true}) EXPECT_EQ(refusal(int4(group, zero_points, 768)), "");
  EXPECT_EQ(refusal(int4(128, false, 640)), "");
  EXPECT_EQ(refusal(int4(128, true, 640)), "alignment: n = 640 with zero points, no multiple of 256");
  EXPECT_EQ(refusal(int4(32, false, 96)), "alignment: n = 96, no multiple of 64");
  EXPECT_EQ(refusal(int4(0, true, 768)), "data types: w i4 with a scale a row, only of groups");
  EXPECT_EQ(refusal(testing_problems::moe_problem(DataType::bf16, DataType::i4, QuantType::per_token,
                                                  {4, 768, 2048}))
                .find("data types: "),
            0U);
  Problem fp16 =
      testing_problems::moe_problem(DataType::f16, DataType::f4_e2m1, QuantType::per_1x32, {4, 768, 2048});
  EXPECT_EQ(refusal(fp16).find("data types: "), 0U);
}

// The fastest of those that were measured, or as fast (docs/lab/moe_decode.md).
TEST(MoeDecodeLaunchConfig, TheDefaultIsWhatWasFast) {
  constexpr DataType fp8 = DataType::f8_e4m3fn;
  const auto chosen = [](const Problem& problem) {
    return default_moe_decode_config(problem, hopper_limits(), moe_decode_cost(hopper_limits())).text();
  };
  EXPECT_EQ(chosen(layer(fp8, QuantType::per_1x128, 256, 7168)), "warps8_bk1024_smem112");
  EXPECT_EQ(chosen(layer(fp8, QuantType::per_1x128, 768, 2048)), "warps14_bk1024_smem112");
  EXPECT_EQ(chosen(layer(DataType::bf16, QuantType::none, 768, 2048)), "warps14_bk2048_smem226");
  EXPECT_EQ(chosen(testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32,
                                                 {1, 2880, 2880})),
            "warps15_teams1_smem168");
  EXPECT_EQ(chosen(layer(DataType::bf16, QuantType::none, 7168, 4096)), "warps14_bk2048_smem226");
  const auto of_format = [](QuantType type, std::int64_t n, std::int64_t k, std::int32_t group) {
    return testing_problems::moe_of_weights_alone(DataType::bf16, type, {1, n, k}, group);
  };
  EXPECT_EQ(chosen(of_format(QuantType::per_1x16, 768, 2048, 0)), "warps12_teams3_smem226");
  EXPECT_EQ(chosen(of_format(QuantType::per_group, 768, 2048, 128)), "warps12_teams2_smem226");
  EXPECT_EQ(chosen(of_format(QuantType::per_group, 256, 7168, 32)), "warps12_teams1_smem226");
}

TEST(MoeDecodeLaunchConfig, AllBlocksMustBeResident) {
  const Problem problem = layer(DataType::bf16, QuantType::none, 768, 2048);
  gpu::Limits limits = hopper_limits();
  Described whole(limits);
  EXPECT_TRUE(make_moe_decode_family(whole)->accepts(problem).ok());
  limits.cooperative_launches = false;
  Described part(limits);
  EXPECT_EQ(make_moe_decode_family(part)->accepts(problem).message().find("device: "), 0U);
}

TEST(MoeDecodeLaunchConfig, UntunedLayersOfMxfp4RunItForTwoTokens) {
  Problem problem =
      testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32, {2, 2880, 2880});
  EXPECT_TRUE(runs_decode_untuned(problem));
  problem.m = 3;
  EXPECT_FALSE(runs_decode_untuned(problem));
  EXPECT_TRUE(runs_decode_untuned(layer(DataType::bf16, QuantType::none, 768, 2048)));
}

TEST(MoeDecodeLaunchConfig, UntunedLayersOfNvfp4AndInt4RunItForFiveTokensWhereStreamsTakeThem) {
  const auto runs = [](std::int64_t m, std::int64_t k) {
    return runs_decode_untuned(
        testing_problems::moe_of_weights_alone(DataType::bf16, QuantType::per_1x16, {m, 768, k}));
  };
  EXPECT_TRUE(runs(5, 2048));
  EXPECT_FALSE(runs(6, 2048));
  EXPECT_TRUE(runs(8, 7168)) << "mxfp4_stream refuses groups of 128 there";
}

TEST(MoeDecodeLaunchConfig, RowsThatNoThreadCanHoldAreRefused) {
  const Problem problem = layer(DataType::bf16, QuantType::none, 768, 16384);
  Config config;
  for (const std::int64_t warps : {6, 8, 14}) {
    config.set("warps", warps);
    EXPECT_EQ(refuse_moe_decode(moe_decode_launch(problem, config, hopper_limits())),
              "more of x than registers");
  }
  EXPECT_TRUE(
      default_moe_decode_config(problem, hopper_limits(), moe_decode_cost(hopper_limits())).text().empty());
}

}  // namespace
}  // namespace gemmtune::cuda
