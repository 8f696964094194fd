#include "formats/tuned_row.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/text.h"
#include "formats/operation_header.h"
#include "formats/tuned_csv.h"

namespace gemmtune {
namespace {

constexpr int time_digits = 4;  // AITER rounds us and err_ratio to 4 decimals
constexpr int rate_digits = 2;

/// Reads the cells of one row and remembers whether one of AITER's was bad.
struct ValueReader {
  const Columns& columns;
  const CsvCells& cells;
  std::size_t line;
  Complaints* complaints;
  bool good = true;

  std::string_view cell(Column column) const { return columns.cell(cells, column); }
  void complain(Column column, std::string_view expected) const {
    if (complaints != nullptr) complaints->cell(line, to_string(column), cell(column), expected);
  }
  std::int64_t integer(Column column) {
    if (is_missing(cell(column))) return 0;
    const auto value = parse_integer(cell(column));
    if (value) return *value;
    if (good) complain(column, "a whole number");
    good = false;
    return 0;
  }
  double number(Column column, std::string_view expected) {
    std::string_view text = cell(column);
    if (is_missing(text)) return std::numeric_limits<double>::quiet_NaN();
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    const auto value = parse_number(text);
    if (value) return percent ? *value / 100 : *value;
    if (good) complain(column, expected);
    good = false;
    return 0;
  }
  std::optional<double> own_number(Column column) const {
    if (is_missing(cell(column))) return std::nullopt;
    const auto value = parse_number(cell(column));
    if (!value) complain(column, "a number");
    return value;
  }
};

std::string float_text(double value, int digits) {
  return std::isnan(value) ? std::string() : python_float(value, digits);
}

std::string float_text(const std::optional<double>& value, int digits) {
  return value ? float_text(*value, digits) : std::string();
}

bool same_number(double a, double b, int digits) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || python_float(a, digits) == python_float(b, digits);
}

bool same_number(const std::optional<double>& a, const std::optional<double>& b, int digits) {
  const double absent = std::numeric_limits<double>::quiet_NaN();
  return same_number(a.value_or(absent), b.value_or(absent), digits);
}

std::string missing_columns(const Columns& columns) {
  std::string missing;
  for (const Column column : {Column::m, Column::n, Column::k, Column::dtype, Column::us}) {
    if (!columns.has(column)) missing += (missing.empty() ? "" : ", ") + std::string(to_string(column));
  }
  return missing;
}

}  // namespace

Result<TunedHeader> read_tuned_header(const CsvDocument& document) {
  TunedHeader header;
  header.index = header_line(document);
  if (header.index == document.lines.size()) return header;
  const CsvLine& line = document.lines[header.index];
  CsvCells cells;
  if (!cells.split(without_mark(line.text))) {
    return Status::invalid("{}:{}: {}", document.source, line.number, unclosed_quote);
  }
  header.columns = Columns(cells);
  const std::string missing = missing_columns(header.columns);
  if (missing.empty()) return header;
  auto operations = operations_of_header(cells);
  const auto named = operation_of_file_name(document.source);
  if (operations.size() > 1 && named) operations = {*named};
  if (operations.size() == 1) {
    GEMMTUNE_RETURN_IF_ERROR(check_readable(document.source, operations.front()));
  }
  return Status::invalid("{}:{}: no column {}; a tuned file of a16w16 needs M, N, K, dtype and us",
                         document.source, line.number, missing);
}

bool EntryReader::read_key(const CsvCells& row, std::size_t line, TunedEntry& entry, Complaints* complaints) {
  entry.line = line;
  entry.gfx = columns_.cell(row, Column::gfx);
  if (is_missing(entry.gfx)) entry.gfx.clear();
  if (!problems_.read(row, line, entry.problem, complaints)) return false;
  entry.cu_num = 0;
  if (!columns_.has(Column::cu_num)) return true;
  const std::string_view cell = columns_.cell(row, Column::cu_num);
  const auto cu_num = parse_integer(cell);
  if (cu_num && *cu_num >= 1 && *cu_num <= std::numeric_limits<int>::max()) {
    entry.cu_num = static_cast<int>(*cu_num);
    return true;
  }
  if (complaints != nullptr) complaints->cell(line, "cu_num", cell, "a whole number of at least 1");
  return false;
}

bool EntryReader::read_values(const CsvCells& row, std::size_t line, TunedEntry& entry,
                              Complaints* complaints) const {
  ValueReader reader{columns_, row, line, complaints};
  entry.libtype = reader.cell(Column::libtype);
  entry.solidx = reader.integer(Column::solidx);
  entry.split_k = reader.integer(Column::split_k);
  entry.us = reader.number(Column::us, "microseconds");
  entry.kernel_name = reader.cell(Column::kernel_name);
  entry.err_ratio = reader.number(Column::err_ratio, "a share of elements from 0 to 1");
  if (!reader.good) return false;

  entry.spread = reader.own_number(Column::spread);
  entry.default_us = reader.own_number(Column::default_us);
  entry.default_kernel = reader.cell(Column::default_kernel);
  entry.speedup = reader.own_number(Column::speedup);
  const auto verdict = parse_verdict(reader.cell(Column::verdict));
  if (!verdict) reader.complain(Column::verdict, "win, tie, default, undecided, only or nothing");
  entry.verdict = verdict.value_or(Verdict::none);
  entry.m_from.reset();
  if (!is_missing(reader.cell(Column::m_from))) {
    entry.m_from = parse_integer(reader.cell(Column::m_from));
    if (!entry.m_from || *entry.m_from < 1 || *entry.m_from > entry.problem.m) {
      reader.complain(Column::m_from, "a whole number from 1 to the row's M");
      entry.m_from.reset();
    }
  }
  entry.regret = reader.own_number(Column::regret);
  entry.pdl_kernel_name = reader.cell(Column::pdl_kernel_name);
  entry.pdl_us = reader.own_number(Column::pdl_us);
  entry.env = reader.cell(Column::env);
  return true;
}

std::string row_key(const TunedEntry& entry, bool with_gfx) {
  const Problem& problem = entry.problem;
  return fmt::format("{},{},{},{},{},{:d},{},{},{:d},{:d}", with_gfx ? entry.gfx : std::string(),
                     entry.cu_num, problem.m, problem.n, problem.k, problem.bias, to_string(problem.x_type),
                     to_string(problem.y_type), problem.scale_ab, problem.bpreshuffle);
}

std::optional<std::string> cell_text(const TunedEntry& entry, Column column) {
  const Problem& problem = entry.problem;
  switch (column) {
    case Column::gfx:
      return entry.gfx;
    case Column::cu_num:
      return std::to_string(entry.cu_num);
    case Column::m:
      return std::to_string(problem.m);
    case Column::n:
      return std::to_string(problem.n);
    case Column::k:
      return std::to_string(problem.k);
    case Column::bias:
      return std::string(python_bool(problem.bias));
    case Column::dtype:
      return std::string(torch_name(problem.x_type));
    case Column::outdtype:
      return std::string(torch_name(problem.y_type));
    case Column::scale_ab:
      return std::string(python_bool(problem.scale_ab));
    case Column::bpreshuffle:
      return std::string(python_bool(problem.bpreshuffle));
    case Column::libtype:
      return entry.libtype;
    case Column::solidx:
      return std::to_string(entry.solidx);
    case Column::split_k:
      return std::to_string(entry.split_k);
    case Column::us:
      return float_text(entry.us, time_digits);
    case Column::kernel_name:
      return entry.kernel_name;
    case Column::err_ratio:
      return float_text(entry.err_ratio, time_digits);
    case Column::tflops:
      return python_float(tflops_column(problem, entry.us), rate_digits);
    case Column::bw:
      return python_float(bandwidth_column(problem, entry.us), rate_digits);
    case Column::spread:
      return float_text(entry.spread, time_digits);
    case Column::default_us:
      return float_text(entry.default_us, time_digits);
    case Column::default_kernel:
      return entry.default_kernel;
    case Column::speedup:
      return float_text(entry.speedup, time_digits);
    case Column::verdict:
      return std::string(to_string(entry.verdict));
    case Column::m_from:
      return entry.m_from ? std::to_string(*entry.m_from) : std::string();
    case Column::regret:
      return float_text(entry.regret, time_digits);
    case Column::pdl_kernel_name:
      return entry.pdl_kernel_name;
    case Column::pdl_us:
      return float_text(entry.pdl_us, time_digits);
    case Column::env:
      return entry.env;
    case Column::calls:
    case Column::layer:
      break;
  }
  return std::nullopt;
}

bool same_row(const TunedEntry& old_row, const TunedEntry& entry) {
  return old_row.libtype == entry.libtype && old_row.solidx == entry.solidx &&
         old_row.split_k == entry.split_k && same_number(old_row.us, entry.us, time_digits) &&
         old_row.kernel_name == entry.kernel_name &&
         same_number(old_row.err_ratio, entry.err_ratio, time_digits) &&
         same_number(old_row.spread, entry.spread, time_digits) &&
         same_number(old_row.default_us, entry.default_us, time_digits) &&
         old_row.default_kernel == entry.default_kernel &&
         same_number(old_row.speedup, entry.speedup, time_digits) && old_row.verdict == entry.verdict &&
         old_row.m_from == entry.m_from && same_number(old_row.regret, entry.regret, time_digits) &&
         old_row.pdl_kernel_name == entry.pdl_kernel_name &&
         same_number(old_row.pdl_us, entry.pdl_us, time_digits) && old_row.env == entry.env;
}

}  // namespace gemmtune
