#include "dispatch/row_environment.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace gemmtune {
namespace {

using nlohmann::json;

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

RowEnvironmentNote read_note(const json& object) {
  RowEnvironmentNote note;
  note.model = text_at(object, "device");
  const auto libraries = object.find("libraries");
  if (libraries == object.end() || !libraries->is_object()) return note;
  for (const auto& [name, version] : libraries->items()) {
    if (version.is_string()) note.libraries[name] = version.get<std::string>();
  }
  return note;
}

std::string_view major_version(std::string_view version) { return version.substr(0, version.find('.')); }

}  // namespace

Result<EnvironmentNotes> EnvironmentNotes::read(const std::string& path) {
  const std::string source = path + ".env.json";
  const auto content = read_file(source);
  if (content.code() == StatusCode::not_found) return EnvironmentNotes();
  if (!content.ok()) return content.status();
  return parse(*content, source);
}

Result<EnvironmentNotes> EnvironmentNotes::parse(std::string_view text, const std::string& source) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object())
    return Status::invalid("{}: is no JSON object, expected hash: environment", source);
  EnvironmentNotes notes;
  for (const auto& [hash, object] : document.items()) {
    if (object.is_object()) notes.notes_[hash] = read_note(object);
  }
  return notes;
}

std::string EnvironmentNotes::difference(const std::string& env, const DeviceInfo& device) const {
  if (env.empty()) return {};
  const auto found = notes_.find(env);
  if (found == notes_.end()) return fmt::format("its environment {} is not described beside its file", env);
  const RowEnvironmentNote& note = found->second;
  if (!note.model.empty() && note.model != device.model) {
    return fmt::format("measured on '{}', this is '{}'", note.model, device.model);
  }
  for (const Library& library : device.libraries) {
    const auto version = note.libraries.find(library.name);
    if (version == note.libraries.end() || version->second.empty() || library.version.empty()) continue;
    if (major_version(version->second) == major_version(library.version)) continue;
    return fmt::format("measured with {} {}, here is {}", library.name, version->second, library.version);
  }
  return {};
}

}  // namespace gemmtune
