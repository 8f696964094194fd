// Kernels of a family against the reference of verify/, on the first GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "support/first_gpu.h"

namespace gemmtune {

/// At most `count` configs of a space, the default first, drawn the same way each time.
inline std::vector<Config> some_configs(const KernelFamily& family, const Problem& problem,
                                        std::size_t count) {
  std::vector<Config> all = family.space(problem).enumerate();
  Random random(7);
  shuffle(all, random);
  all.insert(all.begin(), family.default_config(problem));
  if (all.size() > count) all.resize(count);
  return all;
}

inline void expect_right(const KernelFamily& family, const Problem& problem,
                         const std::vector<Config>& configs) {
  KernelVerifierOptions options;
  options.reference_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  auto verifier = KernelVerifier::make(*gpu(), problem, options);
  ASSERT_TRUE(verifier.ok()) << verifier.message();
  std::vector<Candidate> candidates;
  for (const Config& config : configs)
    candidates.push_back({std::string(family.name()), family.revision(), config});
  gpu()->compile_ahead(problem, candidates);
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::string> names;
  std::vector<KernelOfClass> classed;
  for (const Config& config : configs) {
    auto kernel = family.build(problem, config);
    ASSERT_TRUE(kernel.ok()) << print(problem) << " " << config.text() << ": " << kernel.message();
    const Outcome quick = verifier->verify_quickly({kernel->get(), family.accuracy(problem, config)});
    // The library also proposes splits of k whose partial sums are rounded to y's type: the verifier is right
    // to refuse them.
    const std::int64_t reduction = config.number("red");
    const bool rounds_sums = family.name() == "cublaslt" && (reduction == 1 || reduction == 4);
    if (rounds_sums && quick.kind == OutcomeKind::wrong) continue;
    EXPECT_EQ(quick.kind, OutcomeKind::ok)
        << family.name() << " " << print(problem) << " " << config.text() << ": " << quick.reason;
    if (quick.kind != OutcomeKind::ok) continue;
    kernels.push_back(std::move(*kernel));
    names.push_back(config.text());
    classed.push_back({kernels.back().get(), family.accuracy(problem, config)});
  }
  const auto outcomes = verifier->verify_fully(classed, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    const Outcome& outcome = (*outcomes)[i];
    // A vendor's algorithm may refuse the padded rows that full verification also tries.
    if (family.name() == "cublaslt" && outcome.kind == OutcomeKind::launch_failed) continue;
    EXPECT_EQ(outcome.kind, OutcomeKind::ok)
        << family.name() << " " << print(problem) << " " << names[i] << ": " << outcome.reason;
    EXPECT_TRUE(outcome.deterministic || family.name() == "cublaslt") << names[i];
  }
}

struct Size {
  std::int64_t m, n, k;
};

}  // namespace gemmtune
