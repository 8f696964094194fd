#include "formats/triton/bucket_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "candidates/config.h"
#include "formats/json.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_folder.h"
#include "formats/triton/triton_lookup.h"
#include "tuned/bucket_index.h"

namespace gemmtune {
namespace {

/// A text that reads back as itself without quotes.
bool is_plain_word(const std::string& text) {
  const bool word = text != "null" && text != "true" && text != "false";
  return !text.empty() && word && !parse_integer(text) &&
         text.find_first_of(";=\"\\,") == std::string::npos && trim(text) == text;
}

std::string value_text(const TritonValue& value) {
  if (const auto* text = std::get_if<std::string>(&value); text != nullptr && !is_plain_word(*text)) {
    return json_ascii_string(*text);
  }
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return "null";
}

/// Of the file's name; one without a family means `operation`.
Result<Problem> problem_of_name(const TritonFile& file, std::optional<OperationForm> operation) {
  const bool nearest = is_nearest_family(file.name.family);
  auto problem = nearest ? problem_of_nearest_name(file.name) : problem_of_triton_family(file.name.family);
  if (!problem && nearest)
    return Status::unsupported("{}: configs of types or kernels that are no operation of gemmtune",
                               file.path);
  const bool names_family = is_triton_name(file.path);
  if (!problem && operation && !names_family) {
    problem = default_problem(*operation);
    problem->moe = {};
    if (traits(operation->operation).batched) problem->batch = 0;
  }
  if (!problem) {
    return Status::unsupported(
        "{}: {}", file.path,
        !names_family ? "its name says no family (<arch>-GEMM-A16W16-N=n-K=k.json); give --op"
                      : fmt::format("configs of '{}', which is no operation of gemmtune", file.name.family));
  }
  problem->m = 0;
  problem->n = file.name.n.value_or(0);
  problem->k = file.name.k.value_or(0);
  if (!nearest && (problem->n == 0 || problem->k == 0)) problem->n = problem->k = 0;
  if (traits(problem->operation).batched) problem->batch = file.name.b.value_or(0);
  if (is_mixture(*problem)) problem->moe.experts = static_cast<std::int32_t>(file.name.e.value_or(0));
  return *problem;
}

/// Half way between two keys the answer changes; of two that are as near the first in the file counts.
std::vector<BucketSpan> nearest_spans(const TritonFile& file) {
  struct Placed {
    const TritonBucket* bucket = nullptr;
    std::size_t place = 0;
  };
  std::vector<Placed> buckets;
  for (const TritonBucket* bucket : last_of_keys(file)) {
    if (bucket->kind == BucketKind::nearest && bucket->bound <= max_dimension)
      buckets.push_back({bucket, buckets.size()});
  }
  std::ranges::sort(buckets,
                    [](const Placed& a, const Placed& b) { return a.bucket->bound < b.bucket->bound; });
  std::vector<BucketSpan> spans;
  std::int64_t from = 1;
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    std::int64_t last = max_dimension;
    if (index + 1 < buckets.size()) {
      const std::int64_t sum = buckets[index].bucket->bound + buckets[index + 1].bucket->bound;
      const bool tie_is_next = sum % 2 == 0 && buckets[index + 1].place < buckets[index].place;
      last = sum < 2 ? 0 : sum / 2 - (tie_is_next ? 1 : 0);
    }
    if (last < from) continue;
    spans.push_back({buckets[index].bucket, from, last, true});
    from = last + 1;
  }
  return spans;
}

}  // namespace

std::string triton_config_text(const TritonConfig& config) {
  return joined(config.parameters, ";", [](const auto& parameter) {
    return fmt::format("{}={}", parameter.first, value_text(parameter.second));
  });
}

std::int64_t BucketSpan::last() const {
  return m == max_dimension ? std::clamp(2 * (m_from - 1), m_from, max_dimension) : m;
}

std::vector<BucketSpan> bucket_spans(const TritonFile& file) {
  if (file.scheme == TritonScheme::nearest) return nearest_spans(file);
  const auto bounds = triton_bounds(file.name.family);
  // Every M at which the answer of some scheme can change.
  std::vector<std::int64_t> changes{1, 1024};
  for (std::int64_t power = 1; power < max_dimension; power *= 2) {
    changes.push_back(power + 1);
    if (power >= 32) changes.push_back(power);
  }
  for (const std::int64_t bound : bounds) {
    changes.push_back(bound);
    changes.push_back(bound + 1);
  }
  std::ranges::sort(changes);
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  std::vector<BucketSpan> spans;
  for (std::size_t at = 0; at < changes.size(); ++at) {
    const std::int64_t last = at + 1 < changes.size() ? changes[at + 1] - 1 : max_dimension;
    const auto match = find_bucket(file, changes[at], bounds);
    if (!match) continue;
    if (!spans.empty() && spans.back().bucket == match->bucket && spans.back().m == changes[at] - 1) {
      spans.back().m = last;
    } else {
      spans.push_back({match->bucket, changes[at], last, match->tuned});
    }
  }
  return spans;
}

const TritonBucket* answer_at(const std::vector<BucketSpan>& spans, std::int64_t m) {
  const auto span =
      std::ranges::find_if(spans, [&](const BucketSpan& one) { return one.m_from <= m && m <= one.m; });
  return span == spans.end() ? nullptr : span->bucket;
}

std::string own_kernel(const TritonConfig& config) {
  const TritonValue* value = config.find(kernel_name_key);
  const auto* name = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return name == nullptr ? std::string() : *name;
}

Result<std::vector<TunedEntry>> bucket_rows(const TritonFile& file, std::optional<OperationForm> operation) {
  GEMMTUNE_TRY(const auto problem, problem_of_name(file, operation));
  std::vector<TunedEntry> rows;
  for (const BucketSpan& span : bucket_spans(file)) {
    if (span.bucket->is_null) continue;
    TunedEntry& row = rows.emplace_back();
    // vLLM's and SGLang's names say a device, not an architecture: they answer for whichever is asked.
    if (!is_nearest_family(file.name.family)) row.gfx = file.name.arch;
    row.problem = problem;
    row.problem.m = span.m;
    row.m_from = span.m_from;
    row.bucket = span.bucket->key;
    row.line = span.bucket->line;
    row.kernel_name = own_kernel(span.bucket->config);
    row.libtype = family_of_kernel_name(row.kernel_name).value_or(std::string(triton_libtype));
    if (row.kernel_name.empty()) row.kernel_name = triton_config_text(span.bucket->config);
    row.us = std::numeric_limits<double>::quiet_NaN();
    row.err_ratio = std::numeric_limits<double>::quiet_NaN();
  }
  return rows;
}

Result<Problem> problem_of_file(const TritonFile& file, std::optional<OperationForm> operation) {
  GEMMTUNE_TRY(auto named, problem_of_name(file, operation));
  for (const TritonNote& note : file.notes) {
    if (note.key != problem_note) continue;
    const Json json = parse_json(note.json);
    auto noted = json.is_string() ? parse_problem(json.get<std::string>())
                                  : Result<Problem>(Status::invalid("no text"));
    Problem group = noted.ok() ? bucket_group(*noted) : Problem();
    group.m = 0;
    if (noted.ok() && group == bucket_group(named)) return noted;
  }
  if (named.n == 0) return Status::unsupported("its name says no N and K");
  if (is_mixture(named))
    return Status::unsupported("no note {} says its experts, topk and types", problem_note);
  if (named.batch == 0) return Status::unsupported("its name says no B");
  return named;
}

Result<std::vector<TunedEntry>> rows_to_run(const TritonFile& file, std::optional<OperationForm> operation) {
  GEMMTUNE_TRY(auto rows, bucket_rows(file, operation));
  const auto problem = problem_of_file(file, operation);
  if (!problem.ok()) return Status(problem.code(), fmt::format("{}: {}", file.path, problem.message()));
  for (TunedEntry& row : rows) {
    const BucketSpan span{nullptr, row.m_from.value_or(1), row.problem.m};
    row.problem = *problem;
    row.problem.m = span.last();
  }
  return rows;
}

}  // namespace gemmtune
