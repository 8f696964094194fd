// Which of AITER's tables a CSV is, from its header, its file name and what the caller says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/aiter/schema.h"
#include "formats/csv/csv.h"

namespace gemmtune {

/// The tables that may have this header, tuned or untuned; empty where it is no such header.
std::vector<TableKind> tables_of_header(const CsvCells& header);
/// By AITER's base names anywhere in the file name (bf16_untuned_gemm, a8w8_blockscale_tuned_gemm …).
std::optional<TableKind> table_of_file_name(const std::string& path);

/// What is wrong with the file's name if it is that of another table; empty if it is not.
std::string name_disagreement(const std::string& source, const Schema& schema);

/// The table of `wanted`, else the header's if it fits one only, else the file name's among those that it
/// fits; else an error that lists the candidates. A name never hides the batch of the header. Where the
/// header fits one table of `wanted` that is only read (mxscale …), that one.
Result<const Schema*> detect_schema(const std::string& source, const CsvCells& header,
                                    std::optional<Operation> wanted);

}  // namespace gemmtune
