// What the families of 4-bit weights take from a problem for their device sources: the weight's format, and where its scales are.
#pragma once

#include <cstdint>
#include <string_view>

#include "backends/backend.h"
#include "backends/cuda/families/weight_format_arguments.h"
#include "base/status.h"
#include "candidates/space.h"

namespace gemmtune::cuda {

/// What kernels are compiled for.
struct WeightTraits {
  WeightFormat format = WeightFormat::mxfp4;
  std::int64_t group = 0;  // of int4: elements of k with a scale; 0: all of a row
  bool zero_points = false;
  std::int64_t scale_row = 0;  // bytes of a row's scales

  /// Sums of groups of k are multiplied by scales, beside the sums of all k.
  bool is_grouped() const { return format == WeightFormat::int4 && group > 0; }
  /// Bytes of the scales and zero points of `k` elements of a row.
  double scale_bytes(double k) const;
  /// Bytes of the scales, and of the zero points, of a row of `k` elements, of whole groups.
  std::int64_t scale_row_of(std::int64_t k) const;
  std::int64_t zero_row_of(std::int64_t k) const;
};

/// Whether the weights, dense or of experts, have one of the formats.
bool has_weight_format(const Problem& problem);
/// `unsupported` if a dense problem's weight has none.
Status accepts_weight(const Problem& problem);
/// `unsupported` if kernels cannot read a mixture's weights by strips: a thread has 8 bytes of a row, and rows of scales and zero points are copied eight at a time.
Status accepts_strips(const Problem& problem);
/// Requires has_weight_format(problem).
WeightTraits weight_traits(const Problem& problem);

/// Whether elements of int4 may be multiplied by their groups' scales, of a dense weight if it is packed: products have the range of bf16, but not that of fp16, and none of the
/// latter's scales would be exact.
bool may_scale_elements(const Problem& problem);
/// `scaled`: whether they are. Up to `max_exact_rows` of x that gains nothing, and defaults do not.
Parameter scaled_parameter(const Problem& problem);
inline constexpr std::int64_t max_exact_rows = 64;

/// For gpu::config_define().
inline std::string_view device_name(WeightFormat) { return "gemmtune::cuda::WeightFormat"; }

}  // namespace gemmtune::cuda
