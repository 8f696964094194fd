// Where the tables of other projects lie: GEMMTUNE_FIXTURES, else ../shared/fixtures beside the checkout.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/file.h"

namespace gemmtune {

/// The folder, or an empty text where there is none.
inline std::string fixture_folder() {
  const char* set = std::getenv("GEMMTUNE_FIXTURES");
  std::string folder =
      set != nullptr && *set != '\0' ? set : std::string(GEMMTUNE_SOURCE_DIR) + "/../shared/fixtures";
  return file_exists(folder + "/MANIFEST.csv") ? folder : std::string();
}

inline bool fixtures_required() {
  const char* required = std::getenv("GEMMTUNE_REQUIRE");
  return required != nullptr && std::string(required).find("fixtures") != std::string::npos;
}

}  // namespace gemmtune

// Declares `name` as the fixture folder; skips the test visibly where there is none, or fails it where
// GEMMTUNE_REQUIRE names fixtures.
#define GEMMTUNE_NEEDS_FIXTURES(name)                                                  \
  const std::string name = ::gemmtune::fixture_folder();                               \
  if (name.empty()) {                                                                  \
    if (::gemmtune::fixtures_required()) FAIL() << "fixtures are required but absent"; \
    GTEST_SKIP() << "no fixtures: set GEMMTUNE_FIXTURES";                              \
  }
