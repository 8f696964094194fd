// A list of look-ups: CSV with family, file and request, as `gemmtune lookup --requests` takes it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tuned/table.h"

namespace gemmtune {

struct TableRequest {
  LookupKey key;     // with gfx and cu_num
  std::string file;  // as it stands in the list
  std::size_t line = 0;
  Status state;  // not ok: the row stands for no look-up; then only `line` holds
};

struct TableRequests {
  std::vector<TableRequest> rows;
};

/// "gfx=gfx950;cu_num=256;M=1;N=2048;K=3072": the key columns of the operation's tuned file, in any order,
/// with AITER's names. A key that the table does not have, one that is missing (sizes, gfx, cu_num) and a
/// value that means nothing are errors that name them.
Result<LookupKey> parse_table_request(OperationForm operation, std::string_view text);

/// Columns family (AITER's or our name of the operation), file (relative to the list's folder, or absolute)
/// and request; others are ignored. A row that stands for no look-up has its reason in `state`;
/// an unknown family is an error with file:line.
Result<TableRequests> read_table_requests(const std::string& path);

}  // namespace gemmtune
