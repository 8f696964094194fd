// Cases of the speed table and the rows that come out of their rounds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "speed/workplace.h"

namespace gemmtune::speed {

struct Size {
  std::int64_t n = 0;  // 0: of a mixture of experts
  std::int64_t k = 0;
};

/// One line of operands: what it is called, its problem with packed weights, whether ours is also held
/// against our own bf16.
struct Line {
  std::string name;  // "bf16", "int8", "fp8", "blockscale", "mxfp4", "f32"
  Problem problem;   // its sizes are 0
  bool against_bf16 = false;
};
/// Those named in `names` (separated by commas; empty: all). Errors name the word that is none.
Result<std::vector<Line>> lines_named(const std::string& names);

struct Plan {
  std::vector<Line> lines;
  std::vector<Size> sizes;
  std::vector<std::int64_t> ms;
  int threads = 1;
  int rounds = 15;
  int tries = 12;
  Policy policy;
};

/// What ours is compared with, as each kind of output names it.
struct Opponent {
  const char* text;
  const char* csv;
  const char* json;
};
inline constexpr Opponent packed_library{"library", "onednn_packed", "over_library"};
inline constexpr Opponent separate_calls{"library", "separate_calls", "over_library"};
inline constexpr Opponent plain_blas{"openblas", "openblas_plain", "over_openblas"};
inline constexpr Opponent own_bf16{"bf16", "own_bf16", "over_bf16"};

struct Comparison {
  const Opponent* opponent = nullptr;
  Ratio ratio;         // its time / ours
  std::string kernel;  // empty: not named
};

/// Times are medians over the rounds.
struct Row {
  std::string line;
  int threads = 1;
  std::int64_t m = 0;
  Size size;
  std::string kernel;
  double microseconds = 0;
  double read_microseconds = 0;     // of the weight's bytes
  double gigabytes_per_second = 0;  // of that read; 0: not stated
  Ratio share;                      // of the roofline: read / ours
  std::vector<Comparison> comparisons;
};

struct Competitor {
  const Opponent* opponent = nullptr;
  RoundMember member;
};
/// Runs the rounds of one case; kernel, times and ratios of its row. Of two competitors of one opponent the
/// faster one counts.
Result<Row> run_case(Sampler& sampler, RoundMember& ours, RoundMember& read,
                     std::vector<Competitor>& competitors, const Plan& plan);

using OnRow = std::function<void(const Row&)>;
/// One row a case; `on_row` is called with each as it is done.
Status run_plan(Device& device, const Plan& plan, const OnRow& on_row);

}  // namespace gemmtune::speed
