// The columns of AITER's bf16 tables and gemmtune's own: names, older names, and where a header has them.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/csv.h"

namespace gemmtune {

/// In the order in which a new tuned file has them; calls and layer belong to shape lists.
enum class Column {
  gfx,
  cu_num,
  m,
  n,
  k,
  bias,
  dtype,
  outdtype,
  scale_ab,
  bpreshuffle,
  libtype,
  solidx,
  split_k,
  us,
  kernel_name,
  err_ratio,
  tflops,
  bw,
  spread,
  default_us,
  default_kernel,
  speedup,
  verdict,
  m_from,
  regret,
  pdl_kernel_name,
  pdl_us,
  env,
  calls,
  layer,
};
inline constexpr std::size_t column_count = 30;

/// AITER's spelling.
std::string_view to_string(Column column);
/// The 18 columns of AITER, gfx first.
std::span<const Column> aiter_columns();
/// The 10 that gemmtune adds.
std::span<const Column> own_columns();

/// Where a header has the known columns. Any order, any case, older names (soltimes, errRatio) included; the
/// first of two equal ones counts, unknown ones are kept apart.
class Columns {
 public:
  static constexpr int absent = -1;

  Columns() { position_.fill(absent); }
  explicit Columns(const CsvCells& header);

  bool has(Column column) const { return position_[static_cast<std::size_t>(column)] != absent; }
  /// The cell of a row; an empty text where the header or the row lacks it.
  std::string_view cell(const CsvCells& row, Column column) const {
    const int at = position_[static_cast<std::size_t>(column)];
    return at == absent ? std::string_view() : row[static_cast<std::size_t>(at)];
  }
  /// The known column at a position, nullptr where the header's name there is not known.
  const Column* known_at(std::size_t position) const;
  /// Cells in the header.
  std::size_t width() const { return at_position_.size(); }
  void append(Column column);

 private:
  struct Place {
    bool known = false;
    Column column = Column::gfx;
  };
  std::array<int, column_count> position_{};
  std::vector<Place> at_position_;
};

}  // namespace gemmtune
