// Options of `tune`: what another value of each means for measurements that were taken before.
#include "cli/tune/option_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/shared/command_options.h"
#include "cli/tune/tune_journal.h"
#include "support/paper_device.h"

namespace gemmtune::cli {
namespace {

constexpr OptionSection sections[] = {
    OptionSection::files,          OptionSection::ranges, OptionSection::search,    OptionSection::measuring,
    OptionSection::operator_times, OptionSection::aiter,  OptionSection::tune_gemm, OptionSection::output};

/// Values other than the default, of options that take a text; numbers and flags are changed by type.
const std::map<std::string_view, std::string> other_texts = {
    {"--input", "shapes.csv"},
    {"--output", "other.csv"},
    {"--profile-file", "all.csv"},
    {"--csv-schema", "seed"},
    {"--sort", "true"},
    {"--record", "r.jsonl"},
    {"--events", "e.jsonl"},
    {"--shard", "1/2"},
    {"--journal", "/tmp"},
    {"--replay", "r.jsonl"},
    {"--m-range", "1:16"},
    {"--libtype", "tiled"},
    {"--search", "exhaustive"},
    {"--invariant", "rows"},
    {"--cache", "warm"},
    {"--timeout", "none"},
    {"--pdl", "allow"},
    {"--accuracy", "fast"},
    {"--objective", "energy"},
    {"--bucket-scheme", "bounds"},
    {"--run-config", "tuned.csv"},
    {"--gpu-ids", "0,1"},
    {"--launch", "eager"},
    {"--team", "own"},
    {"--between", "parallel"},
    {"--clock", "processor"},
    {"--routing", "zipf"},
    {"--routing-trace", GEMMTUNE_TEST_DATA "/routing/small.routing"},
    {"--init-type", "hpl"},
    {"--blockPerCu", "1,2"},
    {"--rules", "tune_gemm_v2"},
    {"--search-space", GEMMTUNE_TEST_DATA "/search_space/replace.yaml"},
};

class OptionTable : public ::testing::Test {
 protected:
  OptionTable() {
    device_.mutable_info().backend = "paper";  // --pdl is not for CPUs
    device_.mutable_info().team = "openmp";
    device_.add({.name = "vendor", .tie_rank = 0});
    device_.add({.name = "tiled"});
    shapes_.rows.emplace_back();
    shapes_.rows.back().problem.m = shapes_.rows.back().problem.n = shapes_.rows.back().problem.k = 64;
    // Routings are of mixtures.
    Problem& mixture = shapes_.rows.emplace_back().problem;
    mixture = default_problem(Operation::fused_moe);
    mixture.m = mixture.n = mixture.k = 64;
    mixture.moe.experts = 16;
    mixture.moe.topk = 4;
  }

  /// As on the command line.
  static TuneOptions parse(const std::vector<std::string>& words) {
    TuneOptions options;
    CLI::App app;
    CommandOptions declared(app);
    for (const OptionSection section : sections) declare_section(declared, section, options);
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    return options;
  }
  static Outputs outputs() {
    Outputs made;
    made.tuned = "tuned.csv";
    return made;
  }
  /// Environment and identity of a run.
  std::pair<std::string, std::string> run_of(const std::vector<std::string>& words) {
    const TuneOptions options = parse(words);
    const auto request = request_of(options, shapes_, outputs(), device_);
    EXPECT_TRUE(request.ok()) << request.message();
    if (!request.ok()) return {};
    const RunText text = run_text(device_, *request, request->shapes);
    return {text.environment, text.request};
  }
  template <typename Value>
  static Value default_of(Value TuneOptions::*field) {
    return TuneOptions().*field;
  }
  template <typename Value>
  static Value default_of(Value TuneRequest::*field) {
    return TuneRequest().*field;
  }
  template <typename Value>
  static Value default_of(Value Policy::*field) {
    return Policy().*field;
  }
  template <typename Value>
  static Value default_of(Value DeviceOptions::*field) {
    return DeviceOptions().*field;
  }
  /// The words that give an option another value.
  static std::vector<std::string> other_value(const TuneOption& option) {
    const std::string name(long_name(option));
    const auto number = [&](double value) {
      const double other = value + 1 <= option.details.bounds.max ? value + 1 : value / 2;
      return std::vector<std::string>{name, fmt::format("{}", other)};
    };
    return std::visit(
        [&](auto field) -> std::vector<std::string> {
          const auto value = default_of(field);
          using Value = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<Value, bool>) {
            return {value ? "--no-" + name.substr(2) : name};
          } else if constexpr (std::is_arithmetic_v<Value>) {
            return number(static_cast<double>(value));
          } else {
            EXPECT_TRUE(other_texts.contains(name)) << name << ": give this test another value of it";
            return other_texts.contains(name) ? std::vector<std::string>{name, other_texts.at(name)}
                                              : std::vector<std::string>{};
          }
        },
        option.field);
  }

  testing::PaperDevice device_;
  ShapeList shapes_;
};

TEST_F(OptionTable, AnotherValueHasTheEffectThatTheTableSays) {
  for (const TuneOption& option : tune_option_table()) {
    const std::string_view name = long_name(option);
    std::vector<std::string> words = other_value(option);
    std::vector<std::string> before;
    if (name == "--m-regret") before = {"--m-range", "1:16"};  // has no meaning without
    words.insert(words.end(), before.begin(), before.end());
    const auto plain = run_of(before);
    const auto changed = run_of(words);
    EXPECT_EQ(changed.first != plain.first, option.details.effect == OptionEffect::measuring) << name;
    EXPECT_EQ(changed.second != plain.second, option.details.effect != OptionEffect::none) << name;
  }
}

TEST_F(OptionTable, FailuresAreKnownWhateverTheObjectiveIs) {
  const auto text_of = [&](const std::vector<std::string>& words) {
    const auto request = request_of(parse(words), shapes_, outputs(), device_);
    EXPECT_TRUE(request.ok()) << request.message();
    return run_text(device_, *request, request->shapes);
  };
  const RunText energy = text_of({"--objective", "energy"});
  EXPECT_EQ(energy.policy, text_of({}).policy);
  EXPECT_NE(energy.command, text_of({}).command);
}

TEST_F(OptionTable, EachOptionStandsOnce) {
  std::set<std::string_view> names;
  for (const TuneOption& option : tune_option_table()) {
    EXPECT_TRUE(names.insert(long_name(option)).second) << long_name(option);
  }
}

TEST_F(OptionTable, ValuesOutOfBoundsAreErrorsThatNameTheOption) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"--limit", "-1"},
                                                                      {"--errRatio", "1.5"},
                                                                      {"--prefer-ratio", "0"},
                                                                      {"--iters", "0"},
                                                                      {"--budget", "nan"}}) {
    const Status status = check_bounds(parse({name, value}));
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.message().substr(0, name.size()), name);
  }
  EXPECT_TRUE(check_bounds(parse({"--prefer-ratio", "1"})).ok());
}

}  // namespace
}  // namespace gemmtune::cli
