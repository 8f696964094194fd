// The cells of a CSV of another program by the names of its header, as they are spelled there.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "formats/csv/csv.h"

namespace gemmtune {

class NamedCells {
 public:
  /// Of equal names the first counts.
  explicit NamedCells(const CsvCells& header) {
    for (std::size_t index = 0; index < header.size(); ++index)
      at_.try_emplace(std::string(header[index]), index);
  }
  bool has(std::string_view name) const { return at_.find(name) != at_.end(); }
  /// An empty text where the header or the row lacks it.
  std::string_view of(const CsvCells& row, std::string_view name) const {
    const auto at = at_.find(name);
    return at == at_.end() ? std::string_view() : row[at->second];
  }

 private:
  std::map<std::string, std::size_t, std::less<>> at_;
};

}  // namespace gemmtune
