#include "formats/triton/triton_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
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

/// What AITER's kernels and their callers read.
constexpr std::string_view triton_parameters[] = {
    "BLOCK_SIZE_M", "BLOCK_SIZE_N",   "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages",
    "waves_per_eu", "cache_modifier", "NUM_KSPLIT",   "kpack",        "num_ctas",  "matrix_instr_nonkdim",
    "kernel_type",  "NUM_BUFFERS",    "BLOCK_M",      "BLOCK_N",      "BLOCK_K",   "SPLITK_BLOCK_SIZE",
    "GROUP_K",      "GROUP_N"};
/// What vLLM's and SGLang's read beside these: SGLang's exchange of A and B, vLLM's kernels of FlyDSL.
constexpr std::string_view nearest_parameters[] = {"SPLIT_K", "USE_TMA", "SWAP_AB", "tile_m",
                                                   "tile_n",  "tile_k",  "tile_m1", "tile_n1",
                                                   "tile_k1", "tile_m2", "tile_n2", "tile_k2"};

/// What a parameter may be: whole numbers from `least`, powers of two if `power`.
struct LegalValue {
  std::string_view name;
  std::int64_t least;
  bool power;
};
/// Of tl.arange() and tl.dot(), of Triton's warps, and of what kernels divide by.
constexpr LegalValue legal_values[] = {
    {"BLOCK_SIZE_M", 1, true},  {"BLOCK_SIZE_N", 1, true}, {"BLOCK_SIZE_K", 1, true},
    {"BLOCK_M", 1, true},       {"BLOCK_N", 1, true},      {"BLOCK_K", 1, true},
    {"num_warps", 1, true},     {"num_ctas", 1, true},     {"num_stages", 0, false},
    {"GROUP_SIZE_M", 1, false}, {"NUM_KSPLIT", 1, false},  {"SPLIT_K", 1, false},
    {"waves_per_eu", 0, false}, {"kpack", 1, true},        {"matrix_instr_nonkdim", 0, false}};

std::string shown_value(const TritonValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *number);
  if (const auto* word = std::get_if<std::string>(&value)) return fmt::format("'{}'", word->substr(0, 40));
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return "null";
}

/// Why no kernel can be compiled or launched with the value; empty: one can.
std::string why_illegal(std::string_view name, const TritonValue& value) {
  for (const LegalValue& legal : legal_values) {
    if (legal.name != name) continue;
    const auto* number = std::get_if<std::int64_t>(&value);
    const bool good = number != nullptr && *number >= legal.least &&
                      (!legal.power || std::has_single_bit(static_cast<std::uint64_t>(*number)));
    if (good) return {};
    return fmt::format("parameter {}: value {}, expected {} of at least {}", name, shown_value(value),
                       legal.power ? "a power of two" : "a whole number", legal.least);
  }
  return {};
}

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
      // The audit of its loaders says what they do with such a key.
      if (is_nearest() && finding.kind == FindingKind::unread_key) continue;
      if (finding.kind == FindingKind::duplicate_key) finding.own_severity = Severity::warning;
      finding.source = source;
      findings_.push_back(std::move(finding));
    }
  }

  std::vector<Finding> run() {
    check_reach();
    if (is_nearest()) {
      for (Finding& finding : audit_nearest_file(file_, source_)) findings_.push_back(std::move(finding));
    }
    for (const TritonBucket& bucket : file_.buckets) {
      check_null(bucket);
      check_parameters(bucket);
      check_values(bucket);
    }
    check_name();
    if (!is_nearest()) check_splits();
    std::ranges::stable_sort(findings_, [](const Finding& a, const Finding& b) { return a.line < b.line; });
    return std::move(findings_);
  }

 private:
  void add(FindingKind kind, std::size_t line, std::string text) {
    findings_.push_back({kind, source_, line, std::move(text)});
  }

  bool is_nearest() const { return file_.scheme == TritonScheme::nearest; }
  /// Files without a family's name, and those that hold kernels of gemmtune, are judged too.
  bool is_judged() const {
    const std::string& family = file_.name.family;
    return is_nearest() || family.empty() || is_known_family(family) || family.starts_with("MOE-");
  }

  void check_null(const TritonBucket& bucket) {
    if (!bucket.is_null || is_nearest()) return;
    add(FindingKind::wrong_value, bucket.line,
        fmt::format("{}: null, expected an object of parameters: AITER raises an error", bucket.key));
  }

  void check_values(const TritonBucket& bucket) {
    for (const auto& [key, value] : bucket.config.parameters) {
      // Of two of one name the last is read.
      if (bucket.config.find(key) != &value) continue;
      std::string why = why_illegal(key, value);
      if (!why.empty()) add(FindingKind::wrong_value, bucket.line, fmt::format("{}: {}", bucket.key, why));
    }
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
    // AITER raises an error there; dispatch of gemmtune's kernels goes on with its rows.
    const bool ends_aiter =
        !is_nearest() && std::ranges::any_of(file_.buckets, [](const TritonBucket& bucket) {
          return own_kernel(bucket.config).empty();
        });
    std::int64_t next = 1;
    const auto check_gap = [&](std::int64_t until) {
      if (until < next) return;
      findings_.push_back({FindingKind::missing_bucket, source_, 0,
                           until == max_dimension
                               ? fmt::format("no bucket answers M from {}", next)
                               : fmt::format("no bucket answers M = {} to {}", next, until),
                           ends_aiter ? std::optional(Severity::error) : std::nullopt});
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
      const bool known = is_of(triton_parameters) || (is_nearest() && is_of(nearest_parameters));
      if (known || (kernel.empty() && !is_judged()) ||
          (!kernel.empty() && is_part_of_name(kernel, key, value)))
        continue;
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

  /// A bucket without a rule, and one that no M finds, are not judged. gfx1250's kernels of Gluon split nothing.
  void check_splits() {
    const LaunchRule rule = triton_launch_rule(file_.name.family);
    const bool has_rule = rule.split != SplitRule::unknown && file_.name.arch != "gfx1250";
    if (!file_.name.k || !has_rule) return;
    std::unordered_set<const TritonBucket*> judged;
    for (const BucketSpan& span : bucket_spans(file_)) {
      if (judged.insert(span.bucket).second) check_split(*span.bucket, span, rule);
    }
  }

  void check_split(const TritonBucket& bucket, const BucketSpan& span, const LaunchRule& rule) {
    if (!own_kernel(bucket.config).empty()) return;
    const auto asked = bucket.config.integer("NUM_KSPLIT");
    const auto block = bucket.config.integer("BLOCK_SIZE_K");
    constexpr std::int64_t last_split_m = 128;
    if (rule.split == SplitRule::even_by_four && span.m_from > last_split_m) {
      if (asked.value_or(1) > 1)
        add(FindingKind::wrong_value, bucket.line,
            fmt::format("{}: NUM_KSPLIT {} above M = {} ends the launch", bucket.key, *asked, last_split_m));
      return;
    }
    const auto split = apply_split_k(bucket.config, *file_.name.k, rule);
    if (!block || !split.ok()) return;
    if (split->num_ksplit == asked.value_or(1) && split->block_size_k == *block) return;
    add(FindingKind::other_split, bucket.line,
        fmt::format("{}: K = {} is launched with NUM_KSPLIT {} and BLOCK_SIZE_K {}, not {} and {}",
                    bucket.key, *file_.name.k, split->num_ksplit, split->block_size_k, asked.value_or(1),
                    *block));
  }

  const TritonFile& file_;
  std::uint32_t source_;
  std::vector<Finding> findings_;
};

}  // namespace

namespace {

/// Configs of Gluon's kernels and of Triton's have the same names, and each kernel reads its own.
bool is_of_gluon(const std::string& path) {
  return path.find("/gluon/") != std::string::npos || path.starts_with("gluon/");
}

}  // namespace

std::vector<Finding> audit_triton_files(std::span<const TritonFile> files) {
  std::vector<Finding> findings;
  std::map<std::tuple<std::string, std::string, std::string, bool>, const TritonFile*> names;
  for (std::uint32_t source = 0; source < files.size(); ++source) {
    const TritonFile& file = files[source];
    const TritonFileName& name = file.name;
    const auto [first, is_new] =
        names.try_emplace({name.arch, name.family, name.specialisation, is_of_gluon(file.path)}, &file);
    if (!is_new && !name.family.empty() && file.scheme != TritonScheme::nearest) {
      findings.push_back({FindingKind::duplicate_key, source, 0,
                          fmt::format("{} comes first and has this name", first->second->path),
                          Severity::warning});
    }
    for (Finding& finding : FileAudit(file, source).run()) findings.push_back(std::move(finding));
  }
  for (Finding& finding : audit_nearest_pairs(files)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace gemmtune
