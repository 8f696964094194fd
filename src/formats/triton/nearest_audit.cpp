#include "formats/triton/nearest_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

/// The M that the tuners of vLLM and SGLang try by default.
constexpr std::int64_t default_keys[] = {1,  2,   4,   8,   16,   24,   32,   48,   64,
                                         96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096};
/// A tuner on several GPUs that overwrites its own files leaves one share: on two GPUs half of the keys.
constexpr std::size_t missing_share = 4;  // a quarter

std::string list_of(const std::vector<std::int64_t>& numbers) {
  constexpr std::size_t shown = 20;
  std::string text;
  for (std::size_t index = 0; index < numbers.size(); ++index) {
    if (index == shown) return text + fmt::format(" and {} more", numbers.size() - shown);
    text += fmt::format("{}{}", index == 0 ? "" : ", ", numbers[index]);
  }
  return text;
}

class NearestAudit {
 public:
  NearestAudit(const TritonFile& file, std::uint32_t source) : file_(file), source_(source) {
    for (const TritonBucket* bucket : last_of_keys(file))
      if (bucket->kind == BucketKind::nearest) buckets_.push_back(bucket);
  }

  std::vector<Finding> run() {
    check_name();
    check_share();
    check_order();
    check_group_size();
    return std::move(findings_);
  }

 private:
  void add(FindingKind kind, std::size_t line, std::string text) {
    findings_.push_back({kind, source_, line, std::move(text)});
  }

  void check_name() {
    if (file_.name.family == nearest_dense_family && file_.name.n && file_.name.k) return;
    if (file_.name.family == nearest_moe_family && file_.name.n) return;
    add(FindingKind::unreachable, 0,
        "its name is none that vLLM or SGLang looks for: N=n,K=k,device_name=…,dtype=….json or "
        "E=e,N=n,device_name=….json");
  }

  void check_share() {
    std::set<std::int64_t> known;
    for (const TritonBucket* bucket : buckets_) known.insert(bucket->bound);
    if (known.empty()) return;
    std::vector<std::int64_t> missing;
    for (const std::int64_t key : default_keys)
      if (!known.contains(key)) missing.push_back(key);
    const bool lost = missing.size() * missing_share >= std::size(default_keys);
    if (!lost && *known.begin() == 1) return;
    add(FindingKind::missing_bucket, 0,
        fmt::format("keys {} of the usual {} are missing; M = {} gets the config of {}", list_of(missing),
                    std::size(default_keys), missing.empty() ? 1 : missing.front(), nearest_of(missing)));
  }

  std::int64_t nearest_of(const std::vector<std::int64_t>& missing) const {
    const auto match = find_bucket(file_, missing.empty() ? 1 : missing.front());
    return match ? match->bucket->bound : 0;
  }

  void check_order() {
    for (std::size_t index = 1; index < buckets_.size(); ++index) {
      if (buckets_[index]->bound > buckets_[index - 1]->bound) continue;
      add(FindingKind::key_order, buckets_[index]->line,
          fmt::format("'{}' stands behind '{}'", buckets_[index]->key, buckets_[index - 1]->key));
    }
  }

  /// One row of blocks is walked in one order, whatever GROUP_SIZE_M says. Of a mixture each expert has its rows.
  void check_group_size() {
    if (file_.name.family == nearest_moe_family) return;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> keys;
    std::size_t line = 0;
    for (const TritonBucket* bucket : buckets_) {
      const auto block = bucket->config.integer("BLOCK_SIZE_M");
      const auto group = bucket->config.integer("GROUP_SIZE_M");
      if (!block || !group || bucket->bound > *block) continue;
      if (!sizes.empty() && line == 0 && *group != sizes.front()) line = bucket->line;
      sizes.push_back(*group);
      keys.push_back(bucket->bound);
    }
    if (line == 0) return;
    add(FindingKind::noise, line,
        fmt::format("GROUP_SIZE_M is {} at M = {}, where one row of blocks gives it no effect: the winners "
                    "differ by noise",
                    list_of(sizes), list_of(keys)));
  }

  const TritonFile& file_;
  std::uint32_t source_;
  std::vector<const TritonBucket*> buckets_;
  std::vector<Finding> findings_;
};

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

void compare_down(const TritonFile& first, const TritonFile& down, std::uint32_t source,
                  std::vector<Finding>& findings) {
  std::set<std::int64_t> keys;
  for (const TritonFile* file : {&first, &down})
    for (const TritonBucket& bucket : file->buckets)
      if (bucket.kind == BucketKind::nearest) keys.insert(bucket.bound);
  for (const std::int64_t m : keys) {
    const auto a = find_bucket(first, m);
    const auto b = find_bucket(down, m);
    if (!a || !b) continue;
    const auto expected = a->bucket->config.integer("BLOCK_SIZE_M");
    const auto given = b->bucket->config.integer("BLOCK_SIZE_M");
    if (expected == given) continue;
    findings.push_back({FindingKind::unpaired, source, b->bucket->line,
                        fmt::format("M = {}: BLOCK_SIZE_M is {}, {} has {}", m, given.value_or(0), first.path,
                                    expected.value_or(0))});
  }
}

}  // namespace

std::vector<Finding> audit_nearest_file(const TritonFile& file, std::uint32_t source) {
  return NearestAudit(file, source).run();
}

std::vector<Finding> audit_nearest_pairs(std::span<const TritonFile> files) {
  using Name = std::tuple<std::string, std::string, std::string>;  // folder, device, the rest
  std::map<Name, std::uint32_t> places;
  std::vector<Finding> findings;
  for (std::uint32_t source = 0; source < files.size(); ++source) {
    const TritonFile& file = files[source];
    if (file.scheme != TritonScheme::nearest) continue;
    const auto [first, is_new] =
        places.try_emplace({folder_of(file.path), file.name.arch, file.name.specialisation}, source);
    if (!is_new) {
      findings.push_back(
          {FindingKind::duplicate_key, source, 0,
           fmt::format("{} is of the same sizes, device and types", files[first->second].path)});
    }
  }
  for (const auto& [name, source] : places) {
    const auto& [folder, device, rest] = name;
    if (!rest.ends_with(down_suffix)) continue;
    const auto first = places.find({folder, device, rest.substr(0, rest.size() - down_suffix.size())});
    if (first != places.end()) compare_down(files[first->second], files[source], source, findings);
  }
  return findings;
}

}  // namespace gemmtune
