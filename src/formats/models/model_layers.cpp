#include "formats/models/model_layers.h"

#include <algorithm>

namespace gemmtune {

std::int64_t RankShares::of(std::string_view field, std::int64_t value) {
  if (value % ranks_ == 0) return value / ranks_;
  refused_ += fmt::format("{}{} = {}", refused_.empty() ? "" : ", ", field, value);
  return 1;
}

Status RankShares::status(const std::string& path) const {
  if (refused_.empty()) return {};
  return Status::invalid("{}: {}: not divisible by --tp {}", path, refused_, ranks_);
}

std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return max_dimension + 1;
  return std::min(product, max_dimension + 1);
}

}  // namespace gemmtune
