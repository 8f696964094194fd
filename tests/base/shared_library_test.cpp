#include "base/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

TEST(SharedLibrary, APathFromTheWorkingFolderIsNeverOpened) {
  const test::TemporaryFolder folder;
  const std::string library = SharedLibrary::file_of(reinterpret_cast<const void*>(&std::fopen));
  const std::string copy = folder.file("libcopy.so");
  std::filesystem::copy_file(library, copy);
  const std::string relative = std::filesystem::relative(copy).string();
  ASSERT_TRUE(std::filesystem::exists(relative));
  const auto opened = SharedLibrary::open({relative});
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.message(), ::testing::HasSubstr(relative + ": expected a path from the root on"));
  EXPECT_TRUE(SharedLibrary::open({relative, library}).ok());
}

TEST(SharedLibrary, NamesThatAreNowhereAreAllNamed) {
  const auto opened = SharedLibrary::open({"libnowhere.so.2", "libnowhere.so.1", "libnowhere.so"});
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.message(), ::testing::StartsWith("libnowhere.so.2, libnowhere.so.1, libnowhere.so: "));
}

TEST(SharedLibrary, WhatIsThereButDoesNotLoadIsTheReason) {
  const test::TemporaryFolder folder;
  const std::string broken = folder.write("libbroken.so", "no library");
  const auto opened = SharedLibrary::open({broken, "libnowhere.so"});
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.message(), ::testing::HasSubstr(broken));
  EXPECT_THAT(opened.message(), ::testing::Not(::testing::HasSubstr("libnowhere")));
}

}  // namespace
}  // namespace gemmtune
