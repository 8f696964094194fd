// A table of a report: the one form of its numbers, from which the page's HTML, its JSON and the CSV are written.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace gemmtune::cli {

/// Nothing, a number (NaN and infinities count as nothing), or a text.
struct ReportValue : std::variant<std::monostate, double, std::string_view> {
  using variant::variant;
  template <std::integral Count>
  ReportValue(Count count) : variant(static_cast<double>(count)) {}  // NOLINT(google-explicit-constructor)
  template <typename Number>
  // NOLINTNEXTLINE(google-explicit-constructor)
  ReportValue(const std::optional<Number>& number) {
    if (number) *this = ReportValue(*number);
  }
};

enum class ReportKind { number, text };
inline constexpr ReportKind text_kind = ReportKind::text;

struct ReportColumn {
  std::string_view name;   // in JSON and CSV: lower case, unit at the end (saved_us)
  std::string_view title;  // in HTML
  ReportKind kind = ReportKind::number;
  int decimals = all_digits;  // that HTML shows
  bool detail = false;        // not in the HTML table: in JSON, CSV and the details of a row alone

  static constexpr int all_digits = -1;
};

class ReportTable {
 public:
  /// `id`: lower case, of the HTML element, the JSON member and the CSV file. Views must outlive the table.
  ReportTable(std::string_view id, std::string_view title, std::string_view note,
              std::vector<ReportColumn> columns);

  /// One value a column, in their order. Texts are made printable_word() (base/text.h).
  void add(std::initializer_list<ReportValue> row);

  std::string_view id() const { return id_; }
  bool empty() const { return rows_ == 0; }

  /// The text of a cell: of a number up to 6 significant digits, of an integer all digits; empty for nothing.
  std::string text(std::size_t row, std::size_t column) const;

  /// {"id", "title", "note", "rows", "columns": [{"name", "title", "decimals", "detail", and "values" or "words" and "at"}]}:
  /// a column's values in the order of the rows, texts by their index in `words`. May stand in a script element: '<', '>' and '&' are escaped, and all that
  /// is not ASCII.
  std::string json() const;
  /// A header and all rows.
  std::string csv() const;
  /// The first `limit` rows in HTML; folded: behind its title, for a reader to open.
  std::string html(std::size_t limit, bool folded) const;

 private:
  struct Column {
    std::vector<double> numbers;     // of a column of numbers; NaN: empty
    std::vector<std::uint32_t> at;   // of a column of texts: index into words
    std::vector<std::string> words;  // distinct, in the order of their first row
    std::unordered_map<std::string, std::uint32_t> index;
  };

  std::string id_;
  std::string title_;
  std::string note_;
  std::vector<ReportColumn> columns_;
  std::vector<Column> cells_;
  std::size_t rows_ = 0;
};

/// `text` as HTML shows it, also within quotes of an attribute.
std::string html_text(std::string_view text);
/// `text` as a JSON string that may stand in a script element.
std::string script_string(std::string_view text);

}  // namespace gemmtune::cli
