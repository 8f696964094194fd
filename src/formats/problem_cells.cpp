#include "formats/problem_cells.h"

#include <fmt/format.h>

#include <array>

#include "base/text.h"

namespace gemmtune {

struct ProblemReader::Row {
  const Columns& columns;
  const CsvCells& cells;
  std::size_t line;
  Complaints* complaints;
  bool good = true;

  std::string_view cell(Column column) const { return columns.cell(cells, column); }
  void bad(Column column, std::string_view expected) {
    if (good && complaints != nullptr) complaints->cell(line, to_string(column), cell(column), expected);
    good = false;
  }
  std::int64_t dimension(Column column) {
    const auto value = parse_integer(cell(column));
    if (value && *value >= 1 && *value <= max_dimension) return *value;
    bad(column, fmt::format("a whole number from 1 to {}", max_dimension));
    return 0;
  }
  bool flag(Column column) {
    // The two spellings of all but every file, without the detour.
    if (cell(column) == python_bool(false)) return false;
    if (cell(column) == python_bool(true)) return true;
    if (is_missing(cell(column))) return false;
    const auto value = parse_bool(cell(column));
    if (value) return *value;
    // A bool column with a missing cell becomes 1.0 and 0.0 in pandas.
    const auto number = parse_integer(cell(column));
    if (number && (*number == 0 || *number == 1)) return *number == 1;
    bad(column, "True or False");
    return false;
  }
};

bool is_missing(std::string_view cell) {
  static constexpr std::array<std::string_view, 8> words{"Null", "NULL", "null", "NA",
                                                         "NaN",  "nan",  "None", "<NA>"};
  if (cell.empty()) return true;
  if (cell.front() != 'N' && cell.front() != 'n' && cell.front() != '<') return false;
  for (const std::string_view word : words) {
    if (cell == word) return true;
  }
  return false;
}

bool split_row(const CsvLine& line, const Columns& columns, CsvCells& cells, Complaints& complaints) {
  if (is_blank_or_comment(line.text)) return false;
  if (!cells.split(line.text)) {
    complaints.row(line.number, unclosed_quote);
    return false;
  }
  bool empty = true;
  for (std::size_t index = 0; index < cells.size(); ++index) empty = empty && cells[index].empty();
  if (empty) return false;
  if (cells.size() > columns.width()) {
    complaints.row(line.number,
                   fmt::format("{} cells, expected at most the header's {}", cells.size(), columns.width()));
    return false;
  }
  return true;
}

std::optional<DataType> ProblemReader::type_of(std::string_view text) {
  if (text != last_text_ || last_text_.empty()) {
    last_text_ = text;
    last_type_ = parse_data_type(text);
  }
  return last_type_;
}

bool ProblemReader::read(const CsvCells& cells, std::size_t line, Problem& problem, Complaints* complaints) {
  static constexpr std::string_view expected_type = "a type such as torch.bfloat16, bf16, fp16 or fp32";
  Row row{columns_, cells, line, complaints};
  problem = Problem();
  problem.m = row.dimension(Column::m);
  problem.n = row.dimension(Column::n);
  problem.k = row.dimension(Column::k);
  problem.bias = row.flag(Column::bias);
  problem.scale_ab = row.flag(Column::scale_ab);
  problem.bpreshuffle = row.flag(Column::bpreshuffle);
  if (problem.bpreshuffle) problem.weight_layout = WeightLayout::any;

  const auto x_type = overrides_.x_type ? overrides_.x_type : type_of(row.cell(Column::dtype));
  if (x_type) {
    problem.x_type = problem.w_type = *x_type;
  } else {
    row.bad(Column::dtype, expected_type);
  }
  problem.y_type = problem.x_type;
  if (overrides_.y_type) {
    problem.y_type = *overrides_.y_type;
  } else if (!is_missing(row.cell(Column::outdtype))) {
    const auto y_type = type_of(row.cell(Column::outdtype));
    if (y_type) {
      problem.y_type = *y_type;
    } else {
      row.bad(Column::outdtype, expected_type);
    }
  }
  return row.good;
}

std::string_view python_bool(bool value) { return value ? "True" : "False"; }

}  // namespace gemmtune
