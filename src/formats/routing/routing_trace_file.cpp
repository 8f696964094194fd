#include "formats/routing/routing_trace_file.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace gemmtune {
namespace {

constexpr std::string_view first_line = "gemmtune routing 1";
constexpr std::int64_t max_count = std::numeric_limits<std::int32_t>::max();

/// Lines that hold something, comments left out.
class Lines {
 public:
  Lines(const std::string& source, std::string_view content)
      : source_(source), lines_(split(content, '\n')) {}

  /// False at the end.
  bool next() {
    while (at_ < lines_.size()) {
      line_ = trim(lines_[at_++]);
      if (!line_.empty() && line_.front() != '#') return true;
    }
    line_ = {};
    return false;
  }
  std::string_view line() const { return line_; }
  template <typename... Arguments>
  Status error(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    return Status::invalid("{}:{}: {}", source_, at_,
                           fmt::format(text, std::forward<Arguments>(arguments)...));
  }

 private:
  const std::string& source_;
  std::vector<std::string_view> lines_;
  std::size_t at_ = 0;  // behind the line
  std::string_view line_;
};

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view blanks = " \t";
  std::vector<std::string_view> words;
  for (std::size_t at = line.find_first_not_of(blanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(blanks, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(blanks, end);
  }
  return words;
}

/// "experts 128".
Status read_count(Lines& lines, std::string_view key, std::int64_t most, std::int32_t& count) {
  if (!lines.next()) return lines.error("the file ends, expected '{}' and a whole number", key);
  const auto words = words_of(lines.line());
  const auto value = words.size() == 2 && words[0] == key ? parse_integer(words[1]) : std::nullopt;
  if (!value || *value < 1 || *value > most)
    return lines.error("'{}', expected '{}' and a whole number from 1 to {}", lines.line(), key, most);
  count = static_cast<std::int32_t>(*value);
  return {};
}

Status read_token(const Lines& lines, RoutingTrace& trace) {
  const auto words = words_of(lines.line());
  if (std::ssize(words) != trace.topk)
    return lines.error("{} experts, expected {} (topk)", words.size(), trace.topk);
  const auto first = std::ssize(trace.ids);
  for (const std::string_view word : words) {
    const auto id = parse_integer(word);
    if (!id || *id < 0 || *id >= trace.experts)
      return lines.error("expert '{}', expected a whole number from 0 to {}", word, trace.experts - 1);
    const auto expert = static_cast<std::int32_t>(*id);
    if (std::find(trace.ids.begin() + first, trace.ids.end(), expert) != trace.ids.end())
      return lines.error("expert {} twice, expected each at most once a token", expert);
    trace.ids.push_back(expert);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const RoutingTrace>> parse_routing_trace(const std::string& source,
                                                                std::string_view content) {
  Lines lines(source, content);
  if (!lines.next() || lines.line() != first_line)
    return lines.error("'{}', expected '{}': a routing trace", lines.line().substr(0, 60), first_line);
  auto trace = std::make_shared<RoutingTrace>();
  trace->name = std::filesystem::path(source).filename().string();
  GEMMTUNE_RETURN_IF_ERROR(read_count(lines, "experts", max_count, trace->experts));
  GEMMTUNE_RETURN_IF_ERROR(read_count(lines, "topk", trace->experts, trace->topk));
  while (lines.next()) GEMMTUNE_RETURN_IF_ERROR(read_token(lines, *trace));
  if (trace->ids.empty())
    return lines.error("the file ends, expected a line of {} experts a token", trace->topk);
  return std::shared_ptr<const RoutingTrace>(std::move(trace));
}

Result<std::shared_ptr<const RoutingTrace>> read_routing_trace(const std::string& path) {
  GEMMTUNE_TRY(const auto content, read_file(path));
  return parse_routing_trace(path, content);
}

}  // namespace gemmtune
