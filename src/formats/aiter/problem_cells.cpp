#include "formats/aiter/problem_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "tuned/entry.h"

namespace gemmtune {

namespace {

/// Words that may name a type: torch.uint32, nvfp4_bf16. Cells of other columns, which a short row shifts here,
/// are none: True, 0.5, QuantType.per_1x32.
bool is_type_word(std::string_view word) {
  for (const std::string_view prefix : {"torch.", "dtypes."}) {
    if (word.starts_with(prefix)) word.remove_prefix(prefix.size());
  }
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !word.empty() && is_letter(word.front()) && std::ranges::any_of(word, is_digit) &&
         std::ranges::all_of(word, [&](char c) { return is_letter(c) || is_digit(c) || c == '_'; });
}

}  // namespace

struct ProblemReader::Row {
  const Columns& columns;
  const CsvCells& cells;
  std::size_t line;
  Diagnostics* diagnostics;
  std::string* unknown_types;
  bool good = true;

  std::string_view cell(Column column) const { return columns.cell(cells, column); }
  void bad(Column column, std::string_view expected) {
    if (good && diagnostics != nullptr) diagnostics->cell(line, columns.name(column), cell(column), expected);
    good = false;
  }
  std::int64_t dimension(Column column, std::int64_t most = max_dimension) {
    const auto value = parse_integer(cell(column));
    if (value && *value >= 1 && *value <= most) return *value;
    bad(column, fmt::format("a whole number from 1 to {}", most));
    return 0;
  }
  std::int64_t count(Column column, std::int64_t most) {
    const auto value = parse_integer(cell(column));
    if (value && *value >= 0 && *value <= most) return *value;
    bad(column, fmt::format("a whole number from 0 to {}", most));
    return 0;
  }
  bool flag(Column column) {
    // The two spellings of all but every file, without the detour.
    if (cell(column) == python_bool(false)) return false;
    if (cell(column) == python_bool(true)) return true;
    if (is_missing(cell(column))) return false;
    const auto value = parse_bool(cell(column));
    if (value) return *value;
    // A bool column with a missing cell becomes 1.0 and 0.0 in pandas.
    const auto number = parse_integer(cell(column));
    if (number && (*number == 0 || *number == 1)) return *number == 1;
    bad(column, "True or False");
    return false;
  }
  /// One of AITER's enumerations; what `value` holds stays where the cell is missing.
  template <typename Value>
  void word(Column column, std::optional<Value> (*parse)(std::string_view), std::string_view expected,
            Value& value) {
    if (is_missing(cell(column))) return;
    const auto parsed = parse(cell(column));
    if (!parsed) return bad(column, expected);
    value = *parsed;
  }
};

bool is_missing(std::string_view cell) {
  static constexpr std::array<std::string_view, 8> words{"Null", "NULL", "null", "NA",
                                                         "NaN",  "nan",  "None", "<NA>"};
  if (cell.empty()) return true;
  if (cell.front() != 'N' && cell.front() != 'n' && cell.front() != '<') return false;
  for (const std::string_view word : words) {
    if (cell == word) return true;
  }
  return false;
}

bool split_row(const CsvLine& line, const Columns& columns, CsvCells& cells, Diagnostics& diagnostics) {
  if (is_blank_or_comment(line.text)) return false;
  if (!cells.split(line.text)) {
    diagnostics.row(line.number, unclosed_quote);
    return false;
  }
  bool empty = true;
  for (std::size_t index = 0; index < cells.size(); ++index) empty = empty && cells[index].empty();
  if (empty) return false;
  if (cells.size() > columns.width()) {
    diagnostics.row(line.number,
                    fmt::format("{} cells, expected at most the header's {}", cells.size(), columns.width()));
    return false;
  }
  return true;
}

/// The row's, else the one that AITER takes for its compute units, else the caller's.
std::string_view ProblemReader::architecture_of(const Row& row) const {
  const std::string_view gfx = row.cell(Column::gfx);
  if (!is_missing(gfx)) return gfx;
  const auto cu_num = parse_integer(row.cell(Column::cu_num));
  return cu_num ? gfx_of_cu_num(static_cast<int>(*cu_num)) : std::string_view(overrides_.architecture);
}

std::optional<DataType> ProblemReader::type_of(std::string_view architecture, std::string_view text) {
  const DataType fp8 = device_fp8(architecture);
  if (text != last_text_ || last_text_.empty() || fp8 != last_fp8_) {
    last_text_ = text;
    last_fp8_ = fp8;
    last_type_ = data_type_on(architecture, text);
  }
  return last_type_;
}

bool ProblemReader::read_type(Row& row, Column column, DataType& type) {
  if (const auto read = type_of(architecture_of(row), row.cell(column))) {
    type = *read;
    return true;
  }
  if (row.unknown_types != nullptr && is_type_word(row.cell(column))) {
    if (!row.unknown_types->empty()) *row.unknown_types += ' ';
    *row.unknown_types += fmt::format("{}={}", columns_.schema().column_name(column), row.cell(column));
    return true;
  }
  row.bad(column, "a type such as torch.bfloat16, bf16, fp16 or fp32");
  return false;
}

void ProblemReader::read_dense_types(Row& row, Problem& problem) {
  problem.bias = row.flag(Column::bias);
  problem.scale_ab = row.flag(Column::scale_ab);
  if (row.flag(Column::bpreshuffle)) problem.weight_layout = WeightLayout::any;
  if (overrides_.x_type) {
    problem.x_type = *overrides_.x_type;
  } else {
    read_type(row, Column::dtype, problem.x_type);
  }
  problem.w_type = problem.x_type;
  problem.y_type = overrides_.y_type.value_or(problem.x_type);
  if (!overrides_.y_type && !is_missing(row.cell(Column::outdtype))) {
    read_type(row, Column::outdtype, problem.y_type);
  }
}

/// Of a weight-only operation.
void ProblemReader::read_weight_only_types(Row& row, Problem& problem) {
  problem.bias = row.flag(Column::bias);
  if (row.flag(Column::bpreshuffle)) problem.weight_layout = WeightLayout::any;
  if (overrides_.x_type) {
    problem.x_type = *overrides_.x_type;
  } else if (!is_missing(row.cell(Column::q_dtype_a))) {
    read_type(row, Column::q_dtype_a, problem.x_type);
  }
  if (!is_missing(row.cell(Column::q_dtype_w))) read_type(row, Column::q_dtype_w, problem.w_type);
  problem.y_type = overrides_.y_type.value_or(default_y_type(problem.operation, problem.x_type));
  if (!overrides_.y_type && !is_missing(row.cell(Column::outdtype))) {
    read_type(row, Column::outdtype, problem.y_type);
  }
  read_groups(row, problem);
}

/// Of an int4 weight; of other weights there is nothing to read.
void ProblemReader::read_groups(Row& row, Problem& problem) {
  if (!has_weight_groups(problem)) return;
  if (problem.w_group == 0) problem.w_group = default_weight_group;
  if (!is_missing(row.cell(Column::w_group)) && !parse_group(row.cell(Column::w_group), problem))
    row.bad(Column::w_group, fmt::format("{} or row", fmt::join(weight_groups, ", ")));
  problem.zero_points = row.flag(Column::zero_points);
}

void ProblemReader::read_quantized_types(Row& row, Problem& problem) {
  const TableKind table = row.columns.schema().kind;
  if (table == TableKind::a8w8_bpreshuffle || table == TableKind::batched_mxscale)
    problem.w_type = device_fp8(architecture_of(row));
  if (overrides_.x_type) {
    problem.w_type = *overrides_.x_type;
  } else if (!is_missing(row.cell(Column::q_dtype_w))) {
    read_type(row, Column::q_dtype_w, problem.w_type);
  }
  problem.x_type = problem.w_type;
  if (overrides_.y_type) problem.y_type = *overrides_.y_type;
}

void ProblemReader::read_moe(Row& row, Problem& problem) {
  MoeShape& moe = problem.moe;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  moe.experts = static_cast<std::int32_t>(row.dimension(Column::experts, most));
  const bool any_topk = row.columns.schema().kind == TableKind::grouped_moe &&
                        parse_integer(row.cell(Column::topk)) == -1;  // a key of its own: every topk
  moe.topk = any_topk ? -1 : static_cast<std::int32_t>(row.dimension(Column::topk, most));
  if (!is_missing(row.cell(Column::shared_experts)))
    moe.shared_experts = static_cast<std::int32_t>(row.count(Column::shared_experts, moe.topk - 1));
  if (!is_missing(row.cell(Column::bias))) problem.bias = row.flag(Column::bias);
  row.word(Column::act_type, parse_activation, "ActivationType.Silu, .Gelu, .Swiglu, .Situv2 or .No",
           moe.activation);
  row.word(
      Column::q_type, parse_quant_type,
      "QuantType.No, .per_Tensor, .per_Token, .per_1x32, .per_1x128, .per_128x128, .per_1x16 or .per_group",
      moe.quant_type);
  moe.gated = row.flag(Column::use_g1u1);
  moe.doweight_stage1 = row.flag(Column::doweight_stage1);
  read_type(row, Column::dtype, problem.y_type);
  read_type(row, Column::q_dtype_a, problem.x_type);
  read_type(row, Column::q_dtype_w, problem.w_type);
  if (overrides_.x_type) problem.x_type = problem.w_type = *overrides_.x_type;
  if (overrides_.y_type) problem.y_type = *overrides_.y_type;
  // AITER's word for int4 weights in groups of 32 beside tokens of 16 bits.
  if (problem.w_type == DataType::i4 && bits(problem.x_type) == 16 && moe.quant_type == QuantType::per_1x32) {
    moe.quant_type = QuantType::per_group;
    problem.w_group = mx_block;
  }
  read_groups(row, problem);
}

bool ProblemReader::read(const CsvCells& cells, std::size_t line, Problem& problem, Diagnostics* diagnostics,
                         std::string* unknown_types) {
  Row row{columns_, cells, line, diagnostics, unknown_types};
  const Schema& schema = columns_.schema();
  problem = default_problem(schema.operation, architecture_of(row));
  problem.m = row.dimension(Column::m);
  problem.n = row.dimension(Column::n);
  problem.k = row.dimension(Column::k);
  if (schema.has(Column::batch)) problem.batch = row.dimension(Column::batch);
  if (schema.operation == Operation::a16w16) {
    read_dense_types(row, problem);
  } else if (traits(problem.operation).mixture) {
    read_moe(row, problem);
  } else if (schema.in_key(Column::q_dtype_a)) {
    read_weight_only_types(row, problem);
  } else {
    read_quantized_types(row, problem);
  }
  return row.good;
}

std::string_view python_bool(bool value) { return value ? "True" : "False"; }

bool needs_column(const Problem& problem, Column column) {
  if (!is_mixture(problem)) return true;
  if (column == Column::bias) return problem.bias;
  if (column == Column::w_group || column == Column::zero_points) return has_weight_groups(problem);
  return column != Column::shared_experts || problem.moe.shared_experts > 0;
}

std::optional<std::string> problem_cell(const Problem& problem, Column column) {
  const auto digit = [](bool value) { return std::string(value ? "1" : "0"); };
  const bool moe = is_mixture(problem);
  switch (column) {
    case Column::batch:
      return std::to_string(problem.batch);
    case Column::m:
      return std::to_string(problem.m);
    case Column::n:
      return std::to_string(problem.n);
    case Column::k:
      return std::to_string(problem.k);
    case Column::bias:
      return std::string(python_bool(problem.bias));
    case Column::dtype:
      return std::string(torch_name(moe ? problem.y_type : problem.x_type));
    case Column::outdtype:
      return std::string(torch_name(problem.y_type));
    case Column::scale_ab:
      return std::string(python_bool(problem.scale_ab));
    case Column::bpreshuffle:
      return std::string(python_bool(is_packed(problem)));
    case Column::q_dtype_a:
      return std::string(torch_name(problem.x_type));
    case Column::q_dtype_w:
      return std::string(torch_name(problem.w_type));
    case Column::q_type:
      return fmt::format("QuantType.{}", to_string(problem.moe.quant_type));
    case Column::act_type:
      return fmt::format("ActivationType.{}", to_string(problem.moe.activation));
    case Column::w_group:
      return group_text(problem);
    case Column::zero_points:
      return std::string(python_bool(problem.zero_points));
    case Column::experts:
      return std::to_string(problem.moe.experts);
    case Column::topk:
      return std::to_string(problem.moe.topk);
    case Column::shared_experts:
      return std::to_string(problem.moe.shared_experts);
    case Column::use_g1u1:
      return digit(problem.moe.gated);
    case Column::doweight_stage1:
      return digit(problem.moe.doweight_stage1);
    default:
      return std::nullopt;
  }
}

}  // namespace gemmtune
