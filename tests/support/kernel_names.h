// Kernel names of a family's configs: a row of a tuned file holds nothing else of a config.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "backends/backend.h"
#include "candidates/config.h"

namespace gemmtune {

/// The name of each config is read back as that config.
inline void expect_names_are_read_back(const KernelFamily& family, const Problem& problem,
                                       const std::vector<Config>& configs) {
  const std::vector<std::string> keys = family.space(problem).keys();
  for (const Config& config : configs) {
    const Candidate candidate{std::string(family.name()), family.revision(), config};
    const auto read = parse_kernel_name(candidate.kernel_name(), keys);
    ASSERT_TRUE(read.ok()) << read.message();
    EXPECT_EQ(read->kernel_name(), candidate.kernel_name());
    EXPECT_EQ(read->config.text(), config.text());
  }
}

}  // namespace gemmtune
