#include "candidates/tune_gemm_rules.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gemmtune {
namespace {

constexpr std::string_view v2_word = "tune_gemm_v2";
constexpr std::int64_t large = 64;        // rows and columns from which on tiles are enough without split-K
constexpr std::int64_t shallow_k = 1024;  // up to which split-K is not needed either
constexpr std::int64_t v2_instruction = 32;

std::string refuse_block(const Problem&, const TuneGemmConfig& config) {
  const bool small = config.block_m.value_or(config.instruction) < config.instruction ||
                     config.block_n.value_or(config.instruction) < config.instruction;
  return small ? "a block is smaller than the instruction" : "";
}

std::string refuse_uneven_k(const Problem& problem, const TuneGemmConfig& config) {
  return config.block_k && problem.k % (config.split_k * *config.block_k) != 0
             ? "SPLIT_K * BLOCK_K does not divide K"
             : "";
}

std::string refuse_needless_split(const Problem& problem, const TuneGemmConfig& config) {
  const bool needed = (problem.m < large || problem.n < large) && problem.k > shallow_k;
  return config.split_k != 1 && !needed ? "split-K where M and N are large, or K is not" : "";
}

std::string refuse_group(const Problem& problem, const TuneGemmConfig& config) {
  if (!config.group_m || !config.block_m || *config.group_m == 1) return {};
  return *config.group_m * *config.block_m < problem.m ? "" : "GROUP_M * BLOCK_M is not smaller than M";
}

std::string refuse_block_k(const Problem&, const TuneGemmConfig& config) {
  if (config.block_k != 128) return {};
  return config.block_m == 128 || config.block_n == 128 ? "BLOCK_K is 128 beside a BLOCK_M or BLOCK_N of 128"
                                                        : "";
}

}  // namespace

std::string_view to_string(RuleSet rules) { return rules == RuleSet::own ? "own" : v2_word; }

Result<RuleSet> parse_rule_set(std::string_view text) {
  for (const RuleSet rules : {RuleSet::own, RuleSet::tune_gemm_v2})
    if (text == to_string(rules)) return rules;
  return Status::invalid("{}: expected own or {}", text, v2_word);
}

std::vector<Constraint> tune_gemm_v2_rules(const Problem& problem,
                                           const std::function<TuneGemmConfig(const AskedConfig&)>& read) {
  using Refusal = std::string (*)(const Problem&, const TuneGemmConfig&);
  constexpr std::pair<std::string_view, Refusal> rules[] = {{"block", refuse_block},
                                                            {"split-K divides", refuse_uneven_k},
                                                            {"split-K needed", refuse_needless_split},
                                                            {"group", refuse_group},
                                                            {"block_k 128", refuse_block_k}};
  std::vector<Constraint> constraints;
  for (const auto& [name, refuse] : rules) {
    constraints.push_back(
        {std::string(v2_word) + " " + std::string(name),
         [problem, read, refuse = refuse](const AskedConfig& asked) { return refuse(problem, read(asked)); },
         Rule::search,
         {},
         false});
  }
  return constraints;
}

void turn_set(RuleSet rules, Space& space) {
  if (rules == RuleSet::own) return;
  const std::string beginning = std::string(to_string(rules)) + " ";
  const std::vector<Constraint> all = space.constraints();
  const auto is_of_set = [&](const Constraint& rule) { return rule.name.starts_with(beginning); };
  if (std::ranges::none_of(all, is_of_set)) return;
  for (const Constraint& rule : all) space.turn(rule.name, is_of_set(rule));
}

Space tune_gemm_v2_space(const Problem& problem) {
  Space space;
  const std::vector<std::string> blocks{"16", "32", "64", "128", "256"};
  space.add(
      Parameter{.key = "BLOCK_SIZE_M", .values = blocks, .absent = "", .meaning = "rows of A in a tile"});
  space.add(
      Parameter{.key = "BLOCK_SIZE_N", .values = blocks, .absent = "", .meaning = "columns of B in a tile"});
  space.add(Parameter{
      .key = "BLOCK_SIZE_K", .values = blocks, .absent = "", .meaning = "elements of K in a stage"});
  space.add(Parameter{
      .key = "num_warps", .values = {"1", "2", "4", "8"}, .absent = "", .meaning = "waves of a block"});
  space.add(Parameter{.key = "GROUP_SIZE_M",
                      .values = {"1", "4", "8"},
                      .absent = "",
                      .meaning = "tiles along M before the next along N"});
  space.add(Parameter{.key = "SPLIT_K",
                      .values = {"1", "2", "4", "5", "6", "8", "10", "12", "16", "18", "24"},
                      .absent = "",
                      .meaning = "blocks that divide K"});
  space.add(Parameter{.key = "num_stages", .values = {"1", "0"}, .absent = "", .meaning = "of the pipeline"});
  const auto read = [](const Config& config) {
    return TuneGemmConfig{.block_m = config.number("BLOCK_SIZE_M"),
                          .block_n = config.number("BLOCK_SIZE_N"),
                          .block_k = config.number("BLOCK_SIZE_K"),
                          .group_m = config.number("GROUP_SIZE_M"),
                          .split_k = config.number("SPLIT_K"),
                          .instruction = v2_instruction};
  };
  for (Constraint& rule : tune_gemm_v2_rules(problem, read)) {
    rule.on = true;
    space.add(std::move(rule));
  }
  return space;
}

}  // namespace gemmtune
