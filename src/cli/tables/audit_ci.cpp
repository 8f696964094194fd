#include "cli/tables/audit_ci.h"

#include <fmt/format.h>

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

}  // namespace

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

}  // namespace gemmtune::cli
