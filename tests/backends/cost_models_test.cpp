// The constants of cost models: which row a device gets, what is scaled, and how far the models are from the rows they were fitted to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/cards.h"
#include "backends/cuda/families/own_families.h"
#include "backends/gpu/families/fitted.h"
#include "base/fields.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"
#include "support/operation_problems.h"

namespace gemmtune::cost_models_test {

struct Inner {
  gpu::OfClock cycles;
};
struct Constants {
  gpu::OfMemory bytes;
  double microseconds;
  Inner inner;
};
GEMMTUNE_FIELDS(Inner, cycles);
GEMMTUNE_FIELDS(Constants, bytes, microseconds, inner);

namespace {

constexpr gpu::FittedRow<Constants> rows[] = {{{"first", 4e6, 2000}, {{3e6}, 7, {{1500}}}},
                                              {{"second", 2e6, 1000}, {{1e6}, 8, {{900}}}}};

gpu::Limits card_of(double memory, double clock) {
  gpu::Limits limits = limits_of("sm_90a");
  limits.memory_bytes_per_microsecond = memory;
  limits.cycles_per_microsecond = clock;
  return limits;
}

TEST(FittedConstants, ACardHasItsOwnRow) {
  const Constants first = gpu::constants_for(card_of(4e6, 2000), rows);
  EXPECT_EQ(first.bytes, 3e6);
  EXPECT_EQ(first.inner.cycles, 1500);
  const Constants second = gpu::constants_for(card_of(2e6, 1000), rows);
  EXPECT_EQ(second.bytes, 1e6);
  EXPECT_EQ(second.microseconds, 8);
}

TEST(FittedConstants, AnotherCardHasTheNearestRowInProportion) {
  const Constants faster = gpu::constants_for(card_of(8e6, 2200), rows);
  EXPECT_DOUBLE_EQ(faster.bytes, 6e6);
  EXPECT_EQ(faster.microseconds, 7);
  EXPECT_DOUBLE_EQ(faster.inner.cycles, 1650);
  EXPECT_DOUBLE_EQ(gpu::constants_for(card_of(1.8e6, 1000), rows).bytes, 0.9e6);
}

TEST(FittedConstants, AnUnknownCardHasTheFirstRow) {
  EXPECT_EQ(gpu::constants_for(card_of(0, 1000), rows).bytes, 3e6);
  EXPECT_EQ(gpu::constants_for(card_of(2e6, 0), rows).bytes, 3e6);
}

/// The families whose models are fitted, on a card.
class Families {
 public:
  explicit Families(const gpu::Limits& limits) : runtime_(limits) {
    add(cuda::make_wgmma_family(runtime_, driver_));
    add(cuda::make_skinny_family(runtime_, driver_));
    add(cuda::make_mxfp4_family(runtime_, driver_));
    add(cuda::make_mxfp4_skinny_family(runtime_, driver_, limits));
    add(cuda::make_wgmma_moe_family(runtime_, driver_));
    add(cuda::make_moe_decode_family(runtime_));
    add(cuda::make_mxfp4_stream_family(runtime_, limits));
  }
  const KernelFamily& of(const std::string& name) const { return *families_.at(name); }

 private:
  class Runtime final : public gpu::Runtime {
   public:
    explicit Runtime(const gpu::Limits& limits) : limits_(limits) {}
    const gpu::Limits& limits() const override { return limits_; }
    const std::string& architecture() const override { return architecture_; }
    Result<std::shared_ptr<gpu::Program>> load(const gpu::Source&) override {
      return Status::unsupported("no compiler");
    }

   private:
    gpu::Limits limits_;
    std::string architecture_ = "sm_90a";
  };
  void add(std::unique_ptr<KernelFamily> family) {
    const std::string name(family->name());
    families_[name] = std::move(family);
  }

  Runtime runtime_;
  cuda::CudaDriver driver_{cuda::api::Driver{}, cuda::h200_clusters};
  std::map<std::string, std::unique_ptr<KernelFamily>> families_;
};

gpu::Limits limits_of_card(const gpu::Card& card) {
  return card_of(card.memory_bytes_per_microsecond, card.cycles_per_microsecond);
}

/// A kernel of a file of bench/results, and what the model says of it.
struct Row {
  double measured = 0;
  double predicted = 0;
};

/// By problem.
std::map<std::string, std::vector<Row>> read_rows(const std::string& card, const KernelFamily& family) {
  const std::string path = std::string(GEMMTUNE_SOURCE_DIR "/bench/results/") + card + "/cost_" +
                           std::string(family.name()) + ".csv";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::map<std::string, std::vector<Row>> read;
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "problem,kernel,us,card");
  while (std::getline(file, line)) {
    const std::size_t kernel = line.find(',') + 1;
    const std::size_t time = line.find(',', kernel) + 1;
    const std::string text = line.substr(0, kernel - 1);
    const auto problem = parse_problem(text);
    EXPECT_TRUE(problem.ok()) << problem.message();
    const auto candidate =
        parse_kernel_name(line.substr(kernel, time - 1 - kernel), family.space(*problem).keys());
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    read[text].push_back(
        {std::stod(line.substr(time)), family.predicted_microseconds(*problem, candidate->config)});
  }
  return read;
}

using Rows = std::map<std::string, std::vector<Row>>;

/// Median of |log(predicted / measured)|.
double error_of(const Rows& rows) {
  std::vector<double> errors;
  for (const auto& [problem, kernels] : rows)
    for (const Row& row : kernels) errors.push_back(std::abs(std::log(row.predicted / row.measured)));
  EXPECT_GT(errors.size(), 50U);
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
  std::nth_element(errors.begin(), middle, errors.end());
  return *middle;
}

/// Mean of log(time of the model's first kernel / fastest time), of problems with several kernels.
double regret_of(const Rows& rows) {
  double regret = 0;
  int problems = 0;
  for (const auto& [problem, kernels] : rows) {
    if (kernels.size() < 2) continue;
    const auto by_model = [](const Row& a, const Row& b) { return a.predicted < b.predicted; };
    const auto by_time = [](const Row& a, const Row& b) { return a.measured < b.measured; };
    regret += std::log(std::min_element(kernels.begin(), kernels.end(), by_model)->measured /
                       std::min_element(kernels.begin(), kernels.end(), by_time)->measured);
    ++problems;
  }
  return regret / problems;
}

struct Bound {
  const char* family;
  double error;
  double regret;
};

/// A tenth above what bench/fit.py prints of all rows.
TEST(CostModels, ErrorsOfMeasuredRowsStaySmall) {
  const Families families(limits_of_card(cuda::h200));
  for (const Bound& bound : {Bound{"wgmma", 0.064, 0.035},
                             {"skinny", 0.104, 0.062},
                             {"mxfp4", 0.0745, 0.0324},
                             {"mxfp4_skinny", 0.0603, 0.0134},
                             {"wgmma_moe", 0.089, 0.026},
                             {"moe_decode", 0.107, 0.033},
                             {"mxfp4_stream", 0.073, 0.0212}}) {
    const Rows rows = read_rows("h200", families.of(bound.family));
    EXPECT_LT(error_of(rows), bound.error) << bound.family;
    EXPECT_LT(regret_of(rows), bound.regret) << bound.family;
  }
}

/// An H100 has no row of these families: it is where the scaling of an H200's row is compared with measured kernels. Without it their errors are above 0.3.
TEST(CostModels, ScaledConstantsHoldOnAnotherCard) {
  const Families families(limits_of_card(cuda::h100));
  for (const Bound& bound : {Bound{"wgmma", 0.041, 0.0065}, {"skinny", 0.060, 0.015}}) {
    const Rows rows = read_rows("h100", families.of(bound.family));
    EXPECT_LT(error_of(rows), bound.error) << bound.family;
    EXPECT_LT(regret_of(rows), bound.regret) << bound.family;
  }
}

/// More bandwidth or a faster clock makes no kernel slower, and kernels that wait for memory faster.
TEST(CostModels, ConstantsOfAnUnknownCardFollowItsRates) {
  constexpr DataType bf16 = DataType::bf16;
  const Families slow(card_of(2e6, 1700));
  const Families more_memory(card_of(4e6, 1700));
  const Families more_clock(card_of(2e6, 1900));
  const auto layer = [](DataType weight, QuantType scales) {
    Problem problem = testing_problems::moe_problem(bf16, weight, scales, {4, 2880, 2880});
    problem.moe.experts = 32;
    problem.moe.topk = 4;
    return problem;
  };
  const std::pair<std::string, Problem> cases[] = {
      {"wgmma", dense(16, 24576, 4096, bf16, bf16)},
      {"skinny", dense(16, 24576, 4096, bf16, bf16)},
      {"mxfp4", of_fp4(Operation::a16w4, 64, 8192, 8192)},
      {"mxfp4_skinny", of_fp4(Operation::a16w4, 8, 8192, 8192)},
      {"wgmma_moe", layer(bf16, QuantType::none)},
      {"moe_decode", layer(bf16, QuantType::none)},
      {"mxfp4_stream", layer(DataType::f4_e2m1, QuantType::per_1x32)}};
  for (const auto& [name, problem] : cases) {
    const Config config = slow.of(name).default_config(problem);
    const double before = slow.of(name).predicted_microseconds(problem, config);
    EXPECT_LT(more_memory.of(name).predicted_microseconds(problem, config), before) << name;
    EXPECT_LE(more_clock.of(name).predicted_microseconds(problem, config), before) << name;
  }
}

}  // namespace
}  // namespace gemmtune::cost_models_test
