// Findings that are meant: a file gemmtune-audit.txt beside the audited files says which, and why.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "tuned/finding.h"

namespace gemmtune::cli {

inline constexpr const char* audit_marks_name = "gemmtune-audit.txt";

/// "missing_bucket E=8,*.json M = 1" of a line: the kind, a pattern of file names (fnmatch), and what the finding's text
/// must have, if anything. Text behind '#' says why.
struct AuditMark {
  FindingKind kind = FindingKind::malformed;
  std::string file;
  std::string text;
  std::string place;  // "folder/gemmtune-audit.txt:3"
  std::size_t findings = 0;
};

/// Of the folders of these files. An error names the line that is no mark.
Result<std::vector<AuditMark>> read_audit_marks(const std::vector<std::string>& paths);
/// True if a mark of the file's folder means the finding; the mark counts it.
bool is_meant(const Finding& finding, const std::string& path, std::vector<AuditMark>& marks);

}  // namespace gemmtune::cli
