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

/// What else states the table of a file, beside its header and its name.
struct TableSources {
  std::optional<OperationForm> wanted = {};  // the caller's word; it decides
  std::string output =
      {};  // the tuned file that a list is for: its name and what is noted beside it answer too
  std::optional<OperationForm> bare_sizes =
      {};  // the operation of a header of M, N and K of which nothing else says one
};

struct DetectedTable {
  const Schema* schema = nullptr;
  bool is_assumed = false;  // TableSources::bare_sizes
};

/// The one decision of which table a CSV is. The table of `wanted`, else the header's if it fits one only, else of those
/// that it fits the one that is stated by: the file's name, the output's name, the operation that gemmtune noted beside the
/// file or the output (.env.json), the names of the kernels in the rows if they agree. Else bare_sizes, else an error that
/// lists the candidates. A name never hides the batch of the header. Where the header fits one table of `wanted` that is
/// only read (mxscale …), that one. `header`: its index in document.lines, `cells` its names.
Result<DetectedTable> detect_table(const CsvDocument& document, std::size_t header, const CsvCells& cells,
                                   const TableSources& sources);

}  // namespace gemmtune
