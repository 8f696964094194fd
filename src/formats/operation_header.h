// Which operation a CSV is about: from its header, else from AITER's base name in the file name.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "formats/csv.h"
#include "problem/problem.h"

namespace gemmtune {

/// The asked operation, else what the header fits alone, else AITER's base name in the file name, else an
/// error that lists the candidates. A header that cannot be of the asked operation is found later, by its
/// missing columns.
Result<Operation> operation_of(const std::string& path, const CsvHeader& header,
                               std::optional<Operation> asked);

}  // namespace gemmtune
