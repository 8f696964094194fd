#include "cli/shared/console.h"

#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "formats/json.h"

namespace gemmtune::cli {
namespace {

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }

/// The first (or, from the end, the last) `columns` code points.
std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if (starts_code_point(text[i]) && columns-- == 0) break;
  }
  return text.substr(0, i);
}

std::string_view last_columns(std::string_view text, std::size_t columns) {
  std::size_t i = text.size();
  while (i > 0 && columns > 0) {
    if (starts_code_point(text[--i])) --columns;
  }
  return text.substr(i);
}

std::size_t terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 120;
}

/// spdlog's lines, above the live line.
class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit ConsoleSink(Console& console) : console_(console) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string text = fmt::format("{}: {}", spdlog::level::to_string_view(message.level).data(),
                                         std::string_view(message.payload.data(), message.payload.size()));
    if (message.level >= spdlog::level::warn) {
      console_.urgent_line(text);
    } else {
      console_.line(text);
    }
  }
  void flush_() override {}

  Console& console_;
};

void log_to_spdlog(LogLevel level, std::string_view line, void*) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                  spdlog::level::warn, spdlog::level::err};
  spdlog::default_logger_raw()->log(levels[static_cast<int>(level)],
                                    spdlog::string_view_t(line.data(), line.size()));
}

void log_warning_to_stderr(LogLevel level, std::string_view line, void*) {
  if (level < LogLevel::warning) return;
  print_note(fmt::format("{}: {}", level == LogLevel::warning ? "warning" : "error", line));
}

bool errors_in_json = false;

void write(std::FILE* file, std::string_view text) { std::fwrite(text.data(), 1, text.size(), file); }

}  // namespace

void print_text(std::string_view text) { write(stdout, printable(text)); }

void print_document(std::string_view document) {
  write(stdout, stdout_is_terminal() ? printable(document) : std::string(document));
}

void print_answer(bool json, std::string_view answer) { json ? print_document(answer) : print_text(answer); }

void print_note(std::string_view text) { write(stderr, printable(text) + "\n"); }

void log_to_stderr() { set_log_sink(log_warning_to_stderr, nullptr); }

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, starts_code_point));
}

std::string shortened(std::string_view text, std::size_t columns) {
  if (width(text) <= columns) return std::string(text);
  if (columns < 2) return std::string(first_columns(text, columns));
  const std::size_t tail = (columns - 1) / 2;
  return fmt::format("{}…{}", first_columns(text, columns - 1 - tail), last_columns(text, tail));
}

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

std::size_t stdout_columns() { return std::min<std::size_t>(120, terminal_columns(STDOUT_FILENO)); }

std::size_t live_columns() { return terminal_columns(STDERR_FILENO) - 1; }

Console::Console(bool quiet) : quiet_(quiet), live_(!quiet && isatty(STDERR_FILENO) == 1) {
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("gemmtune", std::make_shared<ConsoleSink>(*this)));
  set_log_sink(log_to_spdlog, nullptr);
}

Console::~Console() {
  clear_live_line();
  log_to_stderr();
  spdlog::drop_all();
}

std::string Console::erase_shown() const {
  std::string text;
  for (std::size_t i = 0; i < shown_.size(); ++i) text += i == 0 ? "\r\x1b[K" : "\x1b[1A\x1b[K";
  return text;
}

void Console::write_line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  write(stderr, erase_shown() + printable(text) + "\n" + fmt::format("{}", fmt::join(shown_, "\n")));
  std::fflush(stderr);
}

void Console::line(std::string_view text) {
  if (!quiet_) write_line(text);
}

void Console::urgent_line(std::string_view text) { write_line(text); }

void Console::live_line(std::string_view text) { live_lines({std::string(text)}); }

void Console::live_lines(const std::vector<std::string>& lines) {
  if (!live_) return;
  const std::lock_guard lock(mutex_);
  const std::string erase = erase_shown();
  shown_.clear();
  for (const std::string& line : lines) shown_.push_back(shortened(printable_word(line), live_columns()));
  write(stderr, erase + fmt::format("{}", fmt::join(shown_, "\n")));
  std::fflush(stderr);
}

void Console::clear_live_line() {
  const std::lock_guard lock(mutex_);
  if (shown_.empty()) return;
  write(stderr, erase_shown());
  std::fflush(stderr);
  shown_.clear();
}

void answer_errors_in_json() { errors_in_json = true; }

int usage_error(std::string_view command, std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  print_note(fmt::format("gemmtune{}{}: {}", command.empty() ? "" : " ", command, line));
  // One document on stdout, however many lines there are on stderr.
  if (std::exchange(errors_in_json, false))
    print_document(
        json_document(OrderedJson{{"command", command}, {"error", line}, {"exit_code", exit_usage}}));
  return exit_usage;
}

void TextTable::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable_word(cell);
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> TextTable::shown(std::size_t columns) const {
  std::vector<std::size_t> result;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const bool is_used = std::ranges::any_of(rows_, [&](const auto& row) { return !row[c].empty(); });
    if (is_used || columns_[c].drop == 0) result.push_back(c);
  }
  const auto min_total = [&] {
    std::size_t total = 2 * (result.size() - 1);
    for (const std::size_t c : result) total += columns_[c].may_shrink ? min_width(c) : widest(c);
    return total;
  };
  while (columns > 0 && min_total() > columns) {
    const auto last = std::ranges::max_element(result, {}, [&](std::size_t c) { return columns_[c].drop; });
    if (columns_[*last].drop == 0) break;
    result.erase(last);
  }
  return result;
}

std::size_t TextTable::widest(std::size_t column) const {
  std::size_t widest = width(columns_[column].title);
  for (const auto& row : rows_) widest = std::max(widest, width(row[column]));
  return widest;
}

std::size_t TextTable::min_width(std::size_t column) const {
  constexpr std::size_t readable = 12;
  return std::min(widest(column), std::max(readable, width(columns_[column].title)));
}

std::vector<std::size_t> TextTable::widths(std::span<const std::size_t> shown, std::size_t columns) const {
  std::vector<std::size_t> result;
  for (const std::size_t c : shown) result.push_back(widest(c));
  const std::size_t total = std::accumulate(result.begin(), result.end(), 2 * (result.size() - 1));
  if (columns == 0 || total <= columns) return result;
  std::size_t excess = total - columns;
  for (std::size_t i = 0; i < shown.size() && excess > 0; ++i) {
    if (!columns_[shown[i]].may_shrink) continue;
    const std::size_t cut = std::min(excess, result[i] - min_width(shown[i]));
    result[i] -= cut;
    excess -= cut;
  }
  return result;
}

std::string TextTable::text(std::size_t columns) const {
  const std::vector<std::size_t> shown = this->shown(columns);
  const std::vector<std::size_t> sizes = widths(shown, columns);
  std::string result;
  const auto append = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const std::string cell = shortened(cell_of(shown[i]), sizes[i]);
      const std::string padding(sizes[i] - width(cell), ' ');
      if (i > 0) line += "  ";
      line += columns_[shown[i]].right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + '\n';
  };
  append([&](std::size_t c) { return columns_[c].title; });
  for (const auto& row : rows_) append([&](std::size_t c) { return row[c]; });
  return result;
}

std::string duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 7200) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string upper(std::string_view word) {
  std::string text(word);
  for (char& letter : text)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return text;
}

std::string counted(std::size_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

}  // namespace gemmtune::cli
