#include "cli/tables/audit_marks.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace gemmtune::cli {
namespace {

std::string marks_path_of(const std::string& path) {
  const std::string folder = parent_folder(path);
  return folder.empty() ? std::string(audit_marks_name) : folder + "/" + audit_marks_name;
}

/// The next word; the rest of the line stays in `line`.
std::string_view take_word(std::string_view& line) {
  line = trim(line);
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

Status read_marks(const std::string& path, std::vector<AuditMark>& marks) {
  GEMMTUNE_TRY(const auto content, read_file(path));
  std::size_t number = 0;
  for (std::string_view line : split(std::string_view(content), '\n')) {
    ++number;
    if (const std::size_t comment = line.find('#'); comment != std::string_view::npos)
      line = line.substr(0, comment);
    if (trim(line).empty()) continue;
    AuditMark mark;
    mark.place = fmt::format("{}:{}", path, number);
    const std::string_view kind = take_word(line);
    const auto known = parse_finding_kind(kind);
    if (!known) return Status::invalid("{}: '{}', expected the kind of a finding", mark.place, kind);
    mark.kind = *known;
    mark.file = take_word(line);
    if (mark.file.empty())
      return Status::invalid("{}: no file, expected a pattern of file names behind the kind", mark.place);
    mark.text = trim(line);
    marks.push_back(std::move(mark));
  }
  return {};
}

}  // namespace

Result<std::vector<AuditMark>> read_audit_marks(const std::vector<std::string>& paths) {
  std::set<std::string> known;
  std::vector<AuditMark> marks;
  for (const std::string& path : paths) {
    const std::string file = marks_path_of(path);
    if (!known.insert(file).second || !file_exists(file)) continue;
    GEMMTUNE_RETURN_IF_ERROR(read_marks(file, marks));
  }
  return marks;
}

bool is_meant(const Finding& finding, const std::string& path, std::vector<AuditMark>& marks) {
  const std::string place = marks_path_of(path) + ":";
  const std::string name = path.substr(path.rfind('/') + 1);
  for (AuditMark& mark : marks) {
    if (mark.kind != finding.kind || !mark.place.starts_with(place)) continue;
    if (fnmatch(mark.file.c_str(), name.c_str(), 0) != 0) continue;
    if (finding.text.find(mark.text) == std::string::npos) continue;
    ++mark.findings;
    return true;
  }
  return false;
}

}  // namespace gemmtune::cli
