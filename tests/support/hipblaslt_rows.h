// Rows of a hipBLASLt table by their problem.
#pragma once

#include "formats/hipblaslt/hipblaslt_csv.h"

namespace gemmtune {

/// The first row with the problem's key; nullptr where there is none.
inline const HipblasltRow* find_row(const HipblasltFile& file, const Problem& problem) {
  auto key = to_hipblaslt_row(problem);
  if (!key.ok()) return nullptr;
  for (const HipblasltRow& row : file.rows) {
    key->algo_index = row.algo_index;
    key->kernel_name = row.kernel_name;
    key->line = row.line;
    if (row == *key) return &row;
  }
  return nullptr;
}

}  // namespace gemmtune
