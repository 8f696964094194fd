// The C interface on the machine's own CPU: rows of every family, the fallback, packed weights, the host's
// threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "capi/c_support.h"
#include "problem/operands.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::packed;
using ::testing::HasSubstr;

constexpr int threads = 2;

Problem f32(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem = test::small_problem(m, n, k);
  problem.x_type = problem.w_type = problem.y_type = DataType::f32;
  problem.bias = true;
  return problem;
}

gemmtune_problem to_c(const Problem& problem) {
  gemmtune_problem asked{};
  asked.size = sizeof asked;
  asked.x_type = problem.x_type == DataType::f32 ? GEMMTUNE_F32 : GEMMTUNE_BF16;
  asked.m = problem.m;
  asked.n = problem.n;
  asked.k = problem.k;
  asked.bias = problem.bias ? 1 : 0;
  asked.weight_layout = c::layout_to_c(problem.weight_layout);
  asked.x_order = static_cast<gemmtune_order>(problem.x_order);
  asked.w_order = static_cast<gemmtune_order>(problem.w_order);
  return asked;
}

/// A float32 call with the right answer; small integers, so that sums are exact in any order.
class Call {
 public:
  explicit Call(const Problem& problem, std::int64_t extra = 0)
      : problem_(problem),
        shapes_(operand_shapes(problem)),
        ldx_(shapes_.x.line_elements() + extra),
        ldy_(problem.n + extra),
        x_(bytes(shapes_.x.lines() * ldx_)),
        w_(bytes(problem.n * problem.k)),
        bias_(bytes(problem.n)),
        y_(bytes(problem.m * ldy_)) {
    for (std::int64_t i = 0; i < shapes_.x.lines() * ldx_; ++i) at(x_, i) = static_cast<float>(i % 7 - 3);
    for (std::int64_t i = 0; i < problem.n * problem.k; ++i) at(w_, i) = static_cast<float>(i % 5 - 2);
    for (std::int64_t i = 0; i < problem.n; ++i) at(bias_, i) = static_cast<float>(i % 11);
    for (std::int64_t i = 0; i < problem.m * ldy_; ++i) at(y_, i) = untouched;
  }
  gemmtune_operands operands() const {
    gemmtune_operands given{};
    given.size = sizeof given;
    given.x = x_.data();
    given.w = w_.data();
    given.bias = bias_.data();
    given.y = y_.data();
    given.ldx = ldx_;
    given.ldy = ldy_;
    return given;
  }
  const void* plain_weight() const { return w_.data(); }
  void expect_right() const {
    int wrong = 0;
    for (std::int64_t row = 0; row < problem_.m; ++row) {
      for (std::int64_t column = 0; column < ldy_; ++column) {
        float sum = untouched;
        if (column < problem_.n) {
          sum = at(bias_, column);
          for (std::int64_t step = 0; step < problem_.k; ++step) {
            const std::int64_t ldw = shapes_.w.line_elements();
            sum += at(x_, row * shapes_.x.row_step(ldx_) + step * shapes_.x.column_step(ldx_)) *
                   at(w_, column * shapes_.w.row_step(ldw) + step * shapes_.w.column_step(ldw));
          }
        }
        wrong += at(y_, row * ldy_ + column) != sum;
      }
    }
    EXPECT_EQ(wrong, 0) << print(problem_);
  }

 private:
  static constexpr float untouched = -77;
  static std::size_t bytes(std::int64_t elements) {
    return static_cast<std::size_t>(elements) * sizeof(float);
  }
  static float& at(const test::FakeBuffer& buffer, std::int64_t index) {
    return static_cast<float*>(buffer.data())[index];
  }

  Problem problem_;
  OperandShapes shapes_;
  std::int64_t ldx_;
  std::int64_t ldy_;
  test::FakeBuffer x_;
  test::FakeBuffer w_;
  test::FakeBuffer bias_;
  test::FakeBuffer y_;
};

class OnCpu : public ::testing::Test {
 protected:
  void TearDown() override { gemmtune_context_destroy(context_); }

  void open(const std::string& files, gemmtune_parallel_for parallel_for = nullptr, void* host = nullptr) {
    gemmtune_context_destroy(context_);
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.config_folder = folder_.path().c_str();
    const gemmtune_tuned_files a16w16{GEMMTUNE_A16W16, files.empty() ? nullptr : files.c_str()};
    options.tuned_files = &a16w16;
    options.tuned_file_count = 1;
    options.backend = "cpu";
    options.threads = threads;
    options.parallel_for = parallel_for;
    options.parallel_for_context = host;
    ASSERT_EQ(gemmtune_context_create(&options, &context_), GEMMTUNE_OK) << gemmtune_last_error();
  }
  Device& device() { return context_->context->device(); }
  TunedEntry row(const Problem& problem, const std::string& kernel_name) {
    TunedEntry entry = test::row(problem, kernel_name);
    entry.gfx = device().info().gfx;
    entry.cu_num = device().info().cu_num;
    return entry;
  }
  std::string default_name(const KernelFamily& family, const Problem& problem) {
    return Candidate{std::string(family.name()), family.revision(), family.default_config(problem)}
        .kernel_name();
  }
  PlanRef plan(const Problem& problem) {
    auto made = context_->context->plan(problem);
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? *made : PlanRef();
  }
  void expect_call(const Call& call, const Problem& problem) {
    const gemmtune_problem asked = to_c(problem);
    const gemmtune_operands given = call.operands();
    ASSERT_EQ(gemmtune_gemm(context_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
    call.expect_right();
  }

  test::TemporaryFolder folder_;
  gemmtune_context* context_ = nullptr;
};

TEST_F(OnCpu, WithoutATableTheFallbackIsRight) {
  open("");
  for (const Problem& problem : {f32(1, 1, 1), f32(3, 17, 33), f32(16, 64, 100), f32(65, 31, 7)}) {
    expect_call(Call(problem), problem);
    expect_call(Call(problem, 5), problem);
    const PlanRef made = plan(problem);
    EXPECT_EQ(made->account().match, Match::untuned);
    EXPECT_NE(made->account().family, "reference");
  }
}

constexpr std::pair<Order, Order> orders[] = {{Order::row_major, Order::row_major},
                                              {Order::column_major, Order::row_major},
                                              {Order::row_major, Order::column_major},
                                              {Order::column_major, Order::column_major}};

TEST_F(OnCpu, EachOrderHasAPlanAndALeadingDimensionOfItsOwn) {
  open("");
  const Problem sizes[] = {f32(1, 1, 1), f32(3, 17, 33), f32(16, 64, 100), f32(65, 31, 7)};
  for (Problem problem : sizes)
    for (const auto& [x, w] : orders) {
      problem.x_order = x;
      problem.w_order = w;
      expect_call(Call(problem), problem);
      expect_call(Call(problem, 5), problem);
      EXPECT_NE(plan(problem)->account().family, "reference");
    }
  gemmtune_counters counters{};
  counters.size = sizeof counters;
  ASSERT_EQ(gemmtune_context_counters(context_, &counters), GEMMTUNE_OK);
  EXPECT_EQ(counters.plans_made, 4U * 4);
}

TEST_F(OnCpu, LeadingDimensionsOfAColumnMajorXAreCheckedAsSuch) {
  open("");
  Problem problem = f32(9, 16, 5);
  problem.x_order = Order::column_major;
  const Call call(problem);
  const gemmtune_problem asked = to_c(problem);
  gemmtune_operands given = call.operands();
  given.ldx = 8;
  EXPECT_EQ(gemmtune_gemm(context_, &asked, &given, nullptr), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("ldx = 8, expected 9 to"));
  given.ldx = 0;
  EXPECT_EQ(gemmtune_gemm(context_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  call.expect_right();
}

TEST_F(OnCpu, AColumnMajorWeightIsNotPacked) {
  open("");
  Problem problem = f32(1, 64, 64);
  problem.bias = false;
  problem.w_order = Order::column_major;
  const gemmtune_problem asked = to_c(problem);
  gemmtune_layout layout = GEMMTUNE_LAYOUT_ANY;
  EXPECT_EQ(gemmtune_weight_layout(context_, &asked, &layout), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(layout, GEMMTUNE_LAYOUT_PLAIN);
  std::size_t bytes = 0;
  EXPECT_EQ(gemmtune_packed_weight_bytes(context_, &asked, c::layout_to_c(WeightLayout::panel16), &bytes),
            GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("a packed weight has no order"));
}

TEST_F(OnCpu, ARowOfEachFamilyIsRunByItsName) {
  open("");
  const Problem problem = f32(5, 48, 64);
  int families = 0;
  for (const KernelFamily* family : device().families()) {
    if (!family->accepts(problem).ok()) continue;
    const std::string name = default_name(*family, problem);
    const auto file = test::write_rows(folder_, "bf16_tuned_gemm.csv", {row(problem, name)});
    ASSERT_EQ(gemmtune_context_reload(context_), GEMMTUNE_OK) << gemmtune_last_error();
    const PlanRef made = plan(problem);
    EXPECT_EQ(made->account().kernel_name, name) << made->account().rule;
    EXPECT_EQ(made->account().match, Match::exact);
    EXPECT_EQ(made->account().file, file);
    expect_call(Call(problem, 16), problem);
    ++families;
  }
  EXPECT_GE(families, 2);
}

TEST_F(OnCpu, RowsThatCannotRunGiveWayToThePaddedRow) {
  open("");
  const Problem problem = f32(5, 48, 64);
  const auto fallback = device().fallback(problem);
  ASSERT_TRUE(fallback.ok()) << fallback.message();
  Problem padded = problem;
  padded.m = 16;
  test::write_rows(folder_, "bf16_tuned_gemm.csv",
                   {row(problem, "tiled_r1_nosuchkey7"), row(padded, fallback->kernel_name())});
  ASSERT_EQ(gemmtune_context_reload(context_), GEMMTUNE_OK);
  const PlanRef made = plan(problem);
  EXPECT_EQ(made->account().match, Match::fine) << made->account().rule;
  EXPECT_EQ(made->account().invalid_rows, 1);
  expect_call(Call(problem), problem);
}

TEST_F(OnCpu, APackedWeightServesEveryM) {
  open("");
  const Problem one = f32(1, 40, 64);
  const KernelFamily* packer = nullptr;
  for (const KernelFamily* family : device().families()) {
    const auto layout = family->packed_layout(one);
    if (layout == WeightLayout::panel16 && family->accepts(packed(one)).ok()) packer = family;
  }
  ASSERT_NE(packer, nullptr) << "no family reads panel16";
  const std::string name = default_name(*packer, packed(one));
  test::write_rows(folder_, "bf16_tuned_gemm.csv", {row(packed(one), name)});
  ASSERT_EQ(gemmtune_context_reload(context_), GEMMTUNE_OK);

  const gemmtune_problem weight = to_c(one);
  gemmtune_layout layout = GEMMTUNE_LAYOUT_PLAIN;
  ASSERT_EQ(gemmtune_weight_layout(context_, &weight, &layout), GEMMTUNE_OK) << gemmtune_last_error();
  ASSERT_EQ(layout, c::layout_to_c(WeightLayout::panel16));
  std::size_t bytes = 0;
  ASSERT_EQ(gemmtune_packed_weight_bytes(context_, &weight, layout, &bytes), GEMMTUNE_OK);
  const test::FakeBuffer held(bytes);
  const Call source(one);
  ASSERT_EQ(gemmtune_pack_weight(context_, &weight, layout, source.plain_weight(), held.data()), GEMMTUNE_OK)
      << gemmtune_last_error();
  std::vector<float> back(static_cast<std::size_t>(one.n * one.k));
  ASSERT_EQ(gemmtune_unpack_weight(context_, &weight, layout, held.data(), back.data()), GEMMTUNE_OK);
  EXPECT_EQ(std::memcmp(back.data(), source.plain_weight(), back.size() * sizeof(float)), 0);

  for (const std::int64_t m : {1, 2, 19, 70}) {
    const Problem problem = f32(m, one.n, one.k);
    const Call call(problem);
    const gemmtune_problem asked = to_c(packed(problem));
    gemmtune_operands given = call.operands();
    given.w = held.data();
    ASSERT_EQ(gemmtune_gemm(context_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
    call.expect_right();
  }
  EXPECT_EQ(plan(packed(one))->account().match, Match::exact);
  EXPECT_EQ(plan(packed(f32(19, one.n, one.k)))->account().match, Match::untuned);
}

TEST_F(OnCpu, TheHostsThreadsRunTheKernel) {
  std::atomic<int> calls{0};
  const auto host = [](void* context, std::int64_t parts, gemmtune_task task, void* task_context) {
    static_cast<std::atomic<int>*>(context)->fetch_add(1);
    for (std::int64_t part = parts - 1; part >= 0; --part) task(task_context, part);
  };
  open("", host, &calls);
  EXPECT_EQ(device().info().team, "callback");
  const Problem problem = f32(64, 512, 512);
  const std::string name = default_name(*device().find_family("tiled"), problem);
  test::write_rows(folder_, "bf16_tuned_gemm.csv", {row(problem, name)});
  ASSERT_EQ(gemmtune_context_reload(context_), GEMMTUNE_OK);
  expect_call(Call(problem), problem);
  EXPECT_EQ(plan(problem)->account().family, "tiled");
  EXPECT_GT(calls.load(), 0);
}

TEST_F(OnCpu, OnePlanRunByFourThreads) {
  open("");
  const Problem problem = f32(9, 96, 128);
  const PlanRef made = plan(problem);
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i) {
    all.emplace_back([&] {
      const Call call(problem);
      const test::FakeBuffer workspace(made->workspace_bytes() + 64);
      const gemmtune_operands given = call.operands();
      for (int times = 0; times < 20; ++times) {
        EXPECT_EQ(gemmtune_plan_run(c::plan_to_c(made.get()), &given, workspace.data(), nullptr),
                  GEMMTUNE_OK);
      }
      call.expect_right();
    });
  }
  for (std::thread& thread : all) thread.join();
}

TEST_F(OnCpu, AStreamIsRefused) {
  open("");
  const Problem problem = f32(2, 16, 16);
  const gemmtune_problem asked = to_c(problem);
  const Call call(problem);
  const gemmtune_operands given = call.operands();
  int stream = 0;
  EXPECT_EQ(gemmtune_gemm(context_, &asked, &given, &stream), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("stream"));
}

TEST_F(OnCpu, TheEnvironmentNamesTheTunedFiles) {
  open("");
  const Problem problem = f32(5, 48, 64);
  const std::string name = device().fallback(problem)->kernel_name();
  const auto theirs = test::write_rows(folder_, "theirs.csv", {row(problem, name)});
  const auto ours = folder_.file("ours.csv");
  const auto match = [&] {
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.threads = threads;
    gemmtune_context_destroy(context_);
    context_ = nullptr;
    EXPECT_EQ(gemmtune_context_create(&options, &context_), GEMMTUNE_OK) << gemmtune_last_error();
    return plan(problem)->account().match;
  };
  ::unsetenv("GEMMTUNE_CONFIG_A16W16");
  ::setenv("AITER_CONFIG_GEMM_BF16", theirs.c_str(), 1);
  EXPECT_EQ(match(), Match::exact);
  ::setenv("GEMMTUNE_CONFIG_A16W16", ours.c_str(), 1);
  EXPECT_EQ(match(), Match::untuned);
  ::unsetenv("GEMMTUNE_CONFIG_A16W16");
  ::unsetenv("AITER_CONFIG_GEMM_BF16");
}

TEST(DefaultContext, IsOneForTheProcess) {
  const test::TemporaryFolder folder;
  ::setenv("GEMMTUNE_CONFIG_DIR", folder.path().c_str(), 1);
  gemmtune_context* one = nullptr;
  gemmtune_context* two = nullptr;
  ASSERT_EQ(gemmtune_default_context(&one), GEMMTUNE_OK) << gemmtune_last_error();
  ASSERT_EQ(gemmtune_default_context(&two), GEMMTUNE_OK);
  EXPECT_EQ(one, two);
  const Problem problem = f32(3, 16, 32);
  const gemmtune_problem asked = to_c(problem);
  const Call call(problem);
  const gemmtune_operands given = call.operands();
  ASSERT_EQ(gemmtune_gemm(nullptr, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  call.expect_right();
  ::unsetenv("GEMMTUNE_CONFIG_DIR");
}

}  // namespace
}  // namespace gemmtune
