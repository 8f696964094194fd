#include "candidates/config.h"

#include <algorithm>

#include "base/text.h"

namespace gemmtune {
namespace {

bool is_value_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '+' ||
         c == '-';
}

/// The key that `word` begins with; the longest where several do ("m" and "mr").
const std::string* key_of(std::string_view word, const std::vector<std::string>& keys) {
  const std::string* best = nullptr;
  for (const std::string& key : keys) {
    if (word.size() > key.size() && word.starts_with(key) && (best == nullptr || key.size() > best->size())) {
      best = &key;
    }
  }
  return best;
}

struct Head {
  std::string family;
  int revision = 0;
  std::string_view settings;
};

/// Splits "<family>_r<revision>[_…]".
std::optional<Head> split_head(std::string_view name) {
  if (name.find("_ZN") != std::string_view::npos || name.ends_with('_')) return std::nullopt;
  const auto words = split(name, '_');
  std::size_t position = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (i > 0 && word.size() > 1 && word[0] == 'r') {
      const auto revision = parse_integer(word.substr(1));
      if (revision && *revision >= 1 && *revision < 1'000'000) {
        Head head;
        head.family = std::string(name.substr(0, position - 1));
        head.revision = static_cast<int>(*revision);
        const auto end = std::min(name.size(), position + word.size() + 1);
        head.settings = name.substr(end);
        return head;
      }
    }
    position += word.size() + 1;
  }
  return std::nullopt;
}

}  // namespace

void Config::set(std::string key, std::string value) {
  for (auto& [known, old] : settings_) {
    if (known == key) {
      old = std::move(value);
      return;
    }
  }
  settings_.emplace_back(std::move(key), std::move(value));
}

int settings_apart(const Config& a, const Config& b) {
  int apart = 0;
  for (const auto& [key, value] : a.settings()) {
    const std::string* other = b.find(key);
    apart += other == nullptr || *other != value ? 1 : 0;
  }
  for (const auto& [key, value] : b.settings()) apart += a.find(key) == nullptr ? 1 : 0;
  return apart;
}

const std::string* Config::find(std::string_view key) const {
  for (const auto& [known, value] : settings_) {
    if (known == key) return &value;
  }
  return nullptr;
}

std::int64_t Config::number(std::string_view key, std::int64_t absent) const {
  const std::string* value = find(key);
  return value == nullptr ? absent : parse_integer(*value).value_or(absent);
}

std::string_view Config::word(std::string_view key, std::string_view absent) const {
  const std::string* value = find(key);
  return value == nullptr ? absent : std::string_view(*value);
}

bool Config::is_value(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_value_character);
}

std::string Config::text() const {
  std::string text;
  for (const auto& [key, value] : settings_) {
    if (!text.empty()) text += '_';
    text += key;
    text += value;
  }
  return text;
}

std::string Candidate::kernel_name() const {
  std::string name = fmt::format("{}_r{}", family, revision);
  const std::string settings = config.text();
  if (!settings.empty()) name += '_' + settings;
  return name;
}

std::optional<std::string> family_of_kernel_name(std::string_view kernel_name) {
  auto head = split_head(kernel_name);
  if (!head || head->family.empty()) return std::nullopt;
  return std::move(head->family);
}

Result<Candidate> parse_kernel_name(std::string_view kernel_name, const std::vector<std::string>& keys) {
  const auto head = split_head(kernel_name);
  if (!head)
    return Status::invalid("kernelName '{}', expected <family>_r<revision>_<key><value>…", kernel_name);
  Candidate candidate{head->family, head->revision, {}};
  if (head->settings.empty()) return candidate;
  std::size_t last = 0;
  for (const std::string_view word : split(head->settings, '_')) {
    const std::string* key = key_of(word, keys);
    if (key == nullptr) {
      return Status::invalid("kernelName '{}': '{}' is no parameter of {}", kernel_name, word, head->family);
    }
    const auto place = static_cast<std::size_t>(key - keys.data()) + 1;
    if (place <= last) {
      return Status::invalid("kernelName '{}': {} stands out of order or twice", kernel_name, *key);
    }
    last = place;
    const std::string_view value = word.substr(key->size());
    if (!Config::is_value(value)) {
      return Status::invalid("kernelName '{}': {} has value '{}', expected [A-Za-z0-9.+-]", kernel_name, *key,
                             value);
    }
    candidate.config.set(*key, std::string(value));
  }
  return candidate;
}

}  // namespace gemmtune
