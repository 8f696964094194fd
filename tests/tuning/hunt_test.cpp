// A hunt on a device with wrong kernels: what is found, how small it becomes, and what is suggested.
#include "tuning/hunt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluate/in_process/in_process_evaluator.h"
#include "formats/errata/erratum_file.h"
#include "support/elements.h"
#include "support/fake_device.h"
#include "support/paper_device.h"

namespace gemmtune {
namespace {

using testing::FakeDevice;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::right_gemm;

/// Wrong for an odd K from M = 5 on: the last element of K is left out.
void loses_odd_k(const Problem& problem, const Operands& operands, void* workspace) {
  right_gemm(problem, operands, workspace);
  if (problem.k % 2 == 0 || problem.m < 5) return;
  for (std::int64_t row = 0; row < problem.m; ++row)
    for (std::int64_t column = 0; column < problem.n; ++column) {
      float sum = 0;
      for (std::int64_t k = 0; k + 1 < problem.k; ++k)
        sum += testing::load_element(problem.x_type, operands.x, row * operands.ldx + k) *
               testing::load_element(problem.w_type, operands.w, column * problem.k + k);
      testing::store_element(problem, operands, row, column, sum);
    }
}

class HuntOnAFakeDevice : public ::testing::Test {
 protected:
  HuntOnAFakeDevice() {
    device_.change_info().libraries.push_back({"Odd", "2.6.3", {}, {}});
    request_.operations = {Operation::a16w16};
    request_.max_flops = 1e5;
    request_.budget_seconds = 400;
    request_.clock = [this] { return seconds_++; };
  }
  HuntSummary run(std::vector<std::string> libtypes) {
    request_.libtypes = std::move(libtypes);
    InProcessOptions options;
    options.policy.warmup = 1;
    InProcessEvaluator evaluator(device_, options);
    auto summary = hunt(device_, evaluator, request_, [&](const HuntSummary&, const HuntFinding* found) {
      seen_ += found != nullptr ? 1 : 0;
    });
    EXPECT_TRUE(summary.ok()) << summary.message();
    return summary.ok() ? std::move(*summary) : HuntSummary{};
  }

  FakeDevice device_;
  HuntRequest request_;
  double seconds_ = 0;
  int seen_ = 0;
};

TEST_F(HuntOnAFakeDevice, AWrongFamilyIsFoundAndItsSizeMinimized) {
  device_.add({.name = "good"});
  device_.set_baseline(device_.add({.name = "odd", .run = loses_odd_k}));
  const HuntSummary summary = run({"odd"});
  ASSERT_EQ(summary.findings.size(), 3U) << "one for each type";
  EXPECT_EQ(seen_, 3);
  EXPECT_GT(summary.problems, 5U);
  for (const HuntFinding& finding : summary.findings) {
    EXPECT_EQ(finding.candidate.family, "odd");
    EXPECT_TRUE(finding.untuned);
    EXPECT_EQ(finding.outcome.kind, OutcomeKind::wrong);
    EXPECT_EQ(finding.problem.m, 5);
    EXPECT_EQ(finding.problem.n, 1);
    EXPECT_EQ(finding.problem.k, 1);
    EXPECT_FALSE(finding.problem.bias);
    const Erratum& erratum = finding.erratum;
    EXPECT_EQ(erratum.condition.text(), "m >= 5 and k % 2 == 1");
    EXPECT_EQ(erratum.first_version, "2.6.3");
    EXPECT_EQ(erratum.repro,
              "gemmtune check --backend fake --problem '" + print(finding.problem) + "' --kernel odd_r1");
    EXPECT_TRUE(holds(erratum, "", finding.first, finding.candidate));
    const auto read = parse_erratum("suggested.json", print_erratum(erratum));
    EXPECT_TRUE(read.ok()) << read.message();
  }
}

/// The findings of a hunt for a vendor's kernels, of which `outcome_of` says what becomes of them.
std::vector<HuntFinding> findings_on_paper(const std::function<Outcome(const Problem&)>& outcome_of) {
  testing::PaperDevice device;
  device.add({.name = "vendor", .tie_rank = 0});
  testing::FakeEvaluator evaluator;
  evaluator.time = [](const Problem&, const Candidate&) { return 1.0; };
  evaluator.outcome = [&](const Problem& problem, const Candidate&) { return outcome_of(problem); };
  evaluator.at_m = [&](Problem problem, const Candidate&, std::int64_t m) {
    problem.m = m;
    return outcome_of(problem);
  };
  HuntRequest request;
  request.operations = {Operation::a16w16};
  request.libtypes = {"vendor"};
  request.max_flops = 1e9;
  double seconds = 0;
  request.clock = [&] { return seconds++; };
  request.budget_seconds = 400;
  auto summary = hunt(device, evaluator, request, [](const HuntSummary&, const HuntFinding*) {});
  EXPECT_TRUE(summary.ok()) << summary.message();
  return summary.ok() ? std::move(summary->findings) : std::vector<HuntFinding>();
}

// What oneDNN 2.6.3 does with AMX; a worker reports the crash as an outcome.
TEST(HuntOnPaper, ACrashIsAFindingAndItsErratumHasTheEffect) {
  const auto findings = findings_on_paper([](const Problem& problem) {
    return problem.m >= 33 && problem.k % 2 == 1
               ? testing::failure(OutcomeKind::crashed, "SIGILL (Illegal instruction)")
               : Outcome{};
  });
  ASSERT_FALSE(findings.empty());
  for (const HuntFinding& finding : findings) {
    EXPECT_EQ(finding.erratum.effect, ErratumEffect::crash);
    EXPECT_EQ(finding.erratum.condition.text(), "m >= 33 and k % 2 == 1");
    EXPECT_GT(finding.more, 0U);
  }
}

TEST(HuntOnPaper, AFaultOfOneOrderIsReducedToThatOrder) {
  const auto findings = findings_on_paper([](const Problem& problem) {
    return problem.w_order == Order::column_major ? testing::failure(OutcomeKind::wrong, "wrong sums")
                                                  : Outcome{};
  });
  ASSERT_FALSE(findings.empty());
  for (const HuntFinding& finding : findings) {
    EXPECT_EQ(finding.problem.w_order, Order::column_major);
    EXPECT_EQ(finding.erratum.condition.text(), "w_columns == 1");
    EXPECT_THAT(finding.erratum.repro, ::testing::HasSubstr("w_order=N"));
    EXPECT_TRUE(holds(finding.erratum, "", finding.first, finding.candidate));
    Problem rows = finding.first;
    rows.w_order = Order::row_major;
    EXPECT_FALSE(holds(finding.erratum, "", rows, finding.candidate));
  }
}

TEST_F(HuntOnAFakeDevice, RightKernelsAreNoFinding) {
  device_.add({.name = "good"});
  const HuntSummary summary = run({"good"});
  EXPECT_THAT(summary.findings, IsEmpty());
  EXPECT_GE(summary.kernels, summary.problems);
}

TEST_F(HuntOnAFakeDevice, TheSameSeedGivesTheSameProblems) {
  std::vector<std::string> first;
  for (int turn = 0; turn < 2; ++turn) {
    FakeDevice device;
    std::vector<std::string> asked;
    device.add({.name = "good", .accepts = [&](const Problem& problem) {
                  asked.push_back(print(problem));
                  return Status();
                }});
    InProcessEvaluator evaluator(device, {});
    seconds_ = 0;
    request_.libtypes = {"good"};
    request_.budget_seconds = 10;
    ASSERT_TRUE(hunt(device, evaluator, request_, [](const HuntSummary&, const HuntFinding*) {}).ok());
    if (turn == 0) first = asked;
    EXPECT_EQ(asked, first);
  }
  EXPECT_THAT(first, Not(IsEmpty()));
}

TEST_F(HuntOnAFakeDevice, WithoutAVendorLibraryItSaysSo) {
  device_.add({.name = "good"});
  InProcessEvaluator evaluator(device_, {});
  const auto summary = hunt(device_, evaluator, request_, [](const HuntSummary&, const HuntFinding*) {});
  EXPECT_THAT(summary.message(), HasSubstr("fake:0 has no vendor library"));
}

TEST(HuntProblems, AreLegalAndWithinTheLimits) {
  Random random(7);
  const HuntLimits limits{1e7, 1e6};
  int legal = 0;
  for (const OperationForm operation : all_operation_forms())
    for (int i = 0; i < 500; ++i) {
      const Problem problem = random_problem(operation, limits, random);
      if (!check(problem).ok()) continue;
      ++legal;
      if (is_mixture(problem)) continue;
      EXPECT_LE(flops(problem), limits.max_flops) << print(problem);
    }
  EXPECT_GT(legal, 1500);
}

TEST(HuntProblems, HaveDeepAndAwkwardKAndSizesPast2To31Elements) {
  Random random(7);
  const HuntLimits limits{1e13, 1e13};
  bool huge = false;
  bool deep = false;
  bool odd = false;
  for (int i = 0; i < 500; ++i) {
    const Problem problem = random_problem(Operation::a16w16, limits, random);
    const std::int64_t most = std::max({problem.m * problem.n, problem.m * problem.k, problem.n * problem.k});
    huge = huge || most > (std::int64_t{1} << 31);
    deep = deep || (problem.k > 30000 && problem.k % 64 == 8);
    odd = odd || problem.k % 2 == 1;
  }
  EXPECT_TRUE(huge && deep && odd);
}

TEST(Minimize, StopsAfterItsTries) {
  Problem problem;
  problem.m = problem.n = problem.k = 1 << 20;
  int calls = 0;
  const Problem smallest = minimize(
      problem,
      [&](const Problem& other) {
        ++calls;
        return other.k > 1000;
      },
      25);
  EXPECT_LE(calls, 25);
  EXPECT_EQ(smallest.m, 1);
  EXPECT_GT(smallest.k, 1000);
}

TEST(FailingSizes, AreTheConditionThatTheSizesShow) {
  Problem minimal;
  minimal.m = 33;
  minimal.n = 1;
  minimal.k = 63;
  const auto text = [&](const FailsAt& fails) { return failing_sizes(minimal, fails); };
  EXPECT_EQ(text([](const Problem& p) { return p.m >= 33 && p.k % 2 == 1; }),
            "m >= 33 and k % 2 == 1 and k >= 63");
  EXPECT_EQ(text([](const Problem& p) { return p.m >= 33 && p.k >= 63; }), "m >= 33 and k >= 63");
  EXPECT_EQ(text([](const Problem& p) { return p.m == 33 && p.n == 1 && p.k % 64 == 63; }),
            "m == 33 and n == 1 and k % 64 == 63");
}

}  // namespace
}  // namespace gemmtune
