#include "resolve/row_environment.h"

#include <utility>

#include "formats/aiter/environment_json.h"
#include "formats/json.h"
#include "formats/json_text.h"

namespace gemmtune {
namespace {

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string_view major_version(std::string_view version) { return version.substr(0, version.find('.')); }

}  // namespace

Result<EnvironmentNotes> EnvironmentNotes::read(const std::string& path) {
  GEMMTUNE_TRY(const auto file, read_environment_json(path));
  EnvironmentNotes notes;
  for (const auto& [env, object] : file.objects) notes.add(env, object);
  return notes;
}

void EnvironmentNotes::add(const std::string& env, std::string_view object) {
  const Json document = parse_json(object);
  RowEnvironmentNote note;
  if (document.is_object()) {
    note.model = text_at(document, "device");
    note.team = text_at(document, "team");
    const auto libraries = document.find("libraries");
    if (libraries != document.end() && libraries->is_object()) {
      for (const auto& [name, version] : libraries->items()) {
        if (version.is_string()) note.libraries[name] = version.get<std::string>();
      }
    }
  }
  notes_[env] = std::move(note);
}

std::string EnvironmentNotes::difference(const std::string& env, const DeviceInfo& device) const {
  if (env.empty()) return {};
  const auto found = notes_.find(env);
  if (found == notes_.end()) return fmt::format("its environment {} is not described beside its file", env);
  const RowEnvironmentNote& note = found->second;
  if (!note.model.empty() && note.model != device.model) {
    return fmt::format("measured on '{}', this is '{}'", note.model, device.model);
  }
  const bool any_team = note.team.empty() || device.team.empty() || device.team == to_string(Team::callback);
  if (!any_team && note.team != device.team)
    return fmt::format("measured on threads of team {}, here it is {} (GEMMTUNE_TEAM)", note.team,
                       device.team);
  for (const Library& library : device.libraries) {
    const auto version = note.libraries.find(library.name);
    if (version == note.libraries.end() || version->second.empty() || library.version.empty()) continue;
    if (major_version(version->second) == major_version(library.version)) continue;
    return fmt::format("measured with {} {}, here is {}", library.name, version->second, library.version);
  }
  return {};
}

std::string EnvironmentNotes::certain_difference(const std::string& env, const DeviceInfo& device) const {
  if (env.empty()) return "it names no environment";
  if (notes_.contains(env) && model(env).empty())
    return fmt::format("its environment {} names no device", env);
  return difference(env, device);
}

std::string EnvironmentNotes::model(const std::string& env) const {
  const auto found = notes_.find(env);
  return found == notes_.end() ? std::string() : found->second.model;
}

}  // namespace gemmtune
