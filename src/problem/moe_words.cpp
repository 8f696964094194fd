// AITER's words for what fused_moe has beside its sizes.
#include <array>
#include <string>

#include "base/enumerators.h"
#include "base/text.h"
#include "problem/problem.h"

namespace gemmtune {
namespace {

constexpr std::array<std::string_view, 8> quant_types{"No",        "per_Tensor",  "per_Token", "per_1x32",
                                                      "per_1x128", "per_128x128", "per_1x16",  "per_group"};
constexpr std::array<std::string_view, 5> activations{"No", "Silu", "Gelu", "Swiglu", "Situv2"};

/// The number of the word `text`, which may begin with `prefix`; -1 where it is none.
template <std::size_t count>
int number_of(std::string_view text, std::string_view prefix,
              const std::array<std::string_view, count>& words) {
  std::string word = to_lower(trim(text));
  if (word.starts_with(to_lower(prefix))) word.erase(0, prefix.size());
  for (std::size_t index = 0; index < count; ++index) {
    if (word == to_lower(words[index])) return static_cast<int>(index);
  }
  return -1;
}

}  // namespace

std::span<const QuantType> all_quant_types() { return enumerators<QuantType, quant_types.size()>; }

std::string_view to_string(QuantType type) { return quant_types[static_cast<std::size_t>(type)]; }

std::optional<QuantType> parse_quant_type(std::string_view text) {
  const int number = number_of(text, "QuantType.", quant_types);
  if (number < 0) return std::nullopt;
  return static_cast<QuantType>(number);
}

std::span<const Activation> all_activations() { return enumerators<Activation, activations.size()>; }

std::string_view to_string(Activation activation) {
  return activations[static_cast<std::size_t>(activation)];
}

std::optional<Activation> parse_activation(std::string_view text) {
  const int number = number_of(text, "ActivationType.", activations);
  if (number < 0) return std::nullopt;
  return static_cast<Activation>(number);
}

}  // namespace gemmtune
