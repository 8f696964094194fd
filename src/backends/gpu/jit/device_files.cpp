#include "backends/gpu/jit/device_files.h"

#include <algorithm>
#include <optional>

#include "base/hash.h"

namespace gemmtune::gpu {
namespace {

constexpr std::string_view include_begin = "#include \"";
constexpr std::string_view once = "#pragma once\n";

/// The path of a line `#include "path"`.
std::optional<std::string_view> included_path(std::string_view line) {
  if (!line.starts_with(include_begin)) return std::nullopt;
  line.remove_prefix(include_begin.size());
  const auto end = line.find('"');
  if (end == std::string_view::npos) return std::nullopt;
  return line.substr(0, end);
}

/// Walks through a text and the files that it includes.
class Resolver {
 public:
  explicit Resolver(std::span<const DeviceFile> all) : all_(all) {}

  void add(std::string_view text) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
      text.remove_prefix(line.size());
      const auto path = included_path(line);
      const DeviceFile* const file = path ? find(*path) : nullptr;
      if (file == nullptr) {
        if (line != once) resolved += line;
      } else if (std::find(reached.begin(), reached.end(), file) == reached.end()) {
        reached.push_back(file);
        add(file->text);
      }
    }
  }

  std::vector<const DeviceFile*> reached;
  std::string resolved;

 private:
  const DeviceFile* find(std::string_view path) const {
    const auto found = std::ranges::find_if(all_, [&](const DeviceFile& file) { return path == file.path; });
    return found == all_.end() ? nullptr : &*found;
  }

  std::span<const DeviceFile> all_;
};

Resolver resolve(std::string_view text, std::span<const DeviceFile> all) {
  Resolver resolver(all);
  resolver.add(text);
  return resolver;
}

}  // namespace

std::string include_line(std::string_view path) {
  return std::string(include_begin) + std::string(path) + "\"\n";
}

std::vector<DeviceFile> included_files(std::string_view text, std::span<const DeviceFile> all) {
  std::vector<DeviceFile> files;
  for (const DeviceFile* file : resolve(text, all).reached) files.push_back(*file);
  return files;
}

std::string resolved_text(std::string_view text, std::span<const DeviceFile> all) {
  return resolve(text, all).resolved;
}

std::string text_hash(std::string_view text, std::span<const DeviceFile> all) {
  return short_hash(resolved_text(text, all), 12);
}

}  // namespace gemmtune::gpu
