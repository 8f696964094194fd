#include "formats/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace gemmtune
