// Options of `tune` that contradict each other.
#include "cli/tune/option_exclusions.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gemmtune::cli {
namespace {

using Change = std::function<void(TuneOptions&)>;

std::string said(const Change& change) {
  TuneOptions options;
  change(options);
  return check_exclusions(options).message();
}

TEST(OptionExclusions, WhatTunesNothingTakesNothingOfTuning) {
  const std::vector<std::pair<std::string, Change>> modes{
      {"--run_config", [](TuneOptions& options) { options.run_config = ""; }},
      {"--compare_wo_tuning", [](TuneOptions& options) { options.compare_wo_tuning = true; }},
      {"--benchmark", [](TuneOptions& options) { options.benchmark = true; }},
  };
  const std::vector<std::pair<std::string, Change>> others{
      {"--m-range", [](TuneOptions& options) { options.m_range = "1:16"; }},
      {"--buckets", [](TuneOptions& options) { options.buckets = true; }},
      {"--shard", [](TuneOptions& options) { options.shard = "1/2"; }},
      {"--record", [](TuneOptions& options) { options.record = "r.jsonl"; }},
      {"--events", [](TuneOptions& options) { options.events = "e.jsonl"; }},
      {"--keep", [](TuneOptions& options) { options.keep = true; }},
      {"--energy", [](TuneOptions& options) { options.request.energy = true; }},
      {"--dry-run", [](TuneOptions& options) { options.dry_run = true; }},
  };
  for (const auto& [mode, ask] : modes) {
    EXPECT_EQ(said(ask), "") << mode;
    for (const auto& [name, change] : others) {
      const Change both = [&](TuneOptions& options) {
        ask(options);
        change(options);
      };
      EXPECT_EQ(said(both), mode + ": not with " + name);
    }
  }
  EXPECT_EQ(said([](TuneOptions& options) {
              options.benchmark = true;
              options.size.m = "3";
            }),
            "--benchmark: not with -m -n -k; it takes a file of results");
}

TEST(OptionExclusions, WordsThatContradictAreNamedWithTheirValue) {
  EXPECT_EQ(said([](TuneOptions& options) {
              options.objective = "edp";
              options.replay = "r.jsonl";
            }),
            "--objective edp: not with --replay, a recording has no joules");
  EXPECT_EQ(said([](TuneOptions& options) {
              options.device.baseline = "torch";
              options.compare = true;
            }),
            "--baseline torch: not with --compare");
  EXPECT_EQ(said([](TuneOptions& options) { options.objective = "edp"; }), "");
  EXPECT_EQ(said([](TuneOptions& options) {
              options.invariant = "rows";
              options.request.budget_seconds = 60;
            }),
            "--invariant rows: not with --budget: all M of a weight are decided together, by time");
}

}  // namespace
}  // namespace gemmtune::cli
