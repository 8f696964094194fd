// Placements of host memory: guards that notice, pages that fault, requests that cannot be met.
#include "backends/cpu/machine/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "backends/cpu/machine/system_limits.h"

namespace gemmtune::cpu {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Buffer> make(std::size_t bytes, Placement placement) {
  auto buffer = allocate_memory(bytes, placement);
  EXPECT_TRUE(buffer.ok()) << buffer.message();
  return buffer.ok() ? std::move(*buffer) : nullptr;
}

TEST(Memory, IsAlignedAndAllOfItIsUsable) {
  for (const Placement placement : {Placement::plain, Placement::guarded, Placement::pool}) {
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 4096, 100'003}) {
      const auto buffer = make(bytes, placement);
      ASSERT_NE(buffer, nullptr);
      EXPECT_EQ(buffer->bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % buffer_alignment, 0U);
      std::memset(buffer->data(), 0xff, bytes);
      EXPECT_TRUE(buffer->guards_intact().ok());
    }
  }
}

/// Writes one byte at `offset` from the data of a guarded buffer of `bytes` and asks the guards.
Status after_write(std::size_t bytes, std::ptrdiff_t offset) {
  const auto buffer = make(bytes, Placement::guarded);
  auto* byte = static_cast<unsigned char*>(buffer->data()) + offset;
  *byte = static_cast<unsigned char>(*byte + 1);
  return buffer->guards_intact();
}

TEST(Memory, GuardsNoticeOneByteOnEitherSide) {
  for (const std::size_t bytes : {1, 60, 64, 1000}) {
    const auto end = static_cast<std::ptrdiff_t>(bytes);
    const auto guard = static_cast<std::ptrdiff_t>(guard_bytes);
    EXPECT_TRUE(after_write(bytes, 0).ok());
    EXPECT_TRUE(after_write(bytes, end - 1).ok());
    EXPECT_THAT(after_write(bytes, -1).message(),
                HasSubstr("1 byte(s) were overwritten before the beginning"));
    EXPECT_THAT(after_write(bytes, -guard).message(), HasSubstr(fmt::format("at a distance of {}", guard)));
    EXPECT_THAT(after_write(bytes, end).message(), HasSubstr("1 byte(s) were overwritten after the end"));
    EXPECT_THAT(after_write(bytes, end).message(), HasSubstr(fmt::format("of a buffer of {} bytes", bytes)));
    EXPECT_THAT(after_write(bytes, end + guard - 1).message(),
                HasSubstr(fmt::format("a distance of {}", guard)));
  }
}

TEST(Memory, GuardsNoticeFills) {
  for (const int fill : {0x00, 0xff, 0x7f, 0xcd}) {
    const auto buffer = make(128, Placement::guarded);
    std::memset(static_cast<std::byte*>(buffer->data()) + 128, fill, 64);
    EXPECT_FALSE(buffer->guards_intact().ok()) << fill;
  }
}

TEST(Memory, PageEndStopsAtThePage) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, page, page + 16}) {
    const auto buffer = make(bytes, Placement::page_end);
    EXPECT_EQ((reinterpret_cast<std::uintptr_t>(buffer->data()) + bytes) % page, 0U);
    std::memset(buffer->data(), 1, bytes);
  }
}

TEST(MemoryDeathTest, ReadingPastAPageEndFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto buffer = make(100, Placement::page_end);
  const auto* data = static_cast<const volatile unsigned char*>(buffer->data());
  EXPECT_EQ(data[99], data[98]);
  EXPECT_DEATH((void)data[100], "");
}

TEST(Memory, RefusesWhatCannotBeHad) {
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(),
                                  std::numeric_limits<std::size_t>::max() / 4, std::size_t{1} << 50}) {
    for (const Placement placement :
         {Placement::plain, Placement::guarded, Placement::page_end, Placement::pool}) {
      const auto buffer = allocate_memory(bytes, placement);
      EXPECT_EQ(buffer.code(), StatusCode::out_of_memory);
      EXPECT_THAT(buffer.message(), HasSubstr(std::to_string(bytes)));
    }
  }
  EXPECT_GT(free_memory_bytes(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace gemmtune::cpu
