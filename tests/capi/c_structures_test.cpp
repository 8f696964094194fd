// Structures of other versions: how their sizes are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "capi/c_support.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

/// As a structure that had `first` in the first release and has `second` since.
struct Grown {
  std::size_t size;
  std::int64_t first;
  std::int64_t second;
};

}  // namespace

template <>
struct c::StructTraits<Grown> {
  static constexpr const char* name = "Grown";
  static constexpr std::size_t size = sizeof(Grown);
  static constexpr std::size_t first_size = offsetof(Grown, second);
};

namespace {

TEST(CStructures, WhatAnOlderProgramDoesNotKnowKeepsItsDefault) {
  const Grown old{offsetof(Grown, second), 5, 77};
  Grown known{};
  known.second = 3;
  ASSERT_EQ(c::read_struct(&old, known), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(known.first, 5);
  EXPECT_EQ(known.second, 0);

  Grown answer{offsetof(Grown, second), 0, 77};
  ASSERT_EQ(c::write_struct(Grown{0, 8, 9}, &answer), GEMMTUNE_OK);
  EXPECT_EQ(answer.size, offsetof(Grown, second));
  EXPECT_EQ(answer.first, 8);
  EXPECT_EQ(answer.second, 77) << "beyond the caller's structure";
}

TEST(CStructures, SizesBelowTheFirstReleaseAreRefused) {
  for (const std::size_t size : {std::size_t{0}, sizeof(std::size_t), offsetof(Grown, second) - 1}) {
    const Grown given{size, 5, 0};
    Grown known{};
    EXPECT_EQ(c::read_struct(&given, known), GEMMTUNE_INVALID_ARGUMENT) << size;
    EXPECT_THAT(gemmtune_last_error(), HasSubstr("Grown: size is " + std::to_string(size) + ", expected"));
    Grown answer{size, 0, 0};
    EXPECT_EQ(c::write_struct(Grown{0, 8, 9}, &answer), GEMMTUNE_INVALID_ARGUMENT) << size;
    EXPECT_EQ(answer.first, 0);
  }
}

TEST(CStructures, ASizeThatWasNeverSetIsRefusedAndNotRead) {
  for (const std::size_t size : {c::max_struct_size + 1, SIZE_MAX / 2, SIZE_MAX}) {
    const Grown given{size, 5, 0};
    Grown known{};
    EXPECT_EQ(c::read_struct(&given, known), GEMMTUNE_INVALID_ARGUMENT) << size;
    Grown answer{size, 0, 0};
    EXPECT_EQ(c::write_struct(Grown{0, 8, 9}, &answer), GEMMTUNE_INVALID_ARGUMENT) << size;
  }
}

TEST(CStructures, ANewerProgramMaySetWhatWeKnow) {
  struct Newer {
    Grown known;
    std::int64_t unknown;
  } newer{{sizeof(Newer), 5, 6}, 0};
  Grown known{};
  EXPECT_EQ(c::read_struct(&newer.known, known), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(known.second, 6);
  newer.unknown = 1;
  EXPECT_EQ(c::read_struct(&newer.known, known), GEMMTUNE_UNSUPPORTED);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("byte 24"));
}

}  // namespace
}  // namespace gemmtune
