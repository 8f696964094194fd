// What must not allocate: running a plan, the one-call form once it is warm, a look-up in a group.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "dispatch/c_support.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace {

std::atomic<long> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment = 0) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = alignment > 0
                     ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                     : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;

class Allocation : public ::testing::Test {
 protected:
  Allocation() {
    ContextOptions options;
    options.tuned_files_a16w16 =
        test::write_rows(folder_, "t.csv", {row(small_problem(4, 16, 16), "alpha_r1_a1")});
    handle_.context = std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>());
    problem_.size = sizeof problem_;
    problem_.x_type = GEMMTUNE_BF16;
    problem_.m = 4;
    problem_.n = problem_.k = 16;
    operands_.size = sizeof operands_;
    operands_.x = x_;
    operands_.w = w_;
    operands_.y = y_;
  }

  test::TemporaryFolder folder_;
  gemmtune_context handle_;
  gemmtune_problem problem_{};
  gemmtune_operands operands_{};
  alignas(64) std::uint16_t x_[4 * 16] = {};
  alignas(64) std::uint16_t w_[16 * 16] = {};
  alignas(64) std::uint16_t y_[4 * 16] = {};
  alignas(64) unsigned char workspace_[128] = {};
};

TEST_F(Allocation, TheHookCounts) {
  const long before = allocations.load();
  std::free(nullptr);
  delete new int(3);
  // A compiler may drop the pair above, a container that is read may not be dropped.
  std::vector<int> kept(100, 1);
  EXPECT_EQ(kept[50], 1);
  EXPECT_GT(allocations.load(), before);
}

TEST_F(Allocation, RunningAPlanAllocatesNothing) {
  gemmtune_plan* plan = nullptr;
  ASSERT_EQ(gemmtune_plan_create(&handle_, &problem_, &plan), GEMMTUNE_OK);
  const long before = allocations.load();
  for (int i = 0; i < 100; ++i) {
    if (gemmtune_plan_run(plan, &operands_, workspace_, nullptr) != GEMMTUNE_OK) FAIL();
  }
  EXPECT_EQ(allocations.load(), before);
  gemmtune_plan_release(plan);
}

TEST_F(Allocation, TheShortFormAllocatesOnItsFirstCallOnly) {
  ASSERT_EQ(gemmtune_gemm_a16w16(&handle_, &problem_, &operands_, nullptr), GEMMTUNE_OK);
  const long before = allocations.load();
  for (int i = 0; i < 100; ++i) {
    if (gemmtune_gemm_a16w16(&handle_, &problem_, &operands_, nullptr) != GEMMTUNE_OK) FAIL();
  }
  EXPECT_EQ(allocations.load(), before);
}

TEST_F(Allocation, ALookupInAGroupAllocatesNothing) {
  const auto tables = handle_.context->tables();
  const auto* group = tables->table.find_group({"x86-fake", 2, small_problem(0, 16, 16)});
  ASSERT_NE(group, nullptr);
  const long before = allocations.load();
  int hits = 0;
  for (std::int64_t m = 0; m < 1000; ++m) hits += TunedTable::lookup(*group, m).entry >= 0;
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(hits, 2);  // 3 → fine 16? no row; 4 exact, 3 coarse
}

}  // namespace
}  // namespace gemmtune
