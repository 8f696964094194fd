// Cases of the speed table, their interleaved rounds, and the rows that come out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "speed/workplace.h"

namespace gemmtune::speed {

struct Size {
  std::int64_t n;
  std::int64_t k;
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

/// Medians over the rounds. Ratios are medians of the rounds' own ratios, `…_spread` half of the width of
/// their 95 % interval; empty where there is nothing to compare with.
struct Row {
  std::string line;
  int threads = 1;
  std::int64_t m = 0;
  Size size{};
  std::string kernel;
  double microseconds = 0;
  double read_microseconds = 0;     // of the weight's bytes
  double gigabytes_per_second = 0;  // of that read
  double share = 0;                 // of the roofline: read / ours
  double share_spread = 0;
  std::string library;
  std::optional<double> over_library;  // library / ours
  double library_spread = 0;
  std::optional<double> over_blas;  // OpenBLAS on the plain weight / ours
  double blas_spread = 0;
  std::optional<double> over_bf16;  // our bf16 / ours
  double bf16_spread = 0;
};

/// One row a case; `on_row` is called with each as it is done.
Status run_plan(Device& device, const Plan& plan, const std::function<void(const Row&)>& on_row);

}  // namespace gemmtune::speed
