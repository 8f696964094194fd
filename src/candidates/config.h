// Config: one setting of a family's parameters. Its text is stable and is a promise: it stands in users'
// tables.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace gemmtune {

/// A key and its value as a config holds it.
struct Setting {
  std::string key;
  std::string value;

  Setting(std::string named, std::string_view text) : key(std::move(named)), value(text) {}
  Setting(std::string named, std::integral auto number)
      : key(std::move(named)), value(std::to_string(number)) {}
};

/// Ordered key → value. Keys are lower-case letters; values are of [A-Za-z0-9.+-], the first character of a
/// numeric value is a digit.
class Config {
 public:
  Config() = default;
  Config(std::initializer_list<Setting> settings) {
    for (const Setting& each : settings) set(each.key, each.value);
  }
  void set(std::string key, std::string value);
  void set(std::string key, std::int64_t value) { set(std::move(key), std::to_string(value)); }
  /// nullptr where the key is absent.
  const std::string* find(std::string_view key) const;
  /// The value as a number; `absent` where the key is not there. Requires a numeric value.
  std::int64_t number(std::string_view key, std::int64_t absent = 0) const;
  /// The value; `absent` where the key is not there.
  std::string_view word(std::string_view key, std::string_view absent = {}) const;
  const std::vector<std::pair<std::string, std::string>>& settings() const { return settings_; }
  /// True of what may stand as a value in a kernelName: of [A-Za-z0-9.+-], at least one.
  static bool is_value(std::string_view text);
  /// "mr8_nr32_kc512"; empty for an empty config.
  std::string text() const;
  friend bool operator==(const Config&, const Config&) = default;

 private:
  std::vector<std::pair<std::string, std::string>> settings_;
};

/// How many keys have another value in `b` than in `a`, or stand in one of them alone.
int settings_apart(const Config& a, const Config& b);

/// One thing to try: a family and a config.
struct Candidate {
  std::string family;
  int revision = 1;
  Config config;

  /// "<family>_r<revision>_<key><value>_…": the kernelName of tuned files. Holds everything needed to build
  /// the kernel again; never contains "_ZN".
  std::string kernel_name() const;
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

/// A programmatic dependent launch: such a kernel reads its weight before the kernel in front of it has
/// ended. Only for callers who say that this is safe.
inline bool is_dependent(const Config& config) { return config.number("pdl", 0) != 0; }

/// A parameter of a kernel as a program other than gemmtune launches it with: BLOCK_SIZE_M = 64.
struct LauncherParameter {
  std::string name;
  std::variant<std::int64_t, std::string> value;
};

/// The family part of a kernelName ("tiled" of "tiled_r1_mr8…"), nullopt where the text is none of ours.
std::optional<std::string> family_of_kernel_name(std::string_view kernel_name);

/// Reads a kernelName of ours. `keys` are the family's parameter keys in their fixed order (absent ones are
/// legal, unknown ones and repeated ones are an error that names them).
Result<Candidate> parse_kernel_name(std::string_view kernel_name, const std::vector<std::string>& keys);

}  // namespace gemmtune
