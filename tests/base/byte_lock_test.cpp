#include "base/byte_lock.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

TEST(ByteLock, PlacesOfAFileExcludeOthersOneByOne) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("claims");
  EXPECT_FALSE(ByteLock::is_held(path, 8)) << "there is no file";
  auto first = ByteLock::take(path, 8);
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_TRUE(ByteLock::is_held(path, 8));
  EXPECT_FALSE(ByteLock::is_held(path, 7));
  auto same = ByteLock::take(path, 8);
  ASSERT_TRUE(same.ok());
  EXPECT_FALSE(same->has_value());
  auto other = ByteLock::take(path, std::uint64_t{8} << 40);
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(other->has_value());
  first->reset();
  EXPECT_FALSE(ByteLock::is_held(path, 8));
  same = ByteLock::take(path, 8);
  EXPECT_TRUE(same.ok() && same->has_value());
  EXPECT_FALSE(ByteLock::take(folder.file("none/claims"), 1).ok());
}

}  // namespace
}  // namespace gemmtune
