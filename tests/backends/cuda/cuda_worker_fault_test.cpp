// Kernels that fault or hang on a GPU, measured through a worker process: each costs its candidate and some
// seconds. The worker program lies beside this one. Skips where there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "backends/backend.h"
#include "evaluate/worker/worker_evaluator.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;

constexpr double max_seconds = 20;  // that a faulty candidate may cost

struct GpuFault {
  std::string family;
  OutcomeKind kind;
  std::string reason;  // a part of the outcome's
};

WorkerOptions worker_options() {
  WorkerOptions options;
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  options.launch = {(here / "faulty_gpu_worker").string(), {}};
  options.backend = "cuda";
  options.device.text = "cuda:0";
  if (const char* folder = std::getenv("GEMMTUNE_CACHE_DIR")) options.device.kernel_cache_folder = folder;
  if (const char* folder = std::getenv("GEMMTUNE_LIBRARY_DIR")) options.device.module_folder = folder;
  return options;
}

Problem problem_of(std::int64_t m) {
  Problem problem = default_problem(Operation::a16w16);
  problem.m = m;
  problem.n = 1280;
  problem.k = 2048;
  return problem;
}

Candidate candidate_of(const std::string& family) {
  Candidate candidate;
  candidate.family = family;
  return candidate;
}

/// The kernel without tuning; nullopt where there is no GPU.
std::optional<Candidate> good_candidate() {
  DeviceRequest request;
  request.text = "cuda:0";
  if (const char* folder = std::getenv("GEMMTUNE_LIBRARY_DIR")) request.module_folder = folder;
  const auto device = open_device("cuda", request);
  if (!device.ok()) return std::nullopt;
  const auto good = (*device)->fallback(problem_of(16));
  return good.ok() ? std::optional(*good) : std::nullopt;
}

class GpuWorkerFault : public ::testing::TestWithParam<GpuFault> {};

TEST_P(GpuWorkerFault, CostsItsCandidateAndSomeSeconds) {
  const auto good = good_candidate();
  if (!good) GTEST_SKIP() << "no NVIDIA GPU here";
  WorkerEvaluator evaluator(worker_options());
  const Problem problem = problem_of(16);
  const auto screen = [&](const Candidate& candidate) {
    return evaluator.screen(problem, {&candidate, 1}, 3, {});
  };
  const auto before = screen(*good);
  ASSERT_TRUE(before.ok()) << before.message();
  ASSERT_EQ(before->front().kind, OutcomeKind::ok) << before->front().reason;
  // The mean of what candidates take, which a candidate's limit is made of, comes down from that of the
  // first.
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(screen(*good).ok());

  const pid_t worker = evaluator.worker();
  const auto start = Clock::now();
  const auto faulty = screen(candidate_of(GetParam().family));
  ASSERT_TRUE(faulty.ok()) << faulty.message();
  EXPECT_EQ(faulty->front().kind, GetParam().kind) << faulty->front().reason;
  EXPECT_THAT(faulty->front().reason, HasSubstr(GetParam().reason));
  const auto after = screen(*good);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  RecordProperty("seconds", std::to_string(seconds));
  std::printf("%s: %.1f s until the next candidate was measured by a new worker; outcome: %s\n",
              GetParam().family.c_str(), seconds, faulty->front().reason.c_str());
  EXPECT_LE(seconds, max_seconds);
  ASSERT_TRUE(after.ok()) << after.message();
  EXPECT_EQ(after->front().kind, OutcomeKind::ok) << after->front().reason;
  EXPECT_THAT(after->front().microseconds, SizeIs(3));
  EXPECT_NE(evaluator.worker(), worker);
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuWorkerFault,
                         ::testing::Values(GpuFault{"illegal", OutcomeKind::crashed, "the device was lost"},
                                           GpuFault{"endless", OutcomeKind::timed_out, "did not end within"}),
                         [](const auto& each) { return each.param.family; });

}  // namespace
}  // namespace gemmtune
