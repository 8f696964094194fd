// The compute roof that a run leaves beside its rows.
#include "tuning/compute_roof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "formats/json.h"
#include "support/paper_device.h"
#include "tuning/tuner.h"

namespace gemmtune::compute_roof_test {
namespace {

struct SilentObserver final : RunObserver {
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t, const ItemReport&) override {}
};

Problem problem_of(std::int64_t edge) {
  Problem problem;
  problem.m = problem.n = problem.k = edge;
  return problem;
}

class ComputeRoofOfARun : public ::testing::Test {
 protected:
  ComputeRoofOfARun() {
    std::string pattern = ::testing::TempDir() + "gemmtune_roof_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    request_.output = folder_ + "/tuned.csv";
    request_.all = true;
    device_.add({.name = "vendor", .tie_rank = 0});
    device_.add({.name = "foreseen", .predicted = [](const Problem&, const Config&) { return 1.0; }});
    device_.add({.name = "slow", .predicted = [](const Problem&, const Config&) { return 2.0; }});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    evaluator_.time = [this](const Problem& problem, const Candidate& candidate) {
      if (problem.m < 512) return 100.0;
      EXPECT_NE(candidate.family, "slow") << "predicted to be far from the fastest";
      product_ = problem;
      return (candidate.family == "foreseen" ? 1 : 2) * flops(problem) * 1e-6;
    };
  }
  ~ComputeRoofOfARun() override { std::filesystem::remove_all(folder_); }

  /// What the environment of the rows has; null: nothing.
  Json roof_of_run(double seconds_per_look) {
    double seconds = 0;
    request_.clock = [&] { return seconds += seconds_per_look; };
    EXPECT_TRUE(tune(device_, evaluator_, request_, observer_).ok());
    const auto text = read_file(request_.output + ".env.json");
    EXPECT_TRUE(text.ok());
    const Json environment = parse_json(*text);
    return environment.begin().value()["observations"].value("compute_roof", Json());
  }

  std::string folder_;
  testing::PaperDevice device_;
  testing::FakeEvaluator evaluator_;
  SilentObserver observer_;
  TuneRequest request_;
  std::optional<Problem> product_;
};

TEST_F(ComputeRoofOfARun, IsTheFastestKernelsAtALargeProduct) {
  request_.shapes.emplace_back().problem = problem_of(64);
  request_.shapes.front().problem.bias = true;
  EXPECT_TRUE(roof_of_run(1).is_null()) << "not asked for";
  request_.measures_compute_roof = true;
  EXPECT_TRUE(roof_of_run(0).is_null()) << "too short";
  const Json roof = roof_of_run(1);
  EXPECT_NEAR(roof["tflops"].get<double>(), 1, 0.01);
  EXPECT_EQ(roof["kernelName"], "foreseen_r1");
  ASSERT_TRUE(product_);
  EXPECT_EQ(roof["problem"], print(*product_));
  EXPECT_GE(flops(*product_), 2e8);
  EXPECT_FALSE(product_->bias);
}

// Nothing is measured once a budget has ended.
TEST_F(ComputeRoofOfARun, IsMeasuredFirstUnderABudget) {
  request_.shapes.emplace_back().problem = problem_of(64);
  request_.measures_compute_roof = true;
  request_.budget_seconds = 50;
  EXPECT_TRUE(roof_of_run(0).is_null()) << "too short";
  request_.budget_seconds = 100;
  evaluator_.problems.clear();
  EXPECT_EQ(roof_of_run(0)["kernelName"], "foreseen_r1");
  EXPECT_GE(evaluator_.problems.front().m, 512);
}

TEST(LargeProduct, IsPlainAndGrowsWithTheDevice) {
  DeviceInfo device = testing::PaperDevice().info();
  device.cu_num = 2;
  Problem packed = problem_of(64);
  packed.weight_layout = WeightLayout::any;
  const auto small = large_product(packed, device);
  ASSERT_TRUE(small);
  EXPECT_EQ(small->weight_layout, WeightLayout::plain);
  device.cu_num = 64;
  EXPECT_GT(large_product(packed, device)->m, small->m);
  EXPECT_FALSE(large_product(default_problem(Operation::fused_moe), device));
}

}  // namespace
}  // namespace gemmtune::compute_roof_test
