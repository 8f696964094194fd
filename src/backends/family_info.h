// What is known of a kernel family before a device is opened and where its library is missing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gemmtune {

struct Problem;

/// One for each family of a backend; the entries of its families (cpu/families/family_entry.h,
/// gpu/families/family_entry.h) hold it.
struct FamilyInfo {
  std::string_view name;
  int rank = 0;                   // order in lists; unique in a backend
  std::string_view aliases = {};  // AITER's words for --libtype, with commas
  bool vendor = false;            // what a user without gemmtune gets: the baseline
  int fallback_rank = 0;          // the smallest that takes a problem runs on a miss; 0: never
  int few_rows_rank = 0;          // instead of fallback_rank for M ≤ few_rows; 0: the same
  /// False: others run on a miss; null: never false. `architecture`: DeviceInfo::gfx.
  bool (*runs_untuned)(const Problem& problem, std::string_view architecture) = nullptr;
  /// True where tables of bench/results show the default kernel ahead of every vendor's: it then runs on a miss before
  /// all others; null: nowhere.
  bool (*leads_untuned)(const Problem& problem, std::string_view architecture) = nullptr;
  /// predicted_microseconds() is fitted to measured times (docs/cost_models.md). Where such a family is the first on a miss,
  /// the one whose default kernel is predicted to be the fastest runs.
  bool fitted = false;
  int row_scales_rank = 0;  // instead of both for operands with a scale a row; 0: the same

  /// The kernelName of ours for an AITER row of this family or its aliases whose kernelName is none of ours; null:
  /// that of the default config.
  std::string (*name_of_row)(std::string_view libtype, std::int64_t solution_index,
                             std::string_view kernel_name) = nullptr;

  static constexpr std::int64_t few_rows = 8;
};

/// AITER's words for kernels that are tuned, which families of ours are.
inline constexpr std::string_view tunable_aliases = "triton,ck,cktile,asm,flydsl,opus,gluon";

using FamilyInfos = std::span<const FamilyInfo* const>;

}  // namespace gemmtune
