#include "problem/operation.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

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

/// Of operands of 4 bits in tables of our own.
constexpr OperationTraits four_bit_operand(OperationTraits row) {
  row.y_types = half;
  row.bias = true;
  row.key_types = KeyTypes::all;
  row.key_switches = true;
  return row;
}

constexpr OperationTraits rows[] = {
    {.operation = Operation::a16w16,
     .names = {"a16w16", {"bf16", "gemm_bf16", "gemm_a16w16"}, "AITER_CONFIG_GEMM_BF16"},
     .x_types = wide,
     .y_types = wide,
     .y_as_x = true,
     .quantization = QuantType::none,
     .scale_ab = true,
     .bias = true,
     .key_types = KeyTypes::all,
     .key_switches = true,
     .aiter_tolerance_by_type = true},
    {.operation = Operation::a8w8,
     .names = {"a8w8", {"gemm_a8w8"}, "AITER_CONFIG_GEMM_A8W8"},
     .packed_names = {"a8w8_bpreshuffle",
                      {"gemm_a8w8_bpreshuffle", "bpreshuffle"},
                      "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE"},
     .x_types = eight_bits,
     .y_types = half,
     .quantization = QuantType::per_token,
     .bias = true,
     .key_types = KeyTypes::weight},
    {.operation = Operation::a8w8_blockscale,
     .names = {"a8w8_blockscale",
               {"gemm_a8w8_blockscale", "blockscale"},
               "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE"},
     .packed_names = {"a8w8_blockscale_bpreshuffle",
                      {"gemm_a8w8_blockscale_bpreshuffle", "blockscale_bpreshuffle"},
                      "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE_BPRESHUFFLE"},
     .x_types = fp8,
     .y_types = half,
     .quantization = QuantType::per_1x128},
    {.operation = Operation::a4w4_blockscale,
     .names = {"a4w4_blockscale", {"a4w4", "gemm_a4w4", "gemm_a4w4_blockscale"}, "AITER_CONFIG_GEMM_A4W4"},
     .x_types = only_fp4,
     .y_types = half,
     .quantization = QuantType::per_1x32},
    {.operation = Operation::batched_bf16,
     .names = {"batched_bf16", {"batched_gemm_bf16", "bf16_batched"}, "AITER_CONFIG_BF16_BATCHED_GEMM"},
     .x_types = only_bf16,
     .y_types = only_bf16,
     .y_as_x = true,
     .quantization = QuantType::none,
     .bias = true,
     .batched = true,
     .padding = Padding::none},
    {.operation = Operation::batched_a8w8,
     .names = {"batched_a8w8", {"batched_gemm_a8w8", "a8w8_batched"}, "AITER_CONFIG_A8W8_BATCHED_GEMM"},
     .x_types = eight_bits,
     .y_types = only_bf16,
     .quantization = QuantType::per_token,
     .batched = true,
     .padding = Padding::none},
    {.operation = Operation::fused_moe,
     .names = {"fused_moe", {"fmoe", "moe"}, "AITER_CONFIG_FMOE"},
     .x_types = moe_activations,
     .w_types = moe_weights,
     .y_types = half,
     .quantization = QuantType::none,
     .bias = true,
     .mixture = true,
     .key_types = KeyTypes::all,
     .padding = Padding::token_tiers},
    four_bit_operand(
        {.operation = Operation::a16w4,
         .names = {"a16w4", {"a16wfp4", "gemm_a16w4", "gemm_a16wfp4"}, "AITER_CONFIG_GEMM_A16W4"},
         .x_types = half,
         .w_types = only_fp4,
         .y_as_x = true,
         .quantization = QuantType::none,
         .w_quantization = QuantType::per_1x32}),
    four_bit_operand({.operation = Operation::a8w4,
                      .names = {"a8w4", {"a8wfp4", "gemm_a8w4", "gemm_a8wfp4"}, "AITER_CONFIG_GEMM_A8W4"},
                      .x_types = fp8,
                      .w_types = only_fp4,
                      .quantization = QuantType::per_token,
                      .w_quantization = QuantType::per_1x32}),
    four_bit_operand({.operation = Operation::a16w4_nvfp4,
                      .names = {"a16w4_nvfp4", {"a16wnvfp4", "gemm_a16w4_nvfp4"}, ""},
                      .x_types = half,
                      .w_types = only_fp4,
                      .y_as_x = true,
                      .quantization = QuantType::none,
                      .w_quantization = QuantType::per_1x16}),
    four_bit_operand({.operation = Operation::a8w4_nvfp4,
                      .names = {"a8w4_nvfp4", {"a8wnvfp4", "gemm_a8w4_nvfp4"}, ""},
                      .x_types = fp8,
                      .w_types = only_fp4,
                      .quantization = QuantType::per_token,
                      .w_quantization = QuantType::per_1x16}),
    four_bit_operand({.operation = Operation::a4w4_nvfp4,
                      .names = {"a4w4_nvfp4", {"a4wnvfp4", "gemm_a4w4_nvfp4"}, ""},
                      .x_types = only_fp4,
                      .quantization = QuantType::per_1x16}),
    four_bit_operand({.operation = Operation::a16w4_int4,
                      .names = {"a16w4_int4", {"a16wint4", "gemm_a16w4_int4"}, ""},
                      .x_types = half,
                      .w_types = only_i4,
                      .y_as_x = true,
                      .quantization = QuantType::none,
                      .w_quantization = QuantType::per_group}),
    four_bit_operand({.operation = Operation::a8w4_int4,
                      .names = {"a8w4_int4", {"a8wint4", "gemm_a8w4_int4"}, ""},
                      .x_types = only_i8,
                      .w_types = only_i4,
                      .quantization = QuantType::per_token,
                      .w_quantization = QuantType::per_group}),
};

constexpr bool in_order() {
  for (std::size_t index = 0; index < std::size(rows); ++index) {
    if (static_cast<std::size_t>(rows[index].operation) != index) return false;
    if (rows[index].packed_names.name.empty() == has_packed_form(rows[index].operation)) return false;
  }
  return true;
}
static_assert(in_order(), "a row per operation, in the order of the enumeration, with names for each form");

}  // namespace

const OperationTraits& traits(Operation operation) { return rows[static_cast<std::size_t>(operation)]; }

DataType default_y_type(Operation operation, DataType x_type) {
  const OperationTraits& row = traits(operation);
  return row.y_as_x ? x_type : row.y_types.front();
}

std::span<const OperationForm> all_operation_forms() {
  static const std::vector<OperationForm> list = [] {
    std::vector<OperationForm> forms;
    for (const OperationTraits& row : rows) {
      forms.emplace_back(row.operation, false);
      if (has_packed_form(row.operation)) forms.emplace_back(row.operation, true);
    }
    return forms;
  }();
  return list;
}

const OperationNames& names_of(OperationForm form) {
  const OperationTraits& row = traits(form.operation);
  return form.packed ? row.packed_names : row.names;
}

std::string_view to_string(OperationForm form) { return names_of(form).name; }

std::optional<OperationForm> parse_operation(std::string_view text) {
  std::string word = to_lower(trim(text));
  for (char& character : word) {
    if (character == '-') character = '_';
  }
  if (word.empty()) return std::nullopt;
  for (const OperationForm form : all_operation_forms()) {
    const OperationNames& names = names_of(form);
    if (word == names.name || std::ranges::find(names.aliases, word) != names.aliases.end()) return form;
  }
  return std::nullopt;
}

}  // namespace gemmtune
