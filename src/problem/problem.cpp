#include "problem/problem.h"

#include <fmt/format.h>

#include <array>
#include <functional>

#include "base/text.h"

namespace gemmtune {
namespace {

std::string_view order_letter(Order order) { return order == Order::row_major ? "T" : "N"; }

std::optional<Order> parse_order(std::string_view text) {
  if (text == "T") return Order::row_major;
  if (text == "N") return Order::column_major;
  return std::nullopt;
}

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

bool is_float_type(DataType type) {
  return type == DataType::f32 || type == DataType::f16 || type == DataType::bf16;
}

Status check_a16w16_types(const Problem& problem) {
  const bool fp8 = problem.x_type == DataType::f8_e4m3fn || problem.x_type == DataType::f8_e4m3fnuz;
  if (problem.scale_ab != fp8) {
    return Status::invalid("scaleAB = {} with x of {}: expected scaleAB with fp8 operands and only with them",
                           problem.scale_ab ? "True" : "False", to_string(problem.x_type));
  }
  if (!fp8 && !is_float_type(problem.x_type)) {
    return Status::invalid("dtype of x is {}, expected bf16, fp16 or fp32 for a16w16",
                           to_string(problem.x_type));
  }
  if (problem.w_type != problem.x_type) {
    return Status::invalid("dtype of w is {}, expected the type of x, {}", to_string(problem.w_type),
                           to_string(problem.x_type));
  }
  if (!is_float_type(problem.y_type)) {
    return Status::invalid("outdtype is {}, expected bf16, fp16 or fp32", to_string(problem.y_type));
  }
  return {};
}

Status check_layout(const Problem& problem) {
  const bool plain = problem.weight_layout == WeightLayout::plain;
  if (plain == !problem.bpreshuffle) return {};
  return Status::invalid("bpreshuffle = {} with weight layout {}: expected {}",
                         problem.bpreshuffle ? "True" : "False", to_string(problem.weight_layout),
                         problem.bpreshuffle ? "a packed layout" : "plain");
}

struct Field {
  std::string_view key;
  std::function<bool(Problem&, std::string_view)> read;
};

template <typename Value, typename Parse>
std::function<bool(Problem&, std::string_view)> reader(Value Problem::*member, Parse parse) {
  return [member, parse](Problem& problem, std::string_view text) {
    const auto value = parse(text);
    if (!value) return false;
    problem.*member = static_cast<Value>(*value);
    return true;
  };
}

const std::vector<Field>& fields() {
  static const std::vector<Field> list{
      {"m", reader(&Problem::m, parse_integer)},
      {"n", reader(&Problem::n, parse_integer)},
      {"k", reader(&Problem::k, parse_integer)},
      {"batch", reader(&Problem::batch, parse_integer)},
      {"x", reader(&Problem::x_type, parse_data_type)},
      {"w", reader(&Problem::w_type, parse_data_type)},
      {"y", reader(&Problem::y_type, parse_data_type)},
      {"bias", reader(&Problem::bias, parse_bool)},
      {"scale_ab", reader(&Problem::scale_ab, parse_bool)},
      {"layout", reader(&Problem::weight_layout, parse_weight_layout)},
      {"x_order", reader(&Problem::x_order, parse_order)},
      {"w_order", reader(&Problem::w_order, parse_order)},
      {"y_order", reader(&Problem::y_order, parse_order)},
      {"alignment", reader(&Problem::alignment, parse_integer)},
  };
  return list;
}

Status read_field(Problem& problem, std::string_view word) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) {
    return Status::invalid("problem text: '{}', expected key=value", word);
  }
  const auto key = word.substr(0, equals);
  for (const Field& field : fields()) {
    if (field.key != key) continue;
    if (field.read(problem, word.substr(equals + 1))) return {};
    return Status::invalid("problem text: {} has value '{}', which is none of its values", key,
                           word.substr(equals + 1));
  }
  return Status::invalid("problem text: unknown key '{}'", key);
}

}  // namespace

Status check(const Problem& problem) {
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("M", problem.m));
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("N", problem.n));
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("K", problem.k));
  GEMMTUNE_RETURN_IF_ERROR(check_dimension("batch", problem.batch));
  GEMMTUNE_RETURN_IF_ERROR(check_tensor("x", problem.x_type, {problem.batch, problem.m, problem.k}));
  GEMMTUNE_RETURN_IF_ERROR(check_tensor("w", problem.w_type, {problem.batch, problem.n, problem.k}));
  GEMMTUNE_RETURN_IF_ERROR(check_tensor("y", problem.y_type, {problem.batch, problem.m, problem.n}));
  if (problem.alignment < 1 || (problem.alignment & (problem.alignment - 1)) != 0) {
    return Status::invalid("alignment = {}, expected a power of two of bytes", problem.alignment);
  }
  if (problem.operation != Operation::a16w16) {
    return Status::unsupported("operation {} comes with a later version; this one runs a16w16",
                               to_string(problem.operation));
  }
  GEMMTUNE_RETURN_IF_ERROR(check_a16w16_types(problem));
  return check_layout(problem);
}

std::string print(const Problem& problem) {
  std::string text =
      fmt::format("{} m={} n={} k={} x={} w={} y={} bias={} scale_ab={} layout={}",
                  to_string(problem.operation), problem.m, problem.n, problem.k, to_string(problem.x_type),
                  to_string(problem.w_type), to_string(problem.y_type), problem.bias ? 1 : 0,
                  problem.scale_ab ? 1 : 0, to_string(problem.weight_layout));
  const Problem plain;
  if (problem.batch != plain.batch) text += fmt::format(" batch={}", problem.batch);
  if (problem.x_order != plain.x_order) text += fmt::format(" x_order={}", order_letter(problem.x_order));
  if (problem.w_order != plain.w_order) text += fmt::format(" w_order={}", order_letter(problem.w_order));
  if (problem.y_order != plain.y_order) text += fmt::format(" y_order={}", order_letter(problem.y_order));
  if (problem.alignment != plain.alignment) text += fmt::format(" alignment={}", problem.alignment);
  return text;
}

Result<Problem> parse_problem(std::string_view text) {
  Problem problem;
  bool first = true;
  for (const std::string_view word : split(trim(text), ' ')) {
    if (word.empty()) continue;
    if (first) {
      const auto operation = parse_operation(word);
      if (!operation) return Status::invalid("problem text: '{}' is no operation", word);
      problem.operation = *operation;
      first = false;
      continue;
    }
    GEMMTUNE_RETURN_IF_ERROR(read_field(problem, word));
  }
  if (first) return Status::invalid("problem text: empty, expected an operation and key=value words");
  problem.bpreshuffle = problem.weight_layout != WeightLayout::plain;
  return problem;
}

std::string short_name(const Problem& problem) {
  std::string text = fmt::format("{}x{}x{} {}", problem.m, problem.n, problem.k, to_string(problem.x_type));
  if (problem.operation != Operation::a16w16) text = fmt::format("{} {}", to_string(problem.operation), text);
  if (problem.y_type != problem.x_type) text += fmt::format("→{}", to_string(problem.y_type));
  if (problem.bias) text += "+bias";
  if (problem.bpreshuffle) text += " packed";
  return text;
}

double flops(const Problem& problem) {
  return 2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) *
         static_cast<double>(problem.k) * static_cast<double>(problem.batch);
}

double bytes(const Problem& problem) {
  const auto m = static_cast<double>(problem.m);
  const auto n = static_cast<double>(problem.n);
  const auto k = static_cast<double>(problem.k);
  return static_cast<double>(problem.batch) *
         (m * k * bits(problem.x_type) + n * k * bits(problem.w_type) + m * n * bits(problem.y_type)) / 8;
}

std::int64_t weight_bytes(const Problem& problem) {
  return bytes_of(problem.w_type, problem.batch * problem.n * problem.k);
}

}  // namespace gemmtune
