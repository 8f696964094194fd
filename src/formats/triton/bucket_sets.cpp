#include "formats/triton/bucket_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_set>

#include "formats/json.h"
#include "formats/triton/bucket_file.h"
#include "formats/triton/bucket_rows.h"

namespace gemmtune {
namespace {

using Name = std::tuple<std::string, std::string, std::string>;

Name name_of(const TritonFile& file) { return {file.name.arch, file.name.family, file.name.specialisation}; }

using Placed = std::map<std::pair<Name, std::string>, PlacedBucket>;

/// The buckets in order, and by name and key.
std::vector<PlacedBucket> place_buckets(std::span<const TritonFile> files, bool ignores_names,
                                        Placed& places) {
  std::vector<PlacedBucket> order;
  for (const TritonFile& file : files) {
    const Name name = ignores_names ? Name() : name_of(file);
    for (const TritonBucket* bucket : last_of_keys(file)) {
      const auto [at, made] = places.try_emplace({name, bucket->key}, PlacedBucket{&file, bucket});
      if (made) order.push_back(at->second);
    }
  }
  return order;
}

bool same_kernel(const TritonConfig& a, const TritonConfig& b) {
  const std::string kernel = own_kernel(a);
  return kernel.empty() ? a == b : kernel == own_kernel(b);
}

bool has_scheme(const TritonFile& file) {
  return std::ranges::any_of(file.buckets,
                             [](const TritonBucket& bucket) { return bucket.kind != BucketKind::any; });
}

class Merger {
 public:
  explicit Merger(MergedConfigs& merged) : merged_(merged) {}

  void add(const TritonFile& file) {
    const auto [at, made] = numbers_.try_emplace(name_of(file), merged_.files.size());
    if (made) {
      TritonFile first = file;
      std::erase_if(first.buckets, [](const TritonBucket&) { return true; });
      for (const TritonBucket* bucket : last_of_keys(file)) first.buckets.push_back(*bucket);
      merged_.files.push_back(std::move(first));
      return;
    }
    add_to(merged_.files[at->second], file);
  }

 private:
  void leave_out(const TritonFile& file, const std::string& name, std::size_t line, std::string why) {
    merged_.left_out.push_back({LeftOutKind::key, name, line, 1, std::move(why), file.path});
  }

  void add_to(TritonFile& target, const TritonFile& file) {
    if (!has_scheme(target)) target.scheme = file.scheme;
    std::unordered_set<std::string> known;
    for (const TritonBucket& bucket : target.buckets) known.insert(bucket.key);
    std::vector<std::string> taken;
    for (const TritonBucket* bucket : last_of_keys(file)) {
      if (known.contains(bucket->key)) {
        ++merged_.duplicates;
      } else if (bucket->kind != BucketKind::any && file.scheme != target.scheme) {
        leave_out(file, bucket->key, bucket->line,
                  fmt::format("a key of the scheme {}, {} has {}", to_string(file.scheme), target.path,
                              to_string(target.scheme)));
      } else {
        target.buckets.push_back(*bucket);
        taken.push_back(bucket->key);
      }
    }
    sort_buckets(target);
    for (const TritonNote& note : file.notes) add_note(target, file, note, taken);
  }

  void add_note(TritonFile& target, const TritonFile& file, const TritonNote& note,
                const std::vector<std::string>& taken) {
    const auto known =
        std::ranges::find_if(target.notes, [&](const TritonNote& other) { return other.key == note.key; });
    if (known == target.notes.end()) {
      target.notes.push_back({note.key, note.json, target.buckets.size()});
    } else if (note.key == regret_note) {
      Json regrets = parse_json(known->json);
      const Json more = parse_json(note.json);
      if (!regrets.is_object() || !more.is_object()) return;
      for (const std::string& key : taken)
        if (more.contains(key)) regrets[key] = more[key];
      known->json = json_line(regrets);
    } else if (known->json != note.json && note.key != problem_note) {
      leave_out(file, note.key, 0, fmt::format("{} has another text for it", target.path));
    }
  }

  MergedConfigs& merged_;
  std::map<Name, std::size_t> numbers_;
};

}  // namespace

BucketDifference compare_triton_files(std::span<const TritonFile> before, std::span<const TritonFile> after) {
  const bool ignores_names = before.size() == 1 && after.size() == 1;
  Placed old_places;
  Placed new_places;
  const auto old_buckets = place_buckets(before, ignores_names, old_places);
  const auto new_buckets = place_buckets(after, ignores_names, new_places);
  const auto find_in = [&](const Placed& places, const PlacedBucket& one) {
    const auto at = places.find({ignores_names ? Name() : name_of(*one.file), one.bucket->key});
    return at == places.end() ? PlacedBucket() : at->second;
  };
  BucketDifference difference;
  for (const PlacedBucket& old : old_buckets) {
    const PlacedBucket now = find_in(new_places, old);
    if (now.file == nullptr) {
      difference.changes.push_back({ChangeKind::removed, old, {}});
    } else if (old.bucket->is_null != now.bucket->is_null ||
               !same_kernel(old.bucket->config, now.bucket->config)) {
      difference.changes.push_back({ChangeKind::winner, old, now});
    } else {
      ++difference.equal;
    }
  }
  for (const PlacedBucket& now : new_buckets) {
    if (find_in(old_places, now).file == nullptr) difference.changes.push_back({ChangeKind::added, {}, now});
  }
  return difference;
}

MergedConfigs merge_triton_files(std::span<const TritonFile> files) {
  MergedConfigs merged;
  Merger merger(merged);
  for (const TritonFile& file : files) merger.add(file);
  for (TritonFile& file : merged.files) {
    merged.buckets += file.buckets.size();
    for (TritonNote& note : file.notes) note.before = std::min(note.before, file.buckets.size());
  }
  return merged;
}

std::string describe_config(const TritonConfig& config) {
  const std::string kernel = own_kernel(config);
  return kernel.empty() ? triton_config_text(config) : kernel;
}

}  // namespace gemmtune
