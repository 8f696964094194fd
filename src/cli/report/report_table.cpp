#include "cli/report/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "formats/csv/csv.h"
#include "formats/json_text.h"

namespace gemmtune::cli {
namespace {

/// Integers with all digits, others with 6 that count; empty for what is no number.
std::string report_number(double number) {
  if (!std::isfinite(number)) return {};
  if (number == std::trunc(number) && std::abs(number) < 1e15) return fmt::format("{:.0f}", number);
  return fmt::format("{:.6g}", number);
}

/// As HTML shows it.
std::string shown_number(double number, int decimals) {
  if (decimals == ReportColumn::all_digits || !std::isfinite(number)) return report_number(number);
  return fmt::format("{:.{}f}", number, decimals);
}

/// The member `name` of an object, with a comma in front.
std::string member(std::string_view name, std::string_view text) {
  return fmt::format(",\"{}\":{}", name, script_string(text));
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string script_string(std::string_view text) {
  std::string json;
  for (const char c : json_ascii_string(std::string(text))) {
    if (c == '<' || c == '>' || c == '&') {
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      json += c;
    }
  }
  return json;
}

ReportTable::ReportTable(std::string_view id, std::string_view title, std::string_view note,
                         std::vector<ReportColumn> columns)
    : id_(id), title_(title), note_(note), columns_(std::move(columns)), cells_(columns_.size()) {}

void ReportTable::add(std::initializer_list<ReportValue> row) {
  auto value = row.begin();
  for (std::size_t c = 0; c < columns_.size(); ++c, ++value) {
    Column& column = cells_[c];
    if (columns_[c].kind == ReportKind::number) {
      const double* number = std::get_if<double>(&*value);
      column.numbers.push_back(number != nullptr ? *number : std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const std::string_view* text = std::get_if<std::string_view>(&*value);
    const auto [found, made] =
        column.index.try_emplace(text != nullptr ? printable_word(*text) : std::string(),
                                 static_cast<std::uint32_t>(column.words.size()));
    if (made) column.words.push_back(found->first);
    column.at.push_back(found->second);
  }
  ++rows_;
}

std::string ReportTable::text(std::size_t row, std::size_t column) const {
  const Column& cells = cells_[column];
  return columns_[column].kind == ReportKind::number ? report_number(cells.numbers[row])
                                                     : cells.words[cells.at[row]];
}

std::string ReportTable::json() const {
  std::string json = fmt::format("{{\"id\":{}", script_string(id_));
  json += member("title", title_) + member("note", note_) + fmt::format(",\"rows\":{},\"columns\":[", rows_);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    json += fmt::format("{}{{\"name\":{}", c == 0 ? "" : ",", script_string(columns_[c].name));
    json += member("title", columns_[c].title);
    json += fmt::format(",\"decimals\":{},\"detail\":{}", columns_[c].decimals, columns_[c].detail);
    std::string list;
    if (columns_[c].kind == ReportKind::number) {
      for (const double number : cells_[c].numbers) {
        const std::string text = report_number(number);
        list += text.empty() ? "null," : text + ",";
      }
      if (!list.empty()) list.pop_back();
      json += fmt::format(",\"values\":[{}]}}", list);
      continue;
    }
    for (const std::string& word : cells_[c].words) list += script_string(word) + ",";
    if (!list.empty()) list.pop_back();
    json += fmt::format(",\"words\":[{}],\"at\":[", list);
    list.clear();
    for (const std::uint32_t at : cells_[c].at) list += std::to_string(at) + ",";
    if (!list.empty()) list.pop_back();
    json += list + "]}";
  }
  return json + "]}";
}

std::string ReportTable::csv() const {
  std::string csv;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    csv += fmt::format("{}{}", c == 0 ? "" : ",", columns_[c].name);
  csv += '\n';
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t c = 0; c < columns_.size(); ++c)
      csv += fmt::format("{}{}", c == 0 ? "" : ",", csv_cell(text(row, c)));
    csv += '\n';
  }
  return csv;
}

std::string ReportTable::html(std::size_t limit, bool folded) const {
  const std::string_view outer = folded ? "details" : "figure";
  const std::string_view head = folded ? "summary" : "figcaption";
  std::string html =
      fmt::format("<{} class=\"table\" id=\"t-{}\"><{}><b>{}</b>", outer, id_, head, html_text(title_));
  if (!note_.empty()) html += fmt::format(" <span>{}</span>", html_text(note_));
  html += fmt::format("</{}><div class=\"scroll\"><table><thead><tr>", head);
  for (const ReportColumn& column : columns_) {
    if (column.detail) continue;
    html += fmt::format("<th scope=\"col\"{}>{}</th>",
                        column.kind == ReportKind::number ? " class=\"n\"" : "", html_text(column.title));
  }
  html += "</tr></thead><tbody>";
  for (std::size_t row = 0; row < std::min(rows_, limit); ++row) {
    html += "<tr>";
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].detail) continue;
      const bool number = columns_[c].kind == ReportKind::number;
      html += number ? fmt::format("<td class=\"n\">{}</td>",
                                   shown_number(cells_[c].numbers[row], columns_[c].decimals))
                     : fmt::format("<td>{}</td>", html_text(text(row, c)));
    }
    html += "</tr>\n";
  }
  html += "</tbody></table></div>";
  if (rows_ > limit) {
    html +=
        fmt::format("<p class=\"more\">The first {} of {} rows; all are in the page's data and in --csv.</p>",
                    limit, rows_);
  }
  return html + fmt::format("</{}>\n", outer);
}

}  // namespace gemmtune::cli
