#include "formats/left_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gemmtune {
namespace {

std::string counted(std::size_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

}  // namespace

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
