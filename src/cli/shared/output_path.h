// Paths that will be written: refused before anything slow starts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace gemmtune::cli {

/// ok where a file can be written at `path` (an existing one replaced): no folder, not "-", no side file of a tuned file, no
/// link of another user, a name that leaves room for the files beside it, the folder above is there and takes a file with some
/// bytes in it. The text names the option, the path and the reason.
Status check_writable(const std::string& option, const std::string& path);
/// The same for what is a side file itself: a journal.
Status check_side_file_writable(const std::string& option, const std::string& path);
/// An error if `path` is a file that gemmtune keeps beside a tuned file (its journal, environments, shard or lock), or would be
/// taken for one.
Status check_no_side_file(const std::string& option, const std::string& path);

/// From the root on, links of the file itself resolved.
std::string absolute_path(const std::string& path);

/// True if the path of an output is a folder's: one that is there, or a name that ends with '/'.
bool names_folder(const std::string& output);

/// A file and what it is to the user: "--events", "the journal of -o". An empty path is no file.
struct NamedFile {
  std::string name;
  std::string path;
};
/// Each output is another file than the outputs behind it and than the others. The text names both.
Status check_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& others);

/// For what is written whole and is no tuned file: hours of tuning are not replaced by a list of shapes.
Status check_replaces_no_tuned_file(const std::string& option, const std::string& path);
/// The same where the file's kind is known: an existing one that is not empty is replaced only if `is_kind` says so. `kind`:
/// "a list of shapes".
Status check_replaces_only(const std::string& option, const std::string& path, std::string_view kind,
                           bool (*is_kind)(const std::string& path, const std::string& content));

}  // namespace gemmtune::cli
