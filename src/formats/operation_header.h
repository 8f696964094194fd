// Which operation a table of AITER's is of, from its header or its file name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/csv.h"
#include "problem/problem.h"

namespace gemmtune {

/// The operations whose tables may have this header, tuned or untuned; empty where it is no such header.
std::vector<Operation> operations_of_header(const CsvCells& header);
/// By AITER's base names anywhere in the file name (bf16_untuned_gemm, a8w8_blockscale_tuned_gemm …).
std::optional<Operation> operation_of_file_name(const std::string& path);

/// `wanted`, else the header's if it fits one operation only, else the file name's; else an error that lists
/// the candidates. An operation that this version cannot read is an error that names it.
Result<Operation> detect_operation(const std::string& source, const CsvCells& header,
                                   std::optional<Operation> wanted);
/// The error for an operation whose files come with a later version; ok for a16w16.
Status check_readable(const std::string& source, Operation operation);

}  // namespace gemmtune
