#include "formats/triton/bucket_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/json.h"
#include "formats/json_text.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

void replace_bucket(const TritonBucket& bucket, TritonFile& file) {
  std::erase_if(file.buckets, [&](const TritonBucket& other) { return other.key == bucket.key; });
  file.buckets.push_back(bucket);
}

/// Ascending by M; `any` is the last.
bool comes_before(const TritonBucket& a, const TritonBucket& b) {
  return a.kind != b.kind ? a.kind < b.kind : a.bound < b.bound;
}

void note_regrets(const std::vector<TunedBucket>& buckets, TritonFile& file) {
  auto note = std::find_if(file.notes.begin(), file.notes.end(),
                           [](const TritonNote& other) { return other.key == regret_note; });
  if (note == file.notes.end()) note = file.notes.insert(note, {std::string(regret_note), "{}", 0});
  Json regrets = parse_json(note->json);
  if (!regrets.is_object()) regrets = Json::object();
  for (const TunedBucket& tuned : buckets) regrets[tuned.bucket.key] = std::round(tuned.regret * 1e4) / 1e4;
  note->json = json_line(regrets);
  note->before = file.buckets.size();
}

}  // namespace

TritonBucket bucket_for(TritonScheme scheme, std::int64_t m) {
  if (scheme == TritonScheme::thirds) {
    if (m <= max_small_m) return {"small_M", BucketKind::small_m, 0, {}, 0};
    if (m <= max_medium_m) return {"medium_M", BucketKind::medium_m, 0, {}, 0};
    return {"large_M", BucketKind::large_m, 0, {}, 0};
  }
  const auto bound = std::lower_bound(std::begin(default_triton_bounds), std::end(default_triton_bounds), m);
  if (bound == std::end(default_triton_bounds)) return {"any", BucketKind::any, 0, {}, 0};
  return {fmt::format("M_LEQ_{}", *bound), BucketKind::m_leq, *bound, {}, 0};
}

TritonConfig bucket_config(const std::string& kernel_name,
                           const std::vector<std::pair<std::string, std::string>>& settings) {
  TritonConfig config;
  config.set("kernelName", kernel_name);
  for (const auto& [key, value] : settings) {
    const auto number = parse_integer(value);
    config.set(key, number ? TritonValue(*number) : TritonValue(value));
  }
  return config;
}

TritonConfig bucket_config(const std::vector<LauncherParameter>& parameters) {
  TritonConfig config;
  for (const LauncherParameter& parameter : parameters)
    std::visit([&](const auto& value) { config.set(parameter.name, value); }, parameter.value);
  return config;
}

Status update_bucket_file(const std::string& path, TritonScheme scheme,
                          const std::vector<TunedBucket>& buckets) {
  TritonFile file;
  file.scheme = scheme;
  if (file_exists(path)) {
    auto known = read_triton_json(path);
    if (!known.ok()) return known.status();
    const bool differs = known->scheme != scheme &&
                         std::any_of(known->buckets.begin(), known->buckets.end(),
                                     [](const auto& bucket) { return bucket.kind != BucketKind::any; });
    if (differs) {
      return Status::invalid("{}: has buckets of the scheme {}, expected {}", path, to_string(known->scheme),
                             to_string(scheme));
    }
    file = std::move(*known);
    file.scheme = scheme;
  }
  for (const TunedBucket& tuned : buckets) replace_bucket(tuned.bucket, file);
  std::stable_sort(
      file.buckets.begin(), file.buckets.end(), [](const TritonBucket& a, const TritonBucket& b) {
        return (a.kind == BucketKind::any) != (b.kind == BucketKind::any) ? b.kind == BucketKind::any
                                                                          : comes_before(a, b);
      });
  for (TritonNote& note : file.notes) note.before = file.buckets.size();
  note_regrets(buckets, file);
  return write_file_atomically(path, write_triton_json(file));
}

}  // namespace gemmtune
