#include "formats/aiter/environment_json.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "formats/json.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_environment_bytes = std::size_t{64} << 20;
constexpr const char* operation_key = "operation";

Result<Json> parse_environments(const std::string& path, const std::string& text) {
  GEMMTUNE_TRY(auto json, parse_json_object(path, text));
  for (const auto& [hash, object] : json.items()) {
    if (!object.is_object()) return Status::invalid("{}: '{}' is no JSON object", path, hash);
  }
  return json;
}

/// What the file holds now; a damaged one is put aside.
Result<Json> load_environments_for_merge(const std::string& path, std::string& old_text) {
  auto text = read_file(path, max_environment_bytes);
  if (text.code() == StatusCode::not_found) return Json::object();
  if (!text.ok()) return text.status();
  old_text = std::move(*text);
  auto json = parse_environments(path, old_text);
  if (json.ok()) return json;
  const std::string aside = path + ".damaged";
  GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(aside, old_text));
  log(LogLevel::warning, "{}; kept as {} and begun anew", json.message(), aside);
  return Json::object();
}

}  // namespace

std::string environment_path(const std::string& tuned_path) {
  return resolve_links(tuned_path) + ".env.json";
}

Result<EnvironmentFile> read_environment_json(const std::string& tuned_path) {
  EnvironmentFile file;
  file.path = environment_path(tuned_path);
  const auto text = read_file(file.path, max_environment_bytes);
  if (text.code() == StatusCode::not_found) return file;
  if (!text.ok()) return text.status();
  return parse_environment_json(file.path, *text);
}

Result<EnvironmentFile> parse_environment_json(const std::string& source, const std::string& content) {
  GEMMTUNE_TRY(const auto json, parse_environments(source, content));
  EnvironmentFile file;
  file.path = source;
  for (const auto& [hash, object] : json.items()) file.objects[hash] = json_line(object);
  return file;
}

std::optional<OperationForm> noted_operation(const std::string& tuned_path) {
  const auto file = read_environment_json(tuned_path);
  std::optional<OperationForm> operation;
  if (!file.ok()) return operation;  // who reads rows' environments says why
  for (const auto& [hash, text] : file->objects) {
    const Json object = parse_json(text);
    const auto at = object.find(operation_key);
    const auto noted =
        at == object.end() || !at->is_string() ? std::nullopt : parse_operation(at->get<std::string>());
    if (noted && operation && *noted != *operation) return std::nullopt;
    if (noted) operation = noted;
  }
  return operation;
}

Result<std::string> with_operation(const std::string& object, OperationForm operation) {
  GEMMTUNE_TRY(auto json, parse_json_object("environment", object));
  json[operation_key] = to_string(operation);
  return json_line(json);
}

Status merge_environment_json(const std::string& tuned_path, const EnvironmentObjects& objects) {
  const std::string path = environment_path(tuned_path);
  std::string old_text;
  GEMMTUNE_TRY(auto all, load_environments_for_merge(path, old_text));
  for (const auto& [hash, text] : objects) {
    GEMMTUNE_TRY(const auto object, parse_json_object("environment " + hash, text));
    Json& known = all[hash];
    if (known.is_null()) known = Json::object();
    known.update(object, true);
  }
  const std::string new_text = json_document(all);
  if (new_text == old_text) return {};
  return write_file_atomically(path, new_text);
}

Result<EnvironmentObjects> environments_of(const std::string& text, const std::set<std::string>& hashes) {
  GEMMTUNE_TRY(const auto json, parse_json_object("environment", text));
  const bool by_hash = !hashes.empty() && std::ranges::all_of(hashes, [&](const auto& hash) {
    const auto at = json.find(hash);
    return at != json.end() && at->is_object();
  });
  EnvironmentObjects objects;
  if (by_hash) {
    for (const std::string& hash : hashes) objects[hash] = json_line(json[hash]);
  } else if (hashes.size() == 1) {
    objects[*hashes.begin()] = text;
  } else if (hashes.size() > 1) {
    return Status::invalid("environment: {} env hashes in the rows, expected an object under each of them",
                           hashes.size());
  }
  return objects;
}

}  // namespace gemmtune
