// gemmtune explain: which kernel families take a problem, their spaces, and why the others refuse.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "backends/default_kernels.h"
#include "base/environment.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/family_names.h"
#include "cli/shared/report_parts.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "formats/json.h"
#include "formats/search_space/search_space_yaml.h"
#include "resolve/answer.h"
#include "resolve/candidate_list.h"
#include "resolve/errata.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* explain_footer = R"(
Examples:
  gemmtune explain -m 1 -n 2048 -k 2048
  gemmtune explain -m 16 -n 2048 -k 8192 --indtype f32 --space tiled
  gemmtune explain -m 16 -n 2048 -k 8192 --space tiled --search-space narrow.yaml
  gemmtune explain -m 16 -n 2048 -k 8192 --space tune_gemm_v2
  gemmtune explain --op a8w8_blockscale -m 16 -n 2112 -k 7168 --table configs
  gemmtune explain -m 1 -n 2048 -k 2048 --json)";

struct ExplainOptions {
  SizeOptions size;
  DeviceOptions device;
  std::string space;
  std::string search_space;  // file; empty: none
  std::string rules = "own";
  std::string table;  // tuned files or Triton configs; empty: none
  bool json = false;
};

std::string default_name_of(const KernelFamily& family, const Problem& problem) {
  return Candidate{std::string(family.name()), family.revision(), family.default_config(problem)}
      .kernel_name();
}

/// A family's space as tuning goes through it, and how it came to that.
struct ExplainedSpace {
  ExplainedSpace(const KernelFamily& explained, const Problem& problem, const SearchSpace& file)
      : name(explained.name()),
        own(explained.space(problem)),
        searched(searched_space(explained, problem, &file, false)),
        steps(space_steps(own, file.find(explained.name()), explained.default_config(problem), file.rules)) {}
  /// A space of no family.
  ExplainedSpace(std::string_view of, const Space& space)
      : name(of), own(space), searched(space), steps(space_steps(space, nullptr, {})) {}
  std::int64_t allowed() const { return steps.empty() ? searched.points() : steps.back().left; }

  std::string name;
  Space own;
  Space searched;
  std::vector<SpaceStep> steps;  // parameters first, in the spaces' order
};

Json space_json(const ExplainedSpace& space) {
  Json json;
  json["points"] = space.own.points();
  json["allowed"] = space.allowed();
  json["parameters"] = Json::array();
  json["rules"] = Json::array();
  const std::vector<Parameter>& parameters = space.searched.parameters();
  for (std::size_t i = 0; i < space.steps.size(); ++i) {
    const SpaceStep& step = space.steps[i];
    if (i < parameters.size()) {
      json["parameters"].push_back({{"key", step.name},
                                    {"values", parameters[i].values},
                                    {"absent", parameters[i].absent},
                                    {"meaning", parameters[i].meaning},
                                    {"removed", step.removed},
                                    {"left", step.left}});
      if (const auto& range = parameters[i].range; range && !space.searched.is_listed())
        json["parameters"].back()["range"] = {
            {"first", range->first}, {"last", range->last}, {"step", range->step}};
    } else {
      json["rules"].push_back({{"name", step.name},
                               {"kind", step.kind == SpaceStep::Kind::build ? "build" : "search"},
                               {"on", step.on},
                               {"removed", step.removed},
                               {"left", step.left}});
    }
  }
  return json;
}

/// With what can be built beside the values: "rows a block; any of 1 to 4096".
std::string meaning_text(const Parameter& parameter, bool is_listed) {
  if (!parameter.range || is_listed) return parameter.meaning;
  return fmt::format("{}; any of {}", parameter.meaning, parameter.range->text());
}

std::string space_text(const ExplainedSpace& space) {
  std::string text =
      fmt::format("\nspace of {}: {} points, {} allowed\n", space.name, space.own.points(), space.allowed());
  TextTable table({{"name", false, false},
                   {"kind", false, false},
                   {"removed", true, false},
                   {"left", true, false},
                   {"values", false, true},
                   {"meaning", false, false}});
  const std::vector<Parameter>& parameters = space.searched.parameters();
  for (std::size_t i = 0; i < space.steps.size(); ++i) {
    const SpaceStep& step = space.steps[i];
    const bool is_parameter = i < parameters.size();
    table.add({step.name, std::string(to_string(step.kind)) + (step.on ? "" : ", off"),
               std::to_string(step.removed), std::to_string(step.left),
               is_parameter ? joined(parameters[i].values, " ") : "",
               is_parameter ? meaning_text(parameters[i], space.searched.is_listed()) : ""});
  }
  if (!table.empty()) text += table.text(stdout_is_terminal() ? stdout_columns() : 0);
  return text;
}

/// "fp32", "tensor_core" or "fp32 and tensor_core": the classes that a family has for the problem.
std::string classes_text(const KernelFamily& family, const Problem& problem,
                         const std::vector<Config>& configs) {
  std::set<Accuracy> classes;
  for (const Config& config : configs) classes.insert(family.accuracy(problem, config));
  std::string text;
  for (const Accuracy accuracy : {Accuracy::fp32, Accuracy::tensor_core})
    if (classes.contains(accuracy))
      text += fmt::format("{}{}", text.empty() ? "" : " and ", to_string(accuracy));
  return text;
}

Json family_json(const KernelFamily& family, const Problem& problem, const SearchSpace& search_space) {
  const Status accepted = family.accepts(problem);
  Json json = {{"name", family.name()}, {"takes", accepted.ok()}, {"why", accepted.message()}};
  if (accepted.ok()) {
    json["default"] = default_name_of(family, problem);
    const Space space = searched_space(family, problem, &search_space, false);
    const std::vector<Config> configs = space.enumerate();
    json["points"] = space.points();
    json["allowed"] = configs.size();
    json["accuracy"] = classes_text(family, problem, configs);
    const auto layout = family.packed_layout(problem);
    json["packed_layout"] = layout ? Json(to_string(*layout)) : Json();
  }
  return json;
}

std::string families_text(const Device& device, const Problem& problem, const SearchSpace& search_space) {
  TextTable table({{"family", false, false},
                   {"configs", true, false},
                   {"accuracy", false, false},
                   {"default, or why not", false, true}});
  for (const KernelFamily* family : device.families()) {
    const std::string name(family->name());
    if (const Status accepted = family->accepts(problem); !accepted.ok()) {
      table.add({name, "-", "-", accepted.message()});
      continue;
    }
    const std::vector<Config> configs = searched_space(*family, problem, &search_space, false).enumerate();
    table.add({name, std::to_string(configs.size()), classes_text(*family, problem, configs),
               default_name_of(*family, problem)});
  }
  return table.text(0);
}

/// A kernel, and its erratum if it has one.
std::string candidate_text(const Device& device, const Problem& problem, const Result<Candidate>& candidate) {
  if (!candidate.ok()) return fmt::format("none: {}", candidate.message());
  const DeviceErrata errata(device.info());
  const Erratum* const erratum = errata.find(problem, *candidate);
  return candidate->kernel_name() + (erratum == nullptr ? std::string() : "; " + describe(*erratum));
}

std::string fallback_text(const Result<Fallback>& fallback) {
  if (!fallback.ok()) return fmt::format("none: {}", fallback.message());
  const std::string passed = fallback->passed.empty() ? "" : "; passed over " + fallback->passed;
  return fallback->candidate.kernel_name() + passed;
}

/// The errata that hold for configs of the problem, each with the number of configs.
std::map<const Erratum*, std::size_t> struck_configs(const Device& device, const Problem& problem) {
  std::map<const Erratum*, std::size_t> struck;
  const DeviceErrata errata(device.info());
  for (const KernelFamily* family : device.families()) {
    if (errata.empty() || !family->accepts(problem).ok()) continue;
    for (const Config& config : family->space(problem).enumerate()) {
      const Erratum* const erratum =
          errata.find(problem, {std::string(family->name()), family->revision(), config});
      if (erratum != nullptr) ++struck[erratum];
    }
  }
  return struck;
}

Json candidate_json(const Result<Candidate>& candidate) {
  return candidate.ok() ? Json(candidate->kernel_name()) : Json();
}

Json accuracy_json(const Device& device, const Problem& problem, const Result<Candidate>& candidate) {
  return candidate.ok() ? Json(to_string(device.accuracy(*candidate, problem))) : Json();
}

/// The default under --accuracy fast, if it is another one.
std::optional<Candidate> fast_default(const Device& device, const Problem& problem) {
  const auto usual = default_kernel(device, problem, AccuracyPolicy::keep);
  const auto fast = default_kernel(device, problem, AccuracyPolicy::fast);
  if (!usual.ok() || !fast.ok() || *usual == *fast) return std::nullopt;
  return *fast;
}

/// What dispatch does with the tables of --table; empty without it.
Result<std::string> rule_of_tables(const ExplainOptions& options, const Device& device,
                                   const Problem& problem) {
  if (options.table.empty()) return std::string();
  const auto tables = read_table_set(options.table, form_of(problem));
  if (!tables.ok()) return Status(tables.code(), fmt::format("--table {}", tables.message()));
  const Answer answer = answer_problem(device, *tables, problem, {});
  if (!answer.status.ok()) return answer.status.message();
  return fmt::format("{}: {}", answer.kernel_name(), answer.rule());
}

Result<int> run_explain(const ExplainOptions& options) {
  GEMMTUNE_TRY(auto opened, open_device(options.device, read_environment(), false));
  const Device& device = *opened;
  GEMMTUNE_TRY(const auto problem, problem_of(options.size, device.info().gfx));
  const KernelFamily* shown = nullptr;
  const bool shows_tune_gemm = options.space == to_string(RuleSet::tune_gemm_v2);
  if (!options.space.empty() && !shows_tune_gemm) {
    shown = device.find_family(options.space);
    if (shown == nullptr) {
      std::string known;
      for (const KernelFamily* family : device.families()) {
        known += fmt::format("{}, ", family->name());
      }
      known += to_string(RuleSet::tune_gemm_v2);
      return Status::invalid("--space {}: unknown family (known: {})", options.space, known);
    }
    if (const Status accepted = shown->accepts(problem); !accepted.ok()) {
      return Status::invalid("--space {}: the family does not take {}: {}", options.space,
                             short_name(problem), accepted.message());
    }
  }
  SearchSpace search_space;
  const auto rules = parse_rule_set(options.rules);
  if (!rules.ok()) return Status::invalid("--rules {}", rules.message());
  if (!options.search_space.empty()) {
    auto read = read_search_space(options.search_space);
    if (read.ok()) read->rules = *rules;
    const Status status = read.ok() ? check_search_space(device, *read, {&problem, 1}, false) : read.status();
    if (!status.ok()) return Status::invalid("--search-space {}", status.message());
    search_space = std::move(*read);
  }
  search_space.rules = *rules;
  std::optional<ExplainedSpace> space;
  if (shown != nullptr) space.emplace(*shown, problem, search_space);
  if (shows_tune_gemm) space.emplace(options.space, tune_gemm_v2_space(problem));
  GEMMTUNE_TRY(const auto rule, rule_of_tables(options, device, problem));
  const auto usual = default_kernel(device, problem, AccuracyPolicy::keep);
  if (options.json) {
    Json json;
    json["command"] = "explain";
    json["problem"] = print(problem);
    json["device"] = device.info().name;
    json["gfx"] = device.info().gfx;
    json["baseline"] = candidate_json(usual);
    json["baseline_accuracy"] = accuracy_json(device, problem, usual);
    json["library"] = candidate_json(device.baseline(problem));
    const auto fast = fast_default(device, problem);
    json["fast_baseline"] = fast ? Json(fast->kernel_name()) : Json();
    const auto fallback = usable_fallback(device, problem);
    json["fallback"] = fallback.ok() ? Json(fallback->candidate.kernel_name()) : Json();
    json["fallback_passed"] = fallback.ok() ? fallback->passed : std::string();
    json["dispatch"] = rule.empty() ? Json() : Json(rule);
    json["errata"] = Json::array();
    for (const auto& [erratum, configs] : struck_configs(device, problem)) {
      json["errata"].push_back(erratum_json(*erratum));
      json["errata"].back()["configs"] = configs;
    }
    json["families"] = Json::array();
    for (const KernelFamily* family : device.families())
      json["families"].push_back(family_json(*family, problem, search_space));
    if (space) json["space"] = space_json(*space);
    print_document(json_document(json));
    return exit_done;
  }
  std::string text = fmt::format("{}\n{:.3g} GFLOP, {:.3g} MB\non {}\n\n{}\n", print(problem),
                                 flops(problem) * 1e-9, bytes(problem) * 1e-6, device_line(device.info()),
                                 families_text(device, problem, search_space));
  text +=
      fmt::format("default (speed-ups are against it): {}\nwithout a tuned row: {}\n",
                  candidate_text(device, problem, usual), fallback_text(usable_fallback(device, problem)));
  if (const auto library = device.baseline(problem); library.ok() && usual.ok() && *library != *usual)
    text += fmt::format("of a vendor's library: {}\n", candidate_text(device, problem, library));
  if (!rule.empty()) text += fmt::format("with {}: {}\n", options.table, rule);
  if (const auto fast = fast_default(device, problem))
    text += fmt::format("default of --accuracy fast: {}\n", candidate_text(device, problem, *fast));
  for (const auto& [erratum, configs] : struck_configs(device, problem)) {
    text += fmt::format("{} of {}: {} (found: {}; try: {})\n", counted(configs, "config"), erratum->family,
                        describe(*erratum), erratum->found, erratum->repro);
  }
  if (space) text += space_text(*space);
  print_text(text);
  return exit_done;
}

}  // namespace

std::function<Result<int>()> declare_explain(CommandOptions& app) {
  auto options = std::make_shared<ExplainOptions>();
  declare_size_options(app, options->size);
  declare_device_options(app, options->device);
  app.add_option(
      "--space", options->space,
      "Parameters, values and rules of this family's space; tune_gemm_v2: of the space of tune_gemm 2, "
      "which it prunes by the same rules");
  app.add_option("--rules", options->rules, rules_help).capture_default_str();
  app.add_option("--search-space", options->search_space,
                 "Choose values and rules of spaces by this file (YAML), as tune does")
      .type_name("FILE");
  app.add_option("tables,--table", options->table,
                 "Say what dispatch runs with these tuned files, Triton configs and folders of these, "
                 "colon-separated");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(explain_footer);
  return [options] { return run_explain(*options); };
}

}  // namespace gemmtune::cli
