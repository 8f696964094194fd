#include "problem/operation.h"

#include <cstddef>
#include <iterator>
#include <string>

#include "base/text.h"

namespace gemmtune {
namespace {

constexpr auto bf16 = DataType::bf16;
constexpr auto f16 = DataType::f16;
constexpr auto f32 = DataType::f32;
constexpr auto i8 = DataType::i8;
constexpr auto fn = DataType::f8_e4m3fn;
constexpr auto fnuz = DataType::f8_e4m3fnuz;
constexpr auto f4 = DataType::f4_e2m1;

constexpr DataType wide[] = {bf16, f16, f32};
constexpr DataType half[] = {bf16, f16};
constexpr DataType only_bf16[] = {bf16};
constexpr DataType eight_bits[] = {i8, fn, fnuz};
constexpr DataType fp8[] = {fn, fnuz};
constexpr DataType only_fp4[] = {f4};
constexpr DataType only_i4[] = {DataType::i4};
constexpr DataType only_i8[] = {i8};
constexpr DataType moe_activations[] = {bf16, f16, i8, fn, fnuz, f4};
constexpr DataType moe_weights[] = {bf16, f16, i8, fn, fnuz, f4, DataType::i4, DataType::u8};

/// What operations on operands of 4 bits in tables of our own differ in.
struct FourBitOperand {
  Operation operation;
  std::string_view name;
  std::array<std::string_view, 4> aliases;
  std::string_view aiter_variable;
  std::span<const DataType> x_types;
  std::span<const DataType> w_types;
  bool y_as_x;
  QuantType quantization;
  std::optional<QuantType> w_quantization = std::nullopt;
};

constexpr OperationTraits four_bit_operand(const FourBitOperand& one) {
  return {.operation = one.operation,
          .name = one.name,
          .aliases = one.aliases,
          .aiter_variable = one.aiter_variable,
          .x_types = one.x_types,
          .w_types = one.w_types,
          .y_types = half,
          .y_as_x = one.y_as_x,
          .quantization = one.quantization,
          .w_quantization = one.w_quantization,
          .scale_ab = false,
          .bias = true,
          .batched = false,
          .mixture = false,
          .packing = Packing::optional,
          .packed_form = one.operation,
          .key_types = KeyTypes::all,
          .key_switches = true,
          .padding = Padding::two_levels,
          .fp8_by_default = false,
          .aiter_tolerance_by_type = false};
}

constexpr OperationTraits rows[] = {
    {.operation = Operation::a16w16,
     .name = "a16w16",
     .aliases = {"bf16", "gemm_bf16", "gemm_a16w16"},
     .aiter_variable = "AITER_CONFIG_GEMM_BF16",
     .x_types = wide,
     .w_types = {},
     .y_types = wide,
     .y_as_x = true,
     .quantization = QuantType::none,
     .scale_ab = true,
     .bias = true,
     .batched = false,
     .mixture = false,
     .packing = Packing::optional,
     .packed_form = Operation::a16w16,
     .key_types = KeyTypes::all,
     .key_switches = true,
     .padding = Padding::two_levels,
     .fp8_by_default = false,
     .aiter_tolerance_by_type = true},
    {.operation = Operation::a8w8,
     .name = "a8w8",
     .aliases = {"gemm_a8w8"},
     .aiter_variable = "AITER_CONFIG_GEMM_A8W8",
     .x_types = eight_bits,
     .w_types = {},
     .y_types = half,
     .y_as_x = false,
     .quantization = QuantType::per_token,
     .scale_ab = false,
     .bias = true,
     .batched = false,
     .mixture = false,
     .packing = Packing::never,
     .packed_form = Operation::a8w8_bpreshuffle,
     .key_types = KeyTypes::weight,
     .key_switches = false,
     .padding = Padding::two_levels,
     .fp8_by_default = false,
     .aiter_tolerance_by_type = false},
    {.operation = Operation::a8w8_bpreshuffle,
     .name = "a8w8_bpreshuffle",
     .aliases = {"gemm_a8w8_bpreshuffle", "bpreshuffle"},
     .aiter_variable = "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE",
     .x_types = eight_bits,
     .w_types = {},
     .y_types = half,
     .y_as_x = false,
     .quantization = QuantType::per_token,
     .scale_ab = false,
     .bias = true,
     .batched = false,
     .mixture = false,
     .packing = Packing::always,
     .packed_form = Operation::a8w8_bpreshuffle,
     .key_types = KeyTypes::weight,
     .key_switches = false,
     .padding = Padding::two_levels,
     .fp8_by_default = true,
     .aiter_tolerance_by_type = false},
    {.operation = Operation::a8w8_blockscale,
     .name = "a8w8_blockscale",
     .aliases = {"gemm_a8w8_blockscale", "blockscale"},
     .aiter_variable = "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE",
     .x_types = fp8,
     .w_types = {},
     .y_types = half,
     .y_as_x = false,
     .quantization = QuantType::per_1x128,
     .scale_ab = false,
     .bias = false,
     .batched = false,
     .mixture = false,
     .packing = Packing::never,
     .packed_form = Operation::a8w8_blockscale_bpreshuffle,
     .key_types = KeyTypes::none,
     .key_switches = false,
     .padding = Padding::two_levels,
     .fp8_by_default = true,
     .aiter_tolerance_by_type = false},
    {.operation = Operation::a8w8_blockscale_bpreshuffle,
     .name = "a8w8_blockscale_bpreshuffle",
     .aliases = {"gemm_a8w8_blockscale_bpreshuffle", "blockscale_bpreshuffle"},
     .aiter_variable = "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE",
     .x_types = fp8,
     .w_types = {},
     .y_types = half,
     .y_as_x = false,
     .quantization = QuantType::per_1x128,
     .scale_ab = false,
     .bias = false,
     .batched = false,
     .mixture = false,
     .packing = Packing::always,
     .packed_form = Operation::a8w8_blockscale_bpreshuffle,
     .key_types = KeyTypes::none,
     .key_switches = false,
     .padding = Padding::two_levels,
     .fp8_by_default = true,
     .aiter_tolerance_by_type = false},
    {.operation = Operation::a4w4_blockscale,
     .name = "a4w4_blockscale",
     .aliases = {"a4w4", "gemm_a4w4", "gemm_a4w4_blockscale"},
     .aiter_variable = "AITER_CONFIG_GEMM_A4W4",
     .x_types = only_fp4,
     .w_types = {},
     .y_types = half,
     .y_as_x = false,
     .quantization = QuantType::per_1x32,
     .scale_ab = false,
     .bias = false,
     .batched = false,
     .mixture = false,
     .packing = Packing::optional,
     .packed_form = Operation::a4w4_blockscale,
     .key_types = KeyTypes::none,
     .key_switches = false,
     .padding = Padding::two_levels,
     .fp8_by_default = false,
     .aiter_tolerance_by_type = false},
    {.operation = Operation::batched_bf16,
     .name = "batched_bf16",
     .aliases = {"batched_gemm_bf16", "bf16_batched"},
     .aiter_variable = "AITER_CONFIG_BF16_BATCHED_GEMM",
     .x_types = only_bf16,
     .w_types = {},
     .y_types = only_bf16,
     .y_as_x = true,
     .quantization = QuantType::none,
     .scale_ab = false,
     .bias = true,
     .batched = true,
     .mixture = false,
     .packing = Packing::optional,
     .packed_form = Operation::batched_bf16,
     .key_types = KeyTypes::none,
     .key_switches = false,
     .padding = Padding::none,
     .fp8_by_default = false,
     .aiter_tolerance_by_type = false},
    {.operation = Operation::batched_a8w8,
     .name = "batched_a8w8",
     .aliases = {"batched_gemm_a8w8", "a8w8_batched"},
     .aiter_variable = "AITER_CONFIG_A8W8_BATCHED_GEMM",
     .x_types = eight_bits,
     .w_types = {},
     .y_types = only_bf16,
     .y_as_x = false,
     .quantization = QuantType::per_token,
     .scale_ab = false,
     .bias = false,
     .batched = true,
     .mixture = false,
     .packing = Packing::optional,
     .packed_form = Operation::batched_a8w8,
     .key_types = KeyTypes::none,
     .key_switches = false,
     .padding = Padding::none,
     .fp8_by_default = false,
     .aiter_tolerance_by_type = false},
    {.operation = Operation::fused_moe,
     .name = "fused_moe",
     .aliases = {"fmoe", "moe"},
     .aiter_variable = "AITER_CONFIG_FMOE",
     .x_types = moe_activations,
     .w_types = moe_weights,
     .y_types = half,
     .y_as_x = false,
     .quantization = QuantType::none,
     .scale_ab = false,
     .bias = true,
     .batched = false,
     .mixture = true,
     .packing = Packing::optional,
     .packed_form = Operation::fused_moe,
     .key_types = KeyTypes::all,
     .key_switches = false,
     .padding = Padding::token_tiers,
     .fp8_by_default = false,
     .aiter_tolerance_by_type = false},
    four_bit_operand({.operation = Operation::a16w4,
                      .name = "a16w4",
                      .aliases = {"a16wfp4", "gemm_a16w4", "gemm_a16wfp4"},
                      .aiter_variable = "AITER_CONFIG_GEMM_A16W4",
                      .x_types = half,
                      .w_types = only_fp4,
                      .y_as_x = true,
                      .quantization = QuantType::none,
                      .w_quantization = QuantType::per_1x32}),
    four_bit_operand({.operation = Operation::a8w4,
                      .name = "a8w4",
                      .aliases = {"a8wfp4", "gemm_a8w4", "gemm_a8wfp4"},
                      .aiter_variable = "AITER_CONFIG_GEMM_A8W4",
                      .x_types = fp8,
                      .w_types = only_fp4,
                      .y_as_x = false,
                      .quantization = QuantType::per_token,
                      .w_quantization = QuantType::per_1x32}),
    four_bit_operand({.operation = Operation::a16w4_nvfp4,
                      .name = "a16w4_nvfp4",
                      .aliases = {"a16wnvfp4", "gemm_a16w4_nvfp4"},
                      .aiter_variable = "",
                      .x_types = half,
                      .w_types = only_fp4,
                      .y_as_x = true,
                      .quantization = QuantType::none,
                      .w_quantization = QuantType::per_1x16}),
    four_bit_operand({.operation = Operation::a8w4_nvfp4,
                      .name = "a8w4_nvfp4",
                      .aliases = {"a8wnvfp4", "gemm_a8w4_nvfp4"},
                      .aiter_variable = "",
                      .x_types = fp8,
                      .w_types = only_fp4,
                      .y_as_x = false,
                      .quantization = QuantType::per_token,
                      .w_quantization = QuantType::per_1x16}),
    four_bit_operand({.operation = Operation::a4w4_nvfp4,
                      .name = "a4w4_nvfp4",
                      .aliases = {"a4wnvfp4", "gemm_a4w4_nvfp4"},
                      .aiter_variable = "",
                      .x_types = only_fp4,
                      .w_types = {},
                      .y_as_x = false,
                      .quantization = QuantType::per_1x16}),
    four_bit_operand({.operation = Operation::a16w4_int4,
                      .name = "a16w4_int4",
                      .aliases = {"a16wint4", "gemm_a16w4_int4"},
                      .aiter_variable = "",
                      .x_types = half,
                      .w_types = only_i4,
                      .y_as_x = true,
                      .quantization = QuantType::none,
                      .w_quantization = QuantType::per_group}),
    four_bit_operand({.operation = Operation::a8w4_int4,
                      .name = "a8w4_int4",
                      .aliases = {"a8wint4", "gemm_a8w4_int4"},
                      .aiter_variable = "",
                      .x_types = only_i8,
                      .w_types = only_i4,
                      .y_as_x = false,
                      .quantization = QuantType::per_token,
                      .w_quantization = QuantType::per_group}),
};

constexpr bool in_order() {
  for (std::size_t index = 0; index < std::size(rows); ++index) {
    if (static_cast<std::size_t>(rows[index].operation) != index) return false;
  }
  return true;
}
static_assert(in_order(), "a row per operation, in the order of the enumeration");

}  // namespace

std::span<const Operation> all_operations() {
  static constexpr auto list = [] {
    std::array<Operation, std::size(rows)> operations{};
    for (std::size_t index = 0; index < std::size(rows); ++index) operations[index] = rows[index].operation;
    return operations;
  }();
  return list;
}

const OperationTraits& traits(Operation operation) { return rows[static_cast<std::size_t>(operation)]; }

DataType default_y_type(Operation operation, DataType x_type) {
  const OperationTraits& row = traits(operation);
  return row.y_as_x ? x_type : row.y_types.front();
}

std::string_view to_string(Operation operation) { return traits(operation).name; }

std::optional<Operation> parse_operation(std::string_view text) {
  std::string word = to_lower(trim(text));
  for (char& character : word) {
    if (character == '-') character = '_';
  }
  if (word.empty()) return std::nullopt;
  for (const OperationTraits& row : rows) {
    if (word == row.name) return row.operation;
    for (const std::string_view alias : row.aliases) {
      if (word == alias) return row.operation;
    }
  }
  return std::nullopt;
}

}  // namespace gemmtune
