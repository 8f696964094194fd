// What a conversion could not carry. A reader hands over all of a file; what no writer takes is listed here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gemmtune {

enum class LeftOutKind { row, column, key };
std::string_view to_string(LeftOutKind kind);

/// A row, the cells of one column in `count` rows, or a key of a file that has no rows.
struct LeftOut {
  LeftOutKind kind = LeftOutKind::row;
  std::string name;       // of a column or key
  std::size_t line = 0;   // 1-based; 0: of the whole file
  std::size_t count = 1;  // rows whose cell is left out; 1 for rows and keys
  std::string why;
  std::string source = {};  // of which file, where several were read
};

/// "source:12: why", "source: column us: 3 rows: why", "source:4: key any: why"
std::string describe(const std::string& source, const LeftOut& item);

/// "2 rows, 1 column left out"; empty where there is nothing.
std::string summary_of(const std::vector<LeftOut>& items);

}  // namespace gemmtune
