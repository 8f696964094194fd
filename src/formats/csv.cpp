#include "formats/csv.h"

#include "base/text.h"

namespace gemmtune {
namespace {

constexpr std::string_view mark = "\xef\xbb\xbf";

bool has_unclosed_quote(std::string_view line) {
  bool open = false;
  for (const char character : line) open = open != (character == '"');
  return open;
}

/// One cell from the front of `rest`, which loses it and its comma; `last` tells that no comma followed.
std::string take_cell(std::string_view& rest, bool& last) {
  while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
  std::string cell;
  if (!rest.empty() && rest.front() == '"') {
    rest.remove_prefix(1);
    while (!rest.empty()) {
      if (rest.front() == '"') {
        rest.remove_prefix(1);
        if (rest.empty() || rest.front() != '"') break;
      }
      cell += rest.front();
      rest.remove_prefix(1);
    }
  }
  const auto comma = rest.find(',');
  cell += trim(rest.substr(0, comma));
  last = comma == std::string_view::npos;
  rest.remove_prefix(last ? rest.size() : comma + 1);
  return cell;
}

Status check_line(const std::string& path, std::size_t number, std::string_view line) {
  if (line.size() > max_line_bytes) {
    return Status::invalid("{}:{}: a line of {} bytes, expected at most {}", path, number, line.size(),
                           max_line_bytes);
  }
  if (line.find('\0') != std::string_view::npos) {
    return Status::invalid("{}:{}: a NUL byte, expected text", path, number);
  }
  if (has_unclosed_quote(line)) return Status::invalid("{}:{}: a quote without its end", path, number);
  return {};
}

}  // namespace

std::optional<std::size_t> CsvFile::header() const {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].blank()) return i;
  }
  return std::nullopt;
}

std::string CsvFile::content() const {
  std::string text;
  if (byte_order_mark) text += mark;
  for (const CsvLine& line : lines) {
    text += line.raw;
    text += line.ending;
  }
  return text;
}

Result<CsvFile> split_csv(const std::string& path, std::string_view text) {
  CsvFile file;
  file.path = path;
  if (text.starts_with(mark)) {
    file.byte_order_mark = true;
    text.remove_prefix(mark.size());
  }
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    CsvLine& added = file.lines.emplace_back();
    if (end != std::string_view::npos) added.ending = line.ends_with('\r') ? "\r\n" : "\n";
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (added.ending == "\r\n") line.remove_suffix(1);
    added.number = file.lines.size();
    GEMMTUNE_RETURN_IF_ERROR(check_line(path, added.number, line));
    added.raw = line;
    if (!trim(line).empty()) added.cells = split_cells(line);
  }
  if (!file.lines.empty() && !file.lines.front().ending.empty()) file.line_ending = file.lines.front().ending;
  return file;
}

std::vector<std::string> split_cells(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  std::vector<std::string> cells;
  for (bool last = false; !last;) cells.push_back(take_cell(line, last));
  return cells;
}

std::string csv_cell(std::string_view value) {
  if (value.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(value);
  std::string cell = "\"";
  for (const char character : value) {
    if (character == '"') cell += '"';
    cell += character;
  }
  return cell + '"';
}

CsvHeader::CsvHeader(const std::vector<std::string>& names) {
  for (const std::string& name : names) names_.push_back(to_lower(trim(name)));
}

std::optional<std::size_t> CsvHeader::find(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const std::string wanted = to_lower(name);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == wanted) return i;
    }
  }
  return std::nullopt;
}

std::string complaint(const std::string& path, std::size_t line, std::string_view column,
                      std::string_view value, std::string_view expected) {
  return fmt::format("{}:{}: column {}: value '{}', expected {}", path, line, column, value, expected);
}

}  // namespace gemmtune
