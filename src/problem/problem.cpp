#include "problem/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/text.h"
#include "problem/operands.h"

namespace gemmtune {
namespace {

Status check_dimension(std::string_view name, std::int64_t value) {
  if (value >= 1 && value <= max_dimension) return {};
  return Status::invalid("{} = {}, expected a whole number from 1 to {}", name, value, max_dimension);
}

Status check_tensor(std::string_view name, DataType type, const std::array<std::int64_t, 3>& sizes) {
  // 128-bit: three dimensions below 2³¹ overflow 64 bits.
  __extension__ using Wide = unsigned __int128;
  const Wide elements =
      static_cast<Wide>(sizes[0]) * static_cast<Wide>(sizes[1]) * static_cast<Wide>(sizes[2]);
  if (elements * static_cast<unsigned>(bits(type)) / 8 <= static_cast<Wide>(max_tensor_bytes)) return {};
  return Status::invalid("{} of {} x {} x {} elements of {} is larger than 2^47 bytes", name, sizes[0],
                         sizes[1], sizes[2], to_string(type));
}

Status check_type(std::string_view what, DataType type, std::span<const DataType> expected) {
  for (const DataType allowed : expected) {
    if (type == allowed) return {};
  }
  const std::string names = joined(expected, ", ", enumerator_name);
  return Status::invalid("{} is {}, expected one of {}", what, to_string(type), names);
}

/// The types that x may have: with scaleAB fp8 and nothing else.
Status check_x_type(const Problem& problem, const OperationTraits& operation) {
  if (operation.scale_ab && problem.scale_ab != traits(problem.x_type).fp8) {
    return Status::invalid("scaleAB = {} with x of {}: expected scaleAB with fp8 operands and only with them",
                           problem.scale_ab ? "True" : "False", to_string(problem.x_type));
  }
  if (problem.scale_ab) return {};
  return check_type("dtype of x", problem.x_type, operation.x_types);
}

Status check_w_type(const Problem& problem, const OperationTraits& operation) {
  if (!operation.w_types.empty()) return check_type("dtype of w", problem.w_type, operation.w_types);
  if (problem.w_type == problem.x_type) return {};
  return Status::invalid("dtype of w is {}, expected the type of x, {}", to_string(problem.w_type),
                         to_string(problem.x_type));
}

bool is_weight_group(std::int32_t group) {
  return std::find(weight_groups.begin(), weight_groups.end(), group) != weight_groups.end();
}

Status check_groups(const Problem& problem) {
  if (!has_weight_groups(problem)) {
    if (problem.w_group == 0 && !problem.zero_points) return {};
    return Status::invalid("group = {}, zero_points = {}: expected both with int4 weights only, not {}{}",
                           problem.w_group, problem.zero_points ? "True" : "False",
                           to_string(form_of(problem)),
                           is_mixture(problem) ? " without q_type = per_group" : "");
  }
  if (is_weight_group(problem.w_group) || problem.w_group == problem.k) return {};
  return Status::invalid("group = {}, expected {} or row", problem.w_group, fmt::join(weight_groups, ", "));
}

/// Elements of 4 bits come in blocks along k, which share scales or begin at whole words: of both GEMMs of a mixture.
Status check_blocks(const Problem& problem) {
  const std::int64_t multiple = k_multiple(problem);
  if (is_mixture(problem) && (problem.k % multiple != 0 || problem.n % multiple != 0)) {
    return Status::invalid(
        "model_dim = {}, inter_dim = {}, expected multiples of {} for elements of 4 bits{}", problem.k,
        problem.n, multiple, has_weight_groups(problem) ? " in groups of " + group_text(problem) : "");
  }
  if (problem.k % multiple == 0) return {};
  return Status::invalid("K = {}, expected a multiple of {} for elements of 4 bits", problem.k, multiple);
}

Status check_types(const Problem& problem) {
  const OperationTraits& operation = traits(problem.operation);
  GEMMTUNE_RETURN_IF_ERROR(check_w_type(problem, operation));
  GEMMTUNE_RETURN_IF_ERROR(check_x_type(problem, operation));
  GEMMTUNE_RETURN_IF_ERROR(check_type("dtype of y", problem.y_type, operation.y_types));
  GEMMTUNE_RETURN_IF_ERROR(check_groups(problem));
  return check_blocks(problem);
}

/// A mixture's quantization that is a format of weights alone has weights of its type, and x of 16 bits.
Status check_weights_alone(const Problem& problem) {
  const QuantType type = problem.moe.quant_type;
  for (const OperationForm dense : all_operation_forms()) {
    // The dense operation on such weights that leaves x as it is.
    const OperationTraits& format = traits(dense.operation);
    const bool same = format.w_quantization == type && format.quantization == QuantType::none;
    if (!is_of_weights_alone(type) || !same) continue;
    const std::string_view q_type = to_string(type);
    GEMMTUNE_RETURN_IF_ERROR(
        check_type(fmt::format("dtype of w with q_type = {}", q_type), problem.w_type, format.w_types));
    return check_type(fmt::format("dtype of x with q_type = {}", q_type), problem.x_type, format.x_types);
  }
  // A row of a table that says so means groups of 32.
  if (type == QuantType::per_1x32 && problem.w_type == DataType::i4 && bits(problem.x_type) == 16)
    return Status::invalid("q_type = per_1x32 with w of i4 and x of {}, expected per_group with group = 32",
                           to_string(problem.x_type));
  return {};
}

/// Experts, and the weights of all of them.
Status check_mixture(const Problem& problem) {
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("experts", problem.moe.experts));
  if (problem.moe.topk < 1 || problem.moe.topk > problem.moe.experts) {
    return Status::invalid("topk = {}, expected a whole number from 1 to the {} experts", problem.moe.topk,
                           problem.moe.experts);
  }
  if (problem.moe.shared_experts < 0 || problem.moe.shared_experts >= problem.moe.topk) {
    return Status::invalid(
        "shared_experts = {}, expected a whole number from 0 to {}: topk {} counts them too",
        problem.moe.shared_experts, problem.moe.topk - 1, problem.moe.topk);
  }
  GEMMTUNE_RETURN_IF_ERROR(check_weights_alone(problem));
  // Numbers of 32 bits.
  if (problem.bias)
    GEMMTUNE_RETURN_IF_ERROR(
        check_tensor("bias1 and bias2", DataType::f32, {problem.moe.experts, 1, 2 * problem.n + problem.k}));
  GEMMTUNE_RETURN_IF_ERROR(check_tensor("topk_ids", DataType::f32, {1, problem.m, problem.moe.topk}));
  return check_tensor("w1 and w2", problem.w_type,
                      {std::int64_t{3} * problem.moe.experts, problem.n, problem.k});
}

/// What an operation does not have must be at its default: it would be ignored, or reach no row.
Status check_unused(const Problem& problem) {
  const OperationTraits& operation = traits(problem.operation);
  const std::string_view name = to_string(form_of(problem));
  if (!operation.batched && problem.batch != 1) {
    return Status::invalid("batch = {}, expected 1 for {}", problem.batch, name);
  }
  if (!operation.scale_ab && problem.scale_ab) {
    return Status::invalid("scaleAB = True, expected it with a16w16 only, not {}", name);
  }
  if (operation.quantization != QuantType::per_1x128 && problem.e8m0_scales) {
    return Status::invalid("scale_fmt = ue8m0, expected it with a8w8_blockscale only, not {}", name);
  }
  if (!operation.bias && problem.bias) {
    return Status::invalid("bias = True, expected none with {}", name);
  }
  // Where the key does not hold the orders, rows of another order would answer; elements that share a byte have none.
  if ((!operation.key_switches || bits(problem.w_type) == 4) && !all_row_major(problem)) {
    return Status::invalid("x_order or w_order is N: expected column-major operands with a16w16 only, not {}",
                           name);
  }
  if (!operation.mixture && problem.moe != MoeShape()) {
    return Status::invalid("experts = {}: expected nothing of a mixture of experts with {}",
                           problem.moe.experts, name);
  }
  return {};
}

Status check_layout(const Problem& problem) {
  if (!is_packed(problem) || problem.w_order == Order::row_major) return {};
  return Status::invalid("w_order = N with weight layout {}: expected T, a packed weight has no order",
                         to_string(problem.weight_layout));
}

struct Field {
  std::string_view key;
  std::function<bool(Problem&, std::string_view text, std::string_view architecture)> read;
};

/// False where the value does not fit its member.
template <typename Value, typename Parsed>
bool assign(Value& member, const Parsed& value) {
  member = static_cast<Value>(value);
  return static_cast<Parsed>(member) == value;
}

template <typename Value, typename Parse>
auto reader(Value Problem::*member, Parse parse) {
  return [member, parse](Problem& problem, std::string_view text, std::string_view) {
    const auto value = parse(text);
    return value && assign(problem.*member, *value);
  };
}

auto type_reader(DataType Problem::*member) {
  return [member](Problem& problem, std::string_view text, std::string_view architecture) {
    const auto type = data_type_on(architecture, text);
    return type && assign(problem.*member, *type);
  };
}

template <typename Value, typename Parse>
auto moe_reader(Value MoeShape::*member, Parse parse) {
  return [member, parse](Problem& problem, std::string_view text, std::string_view) {
    const auto value = parse(text);
    return value && assign(problem.moe.*member, *value);
  };
}

const std::vector<Field>& fields() {
  static const std::vector<Field> list{
      {"m", reader(&Problem::m, parse_integer)},
      {"n", reader(&Problem::n, parse_integer)},
      {"k", reader(&Problem::k, parse_integer)},
      {"batch", reader(&Problem::batch, parse_integer)},
      {"x", type_reader(&Problem::x_type)},
      {"w", type_reader(&Problem::w_type)},
      {"y", type_reader(&Problem::y_type)},
      {"bias", reader(&Problem::bias, parse_bool)},
      {"scale_ab", reader(&Problem::scale_ab, parse_bool)},
      {"e8m0_scales", reader(&Problem::e8m0_scales, parse_bool)},
      {"layout", reader(&Problem::weight_layout, parse_weight_layout)},
      {"x_order", reader(&Problem::x_order, parse_order)},
      {"w_order", reader(&Problem::w_order, parse_order)},
      {"alignment", reader(&Problem::alignment, parse_integer)},
      {"group",
       [](Problem& problem, std::string_view text, std::string_view) { return parse_group(text, problem); }},
      {"zero_points", reader(&Problem::zero_points, parse_bool)},
      {"experts", moe_reader(&MoeShape::experts, parse_integer)},
      {"topk", moe_reader(&MoeShape::topk, parse_integer)},
      {"shared_experts", moe_reader(&MoeShape::shared_experts, parse_integer)},
      {"act", moe_reader(&MoeShape::activation, parse_activation)},
      {"quant", moe_reader(&MoeShape::quant_type, parse_quant_type)},
      {"gated", moe_reader(&MoeShape::gated, parse_bool)},
      {"doweight_stage1", moe_reader(&MoeShape::doweight_stage1, parse_bool)},
  };
  return list;
}

Status read_field(Problem& problem, std::string_view word, std::string_view architecture) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) {
    return Status::invalid("problem text: '{}', expected key=value", word);
  }
  const auto key = word.substr(0, equals);
  for (const Field& field : fields()) {
    if (field.key != key) continue;
    if (field.read(problem, word.substr(equals + 1), architecture)) return {};
    return Status::invalid("problem text: {} has value '{}', which is none of its values", key,
                           word.substr(equals + 1));
  }
  return Status::invalid("problem text: unknown key '{}'", key);
}

}  // namespace

std::string_view to_string(Order order) { return order == Order::row_major ? "T" : "N"; }

std::optional<Order> parse_order(std::string_view text) {
  if (text == "T") return Order::row_major;
  if (text == "N") return Order::column_major;
  return std::nullopt;
}

Status check(const Problem& problem) {
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("M", problem.m));
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("N", problem.n));
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("K", problem.k));
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("batch", problem.batch));
  GEMMTUNE_RETURN_IF_ERROR(check_tensor("x", problem.x_type, {problem.batch, problem.m, problem.k}));
  GEMMTUNE_RETURN_IF_ERROR(check_tensor("w", problem.w_type, {problem.batch, problem.n, problem.k}));
  GEMMTUNE_RETURN_IF_ERROR(
      check_tensor("y", problem.y_type, {problem.batch, problem.m, output_columns(problem)}));
  if (problem.alignment < 1 || (problem.alignment & (problem.alignment - 1)) != 0) {
    return Status::invalid("alignment = {}, expected a power of two of bytes", problem.alignment);
  }
  if (is_mixture(problem)) GEMMTUNE_RETURN_IF_ERROR(check_mixture(problem));
  GEMMTUNE_RETURN_IF_ERROR(check_types(problem));
  GEMMTUNE_RETURN_IF_ERROR(check_unused(problem));
  return check_layout(problem);
}

Status check_form(OperationForm form, const Problem& problem) {
  if (form == form_of(problem)) return {};
  return Status::invalid("weight layout {}: expected {} for {}", to_string(problem.weight_layout),
                         form.packed ? "a packed one" : "plain", to_string(form));
}

Problem default_problem(OperationForm form) {
  const OperationTraits& row = traits(form.operation);
  Problem problem;
  problem.operation = form.operation;
  problem.x_type = row.x_types.front();
  problem.w_type = row.w_types.empty() ? problem.x_type : row.w_types.front();
  problem.y_type = row.y_types.front();
  if (row.mixture) {
    problem.moe.activation = Activation::silu;
    problem.moe.gated = true;
  }
  if (has_weight_groups(problem)) problem.w_group = default_weight_group;
  if (form.packed) problem.weight_layout = WeightLayout::any;
  return problem;
}

Problem default_problem(OperationForm form, std::string_view architecture) {
  Problem problem = default_problem(form);
  for (DataType* type : {&problem.x_type, &problem.w_type})
    if (traits(*type).fp8) *type = device_fp8(architecture);
  return problem;
}

QuantType quantization(const Problem& problem) {
  const OperationTraits& operation = traits(problem.operation);
  if (operation.mixture) return problem.moe.quant_type;
  return problem.scale_ab ? QuantType::per_tensor : operation.quantization;
}

QuantType weight_quantization(const Problem& problem) {
  const QuantType type = quantization(problem);
  // fp4 experts are MXFP4, however their tokens are quantized, or NVFP4.
  if (is_mixture(problem) && problem.w_type == DataType::f4_e2m1 && type != QuantType::per_1x16)
    return QuantType::per_1x32;
  return traits(problem.operation).w_quantization.value_or(type);
}

bool has_whole_rows(const Problem& problem) {
  return has_weight_groups(problem) && problem.w_group == problem.k && !is_weight_group(problem.w_group);
}

std::string group_text(const Problem& problem) {
  return has_whole_rows(problem) ? "row" : std::to_string(problem.w_group);
}

bool parse_group(std::string_view text, Problem& problem) {
  if (text == "row") return problem.k > 0 && assign(problem.w_group, problem.k);
  const auto number = parse_integer(text);
  return number && *number > 0 && assign(problem.w_group, *number);
}

std::string print(const Problem& problem) {
  std::string text =
      fmt::format("{} m={} n={} k={} x={} w={} y={} bias={} scale_ab={} layout={}",
                  to_string(form_of(problem)), problem.m, problem.n, problem.k, to_string(problem.x_type),
                  to_string(problem.w_type), to_string(problem.y_type), problem.bias ? 1 : 0,
                  problem.scale_ab ? 1 : 0, to_string(problem.weight_layout));
  const Problem plain;
  if (problem.batch != plain.batch) text += fmt::format(" batch={}", problem.batch);
  if (problem.e8m0_scales) text += " e8m0_scales=1";
  if (problem.x_order != plain.x_order) text += fmt::format(" x_order={}", to_string(problem.x_order));
  if (problem.w_order != plain.w_order) text += fmt::format(" w_order={}", to_string(problem.w_order));
  if (problem.alignment != plain.alignment) text += fmt::format(" alignment={}", problem.alignment);
  if (problem.w_group != plain.w_group) text += fmt::format(" group={}", group_text(problem));
  if (problem.zero_points) text += " zero_points=1";
  if (is_mixture(problem)) {
    const MoeShape& moe = problem.moe;
    text += fmt::format(" experts={} topk={} act={} quant={} gated={} doweight_stage1={}", moe.experts,
                        moe.topk, to_string(moe.activation), to_string(moe.quant_type), moe.gated ? 1 : 0,
                        moe.doweight_stage1 ? 1 : 0);
    if (moe.shared_experts != 0) text += fmt::format(" shared_experts={}", moe.shared_experts);
  }
  return text;
}

Result<Problem> parse_problem(std::string_view text) { return parse_problem(text, {}); }

Result<Problem> parse_problem(std::string_view text, std::string_view architecture) {
  Problem problem;
  std::optional<OperationForm> form;
  for (const std::string_view word : split(trim(text), ' ')) {
    if (word.empty()) continue;
    if (!form) {
      form = parse_operation(word);
      if (!form) return Status::invalid("problem text: '{}' is no operation", word);
      problem.operation = form->operation;
      continue;
    }
    GEMMTUNE_RETURN_IF_ERROR(read_field(problem, word, architecture));
  }
  if (!form) return Status::invalid("problem text: empty, expected an operation and key=value words");
  GEMMTUNE_RETURN_IF_ERROR(check_form(*form, problem));
  return problem;
}

std::string short_name(const Problem& problem) {
  std::string text = fmt::format("{}x{}x{} {}", problem.m, problem.n, problem.k, to_string(problem.x_type));
  if (problem.operation != Operation::a16w16) text = fmt::format("{} {}", to_string(form_of(problem)), text);
  if (problem.batch != 1) text = fmt::format("{} batch {}", text, problem.batch);
  if (is_mixture(problem)) {
    text += fmt::format("·{} {} experts top {}", to_string(problem.w_type), problem.moe.experts,
                        problem.moe.topk);
    if (problem.moe.shared_experts > 0) text += fmt::format(" ({} shared)", problem.moe.shared_experts);
    if (problem.moe.quant_type == QuantType::per_1x16) text += " NVFP4";
  }
  if (problem.y_type != problem.x_type) text += fmt::format("→{}", to_string(problem.y_type));
  if (problem.x_order == Order::column_major) text += " x:N";
  if (problem.w_order == Order::column_major) text += " w:N";
  if (problem.e8m0_scales) text += " ue8m0";
  if (problem.w_group != 0) text += fmt::format(" g{}", group_text(problem));
  if (problem.zero_points) text += " zp";
  if (problem.bias) text += "+bias";
  if (is_packed(problem)) text += " packed";
  return text;
}

double flops(const Problem& problem) {
  const double one_gemm =
      2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) * static_cast<double>(problem.k);
  if (!is_mixture(problem)) return one_gemm * static_cast<double>(problem.batch);
  return one_gemm * problem.moe.topk * (problem.moe.gated ? 3 : 2);
}

double bytes(const Problem& problem) {
  const auto m = static_cast<double>(problem.m);
  const auto n = static_cast<double>(problem.n);
  const auto k = static_cast<double>(problem.k);
  if (is_mixture(problem)) {
    return m * k * (bits(problem.x_type) + bits(problem.y_type)) / 8 +
           static_cast<double>(weight_bytes(problem));
  }
  return static_cast<double>(problem.batch) *
         (m * k * bits(problem.x_type) + n * k * bits(problem.w_type) + m * n * bits(problem.y_type)) / 8;
}

std::int64_t weight_bytes(const Problem& problem) {
  if (is_mixture(problem)) {
    return bytes_of(problem.w_type,
                    problem.moe.experts * problem.n * problem.k * (problem.moe.gated ? 3 : 2));
  }
  return bytes_of(problem.w_type, problem.batch * problem.n * problem.k);
}

}  // namespace gemmtune
