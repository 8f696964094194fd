#include "cli/tune/tune_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/interrupt.h"
#include "block_scale_seed.h"
#include "formats/triton/bucket_file.h"
#include "formats/triton/triton_lookup.h"
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
    const auto family = triton_family(problem.operation);
    if (!family) continue;
    const auto batch = traits(problem.operation).batched ? std::optional(problem.batch) : std::nullopt;
    Rows& rows = files[triton_file_name(device.gfx, *family, problem.n, problem.k, batch)];
    if (!rows.empty() && group_of(rows.front().problem) != group_of(problem)) {
      report.problems.push_back(
          fmt::format("{}: a file of buckets holds one weight of an (N, K)", print(problem)));
      continue;
    }
    rows.push_back(entry);
  }
  for (auto& [name, rows] : files)
    std::sort(rows.begin(), rows.end(),
              [](const auto& a, const auto& b) { return a.problem.m < b.problem.m; });
  return files;
}

}  // namespace

Result<TritonScheme> bucket_scheme_of(const TuneOptions& options) {
  for (const TritonScheme scheme : {TritonScheme::thirds, TritonScheme::bounds})
    if (options.bucket_scheme == to_string(scheme)) return scheme;
  return Status::invalid("--bucket-scheme {}: expected thirds or bounds", options.bucket_scheme);
}

Result<ShapeList> block_scale_seed_shapes() {
  ShapeListOptions options;
  options.operation = Operation::a8w8_blockscale;
  return parse_shape_list("block_scale_seed.csv", block_scale_seed_csv, options);
}

Result<BucketReport> write_buckets(const TuneOptions& options, const Outputs& outputs, const Device& device,
                                   const Policy& policy, Evaluator& evaluator) {
  BucketReport report;
  const auto scheme = bucket_scheme_of(options);
  if (!scheme.ok()) return scheme.status();
  if (!file_exists(outputs.tuned)) return report;
  const auto tuned = read_tuned_csv(outputs.tuned);
  if (!tuned.ok()) return tuned.status();
  for (const auto& [name, rows] : rows_by_file(*tuned, device.info(), report)) {
    const std::string path = join_path(parent_folder(outputs.tuned), name);
    std::vector<TunedBucket> buckets;
    for (auto begin = rows.begin(); begin != rows.end();) {
      TritonBucket bucket = bucket_for(*scheme, begin->problem.m);
      const auto end = std::find_if(begin, rows.end(), [&](const TunedEntry& row) {
        return bucket_for(*scheme, row.problem.m).key != bucket.key;
      });
      const Rows of_bucket(begin, end);
      begin = end;
      if (interrupted()) return report;
      const auto choice = choose_for_bucket(device, evaluator, of_bucket, policy);
      const Problem& largest = of_bucket.back().problem;
      const auto candidate =
          choice.ok() ? device.resolve(choice->kernel, largest) : Result<Candidate>(choice.status());
      if (!candidate.ok()) {
        report.problems.push_back(fmt::format("{}, {}: {}", name, bucket.key, candidate.message()));
        continue;
      }
      const auto launched = device.find_family(candidate->family)->launcher_parameters(candidate->config);
      bucket.config = launched.empty() ? bucket_config(choice->kernel, candidate->config.settings())
                                       : bucket_config(launched);
      report.written.push_back({path, bucket.key, choice->kernel, choice->regret, of_bucket.size()});
      buckets.push_back({std::move(bucket), choice->regret});
    }
    if (!buckets.empty()) GEMMTUNE_RETURN_IF_ERROR(update_bucket_file(path, *scheme, buckets));
  }
  return report;
}

}  // namespace gemmtune::cli
