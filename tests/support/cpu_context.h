// What sweeps through the C functions begin with.
#pragma once

#include <gemmtune/c.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace gemmtune::test {

/// A context of two threads of the CPU that reads these tuned files alone; the caller destroys it.
inline gemmtune_context* open_cpu_context(const std::vector<gemmtune_tuned_files>& files = {}) {
  gemmtune_context_options options{};
  options.size = sizeof options;
  options.config_folder = "/none";
  options.backend = "cpu";
  options.threads = 2;
  options.tuned_files = files.data();
  options.tuned_file_count = files.size();
  gemmtune_context* context = nullptr;
  EXPECT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
  return context;
}

/// GEMMTUNE_SEED, else `otherwise`.
inline std::uint64_t seed_or(std::uint64_t otherwise) {
  const char* text = std::getenv("GEMMTUNE_SEED");
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace gemmtune::test
