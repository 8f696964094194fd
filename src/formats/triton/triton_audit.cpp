#include "formats/triton/triton_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "candidates/config.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/nearest_audit.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_lookup.h"
#include "problem/problem.h"

namespace gemmtune {
namespace {

/// What AITER's kernels read.
constexpr std::string_view triton_parameters[] = {
    "BLOCK_SIZE_M", "BLOCK_SIZE_N",   "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages",
    "waves_per_eu", "cache_modifier", "NUM_KSPLIT",   "kpack",        "num_ctas",  "matrix_instr_nonkdim",
    "kernel_type",  "NUM_BUFFERS",    "BLOCK_M",      "BLOCK_N",      "BLOCK_K",   "SPLITK_BLOCK_SIZE"};
/// What vLLM's and SGLang's read beside these.
constexpr std::string_view nearest_parameters[] = {"SPLIT_K", "USE_TMA"};

/// True if a part of the kernel's name is the parameter and its value: _mr8_.
bool is_part_of_name(std::string_view kernel, std::string_view key, const TritonValue& value) {
  std::string text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) text = fmt::format("_{}{}_", key, *number);
  if (const auto* word = std::get_if<std::string>(&value)) text = fmt::format("_{}{}_", key, *word);
  return !text.empty() && fmt::format("{}_", kernel).find(text) != std::string::npos;
}

class FileAudit {
 public:
  FileAudit(const TritonFile& file, std::uint32_t source) : file_(file), source_(source) {
    for (Finding finding : file.findings) {
      finding.source = source;
      findings_.push_back(std::move(finding));
    }
  }

  std::vector<Finding> run() {
    check_reach();
    if (file_.scheme == TritonScheme::nearest) {
      for (Finding& finding : audit_nearest_file(file_, source_)) findings_.push_back(std::move(finding));
    }
    for (const TritonBucket& bucket : file_.buckets) check_parameters(bucket);
    check_name();
    for (const TritonBucket& bucket : file_.buckets) check_split(bucket);
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.line < b.line; });
    return std::move(findings_);
  }

 private:
  void add(FindingKind kind, std::size_t line, std::string text) {
    findings_.push_back({kind, source_, line, std::move(text)});
  }

  bool is_default_bound(std::int64_t bound) const {
    const auto bounds = triton_bounds(file_.name.family);
    return std::find(bounds.begin(), bounds.end(), bound) != bounds.end();
  }

  std::string why_unreachable(const TritonBucket& bucket) const {
    if (bucket.bound != 0 && file_.scheme == TritonScheme::bounds && !is_default_bound(bucket.bound))
      return fmt::format("'{}': the kernel does not look for the bound {}", bucket.key, bucket.bound);
    return fmt::format("'{}': other buckets answer all of its M", bucket.key);
  }

  void check_reach() {
    const std::vector<BucketSpan> spans = bucket_spans(file_);
    std::int64_t next = 1;
    const auto check_gap = [&](std::int64_t until) {
      if (until < next) return;
      add(FindingKind::missing_bucket, 0,
          until == max_dimension ? fmt::format("no bucket answers M from {}", next)
                                 : fmt::format("no bucket answers M = {} to {}", next, until));
    };
    for (const BucketSpan& span : spans) {
      check_gap(span.m_from - 1);
      next = span.m == max_dimension ? span.m : span.m + 1;
    }
    if (spans.empty() || spans.back().m != max_dimension) check_gap(max_dimension);
    std::unordered_set<const TritonBucket*> answering;
    for (const BucketSpan& span : spans) answering.insert(span.bucket);
    std::unordered_set<std::size_t> reported;  // lines
    for (const Finding& finding : file_.findings)
      if (finding.kind == FindingKind::unreachable) reported.insert(finding.line);
    for (const TritonBucket* bucket : last_of_keys(file_)) {
      if (!answering.contains(bucket) && !reported.contains(bucket->line))
        add(FindingKind::unreachable, bucket->line, why_unreachable(*bucket));
    }
  }

  void check_parameters(const TritonBucket& bucket) {
    const std::string kernel = own_kernel(bucket.config);
    if (!kernel.empty() && !family_of_kernel_name(kernel)) {
      add(FindingKind::unknown_kernel, bucket.line,
          fmt::format("{}: kernelName '{}': no name of a kernel of gemmtune", bucket.key, kernel));
    }
    for (const auto& [key, value] : bucket.config.parameters) {
      if (key == kernel_name_key && !kernel.empty()) continue;
      const auto is_of = [&key = key](std::span<const std::string_view> list) {
        return std::find(list.begin(), list.end(), key) != list.end();
      };
      const bool known =
          is_of(triton_parameters) || (file_.scheme == TritonScheme::nearest && is_of(nearest_parameters));
      if (known || (!kernel.empty() && is_part_of_name(kernel, key, value))) continue;
      add(FindingKind::unread_key, bucket.line,
          fmt::format("{}: parameter '{}': no kernel reads it{}", bucket.key, key.substr(0, 60),
                      kernel.empty() ? "" : ", the kernelName does not have it"));
    }
  }

  void check_name() {
    const TritonFileName& name = file_.name;
    const auto family = problem_of_triton_family(name.family);
    if (!name.n || !name.k) return;
    if (!family || is_mixture(*family)) return;
    Problem problem = *family;
    problem.m = 1;
    problem.n = *name.n;
    problem.k = *name.k;
    if (traits(problem.operation).batched) problem.batch = name.b.value_or(1);
    if (const Status status = check(problem); !status.ok())
      add(FindingKind::wrong_size, 0, fmt::format("the sizes of its name: {}", status.message()));
  }

  void check_split(const TritonBucket& bucket) {
    if (!file_.name.k || file_.scheme == TritonScheme::nearest || !own_kernel(bucket.config).empty()) return;
    const auto asked = bucket.config.integer("NUM_KSPLIT");
    const auto block = bucket.config.integer("BLOCK_SIZE_K");
    const auto split = apply_split_k(bucket.config, *file_.name.k);
    if (!block || !split.ok()) return;
    if (split->num_ksplit == asked.value_or(1) && split->block_size_k == *block) return;
    add(FindingKind::wrong_size, bucket.line,
        fmt::format("{}: K = {} is launched with NUM_KSPLIT {} and BLOCK_SIZE_K {}, not {} and {}",
                    bucket.key, *file_.name.k, split->num_ksplit, split->block_size_k, asked.value_or(1),
                    *block));
  }

  const TritonFile& file_;
  std::uint32_t source_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> audit_triton_files(std::span<const TritonFile> files) {
  std::vector<Finding> findings;
  std::map<std::tuple<std::string, std::string, std::string>, const TritonFile*> names;
  for (std::uint32_t source = 0; source < files.size(); ++source) {
    const TritonFile& file = files[source];
    const TritonFileName& name = file.name;
    const auto [first, is_new] = names.try_emplace({name.arch, name.family, name.specialisation}, &file);
    if (!is_new && !name.family.empty() && file.scheme != TritonScheme::nearest) {
      findings.push_back({FindingKind::duplicate_key, source, 0,
                          fmt::format("{} comes first and has this name", first->second->path)});
    }
    for (Finding& finding : FileAudit(file, source).run()) findings.push_back(std::move(finding));
  }
  for (Finding& finding : audit_nearest_pairs(files)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace gemmtune
