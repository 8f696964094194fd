#include "formats/tunableop/tunableop_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "formats/csv/csv.h"
#include "formats/diagnostics.h"

namespace gemmtune {
namespace {

constexpr std::string_view validator_word = "Validator";
constexpr std::string_view gemm_word = "GemmTunableOp";
constexpr std::string_view bias_word = "GemmAndBiasTunableOp";
constexpr std::string_view scaled_word = "ScaledGemmTunableOp";

struct TypeWord {
  DataType type;
  std::string_view word;       // of an operation
  std::string_view bias_word;  // of a scaled GEMM's bias
};
constexpr std::array<TypeWord, 5> type_words{{{DataType::f32, "float", "Float"},
                                              {DataType::f16, "Half", "Half"},
                                              {DataType::bf16, "BFloat16", "BFloat16"},
                                              {DataType::f8_e4m3fn, "Float8_e4m3fn", "Float8_e4m3fn"},
                                              {DataType::f8_e4m3fnuz, "Float8_e4m3fnuz", "Float8_e4m3fnuz"}}};

const TypeWord* words_of(DataType type) {
  for (const TypeWord& one : type_words)
    if (one.type == type) return &one;
  return nullptr;
}

struct AttributeWord {
  std::string_view solution;
  std::string_view kernel;
};
constexpr std::string_view cublaslt_prefix = "Gemm_Cublaslt";
constexpr std::string_view kernel_prefix = "cublaslt_r1";
// In the order of both names.
constexpr std::array<AttributeWord, 9> cublaslt_words{{{"id", "algo"},
                                                       {"tile", "tile"},
                                                       {"stages", "stages"},
                                                       {"splitk", "sk"},
                                                       {"red", "red"},
                                                       {"swizzle", "swizzle"},
                                                       {"custom", "custom"},
                                                       {"inner", "inner"},
                                                       {"cluster", "cluster"}}};

/// A whole number without sign, blanks or leading zeros.
std::optional<std::int64_t> plain_number(std::string_view text) {
  const auto value = parse_integer(text);
  if (!value || *value < 0 || fmt::format("{}", *value) != text) return std::nullopt;
  return value;
}

/// What an operation's name says.
struct OperationWords {
  Problem problem;
  char trans_w = 't';
  char trans_x = 'n';
};

/// "…_BFloat16_TN" of a plain operation, "…_<w>_<x>_<y>_TN" of a scaled one.
Result<OperationWords> parse_operation(std::string_view name) {
  std::vector<std::string_view> words = split(name, '_');
  // A type's own name may hold a '_'.
  std::vector<std::string> joined;
  for (const std::string_view word : words) {
    if (!joined.empty() && joined.back() == "Float8")
      joined.back() += "_" + std::string(word);
    else
      joined.emplace_back(word);
  }
  OperationWords found;
  const bool scaled = joined.front() == scaled_word;
  if (joined.front() != gemm_word && joined.front() != bias_word && !scaled) {
    return Status::unsupported("{}: an operation that has no row here, expected {}, {} or {}", joined.front(),
                               gemm_word, bias_word, scaled_word);
  }
  const std::size_t types = scaled ? 3 : 1;
  if (joined.size() != types + 2)
    return Status::invalid("{}: expected {} type{} and the transpositions", name, types, scaled ? "s" : "");
  std::array<DataType, 3> read{};
  for (std::size_t i = 0; i < types; ++i) {
    const TypeWord* known = nullptr;
    for (const TypeWord& one : type_words)
      if (one.word == joined[i + 1]) known = &one;
    if (known == nullptr) return Status::unsupported("{}: no type known here", joined[i + 1]);
    read[i] = known->type;
  }
  found.problem.w_type = read[0];
  found.problem.x_type = scaled ? read[1] : read[0];
  found.problem.y_type = scaled ? read[2] : read[0];
  found.problem.scale_ab = scaled;
  found.problem.bias = joined.front() == bias_word;
  return found;
}

/// "tn_M_N_K_ld_lda_ldb_ldc", of a scaled GEMM "_rw_0_bias_None" behind it. Column-major: its m is our n.
Status parse_parameters(std::string_view text, OperationWords& words, std::string& note) {
  const std::vector<std::string_view> parts = split(text, '_');
  Problem& problem = words.problem;
  const bool scaled = problem.scale_ab;
  const auto refuse = [&] {
    return Status::invalid("{}: expected tn_M_N_K_ld_lda_ldb_ldc{}", text, scaled ? "_rw_0_bias_None" : "");
  };
  if (parts.size() != (scaled ? 12U : 8U) || parts[0].size() != 2 || parts[4] != "ld") return refuse();
  std::array<std::int64_t, 6> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto value = plain_number(parts[i < 3 ? i + 1 : i + 2]);
    if (!value) return refuse();
    numbers[i] = *value;
  }
  const char w = parts[0][0];
  const char x = parts[0][1];
  if ((w != 't' && w != 'n') || (x != 't' && x != 'n')) return refuse();
  problem.n = numbers[0];
  problem.m = numbers[1];
  problem.k = numbers[2];
  problem.w_order = w == 't' ? Order::row_major : Order::column_major;
  problem.x_order = x == 'n' ? Order::row_major : Order::column_major;
  if (scaled) {
    if (parts[8] != "rw" || parts[10] != "bias") return refuse();
    if (parts[9] == "1") return Status::unsupported("{}: a scale for each row, which is a8w8's", text);
    if (parts[9] != "0") return refuse();
    problem.bias = parts[11] != "None";
    const TypeWord* const y = words_of(problem.y_type);
    if (problem.bias && (y == nullptr || parts[11] != y->bias_word))
      return Status::unsupported("{}: a bias of another type than the result", text);
  }
  const std::array<std::int64_t, 3> dense{w == 't' ? problem.k : problem.n, x == 'n' ? problem.k : problem.m,
                                          problem.n};
  for (std::size_t i = 0; i < dense.size(); ++i) {
    if (numbers[i + 3] == dense[i] || !note.empty()) continue;
    note = fmt::format("ld{} = {}: taken for a dense operand", "abc"[i], numbers[i + 3]);
  }
  return check(problem);
}

Result<TunableopRow> parse_row(const std::vector<std::string_view>& fields) {
  if (fields.size() < 3)
    return Status::invalid("{} fields, expected an operation, parameters, a solution and a time",
                           fields.size());
  auto words = parse_operation(fields[0]);
  if (!words.ok()) return words.status();
  TunableopRow row;
  GEMMTUNE_RETURN_IF_ERROR(parse_parameters(fields[1], *words, row.note));
  row.problem = words->problem;
  const std::string_view rest = trim(fields[2]);
  if (rest.starts_with("- {") || rest.starts_with('{')) return row;  // how the call looks, again
  if (fields.size() != 4) return Status::invalid("{} fields, expected 4 of a result", fields.size());
  const auto milliseconds = parse_number(fields[3]);
  if (rest.empty() || !milliseconds)
    return Status::invalid("time '{}', expected a solution and a number of milliseconds", fields[3]);
  row.solution = rest;
  row.us = *milliseconds * 1000;
  return row;
}

}  // namespace

bool is_tunableop(std::string_view line) {
  const std::string_view first = line.substr(0, line.find(','));
  return first == validator_word || first.find("TunableOp_") != std::string_view::npos;
}

Result<TunableopFile> parse_tunableop_csv(const std::string& source, std::string content) {
  const auto document = parse_csv(source, std::move(content));
  if (!document.ok()) return document.status();
  TunableopFile file;
  Diagnostics diagnostics(source);
  for (const CsvLine& line : document->lines) {
    if (is_blank_or_comment(line.text)) continue;
    const std::vector<std::string_view> fields = split(without_mark(line.text), ',');
    if (fields[0] == validator_word) {
      // A value may hold commas.
      const std::size_t value =
          fields.size() < 3 ? 0 : static_cast<std::size_t>(fields[2].data() - line.text.data());
      if (value == 0)
        diagnostics.row(line.number, "a validator without a value");
      else
        file.validators.push_back(
            {std::string(fields[1]), std::string(line.text.substr(value)), line.number});
      continue;
    }
    auto row = parse_row(fields);
    if (!row.ok()) {
      diagnostics.row(line.number, row.message());
      continue;
    }
    row->line = line.number;
    file.rows.push_back(std::move(*row));
  }
  file.diagnostics = diagnostics.take();
  return file;
}

Result<std::string> tunableop_line(const Problem& problem, std::string_view solution, double us) {
  const TypeWord* const w = words_of(problem.w_type);
  const TypeWord* const x = words_of(problem.x_type);
  const TypeWord* const y = words_of(problem.y_type);
  if (problem.operation != Operation::a16w16 || w == nullptr || x == nullptr || y == nullptr)
    return Status::unsupported("{}: TunableOp has no name for it", print(problem));
  if (problem.bpreshuffle) return Status::unsupported("a packed weight, which TunableOp does not know");
  if (!problem.scale_ab && (x != w || x != y))
    return Status::unsupported("a result of another type than the operands', which TunableOp does not know");
  const bool w_rows = problem.w_order == Order::row_major;
  const bool x_rows = problem.x_order == Order::row_major;
  std::string name = problem.scale_ab ? fmt::format("{}_{}_{}_{}", scaled_word, w->word, x->word, y->word)
                                      : fmt::format("{}_{}", problem.bias ? bias_word : gemm_word, w->word);
  name += w_rows ? "_T" : "_N";
  name += x_rows ? 'N' : 'T';
  std::string parameters =
      fmt::format("{}{}_{}_{}_{}_ld_{}_{}_{}", w_rows ? 't' : 'n', x_rows ? 'n' : 't', problem.n, problem.m,
                  problem.k, w_rows ? problem.k : problem.n, x_rows ? problem.k : problem.m, problem.n);
  if (problem.scale_ab)
    parameters += fmt::format("_rw_0_bias_{}", problem.bias ? y->bias_word : std::string_view("None"));
  return fmt::format("{},{},{},{:.10g}\n", name, parameters, solution, us / 1000);
}

std::string cublaslt_kernel_of(std::string_view solution) {
  const std::vector<std::string_view> parts = split(solution, '_');
  if (!solution.starts_with(cublaslt_prefix) || parts.size() != 2 + 2 * cublaslt_words.size()) return {};
  std::string name(kernel_prefix);
  for (std::size_t i = 0; i < cublaslt_words.size(); ++i) {
    if (parts[2 + 2 * i] != cublaslt_words[i].solution || !plain_number(parts[3 + 2 * i])) return {};
    name += fmt::format("_{}{}", cublaslt_words[i].kernel, parts[3 + 2 * i]);
  }
  return name;
}

std::string cublaslt_solution_of(std::string_view kernel_name) {
  const std::vector<std::string_view> parts = split(kernel_name, '_');
  if (!kernel_name.starts_with(kernel_prefix) || parts.size() != 2 + cublaslt_words.size()) return {};
  std::string solution(cublaslt_prefix);
  for (std::size_t i = 0; i < cublaslt_words.size(); ++i) {
    const std::string_view part = parts[2 + i];
    const std::string_view key = cublaslt_words[i].kernel;
    if (!part.starts_with(key) || !plain_number(part.substr(key.size()))) return {};
    solution += fmt::format("_{}_{}", cublaslt_words[i].solution, part.substr(key.size()));
  }
  return solution;
}

std::int64_t cublaslt_partial_sums(const Problem& problem, std::string_view kernel_name) {
  if (!kernel_name.starts_with(kernel_prefix)) return 0;
  std::int64_t splits = 1;
  std::int64_t scheme = 0;
  for (const std::string_view part : split(kernel_name, '_')) {
    if (part.starts_with("sk")) splits = plain_number(part.substr(2)).value_or(1);
    if (part.starts_with("red")) scheme = plain_number(part.substr(3)).value_or(0);
  }
  // cublasLtReductionScheme_t: of the compute type, of the type of y; in place (1) they lie in y.
  constexpr std::int64_t of_compute_type = 2;
  constexpr std::int64_t of_output_type = 4;
  if (splits <= 1 || (scheme != of_compute_type && scheme != of_output_type)) return 0;
  const std::int64_t bytes =
      scheme == of_compute_type ? 4 : static_cast<std::int64_t>(bits(problem.y_type) / 8);
  return problem.m * problem.n * splits * bytes;
}

}  // namespace gemmtune
