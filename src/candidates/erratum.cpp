#include "candidates/erratum.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"
#include "numbers/data_type.h"

namespace gemmtune {
namespace {

struct Size {
  std::string_view name;
  std::int64_t (*of)(const Problem& problem);
};

constexpr std::int64_t columns_of(Order order) { return order == Order::column_major ? 1 : 0; }

constexpr std::array sizes{
    Size{"m", [](const Problem& problem) { return problem.m; }},
    Size{"n", [](const Problem& problem) { return problem.n; }},
    Size{"k", [](const Problem& problem) { return problem.k; }},
    Size{"batch", [](const Problem& problem) { return problem.batch; }},
    Size{"bias", [](const Problem& problem) { return std::int64_t{problem.bias ? 1 : 0}; }},
    Size{"alignment", [](const Problem& problem) { return std::int64_t{problem.alignment}; }},
    Size{"x_columns", [](const Problem& problem) { return columns_of(problem.x_order); }},
    Size{"w_columns", [](const Problem& problem) { return columns_of(problem.w_order); }},
};

template <typename Value>
bool contains_or_empty(const std::vector<Value>& list, const Value& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

/// The numbers of a dotted version; nullopt for any other text.
std::optional<std::vector<std::int64_t>> numbers_of(std::string_view version) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view word : split(version, '.')) {
    const auto number = parse_integer(word);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

/// −1, 0 or 1: `version` against `limit`, as far as both are written.
int compare_versions(const std::vector<std::int64_t>& version, const std::vector<std::int64_t>& limit) {
  for (std::size_t i = 0; i < std::min(version.size(), limit.size()); ++i) {
    if (version[i] != limit[i]) return version[i] < limit[i] ? -1 : 1;
  }
  return 0;
}

/// The last number is at least the repair's, all in front of it are the same.
bool is_repaired(const std::vector<std::int64_t>& version, const std::vector<std::int64_t>& repair) {
  if (repair.empty() || version.size() < repair.size()) return false;
  const std::size_t last = repair.size() - 1;
  return std::equal(repair.begin(), repair.end() - 1, version.begin()) && version[last] >= repair[last];
}

}  // namespace

std::string_view to_string(ErratumEffect effect) {
  return effect == ErratumEffect::crash ? "crash" : "wrong";
}

std::vector<std::string_view> erratum_sizes() {
  std::vector<std::string_view> names;
  for (const Size& size : sizes) names.push_back(size.name);
  return names;
}

bool covers_version(const Erratum& erratum, std::string_view version) {
  if (erratum.first_version.empty() && erratum.last_version.empty()) return true;
  const auto numbers = numbers_of(version);
  if (!numbers) return false;
  if (const auto first = numbers_of(erratum.first_version);
      first && !erratum.first_version.empty() && compare_versions(*numbers, *first) < 0) {
    return false;
  }
  for (const std::string& repair : erratum.repaired) {
    if (const auto since = numbers_of(repair); since && is_repaired(*numbers, *since)) return false;
  }
  const auto last = numbers_of(erratum.last_version);
  return !last || erratum.last_version.empty() || compare_versions(*numbers, *last) <= 0;
}

bool holds(const Erratum& erratum, std::string_view architecture, const Problem& problem,
           const Candidate& candidate) {
  if (candidate.family != erratum.family) return false;
  if (!contains_or_empty(erratum.operations, form_of(problem))) return false;
  const auto is_of = [&](const std::string& word) {
    return data_type_on(architecture, word) == problem.x_type;
  };
  if (!erratum.types.empty() && std::ranges::none_of(erratum.types, is_of)) return false;
  const auto value = erratum.condition.evaluate([&](std::string_view name) -> std::optional<std::int64_t> {
    for (const Size& size : sizes) {
      if (size.name == name) return size.of(problem);
    }
    const std::string* word = candidate.config.find(name);
    return word == nullptr ? 0 : parse_integer(*word);
  });
  return value.value_or(0) != 0;
}

std::string describe(const Erratum& erratum) {
  return fmt::format("erratum {}: {}", erratum.name, erratum.what);
}

}  // namespace gemmtune
