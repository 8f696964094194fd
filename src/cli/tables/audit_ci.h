// Findings as continuous integration shows them.
#pragma once

#include <string>
#include <vector>

#include "cli/tables/audited_files.h"

namespace gemmtune::cli {

/// SARIF 2.1.0: a run with the kinds as rules. Files that could not be read are notifications.
std::string sarif_of(const AuditedFiles& audited, const std::vector<Finding>& findings);
/// GitHub's workflow commands, a line each: ::error file=…,line=…,title=…::…
std::string github_annotations_of(const AuditedFiles& audited, const std::vector<Finding>& findings);

}  // namespace gemmtune::cli
