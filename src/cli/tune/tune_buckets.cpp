#include "cli/tune/tune_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/interrupt.h"
#include "block_scale_seed.h"
#include "formats/triton/bucket_file.h"
#include "formats/triton/bucket_rows.h"
#include "tuned/key.h"
#include "tuning/m_buckets.h"

namespace gemmtune::cli {
namespace {

/// Tuned rows of one file, ascending in M.
using Rows = std::vector<TunedEntry>;

/// By file name: rows of one weight each. Another weight with the same name is a problem of the report.
std::map<std::string, Rows> rows_by_file(const TunedFile& tuned, const DeviceInfo& device,
                                         BucketReport& report) {
  std::map<std::string, Rows> files;
  for (const TunedEntry& entry : tuned.entries) {
    if (entry.gfx != device.gfx || entry.cu_num != device.cu_num || entry.m_from || !valid_time(entry.us) ||
        !is_of_look_up(entry))
      continue;
    const Problem& problem = entry.problem;
    const auto name = bucket_file_name(device.gfx, problem);
    if (!name) {
      report.problems.push_back(
          fmt::format("{}: AITER has no Triton configs of these types", print(problem)));
      continue;
    }
    Rows& rows = files[*name];
    if (!rows.empty() && group_of(rows.front().problem) != group_of(problem)) {
      report.problems.push_back(
          fmt::format("{}: a file of buckets holds one weight of an (N, K)", print(problem)));
      continue;
    }
    rows.push_back(entry);
  }
  for (auto& [name, rows] : files)
    std::ranges::sort(rows, [](const auto& a, const auto& b) { return a.problem.m < b.problem.m; });
  return files;
}

/// A bucket of a file, its rows and the M that it answers in the file.
struct BucketRows {
  TritonBucket bucket;
  Rows rows;
  BucketEnds ends;
};

std::vector<BucketRows> split_rows(const std::string& path, TritonScheme scheme, const Rows& rows) {
  std::vector<BucketRows> parts;
  std::vector<TritonBucket> keys;
  for (const TunedEntry& row : rows) {
    TritonBucket bucket = bucket_for(scheme, row.problem.m);
    if (parts.empty() || parts.back().bucket.key != bucket.key) {
      keys.push_back(bucket);
      parts.push_back({std::move(bucket), {}, {}});
    }
    parts.back().rows.push_back(row);
  }
  const TritonFile file = keys_of_updated(path, scheme, keys);
  for (const BucketSpan& span : bucket_spans(file)) {
    for (BucketRows& part : parts)
      if (part.bucket.key == span.bucket->key) part.ends = {span.m_from, span.last()};
  }
  return parts;
}

}  // namespace

Result<TritonScheme> bucket_scheme_of(const TuneOptions& options) {
  for (const TritonScheme scheme : {TritonScheme::thirds, TritonScheme::bounds})
    if (options.bucket_scheme == to_string(scheme)) return scheme;
  return Status::invalid("--bucket-scheme {}: expected thirds or bounds", options.bucket_scheme);
}

Result<ShapeList> block_scale_seed_shapes(const std::string& architecture) {
  ShapeListOptions options;
  options.architecture = architecture;
  options.operation = OperationForm(Operation::a8w8_blockscale);
  return parse_shape_list("block_scale_seed.csv", block_scale_seed_csv, options);
}

Result<BucketReport> write_buckets(const TuneOptions& options, const Outputs& outputs, const Device& device,
                                   const Policy& policy, Evaluator& evaluator, const Deadline& deadline) {
  BucketReport report;
  GEMMTUNE_TRY(const auto asked, bucket_scheme_of(options));
  if (!file_exists(outputs.tuned)) return report;
  GEMMTUNE_TRY(const auto tuned, read_tuned_csv(outputs.tuned));
  for (const auto& [name, rows] : rows_by_file(tuned, device.info(), report)) {
    const std::string path = join_path(parent_folder(outputs.tuned), name);
    const TritonScheme scheme = scheme_for(asked, rows.front().problem);
    std::vector<TunedBucket> buckets;
    for (const BucketRows& one : split_rows(path, scheme, rows)) {
      if (interrupted()) return report;
      const auto choice = choose_for_bucket(device, evaluator, one.rows, one.ends, policy, deadline);
      if (interrupted()) return report;
      const Problem& largest = one.rows.back().problem;
      const auto candidate =
          choice.ok() ? device.resolve(choice->kernel, largest) : Result<Candidate>(choice.status());
      if (!candidate.ok()) {
        report.problems.push_back(fmt::format("{}, {}: {}", name, one.bucket.key, candidate.message()));
        continue;
      }
      const auto launched = device.find_family(candidate->family)->launcher_parameters(candidate->config);
      TritonBucket bucket = one.bucket;
      bucket.config = launched.empty() ? bucket_config(choice->kernel, candidate->config.settings())
                                       : bucket_config(launched);
      report.written.push_back({path, bucket.key, choice->kernel, choice->regret, one.rows.size(),
                                choice->compared, choice->is_cut});
      buckets.push_back({std::move(bucket), choice->is_cut ? std::nullopt : choice->regret});
    }
    if (!buckets.empty())
      GEMMTUNE_RETURN_IF_ERROR(update_bucket_file(path, scheme, rows.back().problem, buckets));
  }
  return report;
}

}  // namespace gemmtune::cli
