// AITER's, vLLM's and SGLang's Triton configs among the formats. A bucket is a row at its largest M, without a time; its
// kernelName is its parameters: BLOCK_SIZE_M=16;num_warps=4;cache_modifier=.cg
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "base/text.h"
#include "formats/conversion.h"
#include "formats/json.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_json.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

constexpr std::string_view triton_format = "triton_json";
constexpr std::string_view nearest_format = "vllm_json";
constexpr std::string_view bucket_column = "bucket";  // of carried cells: the key of a bucket

/// The largest M that a bucket answers; nullopt: all that is above the others.
std::optional<std::int64_t> max_m_of(const TritonBucket& bucket, TritonScheme scheme) {
  const bool moe = scheme == TritonScheme::moe;
  switch (bucket.kind) {
    case BucketKind::m_leq:
    case BucketKind::nearest:
      return bucket.bound;
    case BucketKind::small:
      return bucket.bound != 0 ? bucket.bound : 31;
    case BucketKind::large:
      return bucket.bound != 0 ? bucket.bound : 256;
    case BucketKind::medium:
    case BucketKind::xlarge:
      return bucket.bound != 0 ? std::optional(bucket.bound) : std::nullopt;
    case BucketKind::small_m:
      return moe ? max_moe_small_m : max_small_m;
    case BucketKind::medium_m:
      return moe ? max_moe_medium_m : max_medium_m;
    case BucketKind::large_m:
    case BucketKind::m_geq:
    case BucketKind::any:
      break;
  }
  return std::nullopt;
}

std::optional<TritonValue> value_of(std::string_view text) {
  if (text == "null") return TritonValue(nullptr);
  if (text == "true" || text == "false") return TritonValue(text == "true");
  if (const auto number = parse_integer(text)) return TritonValue(*number);
  if (!text.starts_with('"')) return TritonValue(std::string(text));
  const auto json = parse_json(text);
  if (!json.is_string()) return std::nullopt;
  return TritonValue(json.get<std::string>());
}

/// The parts of a name between semicolons that are not inside quotes.
std::vector<std::string_view> name_parts(std::string_view name) {
  std::vector<std::string_view> parts;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < name.size(); ++at) {
    if (name[at] == '\\' && quoted) {
      ++at;
    } else if (name[at] == '"') {
      quoted = !quoted;
    } else if (name[at] == ';' && !quoted) {
      parts.push_back(name.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  parts.push_back(name.substr(begin));
  return parts;
}

std::optional<TritonConfig> config_of(std::string_view name) {
  TritonConfig config;
  for (const std::string_view part : name_parts(name)) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) return std::nullopt;
    auto value = value_of(part.substr(equals + 1));
    if (!value) return std::nullopt;
    config.parameters.emplace_back(part.substr(0, equals), std::move(*value));
  }
  return config;
}

/// Of a file's name and the options: the problem that all buckets share, M aside. What they do not say goes
/// into rows.missing.
Problem triton_problem(const TritonFile& file, const ConversionOptions& options, ConversionRows& rows) {
  std::optional<OperationForm> operation = options.operation;
  if (const auto of_family = problem_of_triton_family(file.name.family);
      !operation && of_family && !is_mixture(*of_family))
    operation = form_of(*of_family);
  if (!operation) {
    rows.missing = fmt::format("family '{}' is none that tuned files hold; give --op", file.name.family);
  }
  Problem problem = default_problem(operation.value_or(OperationForm()));
  const auto n = file.name.n ? file.name.n : options.n;
  const auto k = file.name.k ? file.name.k : options.k;
  if (rows.missing.empty() && (!n || !k)) rows.missing = "its name says no N and K; give -n and -k";
  problem.n = n.value_or(1);
  problem.k = k.value_or(1);
  problem.batch = file.name.b.value_or(1);
  if (options.x_type) set_types(problem, *options.x_type);
  if (options.y_type) problem.y_type = *options.y_type;
  return problem;
}

bool is_default_bound(std::int64_t m) {
  return std::find(std::begin(default_triton_bounds), std::end(default_triton_bounds), m) !=
         std::end(default_triton_bounds);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): as every format's
Result<ConversionRows> read_triton_rows(const std::string& source, std::string content,
                                        const ConversionOptions& options) {
  GEMMTUNE_TRY(auto file, parse_triton_json(source, content));
  ConversionRows rows;
  rows.source = source;
  const Problem problem = triton_problem(file, options, rows);
  rows.operation = form_of(problem);
  rows.origin = file.scheme == TritonScheme::nearest ? nearest_format : triton_format;
  rows.notes = std::move(file.diagnostics);
  for (const TritonNote& note : file.notes) rows.parts.push_back({note.key, note.json, note.line});
  const auto last = last_of_keys(file);
  for (const TritonBucket& bucket : file.buckets) {
    if (std::find(last.begin(), last.end(), &bucket) == last.end()) {
      rows.left_out.push_back({LeftOutKind::key, bucket.key, bucket.line, 1, "a later one has its name"});
      continue;
    }
    const auto m = bucket.is_null ? std::nullopt : max_m_of(bucket, file.scheme);
    if (bucket.is_null) {
      rows.parts.push_back({bucket.key, "null", bucket.line});
      continue;
    }
    if (!m || *m < 1 || *m > max_dimension) {
      rows.parts.push_back({bucket.key, triton_config_text(bucket.config), bucket.line});
      continue;
    }
    TunedEntry entry;
    entry.line = bucket.line;
    entry.problem = problem;
    entry.problem.m = *m;
    entry.gfx = file.name.arch.starts_with("gfx") ? file.name.arch : options.gfx;
    entry.cu_num = options.cu_num;
    entry.libtype = "triton";
    entry.kernel_name = triton_config_text(bucket.config);
    entry.split_k = bucket.config.integer("NUM_KSPLIT").value_or(0);
    entry.us = std::numeric_limits<double>::quiet_NaN();
    entry.err_ratio = std::numeric_limits<double>::quiet_NaN();
    // A bound that only this kernel's own list has.
    if (bucket.kind == BucketKind::m_leq && !is_default_bound(*m)) {
      entry.carried =
          std::make_shared<const CarriedCells>(CarriedCells{{std::string(bucket_column), bucket.key}});
    }
    rows.entries.push_back(std::move(entry));
  }
  rows.config = std::make_shared<const TritonFile>(std::move(file));
  return rows;
}

namespace {

bool same_file(const TunedEntry& a, const TunedEntry& b) {
  return a.gfx == b.gfx && form_of(a.problem) == form_of(b.problem) && a.problem.n == b.problem.n &&
         a.problem.k == b.problem.k && a.problem.batch == b.problem.batch;
}

/// A row that a file may hold.
struct TritonRow {
  std::size_t entry = 0;
  TritonConfig config;
};
using TritonRows = std::map<std::int64_t, TritonRow>;  // by M

/// The rows of one file, those that no file of this kind can hold left out.
TritonRows rows_of_first_file(ConversionRows& rows) {
  TritonRows of_file;
  const TunedEntry* first = nullptr;
  rows.take_each([&](std::size_t index, const TunedEntry& entry) -> std::string {
    auto config = entry.libtype == "triton" ? config_of(entry.kernel_name) : std::nullopt;
    if (!config)
      return fmt::format("kernel '{}' ({}): no parameters of a Triton kernel", entry.kernel_name,
                         entry.libtype);
    if (!all_row_major(entry.problem))
      return fmt::format("{}: a Triton config does not say in which order operands lie",
                         short_name(entry.problem));
    if (first == nullptr) first = &entry;
    if (!same_file(*first, entry))
      return fmt::format("a file holds one (N, K): {} is another one's", short_name(entry.problem));
    if (!of_file.try_emplace(entry.problem.m, TritonRow{index, std::move(*config)}).second)
      return fmt::format("another row of M = {} comes first", entry.problem.m);
    return {};
  });
  return of_file;
}

void leave_out_m(ConversionRows& rows, std::size_t entry, std::string_view why) {
  rows.leave_out(entry, fmt::format("M = {}: {}", rows.entries[entry].problem.m, why));
}

std::vector<TritonBucket> buckets_by_bounds(ConversionRows& rows, const TritonRows& of_file) {
  std::vector<TritonBucket> buckets;
  for (const auto& [m, row] : of_file) {
    if (!is_default_bound(m) && find_carried(rows.entries[row.entry], bucket_column) == nullptr) {
      leave_out_m(rows, row.entry, "no bound that AITER looks for");
      continue;
    }
    buckets.push_back({fmt::format("M_LEQ_{}", m), BucketKind::m_leq, m, row.config});
  }
  return buckets;
}

std::vector<TritonBucket> buckets_by_thirds(ConversionRows& rows, const TritonRows& of_file) {
  struct Third {
    std::string_view key;
    BucketKind kind;
    std::int64_t last;
  };
  constexpr std::array<Third, 3> thirds{{{"small_M", BucketKind::small_m, max_small_m},
                                         {"medium_M", BucketKind::medium_m, max_medium_m},
                                         {"large_M", BucketKind::large_m, max_dimension}}};
  std::vector<TritonBucket> buckets;
  auto from = of_file.begin();
  for (const Third& third : thirds) {
    const auto end = of_file.upper_bound(third.last);
    for (; from != end; ++from) {
      if (std::next(from) == end) {
        buckets.push_back({std::string(third.key), third.kind, 0, from->second.config});
      } else {
        leave_out_m(rows, from->second.entry, fmt::format("{} holds a row with a larger M", third.key));
      }
    }
  }
  return buckets;
}

Status no_row(const ConversionRows& rows) {
  return Status::invalid("{}: no row that a Triton config can hold{}{}", rows.source,
                         rows.left_out.empty() ? "" : "; the first: ",
                         rows.left_out.empty() ? "" : describe(rows.source, rows.left_out.front()));
}

/// The file without buckets that a later one of the same key replaces.
std::string text_of_same(ConversionRows& rows) {
  TritonFile file = *rows.config;
  const auto last = last_of_keys(*rows.config);
  if (last.size() != file.buckets.size()) {
    file.buckets.clear();
    for (const TritonBucket* bucket : last) file.buckets.push_back(*bucket);
  }
  for (CarriedPart& part : rows.parts) part.taken = true;
  return write_triton_json(file);
}

/// An interval of M that one key of the new file answers.
struct NewKey {
  TritonBucket bucket;  // without a config
  std::int64_t m_from = 0;
  std::int64_t m = 0;
};

std::vector<NewKey> keys_of_scheme(TritonScheme scheme, std::span<const std::int64_t> bounds) {
  std::vector<NewKey> keys;
  if (scheme == TritonScheme::bounds) {
    std::int64_t from = 1;
    for (const std::int64_t bound : bounds) {
      keys.push_back({{fmt::format("M_LEQ_{}", bound), BucketKind::m_leq, bound, {}}, from, bound});
      from = bound + 1;
    }
    keys.push_back({{"any", BucketKind::any, 0, {}}, from, max_dimension});
    return keys;
  }
  const bool moe = scheme == TritonScheme::moe;
  const std::int64_t small = moe ? max_moe_small_m : max_small_m;
  const std::int64_t medium = moe ? max_moe_medium_m : max_medium_m;
  return {{{"small_M", BucketKind::small_m, 0, {}}, 1, small},
          {{"medium_M", BucketKind::medium_m, 0, {}}, small + 1, medium},
          {{"large_M", BucketKind::large_m, 0, {}}, medium + 1, max_dimension}};
}

/// The bucket that answers most of an interval; of as much the one of larger M. nullptr: none answers there.
const TritonBucket* bucket_of_most(const std::vector<BucketSpan>& spans, const NewKey& key) {
  std::map<const TritonBucket*, std::int64_t> shares;
  const TritonBucket* most = nullptr;
  for (const BucketSpan& span : spans) {
    const std::int64_t share = std::min(span.m, key.m) - std::max(span.m_from, key.m_from) + 1;
    if (share <= 0 || span.bucket->is_null) continue;
    const std::int64_t sum = shares[span.bucket] += share;
    if (most == nullptr || sum >= shares[most]) most = span.bucket;
  }
  return most;
}

bool same_answer(const TritonBucket* a, const TritonBucket* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->config == b->config && a->is_null == b->is_null;
}

/// Names every M at which the new file answers otherwise than the old one, by the bucket that answered.
void name_other_answers(ConversionRows& rows, const TritonFile& now) {
  const std::vector<BucketSpan> before = bucket_spans(*rows.config);
  const std::vector<BucketSpan> after = bucket_spans(now);
  std::set<std::int64_t> starts{1};
  for (const auto* spans : {&before, &after}) {
    for (const BucketSpan& span : *spans) {
      starts.insert(span.m_from);
      if (span.m < max_dimension) starts.insert(span.m + 1);
    }
  }
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    const TritonBucket* const old = answer_at(before, *start);
    const TritonBucket* const other = answer_at(after, *start);
    if (same_answer(old, other)) continue;
    const std::int64_t last = std::next(start) == starts.end() ? max_dimension : *std::next(start) - 1;
    const std::string range = last == max_dimension ? fmt::format("M from {}", *start)
                              : last == *start      ? fmt::format("M = {}", last)
                                                    : fmt::format("M = {} to {}", *start, last);
    const std::string key = old == nullptr ? std::string("(none)") : old->key;
    rows.left_out.push_back({LeftOutKind::key, key, old == nullptr ? 0 : old->line, 1,
                             fmt::format("{}: {} answers in the new file", range,
                                         other == nullptr ? "no bucket" : "another bucket")});
  }
  // What no M finds before the conversion is not in the new file either.
  for (const TritonBucket* bucket : last_of_keys(*rows.config)) {
    const bool answers =
        std::ranges::any_of(before, [&](const BucketSpan& span) { return span.bucket == bucket; });
    if (!answers) rows.left_out.push_back({LeftOutKind::key, bucket->key, bucket->line, 1, "no M finds it"});
  }
}

/// Of a Triton config under the keys of another scheme. Each new key has the bucket that answers most of its M.
Result<std::string> write_regrouped(ConversionRows& rows, TritonScheme scheme) {
  const TritonFile& old = *rows.config;
  const std::vector<BucketSpan> spans = bucket_spans(old);
  TritonFile file;
  file.name = old.name;
  file.scheme = scheme;
  for (NewKey& key : keys_of_scheme(scheme, triton_bounds(old.name.family))) {
    const TritonBucket* const bucket = bucket_of_most(spans, key);
    if (bucket == nullptr) continue;
    key.bucket.config = bucket->config;
    file.buckets.push_back(std::move(key.bucket));
  }
  // A smaller bound is not needed where the next larger one has the same config.
  if (scheme == TritonScheme::bounds) {
    for (std::size_t index = file.buckets.size(); index-- > 1;) {
      const TritonBucket& next = file.buckets[index];
      if (next.kind == BucketKind::m_leq && next.config == file.buckets[index - 1].config)
        file.buckets.erase(file.buckets.begin() + static_cast<std::ptrdiff_t>(index) - 1);
    }
  }
  if (file.buckets.empty()) return no_row(rows);
  for (CarriedPart& part : rows.parts) {
    const bool is_bucket =
        std::ranges::any_of(old.buckets, [&](const TritonBucket& bucket) { return bucket.key == part.key; });
    if (!is_bucket) file.notes.push_back({part.key, part.text, file.buckets.size()});
    part.taken = true;
  }
  name_other_answers(rows, file);
  return write_triton_json(file);
}

/// Two keys for each interval of M, its ends: the nearest key then answers as the old rule did. Notes would end the programs that
/// load the file.
Result<std::string> write_as_nearest(ConversionRows& rows) {
  TritonFile file;
  file.scheme = TritonScheme::nearest;
  const auto add = [&](std::int64_t m, const TritonBucket& bucket) {
    file.buckets.push_back({fmt::format("{}", m), BucketKind::nearest, m, bucket.config});
  };
  for (const BucketSpan& span : bucket_spans(*rows.config)) {
    if (span.bucket->is_null) continue;
    add(span.m_from, *span.bucket);
    if (span.m != span.m_from && span.m != max_dimension) add(span.m, *span.bucket);
  }
  if (file.buckets.empty()) return no_row(rows);
  for (CarriedPart& part : rows.parts) {
    part.taken = std::ranges::any_of(rows.config->buckets,
                                     [&](const TritonBucket& bucket) { return bucket.key == part.key; });
  }
  name_other_answers(rows, file);
  return write_triton_json(file);
}

}  // namespace

Result<std::string> write_nearest_rows(ConversionRows& rows, const ConversionOptions& /*options*/) {
  if (rows.config != nullptr && rows.origin == nearest_format) return text_of_same(rows);
  if (rows.config != nullptr) return write_as_nearest(rows);
  const TritonRows of_file = rows_of_first_file(rows);
  TritonFile file;
  file.scheme = TritonScheme::nearest;
  for (const auto& [m, row] : of_file)
    file.buckets.push_back({fmt::format("{}", m), BucketKind::nearest, m, row.config});
  if (file.buckets.empty()) return no_row(rows);
  rows.notes.push_back(
      fmt::format("{}: vLLM and SGLang take the nearest M, not the next larger one", rows.source));
  return write_triton_json(file);
}

Result<std::string> write_triton_rows(ConversionRows& rows, const ConversionOptions& options) {
  const bool thirds = options.thirds.value_or(false);
  if (rows.config != nullptr) {
    const TritonScheme own = rows.config->scheme;
    const bool is_mixture_file = own == TritonScheme::moe || rows.config->name.family.starts_with("MOE-");
    const TritonScheme scheme = !thirds           ? TritonScheme::bounds
                                : is_mixture_file ? TritonScheme::moe
                                                  : TritonScheme::thirds;
    const bool is_todays = own != TritonScheme::nearest && own != TritonScheme::named;
    if (own == scheme || (is_todays && !options.thirds)) return text_of_same(rows);
    return write_regrouped(rows, scheme);
  }
  const TritonRows of_file = rows_of_first_file(rows);
  TritonFile file;
  file.scheme = thirds ? TritonScheme::thirds : TritonScheme::bounds;
  file.buckets = thirds ? buckets_by_thirds(rows, of_file) : buckets_by_bounds(rows, of_file);
  if (file.buckets.empty()) {
    return no_row(rows);
  }
  // Without it AITER raises an error for a larger M.
  if (!thirds) file.buckets.push_back({"any", BucketKind::any, 0, file.buckets.back().config});
  return write_triton_json(file);
}

}  // namespace gemmtune
