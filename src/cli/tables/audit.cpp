// gemmtune audit: what is wrong with tuned files, row by row, and a clean copy.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/output_path.h"
#include "cli/shared/size_options.h"
#include "cli/tables/audit_marks.h"
#include "cli/tables/audited_files.h"
#include "cli/tables/table_files.h"
#include "formats/aiter/merge_tables.h"
#include "formats/aiter/table_audit.h"
#include "formats/json.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

/// A path as a relative URI: all but letters, digits and a few marks are escaped.
std::string uri_of(const std::string& path) {
  constexpr std::string_view plain = "-._~/+=,@!$&'()*;:";
  std::string uri;
  for (const char letter : path) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool is_plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                          (byte >= 'A' && byte <= 'Z') || plain.find(letter) != std::string_view::npos;
    uri += is_plain ? std::string(1, letter) : fmt::format("%{:02X}", byte);
  }
  return uri;
}

/// GitHub's escapes: of a message, and of a property's value.
std::string escaped(std::string_view text, bool property) {
  std::string result;
  for (const char letter : text) {
    const bool always = letter == '%' || letter == '\r' || letter == '\n';
    if (always || (property && (letter == ':' || letter == ',')))
      result += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    else
      result += letter;
  }
  return result;
}

Json location_of(const std::string& path, std::size_t line) {
  Json physical{{"artifactLocation", {{"uri", uri_of(path)}}}};
  if (line != 0) physical["region"] = {{"startLine", line}};
  return {{"physicalLocation", physical}};
}

/// SARIF 2.1.0: a run with the kinds as rules. Files that could not be read are notifications.
std::string sarif_of(const AuditedFiles& audited, const std::vector<Finding>& findings) {
  Json rules = Json::array();
  for (const FindingKind kind : all_finding_kinds()) {
    rules.push_back({{"id", to_string(kind)},
                     {"shortDescription", {{"text", describe(kind)}}},
                     {"defaultConfiguration", {{"level", to_string(severity_of(kind))}}}});
  }
  Json results = Json::array();
  for (const Finding& finding : findings) {
    results.push_back(
        {{"ruleId", to_string(finding.kind)},
         {"level", to_string(finding.severity())},
         {"message", {{"text", finding.text}}},
         {"locations", Json::array({location_of(audited.files[finding.source].path, finding.line)})}});
  }
  Json notifications = Json::array();
  for (const std::string& why : audited.unread)
    notifications.push_back({{"level", "error"}, {"message", {{"text", why}}}});
  const Json run{
      {"tool", {{"driver", {{"name", "gemmtune"}, {"version", GEMMTUNE_VERSION}, {"rules", rules}}}}},
      {"invocations", Json::array({{{"executionSuccessful", audited.unread.empty()},
                                    {"toolExecutionNotifications", notifications}}})},
      {"results", results}};
  return json_document(Json{{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                            {"version", "2.1.0"},
                            {"runs", Json::array({run})}});
}

/// GitHub's workflow commands, a line each: ::error file=…,line=…,title=…::…
std::string github_annotations_of(const AuditedFiles& audited, const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const std::string_view severity = to_string(finding.severity());
    const std::string_view command = severity == "note" ? "notice" : severity;
    const std::string line = finding.line == 0 ? std::string() : fmt::format(",line={}", finding.line);
    text += fmt::format(
        "::{} file={}{},title={}::{}\n", command, escaped(audited.files[finding.source].path, true), line,
        escaped(fmt::format("gemmtune {}", to_string(finding.kind)), true), escaped(finding.text, false));
  }
  for (const std::string& why : audited.unread)
    text += fmt::format("::error title=gemmtune::{}\n", escaped(why, false));
  return text;
}

constexpr const char* audit_footer = R"(
unknown_kernel and stale are asked only of rows of this machine's device. A clean table (--fix) is without malformed,
failed_time, over_tolerance, impossible_rate and unreachable rows and without the losers of a key; wrong rates are
computed again. Rows with us = 0, which AITER's authors write by hand and AITER uses, stay unless --fix-kinds names
failed_time. --fix-kinds adds kinds whose rows go too: redundant rows are those that no look-up needs (merge --compress
makes ranges of the others with one winner). All other bytes stay, several files are merged. An input is never
overwritten; a table of which no row would be left is not written.

Of Triton configs missing buckets, unreachable ones, keys that no kernel reads, duplicates and sizes that do not fit are
found, and kernels that are not known here.

aiconfigurator's tables (gemm_perf, moe_perf) are read as CSV, and as parquet by a Python with pyarrow: GEMMTUNE_PYTHON, else
python3 of PATH. Rows of which no time is too short are counted with the reason.

Files that cannot be read are named and passed over.

A finding is an error (it ends the program that loads the file, cannot be compiled or launched, or computes wrong results), a
warning (slow, noisy or never used) or a note (redundant). Findings that are meant stand in a file gemmtune-audit.txt beside
the audited ones, a line each: the kind, a pattern of file names, and a part of the text, if only some are meant.

Exit codes: 0 no finding as severe as --fail-on, 1 one, or a file that cannot be read beside others that can, 2 usage or
input, also where the device of --backend, --device or --threads is not here.

Examples:
  gemmtune audit bf16_tuned_gemm.csv
  gemmtune audit a.csv:b.csv --kinds duplicate_key,dominated --dominated 10
  gemmtune audit a.csv --quiet --fix clean.csv --fix-kinds redundant
  gemmtune audit aiter/ops/triton/configs --kinds missing_bucket,unreachable --json
  gemmtune audit configs --ci github --fail-on warning)";

struct AuditOptions {
  std::vector<std::string> files;
  std::string operation;
  std::string kinds;
  std::string fix;
  std::string fix_kinds;
  double err_ratio = 0;
  bool err_ratio_given = false;
  double dominated = 5;
  std::string fail_on = "error";
  std::string ci;
  bool quiet = false;
  bool json = false;
  DeviceOptions device;
};

Result<FindingKinds> kinds_of(const std::string& option, const std::string& text) {
  FindingKinds kinds;
  for (const std::string_view word : split(text, ',')) {
    if (trim(word).empty()) continue;
    const auto kind = parse_finding_kind(trim(word));
    if (!kind) {
      const std::string known = joined(all_finding_kinds(), ", ", enumerator_name);
      return Status::invalid("{} {}: no kind (known: {})", option, trim(word), known);
    }
    kinds.add(*kind);
  }
  return kinds;
}

/// An error if a device that was named is not here.
Result<std::vector<Finding>> findings_of(const AuditOptions& options, AuditedFiles& audited) {
  const auto device = open_device(options.device, read_environment(), false);
  if (!device.ok() && options.device.names_device()) return device.status();
  CheckOptions checks;
  checks.dominated_percent = options.dominated;
  if (options.err_ratio_given) checks.err_ratio = checks.moe_err_ratio = options.err_ratio;
  return all_findings(audited, checks, device.ok() ? device->get() : nullptr);
}

std::size_t count_of_kind(const std::vector<Finding>& findings, FindingKind kind) {
  return static_cast<std::size_t>(
      std::ranges::count_if(findings, [&](const Finding& finding) { return finding.kind == kind; }));
}

std::size_t row_count(const std::vector<TunedFile>& files) {
  std::size_t rows = 0;
  for (const TunedFile& file : files) rows += file.entries.size();
  return rows;
}

bool is_tuned_name(std::string_view format) { return format == "aiter" || format == "seed"; }

/// "error", "warning, note": what the kind's findings are.
std::string severities_of(const std::vector<Finding>& findings, FindingKind kind) {
  std::string text;
  for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
    const bool has = std::ranges::any_of(findings, [&](const Finding& finding) {
      return finding.kind == kind && finding.severity() == severity;
    });
    if (has) text += fmt::format("{}{}", text.empty() ? "" : ", ", to_string(severity));
  }
  return text;
}

void print_audit_text(const AuditOptions& options, const AuditedFiles& audited,
                      const std::vector<Finding>& findings, std::size_t meant) {
  const std::vector<TunedFile>& files = audited.files;
  std::string text;
  for (std::size_t index = 0; index < files.size(); ++index) {
    const bool has_rows = is_tuned_name(audited.formats[index]) || audited.formats[index] == "aic";
    if (has_rows || audited.config_of(index) != nullptr) continue;
    text += fmt::format("{}: {}: no tuned rows; what is malformed is said\n", files[index].path,
                        audited.formats[index]);
  }
  for (const Finding& finding : findings) {
    if (options.quiet) break;
    const std::string line = finding.line == 0 ? std::string() : fmt::format(":{}", finding.line);
    text += fmt::format("{}{}: {}: {}\n", files[finding.source].path, line, to_string(finding.kind),
                        finding.text);
  }
  for (const UnratedRows& unrated : audited.unrated)
    text += fmt::format("{}: {} without a shortest time: {}\n", files[unrated.file].path,
                        counted(unrated.rows, "row"), unrated.why);
  std::string content = counted(row_count(files), "row");
  if (!audited.configs.empty()) {
    const std::string buckets = counted(audited.bucket_count(), "bucket");
    content = audited.configs.size() == files.size() ? buckets : content + ", " + buckets;
  }
  text += fmt::format("{} in {}, {}\n", content, counted(files.size(), "file"),
                      counted(findings.size(), "finding"));
  if (meant != 0) text += fmt::format("{} meant ({})\n", counted(meant, "finding"), audit_marks_name);
  if (const std::size_t withheld = withheld_keys(audited); withheld != 0)
    text += fmt::format("{} without a row that may be chosen; AITER answers from them (lookup --as-aiter)\n",
                        counted(withheld, "key"));
  TextTable table({{"kind"}, {"findings", true}, {"severity"}, {"meaning"}});
  for (const FindingKind kind : all_finding_kinds()) {
    const std::size_t count = count_of_kind(findings, kind);
    if (count != 0) {
      table.add({std::string(to_string(kind)), std::to_string(count), severities_of(findings, kind),
                 std::string(describe(kind))});
    }
  }
  if (!table.empty()) text += table.text(0);
  print_text(text);
}

void print_audit_json(const AuditedFiles& audited, const std::vector<Finding>& findings, const Json& fixed,
                      std::size_t meant) {
  const std::vector<TunedFile>& files = audited.files;
  Json json;
  json["command"] = "audit";
  json["files"] = Json::array();
  for (std::size_t index = 0; index < files.size(); ++index) {
    const TunedFile& file = files[index];
    const bool tuned = is_tuned_name(audited.formats[index]);
    json["files"].push_back({{"path", file.path},
                             {"format", audited.formats[index]},
                             {"table", tuned ? Json(file.schema().name) : Json()},
                             {"rows", tuned || !file.entries.empty() ? Json(file.entries.size()) : Json()}});
    if (const TritonFile* config = audited.config_of(index))
      json["files"].back()["buckets"] = config->buckets.size();
  }
  json["unread"] = audited.unread;
  json["unrated"] = Json::array();
  for (const UnratedRows& unrated : audited.unrated)
    json["unrated"].push_back(
        {{"file", files[unrated.file].path}, {"rows", unrated.rows}, {"why", unrated.why}});
  json["summary"] = Json::object();
  for (const FindingKind kind : all_finding_kinds()) {
    json["summary"][std::string(to_string(kind))] = count_of_kind(findings, kind);
  }
  json["findings"] = Json::array();
  for (const Finding& finding : findings) {
    json["findings"].push_back({{"file", files[finding.source].path},
                                {"line", finding.line},
                                {"kind", to_string(finding.kind)},
                                {"severity", to_string(finding.severity())},
                                {"text", finding.text}});
  }
  json["meant"] = meant;
  json["withheld_keys"] = withheld_keys(audited);
  json["fix"] = fixed;
  print_document(json_document(json));
}

/// The kind of most of the rows that a clean table would not have.
std::string_view first_kind_dropped(const FixedTable& fixed) {
  const auto most = std::ranges::max_element(fixed.dropped);
  return to_string(all_finding_kinds()[static_cast<std::size_t>(most - fixed.dropped.begin())]);
}

/// Writes the clean table and says what was done.
Result<Json> write_fixed(const AuditOptions& options, const std::vector<TunedFile>& files,
                         const std::vector<Finding>& findings, const FixOptions& fix) {
  GEMMTUNE_RETURN_IF_ERROR(check_no_input("--fix", options.fix, files));
  Json said{{"path", options.fix}, {"dropped", Json::object()}, {"recomputed", 0}};
  std::array<std::size_t, finding_kind_count> dropped{};
  std::size_t recomputed = 0;
  std::vector<TunedFile> clean;
  std::string text;
  for (std::uint32_t source = 0; source < files.size(); ++source) {
    FixedTable fixed = fix_table(files[source], source, findings, fix);
    if (fixed.rows == 0 && !files[source].entries.empty()) {
      return Status::invalid("--fix: none of {} in {} would be left ({}); nothing is written",
                             counted(files[source].entries.size(), "row"), files[source].path,
                             first_kind_dropped(fixed));
    }
    for (std::size_t kind = 0; kind < dropped.size(); ++kind) dropped[kind] += fixed.dropped[kind];
    recomputed += fixed.recomputed;
    text = std::move(fixed.text);
    if (files.size() == 1) break;
    GEMMTUNE_TRY(auto again,
                 parse_tuned_csv(files[source].path, text, {.operation = files[source].schema().operation}));
    clean.push_back(std::move(again));
  }
  if (files.size() > 1) {
    GEMMTUNE_TRY(auto merged, merge_tables(clean, {}));
    text = std::move(merged.text);
    dropped[static_cast<std::size_t>(FindingKind::duplicate_key)] += merged.duplicates;
    dropped[static_cast<std::size_t>(FindingKind::mixed_layout)] += merged.left_out.size();
  }
  GEMMTUNE_RETURN_IF_ERROR(write_table("--fix", options.fix, text, files));
  for (const FindingKind kind : all_finding_kinds()) {
    const std::size_t count = dropped[static_cast<std::size_t>(kind)];
    if (count != 0) said["dropped"][std::string(to_string(kind))] = count;
  }
  said["recomputed"] = recomputed;
  return said;
}

void say_fixed(const Json& fixed) {
  std::string text;
  for (const auto& [kind, count] : fixed["dropped"].items()) {
    text += fmt::format(", {} dropped ({})", counted(count.get<std::size_t>(), "row"), kind);
  }
  print_note(fmt::format("{}: written{}, rates of {} computed again", fixed["path"].get<std::string>(), text,
                         counted(fixed["recomputed"].get<std::size_t>(), "row")));
}

Result<int> run_audit(const AuditOptions& options) {
  GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
  GEMMTUNE_TRY(const auto shown, kinds_of("--kinds", options.kinds));
  GEMMTUNE_TRY(const auto more, kinds_of("--fix-kinds", options.fix_kinds));
  const auto fail_on = parse_severity(options.fail_on);
  if (!fail_on) return Status::invalid("--fail-on {}: expected error, warning or note", options.fail_on);
  if (!options.ci.empty() && options.ci != "sarif" && options.ci != "github")
    return Status::invalid("--ci {}: expected sarif or github", options.ci);
  if (!options.ci.empty() && options.json)
    return Status::invalid("--ci and --json: stdout holds one document; give one of them");
  if (options.fix == "-") return Status::invalid("--fix -: expected a file");
  if (options.fix.empty() && !options.fix_kinds.empty()) return Status::invalid("--fix-kinds needs --fix");
  AuditedFiles audited = read_audited_files(options.files, operation);
  std::vector<TunedFile>* files = &audited.files;
  if (files->empty()) {
    return Status::invalid("{}",
                           audited.unread.empty() ? "no files: give at least one" : audited.unread.front());
  }
  for (const std::string& why : audited.unread) print_note(why + "; passed over");
  const auto& formats = audited.formats;
  if (!std::ranges::all_of(formats, is_tuned_name) && !options.fix.empty()) {
    return Status::invalid("--fix: only tuned files can be written again; name no others beside it");
  }
  if (!audited.unread.empty() && !options.fix.empty()) {
    return Status::invalid("--fix: {}", audited.unread.front());
  }
  GEMMTUNE_TRY(std::vector<Finding> findings, findings_of(options, audited));
  std::vector<std::string> paths;
  for (const TunedFile& file : *files) paths.push_back(file.path);
  GEMMTUNE_TRY(auto marks, read_audit_marks(paths));
  const std::size_t meant = std::erase_if(
      findings, [&](const Finding& finding) { return is_meant(finding, paths[finding.source], marks); });
  for (const AuditMark& mark : marks)
    if (mark.findings == 0) print_note(fmt::format("{}: marks no finding", mark.place));
  Json fixed;
  if (!options.fix.empty()) {
    FixOptions fix;
    fix.drop_zero_times = more.has(FindingKind::failed_time);
    for (const FindingKind kind : all_finding_kinds()) {
      if (more.has(kind)) fix.kinds.add(kind);
    }
    GEMMTUNE_TRY(fixed, write_fixed(options, *files, findings, fix));
    say_fixed(fixed);
  }
  if (!shown.empty()) {
    std::erase_if(findings, [&](const Finding& finding) { return !shown.has(finding.kind); });
  }
  if (options.ci == "sarif") {
    print_document(sarif_of(audited, findings));
  } else if (options.ci == "github") {
    print_document(github_annotations_of(audited, findings));
  } else if (options.json) {
    print_audit_json(audited, findings, fixed, meant);
  } else {
    print_audit_text(options, audited, findings, meant);
  }
  const bool fails =
      std::ranges::any_of(findings, [&](const Finding& finding) { return finding.severity() >= *fail_on; });
  return fails || !audited.unread.empty() ? exit_findings : exit_done;
}

}  // namespace

std::function<Result<int>()> declare_audit(CommandOptions& app) {
  auto options = std::make_shared<AuditOptions>();
  app.add_option("FILE", options->files,
                 "Tuned files, Triton configs (JSON) and folders of these, aiconfigurator's tables, or "
                 "colon-separated lists of them; in files of "
                 "other formats (untuned CSV, tune_gemm YAML, hipBLASLt CSV) only malformed rows are found")
      .required();
  declare_file_operation(app, options->operation);
  app.add_option("--kinds", options->kinds, "Only these kinds of findings, comma-separated");
  const CommandOption err_ratio =
      app.add_option("--errRatio", options->err_ratio,
                     "Largest stored error (default: 0.05, of either stage of a fused MoE 0.1)")
          .number_range(0, 1e6);
  app.add_option("--dominated", options->dominated,
                 "A row is dominated where a larger M is this many percent faster (default: 5)")
      .number_range(0, 1e6);
  app.add_option("--fix", options->fix, "Write a clean table to this file");
  app.add_option("--fix-kinds", options->fix_kinds, "Kinds whose rows are dropped too, comma-separated");
  app.add_option("--fail-on", options->fail_on,
                 "The least severe finding that makes the exit code 1: error, warning or note")
      .capture_default_str();
  app.add_option(
      "--ci", options->ci,
      "For continuous integration: sarif (SARIF 2.1.0 on stdout) or github (annotations of a workflow)");
  app.add_flag("--quiet", options->quiet, "Only the summary");
  declare_device_options(app, options->device);
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(audit_footer);
  return [options, err_ratio] {
    options->err_ratio_given = err_ratio.count() > 0;
    return run_audit(*options);
  };
}

}  // namespace gemmtune::cli
