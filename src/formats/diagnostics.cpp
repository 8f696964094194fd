#include "formats/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace gemmtune {
namespace {

/// A value as it is shown: long ones cut, control characters as '?'.
std::string shown(std::string_view value) {
  constexpr std::size_t at_most = 60;
  std::string text(value.substr(0, at_most));
  for (char& character : text) {
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) character = '?';
  }
  return value.size() > at_most ? text + "…" : text;
}

std::string counted(std::size_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

}  // namespace

std::string diagnostic(const std::string& source, std::size_t line, std::string_view column,
                       std::string_view value, std::string_view expected) {
  return fmt::format("{}:{}: column {}: value '{}', expected {}", source, line, column, shown(value),
                     expected);
}

std::pair<std::size_t, std::string_view> split_diagnostic(std::string_view diagnostic,
                                                          std::string_view source) {
  const std::pair whole{std::size_t{0}, diagnostic};
  if (!diagnostic.starts_with(source) || !diagnostic.substr(source.size()).starts_with(':')) return whole;
  const std::string_view rest = diagnostic.substr(source.size() + 1);
  const std::size_t colon = rest.find(": ");
  const auto line = parse_integer(rest.substr(0, std::min(colon, rest.size())));
  if (colon == std::string_view::npos || !line || *line < 1) return whole;
  return {static_cast<std::size_t>(*line), rest.substr(colon + 2)};
}

void Diagnostics::cell(std::size_t line, std::string_view column, std::string_view value,
                       std::string_view expected) {
  add(diagnostic(source_, line, column, value, expected));
}

void Diagnostics::row(std::size_t line, std::string_view text) {
  add(fmt::format("{}:{}: {}", source_, line, text));
}

void Diagnostics::add(std::string text) {
  ++count_;
  if (texts_.size() < kept_at_most) texts_.push_back(std::move(text));
}

std::vector<std::string> Diagnostics::take() {
  if (count_ > texts_.size()) {
    texts_.push_back(fmt::format("{}: {} more like these", source_, count_ - texts_.size()));
  }
  count_ = 0;
  return std::exchange(texts_, {});
}

std::string_view to_string(LeftOutKind kind) {
  static constexpr std::array<std::string_view, 3> names{"row", "column", "key"};
  return names[static_cast<std::size_t>(kind)];
}

std::string describe(const std::string& source, const LeftOut& item) {
  const std::string& file = item.source.empty() ? source : item.source;
  const std::string place = item.line == 0 ? file : fmt::format("{}:{}", file, item.line);
  switch (item.kind) {
    case LeftOutKind::row:
      return fmt::format("{}: {}", place, item.why);
    case LeftOutKind::column:
      return fmt::format("{}: column {}: {}: {}", place, item.name, counted(item.count, "row"), item.why);
    case LeftOutKind::key:
      break;
  }
  return fmt::format("{}: key {}: {}", place, item.name, item.why);
}

std::string summary_of(const std::vector<LeftOut>& items) {
  std::string text;
  for (const LeftOutKind kind : {LeftOutKind::row, LeftOutKind::column, LeftOutKind::key}) {
    const auto count = static_cast<std::size_t>(
        std::ranges::count_if(items, [&](const LeftOut& item) { return item.kind == kind; }));
    if (count != 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", counted(count, to_string(kind)));
  }
  return text.empty() ? text : text + " left out";
}

}  // namespace gemmtune
