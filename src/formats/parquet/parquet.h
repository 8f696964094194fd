// Parquet files as CSV: a Python with pyarrow reads them in a process of its own, because no parser of parquet is linked.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gemmtune {

/// By the four bytes that begin it.
bool is_parquet(std::string_view content);

/// The command that makes a CSV of a parquet file, for messages. A name that a shell would not take for one word is FILE.
std::string parquet_command(const std::string& path);

struct ParquetReader {
  std::string python;                                // a path or a name of PATH; empty: python3
  double seconds = 120;                              // for the whole file
  std::size_t max_bytes = std::size_t{1} << 30;      // of the CSV
  std::size_t address_space = std::size_t{1} << 33;  // of Python; 0: as this process may
};

/// The rows as CSV, a row a line, texts quoted. Python gets the content, no name, by a descriptor; it runs isolated (without the
/// working folder, PYTHONPATH and the user's packages), without a shell, in one thread. Errors name the source: no Python, no
/// pyarrow or one before 15 (whose readers may run code that a file holds), a file that pyarrow refuses, columns of lists or
/// structures, one of the limits.
Result<std::string> csv_of_parquet(const std::string& source, std::string_view content,
                                   const ParquetReader& reader);

/// The text of a file, of parquet as CSV.
Result<std::string> read_text_of_table(const std::string& path, const ParquetReader& reader);

}  // namespace gemmtune
