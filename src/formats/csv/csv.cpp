#include "formats/csv/csv.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "formats/parquet/parquet.h"

namespace gemmtune {
namespace {

bool is_blank(char character) { return character == ' ' || character == '\t' || character == '\r'; }

struct LineEnd {
  std::size_t end = 0;   // of the line's text
  std::size_t next = 0;  // where the next line begins
};

/// Lines end with "\n", "\r\n", or the lone "\r" of old Macs, as pandas reads them. Each line feed is searched once: a file
/// may have none.
class LineEnds {
 public:
  explicit LineEnds(std::string_view all) : all_(all) {}
  LineEnd of_line_at(std::size_t begin) {
    if (feed_ < begin || begin == 0) feed_ = std::min(all_.find('\n', begin), all_.size());
    const auto line = all_.substr(begin, feed_ - begin);
    const std::size_t end = begin + std::min(line.find('\r'), line.size());
    const bool both = all_.substr(end).starts_with("\r\n");
    return {end, std::min(end + (both ? 2 : 1), all_.size())};
  }

 private:
  std::string_view all_;
  std::size_t feed_ = 0;  // the first one at or behind the line's begin
};

}  // namespace

Result<CsvDocument> parse_csv(std::string source, std::string content) {
  CsvDocument document;
  document.source = std::move(source);
  document.content = std::make_unique<const std::string>(std::move(content));
  const std::string_view all = *document.content;
  if (is_parquet(all))
    return Status::invalid("{}: is parquet, expected CSV; convert it first: {}", document.source,
                           parquet_command(document.source));
  const std::size_t nul = all.find('\0');
  LineEnds line_ends(all);
  std::size_t begin = 0;
  for (std::size_t number = 1; begin < all.size(); ++number) {
    const auto [end, next] = line_ends.of_line_at(begin);
    if (end - begin > max_line_bytes) {
      return Status::invalid("{}:{}: a line of {} bytes, expected at most {}", document.source, number,
                             end - begin, max_line_bytes);
    }
    if (nul < end) {
      return Status::invalid("{}:{}: a NUL byte, expected text", document.source, number);
    }
    document.lines.push_back({number, all.substr(begin, end - begin), all.substr(end, next - end)});
    begin = next;
  }
  return document;
}

bool CsvCells::split(std::string_view line) {
  cells_.clear();
  unescaped_.clear();
  std::size_t at = 0;
  for (;;) {
    while (at < line.size() && is_blank(line[at])) ++at;
    if (at < line.size() && line[at] == '"') {
      const std::size_t begin = ++at;
      bool doubled = false;
      for (;; ++at) {
        at = line.find('"', at);
        if (at == std::string_view::npos) return false;
        if (at + 1 >= line.size() || line[at + 1] != '"') break;
        doubled = true;
        ++at;
      }
      std::string_view cell = line.substr(begin, at - begin);
      if (doubled) {
        std::string& plain = unescaped_.emplace_back();
        for (std::size_t index = 0; index < cell.size(); ++index) {
          plain += cell[index];
          if (cell[index] == '"') ++index;
        }
        cell = plain;
      }
      cells_.push_back(cell);
      ++at;
      while (at < line.size() && is_blank(line[at])) ++at;
      if (at < line.size() && line[at] != ',') return false;
    } else {
      // Cells are a few bytes long: a call costs more than the loop.
      const std::size_t begin = at;
      while (at < line.size() && line[at] != ',') ++at;
      std::size_t end = at;
      while (end > begin && is_blank(line[end - 1])) --end;
      cells_.push_back(line.substr(begin, end - begin));
    }
    if (at >= line.size()) return true;
    ++at;
  }
}

bool is_blank_or_comment(std::string_view line) {
  const std::string_view text = trim(without_mark(line));
  return text.empty() || text.front() == '#';
}

bool is_blank_row(std::string_view line, CsvCells& cells) {
  if (is_blank_or_comment(line)) return true;
  if (!cells.split(line)) return false;
  for (std::size_t index = 0; index < cells.size(); ++index) {
    if (!cells[index].empty()) return false;
  }
  return true;
}

std::string_view first_row(std::string_view content) {
  content = without_mark(content);
  LineEnds line_ends(content);
  for (std::size_t begin = 0; begin < content.size();) {
    const auto [end, next] = line_ends.of_line_at(begin);
    const std::string_view line = content.substr(begin, end - begin);
    if (!is_blank_or_comment(line)) return line;
    begin = next;
  }
  return {};
}

std::size_t header_line(const CsvDocument& document) {
  std::size_t index = 0;
  while (index < document.lines.size() && is_blank_or_comment(document.lines[index].text)) ++index;
  return index;
}

std::string_view without_mark(std::string_view line) {
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  return line;
}

std::string csv_cell(std::string_view text) {
  const bool plain =
      text.find_first_of(",\"\r\n") == std::string_view::npos && trim(text) == text && !text.starts_with('#');
  if (plain) return std::string(text);
  std::string cell = "\"";
  for (const char character : text) {
    if (character == '"') cell += '"';
    cell += character == '\n' || character == '\r' || character == '\0' ? ' ' : character;
  }
  return cell + '"';
}

/// Cells as CsvCells::split() finds them: a quote within a cell that does not begin with one is a letter.
RawRow::RawRow(std::string_view line) {
  bool quoted = false;
  bool begins = true;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char letter = line[at];
    if (letter == ',' && !quoted) {
      cells_.emplace_back(line.substr(begin, at - begin));
      begin = at + 1;
      begins = true;
      continue;
    }
    if (letter == '"' && (begins || quoted)) {
      quoted = !quoted;
      begins = !quoted && at + 1 < line.size() && line[at + 1] == '"';  // a doubled one goes on
    } else if (letter != ' ' && letter != '\t') {
      begins = false;
    }
  }
  cells_.emplace_back(line.substr(begin));
}

void RawRow::set(std::size_t index, std::string_view text) {
  if (index >= cells_.size()) cells_.resize(index + 1);
  cells_[index] = csv_cell(text);
}

std::string RawRow::text() const {
  std::string text;
  for (std::size_t index = 0; index < cells_.size(); ++index) {
    if (index != 0) text += ',';
    text += cells_[index];
  }
  return text;
}

}  // namespace gemmtune
