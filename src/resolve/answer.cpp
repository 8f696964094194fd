#include "resolve/answer.h"

#include <algorithm>
#include <array>
#include <map>

#include "backends/traits.h"
#include "tuned/bucket_index.h"
#include "tuned/choice.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

LookupKey key_of(const Device& device, const Problem& problem) {
  return {device.info().gfx, device.info().cu_num, problem};
}

/// True if the row runs; if it does not, it is added to `answer.passed`.
bool answer_with(const TableSet& tables, const LookupHit& hit, const Device& device, BindRules rules,
                 Answer& answer) {
  std::string other = tables.other_environment(*hit.entry, device.info());
  Binding binding = bind_row(device, *hit.entry, other, answer.problem, rules);
  if (!binding.bound) {
    answer.passed.push_back({&tables, hit, binding.refusal, binding.status.message()});
    return false;
  }
  answer.bound = std::move(*binding.bound);
  answer.tables = &tables;
  answer.hit = hit;
  answer.other_environment = std::move(other);
  return true;
}

/// What an invariant group answers: a row of its bit class, or an error, because nothing else may run in its place.
void answer_invariant(const TableSet& tables, const std::vector<LookupHit>& hits, const Device& device,
                      BindRules rules, Answer& answer) {
  for (const LookupHit& hit : hits) {
    if (answer_with(tables, hit, device, rules, answer)) return;
  }
  std::string passed;
  for (const PassedRow& row : answer.passed) passed += describe_passed(row);
  answer.status =
      Status::unsupported("{}: no kernel of bit class {} runs here, and its rows let no other run{}",
                          short_name(answer.problem), hits.front().entry->bits.view(), passed);
}

/// True if it is decided what runs, or that nothing does.
bool answer_from(const TableSet& tables, const Device& device, BindRules rules, Answer& answer) {
  if (!tables.exact_only) {
    const auto invariant = tables.table.lookup_invariant(key_of(device, answer.problem));
    if (!invariant.empty()) {
      answer_invariant(tables, invariant, device, rules, answer);
      return true;
    }
  }
  if (rules.invariant_only) return false;
  for (const LookupHit& hit : tables.lookup(key_of(device, answer.problem))) {
    if (rules.measured_only && is_of_another_m(hit.match, answer.problem)) continue;
    if (rules.measured_only && keeps_callers_kernel(device, *hit.entry)) return true;
    if (answer_with(tables, hit, device, rules, answer)) return true;
  }
  return false;
}

/// After rows of the device's own, online ones too.
bool answer_from_fewer_threads(const TableSet& tables, const Device& device, BindRules rules,
                               Answer& answer) {
  if (rules.strict_environment || rules.invariant_only) return false;
  rules.fewer_threads = true;
  const auto hit = tables.lookup_fewer_threads(key_of(device, answer.problem));
  return hit && answer_with(tables, *hit, device, rules, answer);
}

/// Rows, by layout.
using LayoutCounts = std::array<int, static_cast<std::size_t>(WeightLayout::fragment64) + 1>;

WeightLayout prevalent_layout(LayoutCounts rows) {
  rows[static_cast<std::size_t>(WeightLayout::any)] = 0;
  auto best = WeightLayout::plain;
  for (std::size_t layout = 0; layout < rows.size(); ++layout) {
    if (rows[layout] > rows[static_cast<std::size_t>(best)]) best = static_cast<WeightLayout>(layout);
  }
  return best;
}

/// The layout of the rows of one table set; plain if there is none.
WeightLayout layout_of_rows(const Device& device, const TableSet& tables, const Problem& problem) {
  Problem packed = problem;
  packed.weight_layout = WeightLayout::any;  // the caller asks before it packs
  const DeviceInfo& info = device.info();
  std::map<int, LayoutCounts> rows;  // by cu_num
  for (const TunedEntry& row : tables.table.entries()) {
    const bool own = row_is_of(row, info);
    if (!own && !(tables.fewer_threads && is_of_fewer_threads(row, info))) continue;
    std::optional<WeightLayout> layout;
    if (row.bucket.empty()) {
      if (may_be_chosen(row) && share_packed_weight(row.problem, packed))
        layout = weight_layout_of(device, row);
    } else if (check_has_kernel(row).ok() && bucket_group(row.problem) == bucket_group(packed)) {
      TunedEntry bucket = row;
      bucket.problem = packed;
      bucket.problem.m = row.m_from.value_or(1);
      layout = weight_layout_of(device, bucket);
    }
    if (layout) ++rows[own ? info.cu_num : row.cu_num][static_cast<std::size_t>(*layout)];
  }
  return rows.empty() ? WeightLayout::plain : prevalent_layout(rows.rbegin()->second);
}

}  // namespace

std::string Answer::kernel_name() const {
  if (tables == nullptr) return bound.candidate.kernel_name();
  return is_dependent(bound.candidate.config) ? hit.entry->pdl_kernel_name : hit.entry->kernel_name;
}

std::string Answer::rule() const {
  std::string text;
  if (tables != nullptr) {
    text = describe_hit(*tables, hit);
    if (is_dependent(bound.candidate.config)) text += ", programmatic dependent launch";
  } else if (status.ok()) {
    text = describe_fallback(problem, bound);
  }
  for (const PassedRow& row : passed) text += describe_passed(row);
  return text;
}

int Answer::invalid_rows() const {
  return static_cast<int>(std::ranges::count_if(
      passed, [](const PassedRow& row) { return row.refusal != Refusal::other_environment; }));
}

bool keeps_callers_kernel(const Device& device, const TunedEntry& row) {
  if (traits_of(device.info()).runs_on_host || row.problem.operation != Operation::a16w16 ||
      row.problem.scale_ab || !row.bits.empty()) {
    return false;
  }
  return row.kernel_name == row.default_kernel && !device.info().vendor_text(row.libtype).empty();
}

Answer answer_problem(const Device& device, const LookupTables& tables, const Problem& problem,
                      BindRules rules) {
  Answer answer;
  answer.problem = problem;
  if (answer_from(*tables.tuned, device, rules, answer)) return answer;
  if (tables.online != nullptr && answer_from(*tables.online, device, rules, answer)) return answer;
  if (answer_from_fewer_threads(*tables.tuned, device, rules, answer)) return answer;
  if (const TableSet* shipped = tables.shipped();
      shipped != nullptr && answer_from(*shipped, device, rules, answer))
    return answer;
  if (rules.invariant_only) {
    answer.status = Status::not_found(
        "{}: GEMMTUNE_INVARIANT=rows, and no row of N = {} and K = {} has a bit class for this device; "
        "`gemmtune tune "
        "--invariant rows` makes such rows",
        short_name(problem), problem.n, problem.k);
    return answer;
  }
  if (rules.measured_only) return answer;
  auto fallback = bind_fallback(device, problem);
  if (fallback.ok()) {
    answer.bound = std::move(fallback).value();
  } else {
    answer.status = fallback.status();  // rule() has no fallback then
    answer.status =
        Status(fallback.code(), fmt::format("{}: no row and no fallback: {}{}", short_name(problem),
                                            fallback.message(), answer.rule()));
  }
  return answer;
}

bool has_row(const TableSet& tables, const Device& device, const Problem& problem) {
  return !tables.lookup(key_of(device, problem)).empty();
}

std::string describe_hit(const TableSet& tables, const LookupHit& hit) {
  if (hit.match == Match::bucket) {
    return fmt::format("bucket {}, {}:{}", describe_bucket(*hit.entry), tables.path_of(*hit.entry),
                       hit.entry->line);
  }
  if (hit.match == Match::fewer_threads) {
    return fmt::format("fewer_threads row, cu_num = {}, M = {}, {}:{}", hit.entry->cu_num, hit.hit_m,
                       tables.path_of(*hit.entry), hit.entry->line);
  }
  return fmt::format("{}{} row, M = {}, {}:{}", tables.is_shipped(*hit.entry) ? "shipped " : "",
                     to_string(hit.match), hit.hit_m, tables.path_of(*hit.entry), hit.entry->line);
}

std::string describe_bucket(const TunedEntry& row) {
  const std::string span = row.problem.m == max_dimension
                               ? fmt::format("M from {}", row.m_from.value_or(1))
                               : fmt::format("M = {} to {}", row.m_from.value_or(1), row.problem.m);
  return fmt::format("{} ({})", row.bucket, span);
}

std::string describe_passed(const PassedRow& row) {
  const std::string hit = describe_hit(*row.tables, row.hit);
  if (row.refusal == Refusal::other_environment) return fmt::format("; passed over {}: {}", hit, row.why);
  return fmt::format("; passed over {}, kernel '{}': {}", hit, row.hit.entry->kernel_name, row.why);
}

std::string describe_fallback(const Problem& problem, const BoundKernel& fallback) {
  return fmt::format("no row: the device's fallback for a {} weight is {}{}",
                     to_string(problem.weight_layout), fallback.candidate.family,
                     fallback.passed.empty() ? std::string() : "; passed over " + fallback.passed);
}

WeightLayout tuned_weight_layout(const Device& device, const LookupTables& tables, const Problem& problem) {
  const WeightLayout layout = layout_of_rows(device, *tables.tuned, problem);
  if (layout != WeightLayout::plain) return layout;
  const TableSet* shipped = tables.shipped();
  return shipped == nullptr ? layout : layout_of_rows(device, *shipped, problem);
}

Problem with_tuned_layout(const Device& device, const LookupTables& tables, const Problem& problem) {
  Problem posed = problem;
  if (!is_packed(problem) || problem.weight_layout != WeightLayout::any) return posed;
  const WeightLayout layout = tuned_weight_layout(device, tables, problem);
  if (layout != WeightLayout::plain) posed.weight_layout = layout;
  return posed;
}

}  // namespace gemmtune
