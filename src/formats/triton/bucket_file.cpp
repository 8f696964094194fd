#include "formats/triton/bucket_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/file.h"
#include "base/text.h"
#include "formats/json.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

/// Parameters of gemmtune's families that mean what a key of AITER's means: blocks of M, N and K, splits of K, warps.
constexpr std::pair<std::string_view, std::string_view> shared_parameters[] = {
    {"bm", "BLOCK_SIZE_M"}, {"bn", "BLOCK_SIZE_N"}, {"bk", "BLOCK_SIZE_K"}, {"mc", "BLOCK_SIZE_M"},
    {"nc", "BLOCK_SIZE_N"}, {"kc", "BLOCK_SIZE_K"}, {"sk", "NUM_KSPLIT"},   {"nw", "num_warps"}};

using Settings = std::vector<std::pair<std::string, std::string>>;

std::optional<std::int64_t> number_of(const Settings& settings, std::string_view key) {
  const auto found = std::ranges::find_if(settings, [&](const auto& one) { return one.first == key; });
  return found == settings.end() ? std::nullopt : parse_integer(found->second);
}

void replace_bucket(const TritonBucket& bucket, TritonFile& file) {
  std::erase_if(file.buckets, [&](const TritonBucket& other) { return other.key == bucket.key; });
  file.buckets.push_back(bucket);
}

/// Ascending by M; `any` is the last.
bool comes_before(const TritonBucket& a, const TritonBucket& b) {
  return a.kind != b.kind ? a.kind < b.kind : a.bound < b.bound;
}

/// The note of a key; a new one is the last, `json`.
TritonNote& note_of(TritonFile& file, std::string_view key, std::string_view json) {
  const auto note =
      std::ranges::find_if(file.notes, [&](const TritonNote& other) { return other.key == key; });
  if (note != file.notes.end()) return *note;
  return file.notes.emplace_back(TritonNote{std::string(key), std::string(json), 0});
}

void note_regrets(const std::vector<TunedBucket>& buckets, TritonFile& file) {
  TritonNote& note = note_of(file, regret_note, "{}");
  Json regrets = parse_json(note.json);
  if (!regrets.is_object()) regrets = Json::object();
  for (const TunedBucket& tuned : buckets) {
    regrets.erase(tuned.bucket.key);
    if (tuned.regret) regrets[tuned.bucket.key] = std::round(*tuned.regret * 1e4) / 1e4;
  }
  note.json = json_line(regrets);
}

}  // namespace

void sort_buckets(TritonFile& file) {
  std::ranges::stable_sort(file.buckets, [](const TritonBucket& a, const TritonBucket& b) {
    return (a.kind == BucketKind::any) != (b.kind == BucketKind::any) ? b.kind == BucketKind::any
                                                                      : comes_before(a, b);
  });
}

std::optional<std::string> bucket_file_name(std::string_view arch, const Problem& problem) {
  const auto family = triton_family(problem);
  if (!family) return std::nullopt;
  const auto batch = traits(problem.operation).batched ? std::optional(problem.batch) : std::nullopt;
  const auto experts = is_mixture(problem) ? std::optional(std::int64_t{problem.moe.experts}) : std::nullopt;
  return triton_file_name(arch, *family, problem.n, problem.k, batch, experts);
}

TritonScheme scheme_for(TritonScheme scheme, const Problem& problem) {
  return scheme == TritonScheme::thirds && is_mixture(problem) ? TritonScheme::moe : scheme;
}

TritonBucket bucket_for(TritonScheme scheme, std::int64_t m) {
  if (scheme != TritonScheme::bounds) {
    const bool moe = scheme == TritonScheme::moe;
    if (m <= (moe ? max_moe_small_m : max_small_m)) return {"small_M", BucketKind::small_m, 0, {}, 0};
    if (m <= (moe ? max_moe_medium_m : max_medium_m)) return {"medium_M", BucketKind::medium_m, 0, {}, 0};
    return {"large_M", BucketKind::large_m, 0, {}, 0};
  }
  const auto bound = std::lower_bound(std::begin(default_triton_bounds), std::end(default_triton_bounds), m);
  if (bound == std::end(default_triton_bounds)) return {"any", BucketKind::any, 0, {}, 0};
  return {fmt::format("M_LEQ_{}", *bound), BucketKind::m_leq, *bound, {}, 0};
}

TritonConfig bucket_config(const std::string& kernel_name,
                           const std::vector<std::pair<std::string, std::string>>& settings) {
  TritonConfig config;
  config.set(kernel_name_key, kernel_name);
  for (const auto& [ours, theirs] : shared_parameters) {
    auto number = number_of(settings, ours);
    // A block of no columns is one of the register tile's.
    if (ours == "nc" && number == 0) number = number_of(settings, "nr");
    if (number) config.set(theirs, *number);
  }
  return config;
}

TritonConfig bucket_config(const std::vector<LauncherParameter>& parameters) {
  TritonConfig config;
  for (const LauncherParameter& parameter : parameters)
    std::visit([&](const auto& value) { config.set(parameter.name, value); }, parameter.value);
  return config;
}

TritonFile keys_of_updated(const std::string& path, TritonScheme scheme,
                           const std::vector<TritonBucket>& keys) {
  TritonFile file;
  if (auto known = file_exists(path) ? read_triton_json(path) : Result<TritonFile>(TritonFile()); known.ok())
    file.buckets = std::move(known->buckets);
  file.scheme = scheme;
  for (const TritonBucket& key : keys) replace_bucket(key, file);
  sort_buckets(file);
  return file;
}

Status update_bucket_file(const std::string& path, TritonScheme scheme, const Problem& problem,
                          const std::vector<TunedBucket>& buckets) {
  TritonFile file;
  file.scheme = scheme;
  if (file_exists(path)) {
    GEMMTUNE_TRY(auto known, read_triton_json(path));
    const bool differs = known.scheme != scheme && std::ranges::any_of(known.buckets, [](const auto& bucket) {
                           return bucket.kind != BucketKind::any;
                         });
    if (differs) {
      return Status::invalid("{}: has buckets of the scheme {}, expected {}", path, to_string(known.scheme),
                             to_string(scheme));
    }
    file = std::move(known);
    file.scheme = scheme;
  }
  for (const TunedBucket& tuned : buckets) replace_bucket(tuned.bucket, file);
  sort_buckets(file);
  note_regrets(buckets, file);
  note_of(file, problem_note, {}).json = json_ascii_string(print(problem));
  for (TritonNote& note : file.notes) note.before = file.buckets.size();
  return write_file_atomically(path, write_triton_json(file));
}

}  // namespace gemmtune
