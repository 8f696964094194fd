// Errata as files: a JSON object each, see docs/errata.md.
#pragma once

#include <string>

#include "base/status.h"
#include "candidates/erratum.h"

namespace gemmtune {

/// invalid_argument with "source:line: …" for a field that is unknown, missing, twice there or of another
/// kind than expected, and for a condition that uses a name which `parameters` lacks.
Result<Erratum> parse_erratum(const std::string& source, const std::string& text);

/// The file's text. parse_erratum() of it gives the same erratum.
std::string print_erratum(const Erratum& erratum);

}  // namespace gemmtune
