#include "cli/shared/argv_words.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"

namespace gemmtune::cli {
namespace {

/// Single-dash words and the long option that each stands for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> single_dash_words = {{
    {"-o2", "--profile-file"},
    {"-dtype_a", "--dtype-a"},
    {"-dtype_b", "--dtype-b"},
    {"-dtype_c", "--dtype-c"},
    {"-col_a", "--col-a"},
    {"-col_b", "--col-b"},
}};

/// Options that may stand bare or with a truth value.
constexpr std::array<std::string_view, 1> optional_truth = {"--sort"};

std::string normalised_name(std::string_view name) {
  std::string text(name);
  std::replace(text.begin() + 2, text.end(), '_', '-');
  return text;
}

std::optional<std::string> single_dash_word(std::string_view name) {
  if (name.empty()) return std::nullopt;  // "" and "=x" are words too
  std::string dashed(name);
  std::replace(dashed.begin() + 1, dashed.end(), '-', '_');
  for (const auto& [word, option] : single_dash_words) {
    if (dashed == word) return std::string(option);
  }
  return std::nullopt;
}

bool is_size_word(std::string_view word) { return word == "-m" || word == "-n" || word == "-k"; }

/// A value of -m, -n, -k: anything that starts like a number, so that the error of "-m -3" and "-m 1e9" names
/// the value, not an unknown option.
bool looks_like_number(std::string_view word) {
  if (!word.empty() && (word.front() == '-' || word.front() == '+')) word.remove_prefix(1);
  return !word.empty() && word.front() >= '0' && word.front() <= '9';
}

/// yes/no words too: AITER's --sort takes them.
std::optional<bool> truth(std::string_view word) {
  const std::string lower = to_lower(word);
  if (lower == "yes" || lower == "y" || lower == "t") return true;
  if (lower == "no" || lower == "n" || lower == "f") return false;
  return parse_bool(word);
}

}  // namespace

std::vector<std::string> argv_words(std::span<const std::string> words) {
  std::vector<std::string> result;
  const bool tune = !words.empty() && words[0] == "tune";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::string* following = i + 1 < words.size() ? &words[i + 1] : nullptr;
    if (word == "--") {
      result.insert(result.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    const std::size_t equals = word.find('=');
    const std::string_view name = std::string_view(word).substr(0, equals);
    const std::string tail = equals == std::string::npos ? std::string() : word.substr(equals);
    if (const auto option = single_dash_word(name)) {
      result.push_back(*option + tail);
    } else if (is_size_word(word)) {
      if (following != nullptr && looks_like_number(*following)) {
        result.push_back(word + *following);
        ++i;
      } else {
        result.push_back(tune && word == "-k" ? "--splitK" : word);
      }
    } else if (name.size() > 2 && name.substr(0, 2) == "--") {
      const std::string long_name = tune && name == "--o" ? "--output" : normalised_name(name);
      if (std::find(optional_truth.begin(), optional_truth.end(), long_name) == optional_truth.end()) {
        result.push_back(long_name + tail);
      } else if (!tail.empty()) {
        const auto value = truth(tail.substr(1));
        result.push_back(long_name + (value ? (*value ? "=true" : "=false") : tail));
      } else {
        const auto value = following != nullptr ? truth(*following) : std::nullopt;
        result.push_back(long_name + (value.value_or(true) ? "=true" : "=false"));
        if (value) ++i;
      }
    } else {
      result.push_back(word);
    }
  }
  return result;
}

}  // namespace gemmtune::cli
