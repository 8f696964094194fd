#include "tuned/bucket_index.h"

#include <algorithm>
#include <array>

namespace gemmtune {
namespace {

DataType kind_of(DataType type) {
  if (type == DataType::f16) return DataType::bf16;
  return type == DataType::f8_e4m3fnuz ? DataType::f8_e4m3fn : type;
}

/// The names that a problem is looked for under, the most special one first.
std::array<Problem, 4> names_of(const Problem& problem) {
  const Problem all = bucket_group(problem);
  // vLLM's and SGLang's names of a mixture say experts and N.
  Problem shard = all;
  if (is_mixture(problem)) shard.k = 0;
  Problem sizes = all;
  if (traits(all.operation).batched) sizes.batch = 0;
  sizes.moe.experts = 0;
  Problem none = sizes;
  none.n = none.k = 0;
  return {all, shard, sizes, none};
}

}  // namespace

Problem bucket_group(const Problem& problem) {
  Problem group;
  group.operation = problem.operation;
  group.n = problem.n;
  group.k = problem.k;
  if (form_of(problem).packed) group.weight_layout = WeightLayout::any;
  if (traits(problem.operation).batched) group.batch = problem.batch;
  if (!is_mixture(problem)) return group;
  group.moe.experts = problem.moe.experts;
  group.w_type = kind_of(problem.w_type);
  // The kernel of fp4 weights takes tokens of any type.
  group.x_type = group.w_type == DataType::f4_e2m1 ? group.w_type : kind_of(problem.x_type);
  return group;
}

BucketIndex::BucketIndex(std::span<const TunedEntry> entries) {
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& entry = entries[index];
    if (entry.bucket.empty() || !entry.m_from) continue;
    const auto [at, made] = files_.try_emplace({entry.gfx, 0, bucket_group(entry.problem)});
    if (made) at->second.source = entry.source;
    if (at->second.source == entry.source)
      at->second.spans.push_back({*entry.m_from, entry.problem.m, index});
  }
  for (auto& [key, file] : files_) {
    std::ranges::sort(file.spans, [](const Span& a, const Span& b) { return a.m < b.m; });
  }
}

std::optional<BucketIndex::Hit> BucketIndex::find(const LookupKey& asked) const {
  if (files_.empty()) return std::nullopt;
  // A config says nothing of orders: it means row-major operands.
  if (!all_row_major(asked.problem)) return std::nullopt;
  for (const Problem& name : names_of(asked.problem)) {
    for (const std::string_view gfx : {std::string_view(asked.gfx), std::string_view()}) {
      const auto file = files_.find({gfx, 0, name});
      if (file == files_.end()) continue;
      const auto& spans = file->second.spans;
      const auto span = std::lower_bound(spans.begin(), spans.end(), asked.problem.m,
                                         [](const Span& one, std::int64_t m) { return one.m < m; });
      if (span == spans.end() || span->m_from > asked.problem.m) return std::nullopt;
      return Hit{span->entry, name.n == 0};
    }
  }
  return std::nullopt;
}

}  // namespace gemmtune
