// <file>.env.json beside a tuned file: the environment behind each hash in its `env` column.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/status.h"
#include "problem/operation.h"

namespace gemmtune {

/// Beside the file that `tuned_path` resolves to.
std::string environment_path(const std::string& tuned_path);

using EnvironmentObjects = std::map<std::string, std::string, std::less<>>;  // env hash → JSON object text

struct EnvironmentFile {
  std::string path;
  EnvironmentObjects objects;  // each on one line
};

/// A file that is not there has no objects; one that is no JSON object of objects is an error with file:line.
Result<EnvironmentFile> read_environment_json(const std::string& tuned_path);
/// The same for a text; `source` stands in messages and as the path.
Result<EnvironmentFile> parse_environment_json(const std::string& source, const std::string& content);

/// The operation that publish() notes in each object; nullopt where none is noted, or several.
std::optional<OperationForm> noted_operation(const std::string& tuned_path);
/// The object's text with the note.
Result<std::string> with_operation(const std::string& object, OperationForm operation);

/// Merges objects (hash → object text) into the file: keys of a known hash are replaced, in objects below it too (the
/// joules of other rows stay), and the rest stays. An
/// unchanged file is not written. A damaged file is copied to <file>.damaged, said in the log, and begun
/// anew. The caller holds the tuned file's lock.
Status merge_environment_json(const std::string& tuned_path, const EnvironmentObjects& objects);

/// `text` as the objects of `hashes`: with one hash the text is its object (or an object that holds it under
/// the hash), with several it is an object of hash → object that has each of them.
Result<EnvironmentObjects> environments_of(const std::string& text, const std::set<std::string>& hashes);

}  // namespace gemmtune
