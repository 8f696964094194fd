#include "problem/accuracy.h"

#include "base/enumerators.h"

namespace gemmtune {

constexpr EnumeratorNames<Accuracy, 2> accuracy_names({{Accuracy::tensor_core, "tensor_core"},
                                                       {Accuracy::fp32, "fp32"}});
std::string_view to_string(Accuracy accuracy) { return accuracy_names.of(accuracy); }
std::optional<Accuracy> parse_accuracy(std::string_view text) { return accuracy_names.find(text); }

constexpr EnumeratorNames<AccuracyPolicy, 3> policy_names({{AccuracyPolicy::keep, "default"},
                                                           {AccuracyPolicy::fast, "fast"},
                                                           {AccuracyPolicy::fp32, "fp32"}});
std::string_view to_string(AccuracyPolicy policy) { return policy_names.of(policy); }
std::optional<AccuracyPolicy> parse_accuracy_policy(std::string_view text) { return policy_names.find(text); }

}  // namespace gemmtune
