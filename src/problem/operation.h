// Operations: one row of traits for each in operation.cpp. What the host decides by operation it decides by a
// trait; an operation's own kernels and file formats are the exception.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "numbers/data_type.h"

namespace gemmtune {

enum class Operation {
  a16w16,
  a8w8,
  a8w8_blockscale,
  a4w4_blockscale,
  batched_bf16,
  batched_a8w8,
  fused_moe,
  a16w4,
  a8w4,
  a16w4_nvfp4,
  a8w4_nvfp4,
  a4w4_nvfp4,
  a16w4_int4,
  a8w4_int4,
};

/// How operands are quantized, in AITER's words (QuantType.per_1x128 …) and two of ours, which are formats of weights
/// alone. Of the dense operations it follows from the operation; fused_moe carries it. The scales that each means:
/// problem/operands.cpp.
enum class QuantType {
  none,
  per_tensor,
  per_token,
  per_1x32,
  per_1x128,
  per_128x128,
  per_1x16,  // NVFP4: e4m3 for 16 elements of k, and one float32 for the tensor
  per_group,  // integers: y's type for Problem::w_group elements of k, with zero points if Problem::zero_points
};
std::span<const QuantType> all_quant_types();
/// A format of weights, which leaves x as it is; of mixtures.
constexpr bool is_of_weights_alone(QuantType type) {
  return type == QuantType::per_1x16 || type == QuantType::per_group;
}
/// "No", "per_Tensor", "per_1x128" …: AITER's words without "QuantType.".
std::string_view to_string(QuantType type);
/// With or without "QuantType.", any case.
std::optional<QuantType> parse_quant_type(std::string_view text);

/// Elements that share a scale: along k (and of w along n) with per_1x128 and per_128x128, along k with
/// per_1x32.
inline constexpr std::int64_t scale_block = 128;
inline constexpr std::int64_t mx_block = 32;
inline constexpr std::int64_t nv_block = 16;
/// What Problem::w_group may be besides K, and what tables mean that do not say.
inline constexpr std::array<std::int32_t, 3> weight_groups{32, 64, 128};
inline constexpr std::int32_t default_weight_group = 128;

/// The types that an operation's key in a table holds.
enum class KeyTypes { none, weight, all };

/// How a look-up goes on where a table has no row of M itself.
enum class Padding {
  none,         // batched operations
  two_levels,   // padded_m(…, 0), then padded_m(…, 1)
  token_tiers,  // fused MoE: see token_tier() in tuned/key.h
};

struct OperationNames {
  std::string_view name;
  std::array<std::string_view, 4> aliases;  // AITER's names
  std::string_view aiter_variable;          // the environment variable that lists AITER's tuned files
};

struct OperationTraits {
  Operation operation;
  OperationNames names;
  OperationNames packed_names = {};  // where has_packed_form()

  // Operands.
  std::span<const DataType> x_types;                       // the first one is the default
  std::span<const DataType> w_types = {};                  // empty: w has the type of x
  std::span<const DataType> y_types = {};                  // the first one is the default, unless y_as_x
  bool y_as_x = false;                                     // y has the type of x by default
  QuantType quantization;                                  // of x and w; a mixture's problem carries it
  std::optional<QuantType> w_quantization = std::nullopt;  // of a w of its own format; `quantization` is of x
  bool scale_ab = false;                                   // fp8 operands with scaleAB, beside x_types
  bool bias = false;
  bool batched = false;
  bool mixture = false;  // of experts: Problem::moe holds

  // Tables of tuned rows.
  KeyTypes key_types = KeyTypes::none;
  bool key_switches = false;  // bias, scaleAB, bpreshuffle and the orders are part of the key
  Padding padding = Padding::two_levels;
  bool aiter_tolerance_by_type = false;  // of AITER's check: by y's type, else one for all types

  /// w has w_types.front() where nothing else is said, whatever x is.
  bool own_w_type() const { return !mixture && !w_types.empty(); }
};

const OperationTraits& traits(Operation operation);

/// The type of y where nothing else is said: that of x, or the operation's first one.
DataType default_y_type(Operation operation, DataType x_type);

/// Words, files and variables know the operation on a packed weight as one of its own.
constexpr bool has_packed_form(Operation operation) {
  return operation == Operation::a8w8 || operation == Operation::a8w8_blockscale;
}

/// An operation as words, files and variables have it: AITER's a8w8_bpreshuffle is a8w8 on a packed weight. Of operations
/// without such a form `packed` is false, whatever the weight is. Ordered as the C interface's enumeration.
struct OperationForm {
  Operation operation = Operation::a16w16;
  bool packed = false;

  constexpr OperationForm() = default;
  /// Of constants alone: a problem's form depends on its layout too, see form_of().
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval OperationForm(Operation constant) : operation(constant) {}
  constexpr OperationForm(Operation of, bool is_packed)
      : operation(of), packed(is_packed && has_packed_form(of)) {}
  // NOLINTNEXTLINE(modernize-use-nullptr): what the compiler makes of it
  friend constexpr auto operator<=>(const OperationForm&, const OperationForm&) = default;
};

/// Ordered.
std::span<const OperationForm> all_operation_forms();
const OperationNames& names_of(OperationForm form);

std::string_view to_string(OperationForm form);
/// Our names and AITER's aliases (bf16, a4w4, fmoe …), any case, '-' as '_'.
std::optional<OperationForm> parse_operation(std::string_view text);

}  // namespace gemmtune
