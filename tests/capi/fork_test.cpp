// Children made by fork(): every family's kernels run in a context of the parent and in one of the child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "capi/c_support.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

constexpr std::int64_t m = 64;
constexpr std::int64_t n = 512;
constexpr std::int64_t k = 512;

/// A context whose tuned file names one family for the one problem, and the problem's operands.
class Service {
 public:
  Service(const test::TemporaryFolder& folder, const std::string& family) {
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.config_folder = folder.path().c_str();
    options.backend = "cpu";
    options.threads = 2;
    if (gemmtune_context_create(&options, &context_) != GEMMTUNE_OK) return;
    Problem problem = test::small_problem(m, n, k);
    problem.x_type = problem.w_type = problem.y_type = DataType::f32;
    const Device& device = context_->context->device();
    const KernelFamily* found = device.find_family(family);
    if (found == nullptr || !found->accepts(problem).ok()) return;
    TunedEntry row = test::row(
        problem, Candidate{family, found->revision(), found->default_config(problem)}.kernel_name());
    row.gfx = device.info().gfx;
    row.cu_num = device.info().cu_num;
    test::write_rows(folder, "bf16_tuned_gemm.csv", {row});
    ready_ = gemmtune_context_reload(context_) == GEMMTUNE_OK;
  }
  ~Service() { gemmtune_context_destroy(context_); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  /// False if the family is not here.
  bool ready() const { return ready_; }

  /// Empty if the family's kernel gave the right result.
  std::string run() {
    auto* const x = static_cast<float*>(x_.data());
    auto* const w = static_cast<float*>(w_.data());
    auto* const y = static_cast<float*>(y_.data());
    for (std::int64_t i = 0; i < m * k; ++i) x[i] = static_cast<float>(i % 7 - 3);
    for (std::int64_t i = 0; i < n * k; ++i) w[i] = static_cast<float>(i % 5 - 2);
    for (std::int64_t i = 0; i < m * n; ++i) y[i] = -77;
    gemmtune_problem problem{};
    problem.size = sizeof problem;
    problem.x_type = GEMMTUNE_F32;
    problem.m = m;
    problem.n = n;
    problem.k = k;
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    operands.x = x;
    operands.w = w;
    operands.y = y;
    if (gemmtune_gemm(context_, &problem, &operands, nullptr) != GEMMTUNE_OK) return gemmtune_last_error();
    for (const std::int64_t i : {std::int64_t{0}, n + 7, m * n / 2, m * n - 1}) {
      float sum = 0;
      for (std::int64_t step = 0; step < k; ++step) sum += x[i / n * k + step] * w[i % n * k + step];
      if (y[i] != sum) return "y[" + std::to_string(i) + "] is wrong";
    }
    gemmtune_counters counters{};
    counters.size = sizeof counters;
    (void)gemmtune_context_counters(context_, &counters);
    return counters.untuned == 0 ? "" : "the row did not answer";
  }

 private:
  gemmtune_context* context_ = nullptr;
  bool ready_ = false;
  test::FakeBuffer x_{m * k * sizeof(float)};
  test::FakeBuffer w_{n * k * sizeof(float)};
  test::FakeBuffer y_{m * n * sizeof(float)};
};

/// The exit status of a child that runs `body`; 14 + 128 if it hangs.
template <typename Body>
int status_of_child(Body&& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);
    const std::string why = body();
    std::fprintf(stderr, "%s", why.c_str());
    _exit(why.empty() ? 0 : 1);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) continue;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class Fork : public ::testing::TestWithParam<const char*> {};

TEST_P(Fork, AChildRunsWhatItsParentRan) {
  const test::TemporaryFolder folder;
  auto service = std::make_unique<Service>(folder, GetParam());
  if (!service->ready()) GTEST_SKIP() << "there is no family " << GetParam() << " here";
  ASSERT_EQ(service->run(), "");
  EXPECT_EQ(status_of_child([&] { return service->run() + service->run(); }), 0) << "the parent's context";
  EXPECT_EQ(status_of_child([&] {
              Service own(folder, GetParam());
              return own.run();
            }),
            0)
      << "a context of the child";
  EXPECT_EQ(status_of_child([&] {
              std::string why;
              std::thread([&] { why = service->run(); }).join();
              return why;
            }),
            0)
      << "another thread of the child";
  EXPECT_EQ(status_of_child([&] {
              std::string why = service->run();
              service.reset();
              return why;
            }),
            0)
      << "the child destroys the parent's context";
  EXPECT_EQ(status_of_child([&] {
              return std::to_string(status_of_child([&] { return service->run(); })) == "0"
                         ? std::string()
                         : std::string("the grandchild failed");
            }),
            0)
      << "a child of the child";
  EXPECT_EQ(service->run(), "") << "the parent goes on";
}

INSTANTIATE_TEST_SUITE_P(Families, Fork, ::testing::Values("onednn", "openblas", "tiled"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace gemmtune
