#include "problem/accuracy.h"

namespace gemmtune {

std::string_view to_string(Accuracy accuracy) { return accuracy == Accuracy::fp32 ? "fp32" : "tensor_core"; }

std::optional<Accuracy> parse_accuracy(std::string_view text) {
  for (const Accuracy accuracy : {Accuracy::tensor_core, Accuracy::fp32})
    if (text == to_string(accuracy)) return accuracy;
  return std::nullopt;
}

std::string_view to_string(AccuracyPolicy policy) {
  switch (policy) {
    case AccuracyPolicy::keep:
      return "default";
    case AccuracyPolicy::fast:
      return "fast";
    case AccuracyPolicy::fp32:
      return to_string(Accuracy::fp32);
  }
  return "";
}

std::optional<AccuracyPolicy> parse_accuracy_policy(std::string_view text) {
  for (const AccuracyPolicy policy : {AccuracyPolicy::keep, AccuracyPolicy::fast, AccuracyPolicy::fp32})
    if (text == to_string(policy)) return policy;
  return std::nullopt;
}

}  // namespace gemmtune
