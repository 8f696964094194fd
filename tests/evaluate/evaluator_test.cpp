#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/file_lock.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/in_process/memory_need.h"
#include "evaluate/in_process/weight_pools.h"
#include "measure/statistics.h"
#include "problem/operands.h"
#include "select/choose.h"
#include "support/elements.h"
#include "support/fake_device.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::Each;
using testing::FakeCost;
using testing::FakeDevice;
using ::testing::HasSubstr;
using testing::right_gemm;

FakeCost constant(double microseconds) {
  return [=](const Problem&, Random&, double) { return microseconds; };
}

FakeCost noisy(double microseconds, double share) {
  return [=](const Problem&, Random& noise, double) {
    return microseconds * (1 + share * (noise.uniform() - 0.5));
  };
}

Problem small_problem() {
  Problem problem;
  problem.m = 3;
  problem.n = 48;
  problem.k = 40;
  return problem;
}

class Evaluating : public ::testing::Test {
 protected:
  Outcome screen(const Candidate& candidate, int samples = 3) {
    const auto outcomes = evaluator.screen(problem, std::vector{candidate}, samples, {});
    EXPECT_TRUE(outcomes.ok()) << outcomes.message();
    return outcomes.ok() ? outcomes->at(0) : Outcome{};
  }

  FakeDevice device;
  InProcessOptions options;
  Problem problem = small_problem();
  InProcessEvaluator evaluator{device, options};
};

TEST_F(Evaluating, screening_gives_samples_in_order) {
  const Candidate a = device.add({.name = "a", .cost = constant(50)});
  const Candidate b = device.add({.name = "b", .cost = constant(70)});
  const auto outcomes = evaluator.screen(problem, std::vector{a, b}, 4, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  ASSERT_EQ(outcomes->size(), 2U);
  EXPECT_THAT((*outcomes)[0].microseconds, ::testing::ElementsAre(50, 50, 50, 50));
  EXPECT_THAT((*outcomes)[1].microseconds, ::testing::ElementsAre(70, 70, 70, 70));
  EXPECT_EQ((*outcomes)[0].err_ratio, 0);
}

TEST(EvaluatorPauses, come_between_pieces_of_work_while_no_lock_is_held) {
  FakeDevice device;
  const std::vector candidates{device.add({.name = "a", .cost = constant(50)}),
                               device.add({.name = "b", .cost = constant(70)})};
  std::string pattern = ::testing::TempDir() + "gemmtune_pauses_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  InProcessOptions options;
  options.timing_lock = folder + "/timing.lock";
  int pauses = 0;
  int held = 0;
  options.on_pause = [&] {
    ++pauses;
    const auto lock = FileLock::try_acquire(options.timing_lock);
    held += lock.ok() && lock->has_value() ? 0 : 1;
  };
  InProcessEvaluator evaluator(device, options);
  int before = 0;
  const auto since = [&] { return pauses - std::exchange(before, pauses); };
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates, 2, {}).ok());
  EXPECT_GE(since(), 5);  // the problem; each candidate before it is verified and before it is timed
  ASSERT_TRUE(evaluator.finals(small_problem(), candidates, 4).ok());
  EXPECT_GE(since(), 4 + 2);  // each round, and verification
  EXPECT_EQ(evaluator.check_neighbour_m(small_problem(), candidates[0], 2).kind, OutcomeKind::ok);
  EXPECT_GE(since(), 3);
  EXPECT_EQ(held, 0);
  std::filesystem::remove_all(folder);
}

TEST_F(Evaluating, a_sample_lasts_long_enough_within_iterations) {
  const Candidate slow = device.add({.name = "slow", .cost = constant(400)});
  const Candidate quick = device.add({.name = "quick", .cost = constant(1)});
  screen(slow, 1);
  EXPECT_EQ(device.launches["slow"], 1 + options.policy.warmup + 8);  // 3000 us of 400 us each
  screen(quick, 1);
  EXPECT_EQ(device.launches["quick"], 1 + options.policy.warmup + options.policy.iterations);
}

// The machine becomes slower from sample to sample: measured one after the other, the last would look
// slowest.
TEST_F(Evaluating, screened_candidates_are_compared_by_the_drift_reference_of_their_pool) {
  device.single_calls = true;
  const auto drifting = [](double least) {
    return [least](const Problem&, Random&, double now) { return least * (1 + now * 1e-5); };
  };
  const Candidate a = device.add({.name = "a", .cost = drifting(50)});
  const Candidate b = device.add({.name = "b", .cost = drifting(40)});
  const Candidate other = device.add({.name = "other", .cost = constant(45), .thread_pool = "openmp"});
  const double first = median(screen(a).microseconds);
  EXPECT_NEAR(median(screen(b).microseconds) / first, 0.8, 0.01);
  EXPECT_NEAR(median(screen(a).microseconds) / first, 1, 0.01);
  EXPECT_EQ(median(screen(other).microseconds), 45) << "another pool has its own drift reference";
}

TEST_F(Evaluating, a_drift_reference_that_fails_is_replaced) {
  device.single_calls = true;
  int calls = 0;
  const Candidate first = device.add({.name = "first", .cost = [&calls](const Problem&, Random&, double) {
                                        return ++calls > 60 ? 0.0 : 500.0;  // no time from some call on
                                      }});
  const Candidate next = device.add({.name = "next", .cost = constant(400)});
  EXPECT_EQ(screen(first, 1).kind, OutcomeKind::ok);
  calls = 1000;
  EXPECT_EQ(screen(next, 1).microseconds, std::vector<double>{400}) << "its own sample stands";
  EXPECT_EQ(screen(next, 2).microseconds, (std::vector<double>{400, 400}));
}

TEST_F(Evaluating, a_long_call_that_loses_clearly_is_its_only_sample) {
  device.single_calls = true;
  const Candidate fast = device.add({.name = "fast", .cost = constant(50000)});
  const Candidate close = device.add({.name = "close", .cost = constant(100000)});
  const Candidate loser = device.add({.name = "loser", .cost = constant(150000)});
  screen(fast, 1);
  EXPECT_EQ(screen(close, 3).microseconds.size(), 3U);
  const Outcome outcome = screen(loser, 3);
  EXPECT_EQ(outcome.kind, OutcomeKind::ok) << "it teaches the search";
  EXPECT_EQ(outcome.microseconds, std::vector<double>{150000});
  EXPECT_EQ(device.launches["loser"], 1);
}

TEST_F(Evaluating, stop_ends_screening_between_candidates) {
  const Candidate a = device.add({.name = "a"});
  const Candidate b = device.add({.name = "b"});
  int asked = 0;
  const auto outcomes = evaluator.screen(problem, std::vector{a, b}, 1, [&] { return ++asked > 1; });
  ASSERT_TRUE(outcomes.ok());
  EXPECT_EQ(outcomes->size(), 1U);
}

TEST_F(Evaluating, screening_again_neither_builds_nor_checks_again) {
  int runs = 0;
  const Candidate a = device.add({.name = "a", .run = [&](const Problem& p, const Operands& o, void* w) {
                                    ++runs;
                                    right_gemm(p, o, w);
                                  }});
  screen(a);
  const int runs_before = runs;
  EXPECT_EQ(screen(a, 5).microseconds.size(), 5U);
  EXPECT_EQ(runs, runs_before);
  EXPECT_EQ(device.builds, 1);
}

TEST_F(Evaluating, every_failure_has_its_kind_and_reason) {
  Candidate unknown;
  unknown.family = "nobody";
  EXPECT_EQ(screen(unknown).kind, OutcomeKind::refused);
  EXPECT_THAT(screen(unknown).reason, HasSubstr("nobody"));

  Candidate old = device.add({.name = "old"});
  old.revision = 7;
  EXPECT_EQ(screen(old).kind, OutcomeKind::refused);

  const Candidate picky = device.add(
      {.name = "picky", .accepts = [](const Problem&) { return Status::unsupported("K is odd"); }});
  EXPECT_EQ(screen(picky).kind, OutcomeKind::refused);
  EXPECT_EQ(screen(picky).reason, "picky: K is odd");

  const Candidate unbuilt =
      device.add({.name = "unbuilt", .build_status = Status::internal("compiler error")});
  EXPECT_EQ(screen(unbuilt).kind, OutcomeKind::build_failed);
  EXPECT_EQ(screen(unbuilt).reason, "compiler error");

  const Candidate unrun = device.add({.name = "unrun", .run_status = Status::internal("no such function")});
  EXPECT_EQ(screen(unrun).kind, OutcomeKind::launch_failed);
  EXPECT_EQ(screen(unrun).reason, "no such function");

  const Candidate hungry = device.add({.name = "hungry", .workspace_bytes = std::size_t{1} << 40});
  EXPECT_EQ(screen(hungry).kind, OutcomeKind::refused);
  EXPECT_THAT(screen(hungry).reason, HasSubstr("bytes asked"));

  const Candidate timeless = device.add({.name = "timeless", .cost = constant(0)});
  EXPECT_EQ(screen(timeless).kind, OutcomeKind::launch_failed);
}

TEST_F(Evaluating, a_hopelessly_slow_candidate_is_given_up_early) {
  const Candidate quick = device.add({.name = "quick", .cost = constant(10)});
  const Candidate slow = device.add({.name = "slow", .cost = constant(1000)});
  EXPECT_EQ(screen(slow).kind, OutcomeKind::ok) << "nothing to compare it with yet";
  const Candidate slower = device.add({.name = "slower", .cost = constant(2000)});
  screen(quick);
  const Outcome outcome = screen(slower);
  EXPECT_EQ(outcome.kind, OutcomeKind::too_slow);
  EXPECT_FALSE(outcome.reason.empty());
  EXPECT_EQ(device.launches["slower"], 3);
  EXPECT_EQ(screen(slower).kind, OutcomeKind::too_slow);
  EXPECT_EQ(device.launches["slower"], 3);
}

TEST_F(Evaluating, the_default_is_never_too_slow) {
  const Candidate quick = device.add({.name = "quick", .cost = constant(10)});
  const Candidate vendor = device.add({.name = "vendor", .cost = constant(2000)});
  device.set_baseline(vendor);
  InProcessEvaluator fresh(device, options);
  const auto outcomes = fresh.screen(problem, std::vector{quick, vendor}, 3, {});
  ASSERT_TRUE(outcomes.ok());
  EXPECT_EQ(outcomes->at(1).kind, OutcomeKind::ok) << outcomes->at(1).reason;
  EXPECT_EQ(outcomes->at(1).microseconds.size(), 3U);
}

// Another problem was measured between, so the kernel is built anew, on a machine that is busy now.
TEST_F(Evaluating, a_kernel_that_was_timed_is_not_too_slow_later) {
  auto busy = std::make_shared<bool>(false);
  const Candidate quick = device.add({.name = "quick", .cost = constant(10)});
  const Candidate other = device.add(
      {.name = "other", .cost = [busy](const Problem&, Random&, double) { return *busy ? 2000.0 : 20.0; }});
  EXPECT_EQ(screen(other).kind, OutcomeKind::ok);
  Problem between = problem;
  between.m = 5;
  ASSERT_TRUE(evaluator.screen(between, std::vector{quick}, 1, {}).ok());
  *busy = true;
  screen(quick);
  EXPECT_EQ(screen(other).kind, OutcomeKind::ok);
}

TEST_F(Evaluating, finals_measure_what_screening_gave_up_on) {
  const Candidate quick = device.add({.name = "quick", .cost = constant(10)});
  auto busy = std::make_shared<bool>(true);
  const Candidate slower = device.add(
      {.name = "slower", .cost = [busy](const Problem&, Random&, double) { return *busy ? 2000.0 : 12.0; }});
  screen(quick);
  ASSERT_EQ(screen(slower).kind, OutcomeKind::too_slow);
  *busy = false;
  const auto rounds = evaluator.finals(problem, std::vector{quick, slower}, 3);
  ASSERT_TRUE(rounds.ok()) << rounds.message();
  EXPECT_EQ(rounds->outcomes[1].kind, OutcomeKind::ok) << rounds->outcomes[1].reason;
  EXPECT_EQ(rounds->times[0][1], 12);
}

TEST_F(Evaluating, a_sample_three_times_off_the_one_before_is_taken_again) {
  auto calls = std::make_shared<int>(0);
  const Candidate disturbed =
      device.add({.name = "disturbed", .cost = [calls](const Problem&, Random&, double) {
                    // One probe, a warm-up, then a sample a call.
                    return ++*calls == 4 ? 3500.0 : 350.0;
                  }});
  EXPECT_THAT(screen(disturbed).microseconds, ::testing::ElementsAre(350, 350, 350));
  *calls = 0;
  const Candidate first = device.add({.name = "first", .cost = [calls](const Problem&, Random&, double) {
                                        return ++*calls == 3 ? 35.0 : 350.0;
                                      }});
  EXPECT_THAT(screen(first).microseconds, ::testing::ElementsAre(350, 350, 350)) << "the first one was off";
}

TEST_F(Evaluating, a_sample_that_the_machine_cannot_reach_is_taken_again) {
  problem.m = 1;
  problem.n = 1024;
  problem.k = 512;  // a weight of 1 MiB
  device.reading_microseconds = 100;
  auto calls = std::make_shared<int>(0);
  const Candidate candidate = device.add({.name = "a", .cost = [calls](const Problem&, Random&, double) {
                                            return ++*calls == 3 || *calls == 4 ? 49.0 : 120.0;
                                          }});
  EXPECT_THAT(screen(candidate, 2).microseconds, ::testing::ElementsAre(120, 120));
  const auto rounds = evaluator.finals(problem, std::vector{candidate}, 1);
  ASSERT_TRUE(rounds.ok());
  EXPECT_EQ(rounds->roof_microseconds, 100);
}

TEST_F(Evaluating, what_the_machine_can_reach_is_known_on_an_openmp_team) {
  problem.m = 1;
  problem.n = 1024;
  problem.k = 512;
  device.reading_microseconds = 100;
  device.change_info().team = "openmp";
  const Candidate candidate = device.add({.name = "a", .cost = constant(120), .thread_pool = "openmp"});
  screen(candidate, 1);
  EXPECT_EQ(evaluator.finals(problem, std::vector{candidate}, 1)->roof_microseconds, 100);
}

TEST_F(Evaluating, a_slow_first_call_alone_is_forgiven) {
  const Candidate quick = device.add({.name = "quick", .cost = constant(10)});
  auto first = std::make_shared<bool>(true);
  const Candidate sleepy = device.add({.name = "sleepy", .cost = [first](const Problem&, Random&, double) {
                                         return std::exchange(*first, false) ? 5000.0 : 9.0;
                                       }});
  screen(quick);
  EXPECT_EQ(screen(sleepy).kind, OutcomeKind::ok);
}

TEST_F(Evaluating, weights_rotate_over_twice_the_cache) {
  const Candidate a = device.add({.name = "a", .cost = constant(350)});
  screen(a, 20);
  const auto pool = evaluator.pool();
  EXPECT_EQ(pool.copies, pool.wanted_copies);
  EXPECT_GE(pool.copies * static_cast<std::size_t>(weight_bytes(problem)), 2 * device.cache_bytes);
  const std::set<const void*> weights(device.sampled_weights.begin(), device.sampled_weights.end());
  EXPECT_GE(weights.size(), 15U) << "samples begin at different copies";
}

TEST_F(Evaluating, the_pool_keeps_to_the_memory_limit) {
  InProcessOptions small = options;
  small.policy.pool_limit_bytes = 20000;
  InProcessEvaluator bounded(device, small);
  const Candidate a = device.add({.name = "a"});
  ASSERT_TRUE(bounded.screen(problem, std::vector{a}, 1, {}).ok());
  EXPECT_LE(bounded.pool().bytes, 20000U);
  EXPECT_GT(bounded.pool().wanted_copies, bounded.pool().copies);
  EXPECT_GE(bounded.pool().copies, 1U);
}

TEST_F(Evaluating, warm_weights_do_not_rotate) {
  InProcessOptions warm = options;
  warm.policy.cache = CacheMode::warm;
  InProcessEvaluator evaluating(device, warm);
  const Candidate a = device.add({.name = "a"});
  ASSERT_TRUE(evaluating.screen(problem, std::vector{a}, 5, {}).ok());
  EXPECT_THAT(device.sampled_weights, Each(device.sampled_weights.front()));
  EXPECT_EQ(evaluating.pool().copies, 1U);
}

TEST_F(Evaluating, pools_may_have_a_size_of_their_own) {
  InProcessOptions rotating = options;
  rotating.policy.rotating_mb = 1;
  InProcessEvaluator evaluating(device, rotating);
  const Candidate a = device.add({.name = "a"});
  ASSERT_TRUE(evaluating.screen(problem, std::vector{a}, 1, {}).ok());
  const auto wanted = (std::size_t{1} << 20) / static_cast<std::size_t>(weight_bytes(problem));
  EXPECT_GE(evaluating.pool().wanted_copies, wanted);
  EXPECT_LE(evaluating.pool().wanted_copies, wanted + 1);
}

// Zeros hide errors: finalists meet random numbers whatever the timed operands hold.
TEST_F(Evaluating, finalists_are_verified_on_random_numbers_with_any_init_type) {
  for (const InitType init : {InitType::hpl, InitType::trig_float, InitType::zeros}) {
    InProcessOptions other = options;
    other.policy.init = init;
    InProcessEvaluator evaluating(device, other);
    bool saw_zeros = false;
    const Candidate right = device.add({.name = fmt::format("right_{}", to_string(init)),
                                        .run = [&](const Problem& p, const Operands& o, void* w) {
                                          const auto* x = static_cast<const std::uint16_t*>(o.x);
                                          saw_zeros |= x[0] == 0 && x[1] == 0;
                                          right_gemm(p, o, w);
                                        }});
    const Candidate zero = device.add({.name = fmt::format("zero_{}", to_string(init)),
                                       .run = [](const Problem& p, const Operands& o, void*) {
                                         auto* const y = static_cast<std::uint16_t*>(o.y);
                                         for (std::int64_t row = 0; row < p.m; ++row)
                                           std::fill_n(y + row * o.ldy, p.n, std::uint16_t{0});
                                       }});
    const auto screened = evaluating.screen(problem, std::vector{right, zero}, 1, {});
    ASSERT_TRUE(screened.ok());
    EXPECT_EQ((*screened)[0].kind, OutcomeKind::ok) << to_string(init) << ": " << (*screened)[0].reason;
    EXPECT_EQ((*screened)[1].kind == OutcomeKind::ok, init == InitType::zeros) << to_string(init);
    EXPECT_EQ(saw_zeros, init == InitType::zeros);
    const auto finals = evaluating.finals(problem, std::vector{right, zero}, 2);
    ASSERT_TRUE(finals.ok());
    EXPECT_EQ(finals->outcomes[0].kind, OutcomeKind::ok)
        << to_string(init) << ": " << finals->outcomes[0].reason;
    EXPECT_EQ(finals->outcomes[1].kind, OutcomeKind::wrong) << to_string(init);
  }
}

TEST_F(Evaluating, cold_activations_work_too) {
  InProcessOptions cold = options;
  cold.policy.cache = CacheMode::cold;
  InProcessEvaluator evaluating(device, cold);
  const Candidate a = device.add({.name = "a"});
  const auto outcomes = evaluating.screen(problem, std::vector{a}, 2, {});
  ASSERT_TRUE(outcomes.ok());
  EXPECT_EQ((*outcomes)[0].kind, OutcomeKind::ok);
}

TEST_F(Evaluating, packed_weights_are_checked_and_timed) {
  const Candidate a = device.add({.name = "a", .layout = WeightLayout::panel16});
  problem.weight_layout = WeightLayout::any;
  EXPECT_EQ(screen(a).kind, OutcomeKind::ok) << screen(a).reason;
  const auto result = evaluator.finals(problem, std::vector{a}, 3);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(result->outcomes[0].kind, OutcomeKind::ok) << result->outcomes[0].reason;
  EXPECT_EQ(result->times.size(), 3U);
  // Placed anew in a further call, and still right.
  EXPECT_TRUE(evaluator.finals(problem, std::vector{a}, 3).ok());
}

// It once counted the second weight into the first one's size, and read past the first one's end.
TEST_F(Evaluating, the_pool_of_a_mixture_holds_each_weight_once) {
  problem = default_problem(Operation::fused_moe);
  problem.m = 4;
  problem.n = 64;
  problem.k = 64;
  problem.moe.experts = 8;
  problem.moe.topk = 2;
  problem.moe.gated = true;
  const OperandShapes shapes = operand_shapes(problem);
  const auto first = static_cast<std::size_t>(shapes.w.bytes());
  const auto both = static_cast<std::size_t>(shapes.w.bytes() + shapes.w2.bytes() + shapes.w.scale_bytes() +
                                             shapes.w2.scale_bytes());
  auto operands = DeviceOperands::make(device, problem, Placement::plain);
  ASSERT_TRUE(operands.ok()) << operands.message();
  WeightPools pools(device, problem, {});
  const auto rotation = pools.rotation(WeightLayout::plain, RoutingKind::uniform, *operands);
  ASSERT_TRUE(rotation.ok()) << rotation.message();
  EXPECT_GE(pools.largest().stride_bytes, both);
  EXPECT_LT(pools.largest().stride_bytes, both + first / 4) << "nothing is there twice";
  for (const Operands& copy : (*rotation)->operands) {
    const auto apart = static_cast<const char*>(copy.w2) - static_cast<const char*>(copy.w);
    EXPECT_GE(apart, static_cast<std::ptrdiff_t>(first));
  }
}

// With one set of routes the weights of the few experts of a call would stay in the cache.
TEST_F(Evaluating, calls_of_a_mixture_go_to_other_experts) {
  problem = default_problem(Operation::fused_moe);
  problem.m = 1;
  problem.n = 64;
  problem.k = 64;
  problem.moe.experts = 64;
  problem.moe.topk = 2;
  const auto expert_bytes = static_cast<std::size_t>(weight_bytes(problem)) / 64;
  device.cache_bytes = 5 * expert_bytes;
  auto operands = DeviceOperands::make(device, problem, Placement::plain);
  ASSERT_TRUE(operands.ok()) << operands.message();
  WeightPools pools(device, problem, {});
  const auto uniform = pools.rotation(WeightLayout::plain, RoutingKind::uniform, *operands);
  const auto zipf = pools.rotation(WeightLayout::plain, RoutingKind::zipf, *operands);
  ASSERT_TRUE(uniform.ok() && zipf.ok());
  // Ten experts are twice the cache, and a call reads two: six calls.
  ASSERT_EQ((*uniform)->operands.size(), 6U);
  std::set<std::int32_t> experts;
  for (const Operands& call : (*uniform)->operands) experts.insert(call.topk_ids, call.topk_ids + 2);
  EXPECT_GT(experts.size(), 6U);
  EXPECT_EQ((*uniform)->operands[0].w, (*uniform)->operands[1].w) << "the weights are there once";
  const Routes first = routes_of_call(problem, Policy().seed, {}, 0);
  EXPECT_TRUE(std::equal(first.ids.begin(), first.ids.end(), (*uniform)->operands[0].topk_ids))
      << "as verified";
  EXPECT_NE((*zipf)->operands[0].topk_ids, (*uniform)->operands[0].topk_ids);
  EXPECT_EQ(*pools.rotation(WeightLayout::plain, RoutingKind::zipf, *operands), *zipf);
  // Where a call reads enough there is one.
  problem.m = 64;
  operands = DeviceOperands::make(device, problem, Placement::plain);
  WeightPools large(device, problem, {});
  EXPECT_EQ((*large.rotation(WeightLayout::plain, RoutingKind::uniform, *operands))->operands.size(), 1U);
}

TEST_F(Evaluating, memory_that_is_not_there_is_an_error_of_the_problem) {
  const Candidate a = device.add({.name = "a"});
  device.free_bytes = 4096;
  const auto outcomes = evaluator.screen(problem, std::vector{a}, 1, {});
  EXPECT_EQ(outcomes.code(), StatusCode::out_of_memory);
}

TEST_F(Evaluating, a_problem_that_cannot_fit_is_refused_before_anything_is_allocated) {
  const Candidate a = device.add({.name = "a"});
  problem.m = 10'000'000;
  problem.n = 1'000'000;
  problem.k = 64;
  const auto outcomes = evaluator.screen(problem, std::vector{a}, 1, {});
  EXPECT_EQ(outcomes.code(), StatusCode::out_of_memory);
  EXPECT_THAT(outcomes.message(), ::testing::ContainsRegex("at least [0-9.]+ TiB .* 1.0 GiB are available"));
  EXPECT_EQ(evaluator.check_neighbour_m(problem, a, problem.m).kind, OutcomeKind::refused);
  EXPECT_EQ(device.max_live_bytes, 0U);
}

TEST(MemoryNeed, HoldsTheOperandsOfLegalProblemsOfAnySize) {
  Problem dense;
  dense.m = max_dimension;
  dense.n = 1 << 15;
  dense.k = 1;
  Problem mixture = default_problem(Operation::fused_moe);
  mixture.m = mixture.n = 1 << 22;
  mixture.k = 1;
  mixture.moe.experts = mixture.moe.topk = 1 << 22;
  Problem batched = default_problem(Operation::batched_bf16);
  batched.batch = 1 << 30;
  batched.m = batched.n = 1 << 8;
  batched.k = 1;
  for (const Problem& problem : {dense, mixture, batched}) {
    ASSERT_TRUE(check(problem).ok()) << check(problem).message();
    const OperandShapes shapes = operand_shapes(problem);
    const std::int64_t least = shapes.x.bytes() + shapes.w.bytes() + shapes.w2.bytes() + shapes.y.bytes();
    const MemoryNeed need = memory_need(problem, CacheMode::cold, true);
    EXPECT_GT(need.device, 2 * least) << print(problem);
    EXPECT_GT(need.host, least) << print(problem);
  }
}

TEST_F(Evaluating, another_problem_frees_the_first) {
  const Candidate a = device.add({.name = "a"});
  screen(a);
  problem.n = 16;
  screen(a);
  const std::size_t one = device.live_bytes;
  problem.n = 48;
  screen(a);
  problem.n = 16;
  screen(a);
  EXPECT_EQ(device.live_bytes, one);
}

TEST_F(Evaluating, finals_interleave_and_measure_the_first_one_twice) {
  const Candidate a = device.add({.name = "a", .cost = noisy(100, 0.02)});
  const Candidate b = device.add({.name = "b", .cost = noisy(90, 0.02)});
  const auto result = evaluator.finals(problem, std::vector{a, b}, 20);
  ASSERT_TRUE(result.ok()) << result.message();
  ASSERT_EQ(result->times.size(), 20U);
  EXPECT_THAT(result->times, Each(::testing::SizeIs(2)));
  EXPECT_EQ(result->outcomes[0].microseconds.size(), 20U);
  EXPECT_EQ(result->same_ratios.size(), 20U);
  EXPECT_GT(noise_floor(result->same_ratios), 0);
  EXPECT_LT(noise_floor(result->same_ratios), 0.03);
  EXPECT_NEAR(median(result->outcomes[1].microseconds), 90, 2);
}

/// Every launch takes three times as long while `busy` says so.
FakeCost disturbed(double microseconds, std::function<bool(double now)> busy) {
  return [=](const Problem&, Random& noise, double now) {
    return microseconds * (1 + 0.01 * (noise.uniform() - 0.5)) * (busy(now) ? 3 : 1);
  };
}

TEST_F(Evaluating, disturbed_rounds_are_repeated) {
  // One round is 3 samples of at least 2 ms: a neighbour is busy for two or three rounds of each fifteen.
  const auto busy = [](double now) { return std::fmod(now, 100'000) < 15'000; };
  const Candidate a = device.add({.name = "a", .cost = disturbed(100, busy)});
  const Candidate b = device.add({.name = "b", .cost = disturbed(90, busy)});
  const auto result = evaluator.finals(problem, std::vector{a, b}, 20);
  ASSERT_TRUE(result.ok()) << result.message();
  ASSERT_EQ(result->times.size(), 20U);
  EXPECT_GE(result->quietness.repeated, 1);
  EXPECT_LE(result->quietness.repeated, 8);
  EXPECT_EQ(result->quietness.disturbed, 0);
  EXPECT_EQ(result->quietness.rounds, 20);
  const auto slow = std::count_if(result->times.begin(), result->times.end(),
                                  [](const auto& times) { return times[0] > 150 || times[1] > 150; });
  EXPECT_LE(slow, 3) << "a round that was disturbed in part may stay";
}

TEST_F(Evaluating, a_machine_that_stays_busy_is_marked_and_not_waited_for) {
  // Two rounds in three are disturbed: twice as many rounds as wanted hold too few quiet ones.
  const auto busy = [](double now) { return std::fmod(now, 240'000) > 36'000; };
  const Candidate a = device.add({.name = "a", .cost = disturbed(100, busy)});
  const Candidate b = device.add({.name = "b", .cost = disturbed(90, busy)});
  const auto result = evaluator.finals(problem, std::vector{a, b}, 20);
  ASSERT_TRUE(result.ok()) << result.message();
  ASSERT_EQ(result->times.size(), 20U);
  EXPECT_EQ(result->quietness.repeated, 20) << "each round once more at most";
  EXPECT_GT(result->quietness.disturbed, 0);
  EXPECT_EQ(result->same_ratios.size(), 20U);
}

TEST_F(Evaluating, finals_drop_a_wrong_candidate) {
  const Candidate a = device.add({.name = "a", .run = [](const Problem&, const Operands&, void*) {}});
  const Candidate b = device.add({.name = "b"});
  const auto result = evaluator.finals(problem, std::vector{a, b}, 4);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->outcomes[0].kind, OutcomeKind::wrong);
  EXPECT_EQ(result->outcomes[1].kind, OutcomeKind::ok);
  for (const auto& times : result->times) {
    EXPECT_TRUE(std::isnan(times[0]));
    EXPECT_EQ(times[1], 100);
  }
  EXPECT_EQ(result->same_ratios.size(), 4U);
}

TEST_F(Evaluating, the_full_check_runs_once_per_candidate) {
  int runs = 0;
  const Candidate a = device.add({.name = "a", .run = [&](const Problem& p, const Operands& o, void* w) {
                                    ++runs;
                                    right_gemm(p, o, w);
                                  }});
  ASSERT_TRUE(evaluator.finals(problem, std::vector{a}, 2).ok());
  const int after_first = runs;
  ASSERT_TRUE(evaluator.finals(problem, std::vector{a}, 2).ok());
  EXPECT_EQ(runs, after_first);
}

TEST_F(Evaluating, thread_pools_are_quiesced_once_per_change) {
  const Candidate a = device.add({.name = "a", .thread_pool = "own"});
  const Candidate b = device.add({.name = "b", .thread_pool = "openmp"});
  const Candidate c = device.add({.name = "c", .thread_pool = "own"});
  ASSERT_TRUE(evaluator.finals(problem, std::vector{a, b, c}, 10).ok());
  EXPECT_LE(device.quiesced.size(), 20U);
  EXPECT_GE(device.quiesced.size(), 11U) << "every round changes the pool";
  for (std::size_t i = 1; i < device.quiesced.size(); ++i)
    EXPECT_NE(device.quiesced[i], device.quiesced[i - 1]);
}

TEST_F(Evaluating, the_order_of_a_round_varies) {
  const auto order = std::make_shared<std::string>();
  const auto noting = [order](char name) {
    return [order, name](const Problem&, Random&, double) {
      *order += name;
      return 5000.0;  // a sample of one launch
    };
  };
  const Candidate a = device.add({.name = "a", .cost = noting('a')});
  const Candidate b = device.add({.name = "b", .cost = noting('b')});
  const Candidate c = device.add({.name = "c", .cost = noting('c')});
  ASSERT_TRUE(evaluator.finals(problem, std::vector{a, b, c}, 30).ok());
  std::set<std::string> rounds;
  const std::string measured = order->substr(order->size() - 120);
  for (std::size_t at = 0; at < measured.size(); at += 4) {
    std::string round = measured.substr(at, 4);
    rounds.insert(round);
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round, "aabc") << "each once, the first one twice";
  }
  EXPECT_GE(rounds.size(), 6U);
}

TEST_F(Evaluating, chooser_and_evaluator_find_the_fastest) {
  const Candidate base = device.add({.name = "base", .cost = noisy(100, 0.05)});
  const Candidate better = device.add({.name = "better", .cost = noisy(80, 0.05)});
  const Candidate close = device.add({.name = "close", .cost = noisy(97, 0.05)});
  const std::vector<Candidate> candidates = {base, better, close};
  Chooser chooser({{"base", 0, 0}, {"better", 1, 0}, {"close", 1, 0}}, 0, options.policy);
  for (FinalsPlan plan = chooser.next(); plan.rounds > 0; plan = chooser.next()) {
    std::vector<Candidate> chosen;
    for (const std::size_t index : plan.candidates) chosen.push_back(candidates[index]);
    const auto result = evaluator.finals(problem, chosen, plan.rounds);
    ASSERT_TRUE(result.ok()) << result.message();
    chooser.add(plan, *result);
  }
  EXPECT_EQ(chooser.decision().winner, 1U);
  EXPECT_EQ(chooser.decision().verdict, Verdict::win);
  EXPECT_NEAR(*chooser.decision().speedup, 1.25, 0.02);
}

TEST_F(Evaluating, energy_batches_of_right_kernels_in_rounds) {
  const Candidate hot = device.add({.name = "hot", .cost = constant(40), .watts = 500});
  const Candidate cool = device.add({.name = "cool", .cost = constant(50), .watts = 200});
  const Candidate wrong = device.add({.name = "wrong", .run = [](const Problem&, const Operands&, void*) {}});
  const auto result = evaluator.energy(problem, std::vector{hot, wrong, cool}, 4);
  ASSERT_TRUE(result.ok()) << result.message();
  ASSERT_EQ(result->joules.size(), 4U);
  for (std::size_t round = 0; round < 4; ++round) {
    EXPECT_DOUBLE_EQ(result->joules[round][0], 0.02);
    EXPECT_TRUE(std::isnan(result->joules[round][1]));
    EXPECT_DOUBLE_EQ(result->joules[round][2], 0.01);
    EXPECT_DOUBLE_EQ(result->times[round][2], 50);
    // Each once a round.
    EXPECT_NE(device.energy_batches[2 * round], device.energy_batches[2 * round + 1]);
  }
  EXPECT_EQ(device.energy_batches.size(), 8U);
  EXPECT_GE(device.now_microseconds, 8e6) << "a second each at least";
  EXPECT_EQ(result->outcomes[1].kind, OutcomeKind::wrong);
  device.energy_status = Status::unsupported("no counter here");
  EXPECT_THAT(evaluator.energy(problem, std::vector{hot}, 1).message(), HasSubstr("no counter here"));
}

TEST_F(Evaluating, neighbouring_m_is_checked_for_that_m) {
  // Right for multiples of three rows only.
  const Candidate a = device.add({.name = "a", .run = [](const Problem& p, const Operands& o, void* w) {
                                    Problem part = p;
                                    part.m = p.m / 3 * 3;
                                    right_gemm(part, o, w);
                                  }});
  EXPECT_EQ(screen(a).kind, OutcomeKind::ok);
  EXPECT_EQ(evaluator.check_neighbour_m(problem, a, 2).kind, OutcomeKind::wrong);
  EXPECT_EQ(evaluator.check_neighbour_m(problem, a, 6).kind, OutcomeKind::ok);
  Candidate unknown;
  unknown.family = "nobody";
  EXPECT_EQ(evaluator.check_neighbour_m(problem, unknown, 2).kind, OutcomeKind::refused);
}

}  // namespace
}  // namespace gemmtune
