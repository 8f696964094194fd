// The tuning loop over a device and an evaluator on paper: what it tries, keeps, skips, publishes and
// reports.
#include "tuning/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "base/file.h"
#include "resolve/bind.h"
#include "search/strategy.h"
#include "support/paper_device.h"

namespace gemmtune::tuner_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct SilentObserver final : RunObserver {
  std::vector<std::size_t> started;
  std::vector<std::size_t> done;
  std::int64_t candidates = 0;
  void problem_started(std::size_t index, std::size_t, const ShapeRow&) override { started.push_back(index); }
  void candidate_done(std::size_t, const Trial&, std::int64_t so_far) override { candidates = so_far; }
  void problem_done(std::size_t index, const ItemReport&) override { done.push_back(index); }
};

class Tuner : public ::testing::Test {
 protected:
  Tuner() {
    std::string pattern = ::testing::TempDir() + "gemmtune_tuner_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    device_.add({.name = "vendor", .tie_rank = 0, .parameters = {}, .packed = WeightLayout::onednn});
    device_.add({.name = "tiled",
                 .parameters = {{"kc", {"256", "128", "512"}, "", ""}, {"sk", {"1", "2"}, "1", ""}},
                 .packed = WeightLayout::panel16});
    device_.add({.name = "narrow", .parameters = {}, .refusal = [](const Problem& problem) {
                   return problem.m > 4 ? "M above 4" : "";
                 }});
    device_.add({.name = "reference", .parameters = {}});
    device_.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
    times_ = {{"vendor_r1", 100},          {"tiled_r1_kc256_sk1", 90}, {"tiled_r1_kc256_sk2", 95},
              {"tiled_r1_kc128_sk1", 80},  {"tiled_r1_kc128_sk2", 50}, {"tiled_r1_kc512_sk1", 120},
              {"tiled_r1_kc512_sk2", 121}, {"narrow_r1", 70},          {"reference_r1", 9000}};
    evaluator_.time = [this](const Problem&, const Candidate& candidate) {
      return times_.at(candidate.kernel_name());
    };
    request_.output = folder_ + "/tuned.csv";
  }
  ~Tuner() override { std::filesystem::remove_all(folder_); }

  static Problem problem_of(std::int64_t m, std::int64_t n = 64, std::int64_t k = 64) {
    Problem problem;
    problem.m = m;
    problem.n = n;
    problem.k = k;
    return problem;
  }
  static Problem packed_of(std::int64_t m, std::int64_t n = 64) {
    Problem problem = problem_of(m, n);
    problem.weight_layout = WeightLayout::any;
    return problem;
  }
  void ask(const std::vector<Problem>& problems, std::int64_t calls = 1) {
    request_.shapes.clear();
    for (const Problem& problem : problems) {
      ShapeRow row;
      row.problem = problem;
      row.calls = calls;
      request_.shapes.push_back(row);
    }
  }
  RunSummary run() {
    auto summary = tune(device_, evaluator_, request_, observer_);
    EXPECT_TRUE(summary.ok()) << summary.message();
    return summary.ok() ? std::move(*summary) : RunSummary{};
  }
  std::vector<TunedEntry> published() const {
    auto file = read_tuned_csv(request_.output);
    EXPECT_TRUE(file.ok()) << file.message();
    return file.ok() ? file->entries : std::vector<TunedEntry>{};
  }

  std::string folder_;
  testing::PaperDevice device_;
  testing::FakeEvaluator evaluator_;
  SilentObserver observer_;
  TuneRequest request_;
  std::map<std::string, double> times_;
};

// Before errata are read.
const bool errata_set = setenv("GEMMTUNE_ERRATA", GEMMTUNE_TEST_DATA "/errata", 1) == 0;

TEST_F(Tuner, ADefaultThatFailsVerificationIsTheVerdictOfTheRow) {
  evaluator_.full_outcome = [](const Problem&, const Candidate& candidate) {
    return candidate.family == "vendor" ? testing::failure(OutcomeKind::wrong, "row 5") : Outcome{};
  };
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::tuned);
  EXPECT_EQ(summary.items[0].default_fault, "row 5");
  EXPECT_EQ(summary.geometric_mean_speedup, 0) << "no row has a ratio";
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].verdict, Verdict::default_wrong);
  EXPECT_EQ(rows[0].kernel_name, "tiled_r1_kc128_sk2");
  EXPECT_EQ(rows[0].default_kernel, "vendor_r1");
  EXPECT_FALSE(rows[0].default_us);
  EXPECT_FALSE(rows[0].speedup);
}

TEST_F(Tuner, ADefaultWithAnErratumIsWrongAndNotTried) {
  ask({problem_of(8, 64, 471), problem_of(8, 64, 472)});
  evaluator_.outcome = [](const Problem& problem, const Candidate& candidate) {
    EXPECT_FALSE(problem.k == 471 && candidate.family == "vendor");
    return Outcome{};
  };
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].row()->verdict, Verdict::default_wrong);
  EXPECT_THAT(summary.items[0].default_fault, HasSubstr("erratum fake-default-test"));
  EXPECT_THAT(summary.items[0].refusals, ::testing::Contains(HasSubstr("vendor: 1 kernel left out")));
  EXPECT_EQ(summary.items[1].row()->verdict, Verdict::win);
  for (const Trial& trial : summary.items[0].trials) EXPECT_NE(trial.candidate.family, "vendor");
}

/// A vendor library and a family of ours, each with a promoted and a faster fast form.
class TunerOfClasses : public Tuner {
 protected:
  TunerOfClasses() {
    device_.add(
        {.name = "lib", .tie_rank = 0, .parameters = {{"fast", {"0", "1"}, "0", ""}}, .fast_key = "fast"});
    device_.add({.name = "own", .parameters = {{"fast", {"0", "1"}, "0", ""}}, .fast_key = "fast"});
    device_.baseline_of = [](const Problem&) {
      Config config;
      config.set("fast", std::int64_t{0});
      return Candidate{"lib", 1, config};
    };
    times_.insert({{"lib_r1_fast0", 100}, {"lib_r1_fast1", 60}, {"own_r1_fast0", 80}, {"own_r1_fast1", 50}});
    request_.libtypes = {"lib", "own"};
    ask({problem_of(8)});
  }
};

TEST_F(TunerOfClasses, ByDefaultNoneIsBelowTheDefaultKernels) {
  run();
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].kernel_name, "own_r1_fast0");
  EXPECT_EQ(rows[0].default_kernel, "lib_r1_fast0");
  EXPECT_EQ(rows[0].accuracy, Accuracy::fp32);
  EXPECT_FALSE(evaluator_.screened.contains("own_r1_fast1"));
  EXPECT_FALSE(evaluator_.screened.contains("lib_r1_fast1"));
}

TEST_F(TunerOfClasses, FastComparesAllWithTheLibrarysFastCall) {
  request_.policy.accuracy = AccuracyPolicy::fast;
  run();
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].kernel_name, "own_r1_fast1");
  EXPECT_EQ(rows[0].default_kernel, "lib_r1_fast1");
  EXPECT_EQ(rows[0].accuracy, Accuracy::tensor_core);
  EXPECT_NEAR(rows[0].speedup.value_or(0), 1.2, 0.05);
  EXPECT_TRUE(evaluator_.screened.contains("own_r1_fast0")) << "all classes compete";
}

TEST_F(TunerOfClasses, ARowOfALowerClassIsNotDone) {
  request_.policy.accuracy = AccuracyPolicy::fast;
  run();
  request_.policy.accuracy = AccuracyPolicy::keep;
  EXPECT_EQ(run().items[0].state, ProblemState::tuned);
  EXPECT_EQ(published()[0].kernel_name, "own_r1_fast0");
  EXPECT_EQ(run().items[0].state, ProblemState::skipped_done);
  request_.policy.accuracy = AccuracyPolicy::fast;
  EXPECT_EQ(run().items[0].state, ProblemState::skipped_done) << "a higher class than allowed is no fault";
}

TEST_F(TunerOfClasses, AKernelBelowItsRowsClassIsNotBound) {
  TunedEntry row;
  row.gfx = device_.info().gfx;
  row.cu_num = device_.info().cu_num;
  row.problem = problem_of(8);
  row.kernel_name = "own_r1_fast1";
  EXPECT_TRUE(bind_row(device_, row, {}, row.problem, {}).bound)
      << "a row of an earlier version says no class";
  EXPECT_EQ(accuracy_of(device_, row), Accuracy::tensor_core);
  row.accuracy = Accuracy::tensor_core;
  EXPECT_TRUE(bind_row(device_, row, {}, row.problem, {}).bound);
  row.accuracy = Accuracy::fp32;
  const Binding binding = bind_row(device_, row, {}, row.problem, {});
  EXPECT_FALSE(binding.bound);
  EXPECT_EQ(binding.refusal, Refusal::accuracy);
  EXPECT_THAT(binding.status.message(), HasSubstr("the row says accuracy fp32, the kernel has tensor_core"));
}

TEST_F(TunerOfClasses, ErrorsStandInTheEnvironment) {
  evaluator_.full_outcome = [](const Problem&, const Candidate&) {
    Outcome outcome;
    outcome.error = {0.0016, 0.014, 0.0005};
    return outcome;
  };
  run();
  const auto text = read_file(request_.output + ".env.json");
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("\"rms_error_fp32\": 0.0016"));
  EXPECT_THAT(*text, HasSubstr("\"max_error_fp32\": 0.014"));
  EXPECT_THAT(*text, HasSubstr("\"one_sign_error_fp32\": 0.0005"));
}

TEST_F(Tuner, FindsTheFastestAndWritesItsRow) {
  ask({problem_of(8)});
  const RunSummary summary = run();
  ASSERT_EQ(summary.items.size(), 1U);
  const ItemReport& report = summary.items[0];
  EXPECT_EQ(report.state, ProblemState::tuned) << report.reason;
  EXPECT_THAT(report.refusals, ElementsAre("narrow: M above 4"));
  EXPECT_EQ(report.trials.size(), 7U);
  EXPECT_EQ(summary.candidates, 7);
  EXPECT_EQ(observer_.candidates, 7);
  EXPECT_NEAR(summary.geometric_mean_speedup, 2, 0.01);

  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  const TunedEntry& row = rows[0];
  EXPECT_EQ(row.gfx, "x86-avx2");
  EXPECT_EQ(row.cu_num, 2);
  EXPECT_EQ(row.libtype, "tiled");
  EXPECT_EQ(row.kernel_name, "tiled_r1_kc128_sk2");
  EXPECT_EQ(row.split_k, 2);
  EXPECT_EQ(row.solidx, 0);
  EXPECT_NEAR(row.us, 50, 0.2);
  EXPECT_EQ(row.us, std::round(row.us * 1e4) / 1e4);
  EXPECT_EQ(row.err_ratio, 0.0012);
  EXPECT_EQ(row.verdict, Verdict::win);
  EXPECT_EQ(row.default_kernel, "vendor_r1");
  ASSERT_TRUE(row.default_us && row.speedup && row.spread);
  EXPECT_NEAR(*row.default_us, 100, 0.4);
  EXPECT_NEAR(*row.speedup, 2, 0.02);
  EXPECT_LT(*row.spread, 1);
  EXPECT_EQ(row.env, row_environment(device_, request_.policy).hash);
  const auto environment = read_file(request_.output + ".env.json");
  ASSERT_TRUE(environment.ok());
  EXPECT_THAT(*environment, HasSubstr(row.env));
  EXPECT_THAT(*environment, HasSubstr("Paper 9000"));
}

TEST_F(Tuner, EveryStrategyNamesTheSameWinner) {
  for (const StrategyInfo& info : all_strategies()) {
    request_.strategy = info.name;
    request_.all = true;
    ask({problem_of(8)});
    const RunSummary summary = run();
    ASSERT_TRUE(summary.items[0].row()) << info.name;
    EXPECT_EQ(summary.items[0].row()->kernel_name, "tiled_r1_kc128_sk2") << info.name;
  }
}

TEST_F(Tuner, KeepsTheDefaultThatNothingBeats) {
  times_["vendor_r1"] = 40;
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::kept_default);
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].kernel_name, "vendor_r1");
  EXPECT_EQ(rows[0].libtype, "vendor");
  EXPECT_EQ(rows[0].verdict, Verdict::keep_default);
  EXPECT_EQ(rows[0].default_kernel, "vendor_r1");
  EXPECT_EQ(rows[0].speedup, 1);
}

TEST_F(Tuner, TheBaselineIsInTheFinalsEvenWhereItsFamilyIsNotSearched) {
  request_.libtypes = {"tiled"};
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(evaluator_.screened.count("vendor_r1"), 0U);
  ASSERT_FALSE(evaluator_.finals_calls.empty());
  EXPECT_THAT(evaluator_.finals_calls[0], ::testing::Contains("vendor_r1"));
  EXPECT_EQ(summary.items[0].row()->default_kernel, "vendor_r1");
}

TEST_F(Tuner, WithoutAVendorKernelTheDefaultIsWhatRunsUntuned) {
  device_.baseline_of = nullptr;
  device_.fallback_of = [](const Problem&) {
    return parse_kernel_name("tiled_r1_kc256_sk1", {"kc", "sk"}).value();
  };
  request_.libtypes = {"tiled"};
  ask({problem_of(8)});
  run();
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].verdict, Verdict::win);
  EXPECT_EQ(rows[0].kernel_name, "tiled_r1_kc128_sk2");
  EXPECT_EQ(rows[0].default_kernel, "tiled_r1_kc256_sk1");
  EXPECT_NEAR(rows[0].speedup.value_or(0), 1.8, 0.01);
}

TEST_F(Tuner, WhereTheDefaultIsOursTheLibraryIsInTheFinalsToo) {
  device_.fallback_of = [](const Problem&) {
    return parse_kernel_name("tiled_r1_kc256_sk1", {"kc", "sk"}).value();
  };
  request_.policy.finalists = 1;
  for (const double vendor : {99.0, 40.0}) {
    SCOPED_TRACE(vendor);
    times_["vendor_r1"] = vendor;
    evaluator_.finals_calls.clear();
    request_.output = folder_ + "/" + std::to_string(vendor) + ".csv";
    ask({problem_of(8)});
    run();
    ASSERT_FALSE(evaluator_.finals_calls.empty());
    EXPECT_THAT(evaluator_.finals_calls[0], ::testing::IsSupersetOf({"vendor_r1", "tiled_r1_kc256_sk1"}));
    const auto rows = published();
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].verdict, Verdict::win);
    EXPECT_EQ(rows[0].default_kernel, "tiled_r1_kc256_sk1");
    EXPECT_EQ(rows[0].kernel_name, vendor < 50 ? "vendor_r1" : "tiled_r1_kc128_sk2");
  }
  request_.libtypes = {"tiled"};
  request_.output = folder_ + "/named.csv";
  ask({problem_of(8)});
  run();
  EXPECT_EQ(published()[0].kernel_name, "tiled_r1_kc128_sk2") << "--libtype leaves the library out";
}

TEST_F(Tuner, WithoutADefaultKernelTheVerdictIsOnly) {
  device_.baseline_of = nullptr;
  device_.fallback_of = [](const Problem&) { return std::optional<Candidate>(); };
  ask({problem_of(8)});
  const RunSummary summary = run();
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].verdict, Verdict::only);
  EXPECT_EQ(rows[0].default_us, std::nullopt);
  EXPECT_EQ(rows[0].speedup, std::nullopt);
  EXPECT_EQ(rows[0].default_kernel, "");
  EXPECT_EQ(summary.geometric_mean_speedup, 0);
}

TEST_F(Tuner, AFinishedRunDoesNothingAgainAndSaysWhy) {
  ask({problem_of(8), problem_of(16)});
  run();
  const auto before = read_file(request_.output);
  evaluator_.screened.clear();
  const RunSummary again = run();
  EXPECT_TRUE(evaluator_.screened.empty());
  for (const ItemReport& report : again.items) {
    EXPECT_EQ(report.state, ProblemState::skipped_done);
    EXPECT_THAT(report.reason, HasSubstr(request_.output));
    EXPECT_THAT(report.reason, HasSubstr("tiled_r1_kc128_sk2"));
  }
  EXPECT_THAT(observer_.done, ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(*read_file(request_.output), *before);
}

TEST_F(Tuner, RowsOfOtherFilesCountAsDone) {
  ask({problem_of(8)});
  run();
  const std::string first = request_.output;
  request_.output = folder_ + "/second.csv";
  request_.also_read = {folder_ + "/not there.csv", first};
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::skipped_done);
  EXPECT_THAT(summary.items[0].reason, HasSubstr(first));
}

TEST_F(Tuner, RowsOfAnotherDeviceAreNotDone) {
  ask({problem_of(8)});
  run();
  device_.mutable_info().cu_num = 4;
  EXPECT_EQ(run().items[0].state, ProblemState::tuned);
  EXPECT_EQ(published().size(), 2U) << "the other device's row stays";
}

TEST_F(Tuner, AllTunesAgainAndReplacesTheRow) {
  ask({problem_of(8)});
  run();
  times_["tiled_r1_kc512_sk1"] = 20;
  request_.all = true;
  EXPECT_EQ(run().items[0].state, ProblemState::tuned);
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].kernel_name, "tiled_r1_kc512_sk1");
}

TEST_F(Tuner, StaleTunesRowsOfAnotherEnvironmentOnly) {
  ask({problem_of(8)});
  run();
  request_.stale = true;
  ask({problem_of(8), problem_of(16)});
  RunSummary summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::skipped_done);
  EXPECT_EQ(summary.items[1].state, ProblemState::tuned);
  device_.mutable_info().libraries[0].version = "9";
  summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::tuned);
  EXPECT_EQ(summary.items[1].state, ProblemState::tuned);
  request_.stale = false;
  EXPECT_EQ(run().items[0].state, ProblemState::skipped_done);
}

TEST_F(Tuner, RowsThatNobodyTakesAreReportedNotDropped) {
  Problem fp8 = problem_of(8);
  fp8.x_type = DataType::f8_e4m3fnuz;
  fp8.w_type = DataType::f8_e4m3fnuz;
  Problem moe = problem_of(8);
  moe.operation = Operation::fused_moe;
  moe.moe.experts = 8;
  moe.moe.topk = 2;
  ask({problem_of(8), fp8, moe, problem_of(8)});
  request_.libtypes = {"tiled"};
  const RunSummary summary = run();
  ASSERT_EQ(summary.items.size(), 4U);
  EXPECT_EQ(summary.items[0].state, ProblemState::tuned);
  EXPECT_EQ(summary.items[1].state, ProblemState::unsupported);
  EXPECT_THAT(summary.items[1].reason, HasSubstr("scaleAB"));
  EXPECT_EQ(summary.items[2].state, ProblemState::unsupported);
  EXPECT_THAT(summary.items[2].reason, HasSubstr("fused_moe"));
  EXPECT_EQ(summary.items[3].state, ProblemState::skipped_done) << "twice in the list";
  EXPECT_TRUE(summary.items[3].repeats) << "it is not in the file";
  EXPECT_THAT(observer_.done, ElementsAre(0, 1, 2, 3));
}

TEST_F(Tuner, AProblemThatEveryFamilyRefusesNamesTheReasons) {
  request_.libtypes = {"narrow"};
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::unsupported);
  EXPECT_EQ(summary.items[0].reason, "narrow: M above 4");
}

TEST_F(Tuner, FailedCandidatesAreDataAndNeverWin) {
  evaluator_.outcome = [](const Problem&, const Candidate& candidate) {
    if (candidate.config.number("sk") == 2) return testing::failure(OutcomeKind::wrong, "err_ratio 0.4");
    return Outcome{};
  };
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].row()->kernel_name, "tiled_r1_kc128_sk1");
  EXPECT_EQ(evaluator_.screened["tiled_r1_kc128_sk2"], 1);
  int wrong = 0;
  for (const Trial& trial : summary.items[0].trials) wrong += trial.outcome.kind == OutcomeKind::wrong;
  EXPECT_EQ(wrong, 3);
}

TEST_F(Tuner, AProblemWhoseCandidatesAllFailIsFailedAndTheRestGoesOn) {
  evaluator_.outcome = [](const Problem& problem, const Candidate&) {
    return problem.m == 8 ? testing::failure(OutcomeKind::crashed, "signal 11") : Outcome{};
  };
  evaluator_.status = [](const Problem& problem) {
    return problem.m == 9 ? Status::out_of_memory("operands do not fit") : Status();
  };
  ask({problem_of(8), problem_of(9), problem_of(16)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::failed);
  EXPECT_THAT(summary.items[0].reason, HasSubstr("7 crashed"));
  EXPECT_THAT(summary.items[0].reason, HasSubstr("signal 11"));
  EXPECT_EQ(summary.items[1].state, ProblemState::failed);
  EXPECT_EQ(summary.items[1].reason, "operands do not fit");
  EXPECT_EQ(summary.items[2].state, ProblemState::tuned);
  EXPECT_EQ(published().size(), 1U) << "failed shapes are not written";
}

TEST_F(Tuner, ACandidateThatHasTimesIsNotLostToARuleForLosers) {
  evaluator_.outcome = [this](const Problem&, const Candidate& candidate) {
    const std::string name = candidate.kernel_name();
    const bool again = evaluator_.screened[name] > 1;
    const bool struck = again && (name == "vendor_r1" || name == "tiled_r1_kc128_sk2");
    return struck ? testing::failure(OutcomeKind::too_slow, "its first calls took long") : Outcome{};
  };
  evaluator_.full_outcome = [](const Problem&, const Candidate&) { return Outcome{}; };
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].row()->kernel_name, "tiled_r1_kc128_sk2");
  EXPECT_EQ(summary.items[0].row()->verdict, Verdict::win);
  EXPECT_TRUE(summary.items[0].row()->default_us);
}

TEST_F(Tuner, ASearchWhoseAnswersTeachNothingEnds) {
  int answers = 0;
  evaluator_.outcome = [&](const Problem&, const Candidate& candidate) {
    if (++answers > 1000) throw std::runtime_error("asked for ever");
    const bool again = evaluator_.screened[candidate.kernel_name()] > 1;
    return again ? testing::failure(OutcomeKind::too_slow, "its first calls took long") : Outcome{};
  };
  evaluator_.full_outcome = [](const Problem&, const Candidate&) { return Outcome{}; };
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].row()->verdict, Verdict::win);
}

TEST_F(Tuner, ADefaultThatCannotBeTimedIsTheVerdictOfTheRow) {
  evaluator_.full_outcome = [](const Problem&, const Candidate& candidate) {
    return candidate.family == "vendor" ? testing::failure(OutcomeKind::timed_out, "5 s") : Outcome{};
  };
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].default_fault, "timed_out: 5 s");
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].verdict, Verdict::default_untimed);
  EXPECT_EQ(rows[0].default_kernel, "vendor_r1");
  EXPECT_FALSE(rows[0].speedup);
}

TEST_F(Tuner, ShapesThatAnInterruptLeavesAreInterruptedAndNotFailed) {
  bool stop = false;
  evaluator_.before = [&](const Problem& problem) { stop = stop || problem.m == 9; };
  request_.stop = [&] { return stop; };
  ask({problem_of(8), problem_of(9), problem_of(16)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::tuned);
  EXPECT_EQ(summary.items[1].state, ProblemState::interrupted) << summary.items[1].reason;
  EXPECT_EQ(summary.items[2].state, ProblemState::interrupted) << summary.items[2].reason;
  EXPECT_EQ(published().size(), 1U);
}

TEST_F(Tuner, ARowHasTheIntervalOfItsSpeedUp) {
  ask({problem_of(8)});
  run();
  const auto rows = published();
  ASSERT_EQ(rows.size(), 1U);
  ASSERT_TRUE(rows[0].speedup_low && rows[0].speedup_high);
  EXPECT_LE(*rows[0].speedup_low, *rows[0].speedup);
  EXPECT_GE(*rows[0].speedup_high, *rows[0].speedup);
  EXPECT_NEAR(*rows[0].speedup_low, 2, 0.05);
  EXPECT_NEAR(*rows[0].speedup_high, 2, 0.05);
}

TEST_F(Tuner, AFinalistThatFailsTheFullGateLosesToTheNext) {
  evaluator_.full_outcome = [](const Problem&, const Candidate& candidate) {
    const bool bad = candidate.kernel_name() == "tiled_r1_kc128_sk2";
    return bad ? testing::failure(OutcomeKind::wrong, "second seed") : Outcome{};
  };
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].row()->kernel_name, "tiled_r1_kc128_sk1");
}

TEST_F(Tuner, AWinnerThatIsWrongAtANeighbouringMLosesToTheNext) {
  evaluator_.at_m = [](const Problem&, const Candidate& candidate, std::int64_t m) {
    const bool bad = candidate.kernel_name() == "tiled_r1_kc128_sk2" && m == 1;
    return bad ? testing::failure(OutcomeKind::wrong, "NaN at row 0") : Outcome{};
  };
  ask({problem_of(8)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].row()->kernel_name, "tiled_r1_kc128_sk2") << "M = 1 does not land on 8";
  request_.all = true;
  ask({problem_of(16)});
  const RunSummary other = run();
  EXPECT_EQ(other.items[0].row()->kernel_name, "tiled_r1_kc128_sk1");
  std::string reason;
  for (const Trial& trial : other.items[0].trials) {
    if (trial.candidate.kernel_name() == "tiled_r1_kc128_sk2") reason = trial.outcome.reason;
  }
  EXPECT_THAT(reason, HasSubstr("M = 1"));
  EXPECT_THAT(reason, HasSubstr("NaN at row 0"));
}

TEST_F(Tuner, AWinnerThatRefusesANeighbouringMStays) {
  evaluator_.at_m = [](const Problem&, const Candidate&, std::int64_t) {
    return testing::failure(OutcomeKind::refused, "M below 8");
  };
  ask({problem_of(16)});
  EXPECT_EQ(run().items[0].row()->kernel_name, "tiled_r1_kc128_sk2");
}

TEST_F(Tuner, SplitKOff) {
  request_.split_k = false;
  ask({problem_of(8)});
  EXPECT_EQ(run().items[0].row()->kernel_name, "tiled_r1_kc128_sk1");
  for (const auto& [name, count] : evaluator_.screened)
    EXPECT_EQ(name.find("sk2"), std::string::npos) << name;
}

class TunerOfDependentLaunches : public Tuner {
 protected:
  TunerOfDependentLaunches() {
    device_.add({.name = "stream", .parameters = {{"pdl", {"0", "1"}, "0", ""}}, .packed = std::nullopt});
    times_["stream_r1_pdl0"] = 60;
    times_["stream_r1_pdl1"] = 40;
  }
};

TEST_F(TunerOfDependentLaunches, AreNotTriedUnlessAllowed) {
  ask({problem_of(8)});
  const RunSummary summary = run();
  const TunedEntry* entry = summary.items[0].row();
  EXPECT_EQ(entry->kernel_name, "tiled_r1_kc128_sk2");
  EXPECT_EQ(entry->pdl_kernel_name, "");
  EXPECT_FALSE(entry->pdl_us.has_value());
  EXPECT_EQ(evaluator_.screened.count("stream_r1_pdl1"), 0U);
}

TEST_F(TunerOfDependentLaunches, HaveColumnsOfTheirOwn) {
  request_.pdl = true;
  ask({problem_of(8)});
  const RunSummary summary = run();
  const TunedEntry* entry = summary.items[0].row();
  EXPECT_EQ(entry->kernel_name, "tiled_r1_kc128_sk2");
  EXPECT_NEAR(entry->us, 50, 0.5);
  EXPECT_EQ(entry->pdl_kernel_name, "stream_r1_pdl1");
  EXPECT_NEAR(entry->pdl_us.value_or(0), 40, 0.4);
}

TEST_F(TunerOfDependentLaunches, HaveTheRowsTimeByTheRatioOfTheirRounds) {
  request_.pdl = true;
  times_["stream_r1_pdl1"] = 48;
  // The clock falls between the two contests: the dependent launch alone would be slower than the row's
  // kernel was.
  const auto steady = evaluator_.time;
  evaluator_.time = [this, steady](const Problem& problem, const Candidate& candidate) {
    const auto& calls = evaluator_.finals_calls;
    const bool later = !calls.empty() && std::ranges::count(calls.back(), "stream_r1_pdl1") > 0;
    return steady(problem, candidate) * (later ? 1.25 : 1);
  };
  ask({problem_of(8)});
  const RunSummary summary = run();
  const TunedEntry* entry = summary.items[0].row();
  EXPECT_NEAR(entry->us, 50, 0.5);
  EXPECT_EQ(entry->pdl_kernel_name, "stream_r1_pdl1");
  EXPECT_NEAR(entry->pdl_us.value_or(0), 48, 0.5);
}

TEST_F(TunerOfDependentLaunches, StandOnlyWhereTheyBeatThePlainWinner) {
  request_.pdl = true;
  times_["stream_r1_pdl1"] = 50;
  ask({problem_of(8)});
  const RunSummary summary = run();
  const TunedEntry* entry = summary.items[0].row();
  EXPECT_EQ(entry->kernel_name, "tiled_r1_kc128_sk2");
  EXPECT_EQ(entry->pdl_kernel_name, "");
  EXPECT_FALSE(entry->pdl_us.has_value());
}

TEST_F(Tuner, WrongRequestsAreRefusedBeforeAnythingIsMeasured) {
  ask({problem_of(8)});
  request_.libtypes = {"asm"};
  auto result = tune(device_, evaluator_, request_, observer_);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.message(), HasSubstr("vendor, tiled, narrow, reference"));
  request_.libtypes.clear();
  request_.strategy = "genetic";
  result = tune(device_, evaluator_, request_, observer_);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.message(), HasSubstr("genetic"));
  request_.strategy = "staged";
  request_.output = folder_;
  EXPECT_FALSE(tune(device_, evaluator_, request_, observer_).ok()) << "a folder";
  request_.output = folder_ + "/none/tuned.csv";
  EXPECT_FALSE(tune(device_, evaluator_, request_, observer_).ok()) << "no such folder";
  EXPECT_TRUE(evaluator_.screened.empty());
}

TEST_F(Tuner, WithoutAnOutputNothingIsWritten) {
  request_.output.clear();
  ask({problem_of(8)});
  EXPECT_TRUE(run().items[0].row());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Tuner, ABudgetThatIsSpentReportsTheRestAndKeepsTheBestSoFar) {
  evaluator_.before = [](const Problem&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  request_.budget_seconds = 0.05;
  std::vector<Problem> problems;
  for (int m = 1; m <= 40; ++m) problems.push_back(problem_of(m));
  ask(problems);
  const RunSummary summary = run();
  EXPECT_TRUE(summary.items.front().row()) << summary.items.front().reason;
  EXPECT_EQ(summary.items.back().state, ProblemState::out_of_budget);
  EXPECT_THAT(summary.items.back().reason, HasSubstr("0.05"));
  std::size_t tuned = 0;
  for (const ItemReport& report : summary.items) tuned += report.row() != nullptr;
  EXPECT_EQ(published().size(), tuned);
  EXPECT_EQ(observer_.done.size(), 40U);
}

/// Only the default was looked at: nothing says that it is the fastest.
TEST_F(Tuner, ADefaultWithoutCompetitorsIsUndecided) {
  times_["vendor_r1"] = 10;
  const auto settled = [&](std::size_t max_candidates) {
    TuningVisit visit(Deadline::never());
    visit.max_candidates = max_candidates;
    auto result = tune_problem(device_, evaluator_, request_, problem_of(8), WeightLayout::plain, visit,
                               {[](const Trial&) {}});
    EXPECT_EQ(result.layouts.size(), 1U) << result.reason;
    return result.layouts.empty() ? Settled() : std::move(result.layouts[0].settled);
  };
  const Settled alone = settled(1);
  EXPECT_EQ(alone.winner->candidate.family, "vendor");
  EXPECT_EQ(alone.verdict, Verdict::undecided);
  EXPECT_THAT(alone.doubt, HasSubstr("after 1 kernel"));
  const Settled among_all = settled(1000);
  EXPECT_EQ(among_all.winner->candidate.family, "vendor");
  EXPECT_EQ(among_all.verdict, Verdict::keep_default);
  EXPECT_EQ(among_all.doubt, "");
}

TEST_F(Tuner, AGenerousBudgetTunesEverything) {
  request_.budget_seconds = 1000;
  ask({problem_of(8), problem_of(16)});
  for (const ItemReport& report : run().items) {
    EXPECT_EQ(report.state, ProblemState::tuned);
    EXPECT_EQ(report.row()->kernel_name, "tiled_r1_kc128_sk2");
  }
}

TEST_F(Tuner, PackedProblemsOfOneWeightShareTheLayoutOfTheSmallestSum) {
  evaluator_.time = [](const Problem& problem, const Candidate& candidate) {
    const double panel = problem.m == 1 ? 10.0 : 400.0;
    const double vendor = problem.m == 1 ? 20.0 : 300.0;
    return candidate.family == "vendor" ? vendor : panel + static_cast<double>(candidate.config.number("sk"));
  };
  ask({packed_of(1), problem_of(1), packed_of(128)});
  request_.shapes[0].calls = 100;  // 100 · 9 µs saved against 101 µs lost
  RunSummary summary = run();
  EXPECT_EQ(summary.items[0].row()->libtype, "tiled");
  EXPECT_EQ(summary.items[2].row()->libtype, "tiled");
  EXPECT_EQ(summary.items[2].row()->problem.weight_layout, WeightLayout::panel16);
  EXPECT_EQ(summary.items[2].row()->verdict, Verdict::undecided);
  EXPECT_NEAR(*summary.items[2].row()->speedup, 300.0 / 401, 0.01) << "honest about the price";
  EXPECT_EQ(summary.items[2].row()->default_kernel, "vendor_r1");
  EXPECT_EQ(published().size(), 3U);

  request_.all = true;
  request_.shapes[0].calls = 1;
  summary = run();
  EXPECT_EQ(summary.items[0].row()->libtype, "vendor");
  EXPECT_EQ(summary.items[2].row()->libtype, "vendor");
  EXPECT_EQ(published().size(), 3U);
}

TEST_F(Tuner, AWeightWhoseLayoutIsDecidedKeepsIt) {
  times_["vendor_r1"] = 10;
  ask({packed_of(1)});
  EXPECT_EQ(run().items[0].row()->libtype, "vendor");
  times_["vendor_r1"] = 1000;
  ask({packed_of(1), packed_of(128)});
  const RunSummary summary = run();
  EXPECT_EQ(summary.items[0].state, ProblemState::skipped_done);
  EXPECT_EQ(summary.items[1].row()->libtype, "vendor") << "one copy of the weight serves both";
}

/// Runs the tuning in a child whose evaluator ends the process at the `step`-th question. False: it finished.
bool run_and_die(Device& device, testing::FakeEvaluator& evaluator, const TuneRequest& request, int step) {
  const pid_t child = fork();
  if (child == 0) {
    int questions = 0;
    evaluator.before = [&](const Problem&) {
      if (++questions == step) _exit(42);
    };
    SilentObserver observer;
    const bool ok = tune(device, evaluator, request, observer).ok();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 1);
  return WEXITSTATUS(status) == 42;
}

TEST_F(Tuner, ARunThatDiesAnywhereLeavesAReadableFileAndTheNextGoesOn) {
  ask({problem_of(8), problem_of(16), problem_of(32)});
  bool died = true;
  std::size_t most = 0;
  for (int step = 1; died; step += 3) {
    std::filesystem::remove(request_.output);
    died = run_and_die(device_, evaluator_, request_, step);
    if (file_exists(request_.output)) {
      const auto rows = published();
      most = std::max(most, rows.size());
      for (const TunedEntry& row : rows) EXPECT_EQ(row.kernel_name, "tiled_r1_kc128_sk2");
    }
    if (step != 40) continue;
    const RunSummary summary = run();
    for (const ItemReport& report : summary.items) EXPECT_NE(report.state, ProblemState::failed);
    EXPECT_EQ(published().size(), 3U);
  }
  EXPECT_EQ(most, 3U);
}

}  // namespace
}  // namespace gemmtune::tuner_test
