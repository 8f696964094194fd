// Accuracy: the class of a kernel's sums and roundings. What may be compared with what, and which error bounds hold.
#pragma once

#include <optional>
#include <string_view>

namespace gemmtune {

/// From the lowest to the highest.
enum class Accuracy {
  tensor_core,  // a GPU's tensor core accumulates over all of k and keeps fewer than float32's bits, or operands are rounded to its types
  fp32,         // as a sum in float32, or of partial sums of 128 products at most that are added in float32
};

/// "fp32", "tensor_core".
std::string_view to_string(Accuracy accuracy);
std::optional<Accuracy> parse_accuracy(std::string_view text);

/// Which classes are compared with each other.
enum class AccuracyPolicy {
  keep,  // none below the vendor's default; the library's own default is the default
  fast,  // all; the default is the library's fast call where it has one
  fp32,  // that class alone
};

/// "default", "fast", "fp32".
std::string_view to_string(AccuracyPolicy policy);
std::optional<AccuracyPolicy> parse_accuracy_policy(std::string_view text);

}  // namespace gemmtune
