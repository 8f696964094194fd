// AITER's, vLLM's and SGLang's Triton configs among the formats. A bucket is a row at its largest M, without a time; its
// kernelName is its parameters: BLOCK_SIZE_M=16;num_warps=4;cache_modifier=.cg
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "base/text.h"
#include "formats/all_formats.h"
#include "formats/json.h"
#include "formats/json_text.h"
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
  std::optional<Operation> operation = options.operation;
  if (const auto of_family = problem_of_triton_family(file.name.family);
      !operation && of_family && !is_mixture(*of_family))
    operation = of_family->operation;
  if (!operation) {
    rows.missing = fmt::format("family '{}' is none that tuned files hold; give --op", file.name.family);
  }
  Problem problem = default_problem(operation.value_or(Operation::a16w16));
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
  auto file = parse_triton_json(source, content);
  if (!file.ok()) return file.status();
  ConversionRows rows;
  rows.source = source;
  const Problem problem = triton_problem(*file, options, rows);
  rows.operation = problem.operation;
  rows.origin = file->scheme == TritonScheme::nearest ? nearest_format : triton_format;
  rows.notes = std::move(file->diagnostics);
  for (const TritonNote& note : file->notes) rows.parts.push_back({note.key, note.json});
  const auto last = last_of_keys(*file);
  for (const TritonBucket& bucket : file->buckets) {
    if (!std::binary_search(last.begin(), last.end(), &bucket)) {
      rows.left_out.push_back({LeftOutKind::key, bucket.key, bucket.line, 1, "a later one has its name"});
      continue;
    }
    const auto m = max_m_of(bucket, file->scheme);
    if (!m || *m < 1 || *m > max_dimension) {
      rows.parts.push_back({bucket.key, triton_config_text(bucket.config), bucket.line});
      continue;
    }
    TunedEntry entry;
    entry.line = bucket.line;
    entry.problem = problem;
    entry.problem.m = *m;
    entry.gfx = file->name.arch.starts_with("gfx") ? file->name.arch : options.gfx;
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
  return rows;
}

namespace {

bool same_file(const TunedEntry& a, const TunedEntry& b) {
  return a.gfx == b.gfx && a.problem.operation == b.problem.operation && a.problem.n == b.problem.n &&
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
  for (std::size_t index = 0; index < rows.entries.size(); ++index) {
    const TunedEntry& entry = rows.entries[index];
    if (rows.is_gone(index)) continue;
    auto config = entry.libtype == "triton" ? config_of(entry.kernel_name) : std::nullopt;
    if (!config) {
      rows.leave_out(index, fmt::format("kernel '{}' ({}): no parameters of a Triton kernel",
                                        entry.kernel_name, entry.libtype));
      continue;
    }
    if (!all_row_major(entry.problem)) {
      rows.leave_out(index, fmt::format("{}: a Triton config does not say in which order operands lie",
                                        short_name(entry.problem)));
      continue;
    }
    if (first == nullptr) first = &entry;
    if (!same_file(*first, entry)) {
      rows.leave_out(index,
                     fmt::format("a file holds one (N, K): {} is another one's", short_name(entry.problem)));
    } else if (!of_file.try_emplace(entry.problem.m, TritonRow{index, std::move(*config)}).second) {
      rows.leave_out(index, fmt::format("another row of M = {} comes first", entry.problem.m));
    }
  }
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

/// True for keys that stand as they are in a file of the scheme.
bool is_of_scheme(BucketKind kind, TritonScheme scheme) {
  if (scheme == TritonScheme::nearest) return false;
  if (kind == BucketKind::any) return true;
  return scheme == TritonScheme::thirds ? kind == BucketKind::large_m : kind == BucketKind::m_geq;
}

bool has_bucket(const TritonFile& file, std::string_view key) {
  return std::any_of(file.buckets.begin(), file.buckets.end(),
                     [&](const TritonBucket& bucket) { return bucket.key == key; });
}

/// Takes the parts that come from a Triton config: notes and buckets without a largest M. One that is the end
/// of another scheme (large_M, xlarge) becomes `any` where there is none.
void take_parts(ConversionRows& rows, TritonFile& file) {
  for (CarriedPart& part : rows.parts) {
    const auto kind = parse_bucket_key(part.key);
    if (!kind) {
      file.notes.push_back({part.key, part.text, file.buckets.size()});
      part.taken = true;
      continue;
    }
    auto config = part.text.empty() ? TritonConfig() : config_of(part.text);
    if (!config || !is_of_scheme(kind->first, file.scheme) || has_bucket(file, part.key)) continue;
    file.buckets.push_back({part.key, kind->first, kind->second, std::move(*config)});
    part.taken = true;
  }
  for (CarriedPart& part : rows.parts) {
    if (part.taken || has_bucket(file, "any") || file.scheme == TritonScheme::nearest) continue;
    auto config = part.text.empty() ? TritonConfig() : config_of(part.text);
    if (!config) continue;
    file.buckets.push_back({"any", BucketKind::any, 0, std::move(*config)});
    part.taken = true;
  }
}

Status no_row(const ConversionRows& rows) {
  return Status::invalid("{}: no row that a Triton config can hold{}{}", rows.source,
                         rows.left_out.empty() ? "" : "; the first: ",
                         rows.left_out.empty() ? "" : describe(rows.source, rows.left_out.front()));
}

}  // namespace

Result<std::string> write_nearest_rows(ConversionRows& rows, const ConversionOptions& /*options*/) {
  const TritonRows of_file = rows_of_first_file(rows);
  TritonFile file;
  file.scheme = TritonScheme::nearest;
  for (const auto& [m, row] : of_file)
    file.buckets.push_back({fmt::format("{}", m), BucketKind::nearest, m, row.config});
  if (file.buckets.empty()) return no_row(rows);
  take_parts(rows, file);
  if (rows.origin != nearest_format)
    rows.notes.push_back(
        fmt::format("{}: vLLM and SGLang take the nearest M, not the next larger one", rows.source));
  return write_triton_json(file);
}

Result<std::string> write_triton_rows(ConversionRows& rows, const ConversionOptions& options) {
  const TritonRows of_file = rows_of_first_file(rows);
  TritonFile file;
  file.scheme = options.thirds ? TritonScheme::thirds : TritonScheme::bounds;
  file.buckets = options.thirds ? buckets_by_thirds(rows, of_file) : buckets_by_bounds(rows, of_file);
  if (rows.origin == triton_format || rows.origin == nearest_format) take_parts(rows, file);
  if (file.buckets.empty()) {
    return no_row(rows);
  }
  // Without it AITER raises an error for a larger M; a file that was one already keeps its own rule.
  if (!options.thirds && rows.origin != triton_format) {
    file.buckets.push_back({"any", BucketKind::any, 0, file.buckets.back().config});
  }
  return write_triton_json(file);
}

}  // namespace gemmtune
