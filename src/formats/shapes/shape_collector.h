// Gathers the rows of a shape list: duplicates fold into the first, calls add up.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/shapes/shape_list.h"

namespace gemmtune {

class ShapeCollector {
 public:
  /// With `add_calls` false a duplicate leaves the first row's calls alone.
  explicit ShapeCollector(bool add_calls) : add_calls_(add_calls) {}
  void add(ShapeRow row);
  std::vector<ShapeRow> take() { return std::move(rows_); }

 private:
  bool add_calls_;
  std::vector<ShapeRow> rows_;
  std::unordered_map<std::string, std::size_t> index_;  // by the problem's text
};

}  // namespace gemmtune
