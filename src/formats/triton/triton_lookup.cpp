#include "formats/triton/triton_lookup.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/file.h"
#include "base/rounding.h"
#include "base/text.h"

namespace gemmtune {
namespace {

constexpr std::int64_t max_size = (std::int64_t{1} << 31) - 1;

/// Of several buckets with one key the last, as Python reads them.
const TritonBucket* bucket_of(const TritonFile& file, BucketKind kind, std::int64_t bound = 0) {
  const auto at = std::find_if(file.buckets.rbegin(), file.buckets.rend(), [&](const TritonBucket& bucket) {
    return bucket.kind == kind && bucket.bound == bound;
  });
  return at == file.buckets.rend() ? nullptr : &*at;
}

const TritonBucket* find_by_bounds(const TritonFile& file, std::int64_t m,
                                   std::span<const std::int64_t> bounds) {
  for (const std::int64_t bound : bounds) {
    if (m > bound) continue;
    if (const TritonBucket* bucket = bucket_of(file, BucketKind::m_leq, bound)) return bucket;
  }
  for (auto bound = bounds.rbegin(); bound != bounds.rend(); ++bound) {
    if (m < *bound) continue;
    if (const TritonBucket* bucket = bucket_of(file, BucketKind::m_geq, *bound)) return bucket;
  }
  return nullptr;
}

std::int64_t next_power_of_2(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value)));
}

const TritonBucket* find_by_name(const TritonFile& file, std::int64_t m) {
  if (m < 32) return bucket_of(file, BucketKind::small);
  if (m <= 128) return bucket_of(file, BucketKind::medium, next_power_of_2(m));
  if (m <= 256) return bucket_of(file, BucketKind::large);
  const TritonBucket* exact = bucket_of(file, BucketKind::xlarge, next_power_of_2(m));
  return exact != nullptr ? exact : bucket_of(file, BucketKind::xlarge);
}

/// The largest M of small_M and of medium_M.
const TritonBucket* find_by_thirds(const TritonFile& file, std::int64_t m, std::int64_t small,
                                   std::int64_t medium) {
  if (m <= small) return bucket_of(file, BucketKind::small_m);
  return bucket_of(file, m <= medium ? BucketKind::medium_m : BucketKind::large_m);
}

/// Of two that are as near the first in the file.
const TritonBucket* find_nearest(const TritonFile& file, std::int64_t m) {
  const TritonBucket* nearest = nullptr;
  const auto distance = [&](const TritonBucket& bucket) {
    return bucket.bound > m ? bucket.bound - m : m - bucket.bound;
  };
  for (const TritonBucket* bucket : last_of_keys(file)) {
    if (bucket->kind != BucketKind::nearest) continue;
    if (nearest == nullptr || distance(*bucket) < distance(*nearest)) nearest = bucket;
  }
  return nearest;
}

const TritonBucket* find_tuned(const TritonFile& file, std::int64_t m, std::span<const std::int64_t> bounds) {
  switch (file.scheme) {
    case TritonScheme::bounds:
      return find_by_bounds(file, m, bounds);
    case TritonScheme::named:
      return find_by_name(file, m);
    case TritonScheme::thirds:
      return find_by_thirds(file, m, max_small_m, max_medium_m);
    case TritonScheme::moe:
      return find_by_thirds(file, m, max_moe_small_m, max_moe_medium_m);
    case TritonScheme::nearest:
      return find_nearest(file, m);
  }
  return nullptr;
}

std::string to_upper(std::string_view text) {
  std::string upper(text);
  for (char& character : upper) {
    if (character >= 'a' && character <= 'z') character = static_cast<char>(character - 'a' + 'A');
  }
  return upper;
}

/// gemm_afp4wfp4 → GEMM-AFP4WFP4: which of the underscores were dashes is not in the name; the family's kind
/// ends behind "GEMM".
std::string family_of_folder(std::string_view folder) {
  std::string family = to_upper(folder);
  const auto kind_end = family.find("GEMM_");
  if (kind_end != std::string::npos) family[kind_end + 4] = '-';
  return family;
}

std::string folder_of_family(std::string_view family) {
  std::string folder = to_lower(family);
  std::replace(folder.begin(), folder.end(), '-', '_');
  return folder;
}

bool is_arch(std::string_view word) {
  return word.size() > 3 &&
         (word.starts_with("gfx") || (word.starts_with("MI") && word[2] >= '0' && word[2] <= '9'));
}

/// Of another device than AMD's, before the family: x86-amx-GEMM-…; npos: the stem has none.
std::size_t end_of_arch(std::string_view stem) {
  for (const std::string_view kind : {"-BATCHED_GEMM-", "-GEMM-", "-MOE-"}) {
    if (const std::size_t at = stem.find(kind); at != std::string_view::npos) return at;
  }
  return std::string_view::npos;
}

void read_size(std::string_view word, TritonFileName& name) {
  const auto equals = word.find('=');
  const auto value = parse_integer(word.substr(equals + 1));
  if (!value || *value < 1) return;
  const std::string_view key = word.substr(0, equals);
  if (key == "N") name.n = *value;
  if (key == "K") name.k = *value;
  if (key == "B") name.b = *value;
  if (key == "E") name.e = *value;
}

/// Without the arch: the words up to the first "X=…" are the family, the rest says what it is special for.
void read_stem(std::string_view stem, TritonFileName& name) {
  for (const std::string_view word : split(stem, '-')) {
    const bool special = word.find('=') != std::string_view::npos || !name.specialisation.empty();
    std::string& target = special ? name.specialisation : name.family;
    if (!target.empty()) target += '-';
    target += word;
    if (special && word.find('=') != std::string_view::npos) read_size(word, name);
  }
}

/// vLLM's and SGLang's: words behind commas, but for those in brackets.
TritonFileName read_nearest_stem(std::string_view stem) {
  constexpr std::string_view device_key = "device_name=";
  TritonFileName name;
  std::vector<std::string> words(1);
  bool in_brackets = false;
  for (const char character : stem) {
    if (character == '[' || character == ']') in_brackets = character == '[';
    if (character == ',' && !in_brackets) {
      words.emplace_back();
    } else if (!in_brackets || character != ' ') {
      words.back() += character;
    }
  }
  for (const std::string& word : words) {
    if (word.starts_with(device_key)) {
      name.arch = word.substr(device_key.size());
      continue;
    }
    read_size(word, name);
    name.specialisation += (name.specialisation.empty() ? "" : ",") + word;
  }
  const bool of_state = stem.starts_with("headdim=");
  name.family = of_state ? nearest_state_family : name.e ? nearest_moe_family : nearest_dense_family;
  return name;
}

/// "N=2112-K=7168", in the order in which AITER looks for files.
std::vector<std::string> specialisations(const TritonQuery& query) {
  if (!query.specialisation.empty()) return {query.specialisation};
  std::vector<std::string> list;
  if (!query.n || !query.k) return list;
  if (query.b) list.push_back(fmt::format("B={}-N={}-K={}", *query.b, *query.n, *query.k));
  list.push_back(fmt::format("N={}-K={}", *query.n, *query.k));
  return list;
}

/// A folder of one family's files.
struct Place {
  std::string default_file;
  std::string prefix;  // of specialised files: all but "-N=…-K=….json"
};

Place new_place(const std::string& root, const TritonQuery& query, std::string_view backend) {
  const std::string folder =
      fmt::format("{}/{}/{}/gemm/{}/", root, query.arch, backend, folder_of_family(query.family));
  return {folder + "DEFAULT.json", folder + query.family};
}

Place legacy_place(const std::string& folder, const TritonQuery& query) {
  const std::string prefix = fmt::format("{}/{}-{}", folder, query.arch, query.family);
  return {prefix + ".json", prefix};
}

std::vector<Place> places(const std::string& root, const TritonQuery& query) {
  if (query.backend.empty()) {
    return {new_place(root, query, "triton"), new_place(root, query, "gluon"),
            legacy_place(root + "/gemm", query)};
  }
  return {new_place(root, query, query.backend), legacy_place(root + "/gemm/" + query.backend, query),
          legacy_place(root + "/gemm", query)};
}

Status check_size(std::string_view name, std::int64_t value) {
  if (value >= 1 && value <= max_size) return {};
  return Status::invalid("{} = {}, expected a whole number from 1 to {}", name, value, max_size);
}

}  // namespace

std::optional<TritonMatch> find_bucket(const TritonFile& file, std::int64_t m,
                                       std::span<const std::int64_t> bounds) {
  if (m < 1 || m > max_size) return std::nullopt;
  if (const TritonBucket* bucket = find_tuned(file, m, bounds)) return TritonMatch{bucket, true};
  if (const TritonBucket* bucket = bucket_of(file, BucketKind::any)) return TritonMatch{bucket, false};
  return std::nullopt;
}

std::optional<TritonFileName> parse_triton_file_name(const std::string& path) {
  constexpr std::string_view extension = ".json";
  if (!std::string_view(path).ends_with(extension)) return std::nullopt;
  const std::vector<std::string_view> parts = split(path, '/');
  std::string_view stem = parts.back();
  stem.remove_suffix(extension.size());
  if (stem.find(",device_name=") != std::string_view::npos) return read_nearest_stem(stem);

  TritonFileName name;
  const std::size_t depth = parts.size();
  if (depth >= 5 && parts[depth - 3] == "gemm" && is_arch(parts[depth - 5])) {
    name.arch = parts[depth - 5];
    if (stem == "DEFAULT") {
      name.family = family_of_folder(parts[depth - 2]);
      return name;
    }
  }
  const auto dash = stem.find('-');
  if (is_arch(stem.substr(0, dash))) {
    name.arch = stem.substr(0, dash);
    stem = dash == std::string_view::npos ? std::string_view() : stem.substr(dash + 1);
  } else if (const auto end = end_of_arch(stem); end != std::string_view::npos) {
    name.arch = stem.substr(0, end);
    stem = stem.substr(end + 1);
  }
  if (!stem.empty()) read_stem(stem, name);
  return name;
}

std::string triton_file_name(std::string_view arch, std::string_view family, std::optional<std::int64_t> n,
                             std::optional<std::int64_t> k, std::optional<std::int64_t> b,
                             std::optional<std::int64_t> e) {
  std::string special;
  if (b) special += fmt::format("-B={}", *b);
  if (e) special += fmt::format("-E={}", *e);
  if (n && k) special += fmt::format("-N={}-K={}", *n, *k);
  if (arch.empty()) return special.empty() ? "DEFAULT.json" : fmt::format("{}{}.json", family, special);
  return fmt::format("{}-{}{}.json", arch, family, special);
}

Result<TritonPaths> find_triton_files(const std::string& root, const TritonQuery& query) {
  std::string looked_for;
  for (const Place& place : places(root, query)) {
    if (!file_exists(place.default_file)) {
      looked_for += (looked_for.empty() ? "" : ", ") + place.default_file;
      continue;
    }
    TritonPaths paths{place.default_file, {}};
    for (const std::string& special : specialisations(query)) {
      const std::string path = fmt::format("{}-{}.json", place.prefix, special);
      if (!file_exists(path)) continue;
      paths.specialised_file = path;
      break;
    }
    return paths;
  }
  return Status::not_found("no default file of {} for {}: none of {}", query.family, query.arch, looked_for);
}

bool is_nearest_family(std::string_view family) {
  return family == nearest_dense_family || family == nearest_moe_family || family == nearest_state_family;
}

namespace {

/// What the config asks for.
Result<SplitK> asked_split(const TritonConfig& config, std::int64_t k) {
  SplitK split;
  split.num_ksplit = config.find("NUM_KSPLIT") == nullptr ? 1 : config.integer("NUM_KSPLIT").value_or(0);
  split.block_size_k = config.integer("BLOCK_SIZE_K").value_or(0);
  GEMMTUNE_RETURN_IF_ERROR(check_size("NUM_KSPLIT", split.num_ksplit));
  GEMMTUNE_RETURN_IF_ERROR(check_size("BLOCK_SIZE_K", split.block_size_k));
  GEMMTUNE_RETURN_IF_ERROR(check_size("K", k));
  return split;
}

void split_commonly(SplitK& split, std::int64_t k) {
  constexpr std::int64_t smallest_block = 16;
  split.splitk_block_size = ceil_div(k, split.num_ksplit);
  while (split.num_ksplit > 1 && split.block_size_k > split.splitk_block_size) {
    split.num_ksplit /= 2;
    split.splitk_block_size = ceil_div(k, split.num_ksplit);
  }
  if (split.block_size_k > split.splitk_block_size) {
    split.block_size_k = next_power_of_2(split.splitk_block_size);
    if (split.block_size_k > split.splitk_block_size) split.block_size_k /= 2;
  }
  split.block_size_k = std::max(split.block_size_k, smallest_block);
  if (split.num_ksplit > 1 && split.splitk_block_size % split.block_size_k != 0) {
    split.splitk_block_size = round_up(split.splitk_block_size, split.block_size_k);
    split.num_ksplit = ceil_div(k, split.splitk_block_size);
  }
}

void split_preshuffled(SplitK& split, std::int64_t k) {
  constexpr std::int64_t smallest_block = 16;
  split.splitk_block_size = ceil_div(k, split.num_ksplit);
  if (split.block_size_k > split.splitk_block_size) {
    split.block_size_k = next_power_of_2(split.splitk_block_size);
    if (split.block_size_k > split.splitk_block_size) split.block_size_k /= 4;
  }
  split.block_size_k = std::max(split.block_size_k, smallest_block);
}

/// Fewer splits, or smaller blocks, until each split holds whole blocks and all of K is in splits of one size. `k` is half of
/// the elements where two share a byte; a split is counted in elements.
void split_evenly(SplitK& split, std::int64_t k, std::int64_t step, bool recount) {
  constexpr std::int64_t smallest_block = 16;
  const auto elements = [&] { return round_up(2 * ceil_div(k, split.num_ksplit), split.block_size_k); };
  split.splitk_block_size = elements();
  while (split.num_ksplit > 1 && split.block_size_k > smallest_block) {
    if (k % (split.splitk_block_size / 2) != 0) {
      split.num_ksplit = std::max<std::int64_t>(split.num_ksplit / step, 1);
    } else if (k % (split.block_size_k / 2) != 0) {
      split.block_size_k /= step;
    } else {
      break;
    }
    split.splitk_block_size = elements();
  }
  if (recount) split.num_ksplit = ceil_div(k, split.splitk_block_size / 2);
}

}  // namespace

Result<SplitK> apply_split_k(const TritonConfig& config, std::int64_t k) {
  return apply_split_k(config, k, LaunchRule{SplitRule::common});
}

Result<SplitK> apply_split_k(const TritonConfig& config, std::int64_t k, const LaunchRule& rule) {
  GEMMTUNE_TRY(auto split, asked_split(config, k));
  const std::int64_t function_k = std::max<std::int64_t>(k / rule.k_divisor, 1);
  switch (rule.split) {
    case SplitRule::unknown:
      return Status::unsupported("no rule by which this family splits K");
    case SplitRule::common:
      split_commonly(split, k);
      return split;
    case SplitRule::preshuffled:
      split_preshuffled(split, k);
      return split;
    case SplitRule::even:
    case SplitRule::even_recounted:
      if (split.num_ksplit > 1) split_evenly(split, function_k, 2, rule.split == SplitRule::even_recounted);
      break;
    case SplitRule::even_by_four:
      split_evenly(split, function_k, 4, false);
      break;
  }
  if (rule.capped && split.block_size_k >= k) {
    split.block_size_k = next_power_of_2(k);
    split.splitk_block_size = k;
    split.num_ksplit = 1;
  }
  split.block_size_k = std::max(split.block_size_k, rule.min_block);
  return split;
}

}  // namespace gemmtune
