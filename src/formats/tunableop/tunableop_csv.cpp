#include "formats/tunableop/tunableop_csv.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"
#include "formats/conversion.h"
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

/// "tn_M_N_K_ld_lda_ldb_ldc", of a scaled GEMM "_rw_0_bias_None" behind it; before PyTorch 2.6 without leading
/// dimensions. Column-major: its m is our n.
class Parameters {
 public:
  explicit Parameters(std::string_view text) : text_(text), parts_(split(text, '_')) {}

  Status read(OperationWords& words, std::string& strides) {
    Problem& problem = words.problem;
    const std::string_view transpositions = next();
    if (transpositions.size() != 2 || !is_letter(transpositions[0]) || !is_letter(transpositions[1]))
      return refuse(problem.scale_ab);
    const bool w_rows = transpositions[0] == 't';
    const bool x_rows = transpositions[1] == 'n';
    if (!number(problem.n) || !number(problem.m) || !number(problem.k)) return refuse(problem.scale_ab);
    problem.w_order = w_rows ? Order::row_major : Order::column_major;
    problem.x_order = x_rows ? Order::row_major : Order::column_major;
    if (at_ < parts_.size() && parts_[at_] == "ld") {
      ++at_;
      const std::array<std::int64_t, 3> dense{w_rows ? problem.k : problem.n, x_rows ? problem.k : problem.m,
                                              problem.n};
      for (std::size_t index = 0; index < dense.size(); ++index) {
        std::int64_t stride = 0;
        if (!number(stride)) return refuse(problem.scale_ab);
        if (stride == dense[index]) continue;
        strides += fmt::format("{}ld{} = {}", strides.empty() ? "" : ", ", "abc"[index], stride);
      }
    }
    if (problem.scale_ab) GEMMTUNE_RETURN_IF_ERROR(read_scales(problem));
    return at_ == parts_.size() ? check(problem) : refuse(problem.scale_ab);
  }

 private:
  static bool is_letter(char letter) { return letter == 't' || letter == 'n'; }
  std::string_view next() { return at_ < parts_.size() ? parts_[at_++] : std::string_view(); }
  bool number(std::int64_t& target) {
    const auto value = plain_number(next());
    target = value.value_or(0);
    return value.has_value();
  }
  Status refuse(bool scaled) const {
    return Status::invalid("{}: expected tn_M_N_K_ld_lda_ldb_ldc{}, or tn_M_N_K{}", text_,
                           scaled ? "_rw_0_bias_None" : "", scaled ? "_rw_0_bias_None" : "");
  }
  /// Files of PyTorch 2.3 say nothing of scales.
  Status read_scales(Problem& problem) {
    if (at_ == parts_.size()) return {};
    const bool rw = next() == "rw";
    const std::string_view by_row = next();
    if (rw && by_row == "1") return Status::unsupported("{}: a scale for each row, which is a8w8's", text_);
    if (!rw || by_row != "0" || next() != "bias" || at_ >= parts_.size()) return refuse(true);
    std::string bias(next());
    // Float8_e4m3fn
    if (at_ < parts_.size()) bias += "_" + std::string(next());
    problem.bias = bias != "None";
    const TypeWord* const y = words_of(problem.y_type);
    if (problem.bias && (y == nullptr || bias != y->bias_word))
      return Status::unsupported("{}: a bias of another type than the result", text_);
    return {};
  }

  std::string_view text_;
  std::vector<std::string_view> parts_;
  std::size_t at_ = 0;
};

/// A call that waits has two fields; PyTorch may log how the call looks behind them.
Result<TunableopRow> parse_row(const std::vector<std::string_view>& fields) {
  if (fields.size() < 2)
    return Status::invalid(
        "{} field, expected an operation and its parameters, and of a result a solution and a time",
        fields.size());
  GEMMTUNE_TRY(auto words, parse_operation(fields[0]));
  TunableopRow row;
  GEMMTUNE_RETURN_IF_ERROR(Parameters(trim(fields[1])).read(words, row.strides));
  row.problem = words.problem;
  row.key = fmt::format("{},{}", fields[0], trim(fields[1]));
  const std::string_view rest = fields.size() < 3 ? std::string_view() : trim(fields[2]);
  if (rest.empty() && fields.size() <= 3) return row;
  if (rest.starts_with("- {") || rest.starts_with('{')) return row;
  if (rest.empty() || fields.size() > 4)
    return Status::invalid("{} fields, expected an operation, its parameters, a solution and a time",
                           fields.size());
  row.solution = rest;
  if (fields.size() == 3) return row;  // PyTorch reads a result without a time
  const auto milliseconds = parse_number(fields[3]);
  if (!milliseconds) return Status::invalid("time '{}', expected a number of milliseconds", fields[3]);
  row.us = *milliseconds * 1000;
  return row;
}

/// What PyTorch gives cuBLASLt on Hopper; a solution that needs more fails in its check.
constexpr std::int64_t torch_workspace = std::int64_t{32} << 20;

TunedEntry entry_of(const TunableopRow& row, const ConversionOptions& options) {
  TunedEntry entry;
  entry.problem = row.problem;
  entry.line = row.line;
  entry.us = std::numeric_limits<double>::quiet_NaN();
  entry.err_ratio = std::numeric_limits<double>::quiet_NaN();
  if (row.solution.empty()) return entry;
  entry.gfx = options.gfx;
  entry.cu_num = options.cu_num;
  entry.libtype = library_of_solution(row.solution);
  entry.solidx = index_of_solution(row.solution).value_or(0);
  entry.kernel_name = row.problem.scale_ab ? std::string() : cublaslt_kernel_of(row.solution);
  if (entry.kernel_name.empty()) entry.kernel_name = row.solution;
  entry.us = row.us.value_or(entry.us);
  return entry;
}

/// The words of PyTorch for a row's kernel; empty: there are none.
std::string solution_of(const TunedEntry& entry) {
  if (entry.libtype == library_of_solution(entry.kernel_name) &&
      (entry.kernel_name.starts_with("Gemm_") || entry.kernel_name == "Default" ||
       index_of_solution(entry.kernel_name)))
    return entry.kernel_name;
  // PyTorch's name does not say whether fp8 is accumulated fast.
  return entry.libtype == "cublaslt" && !entry.problem.scale_ab ? cublaslt_solution_of(entry.kernel_name)
                                                                : std::string();
}

/// A line of such a file, as it was: its key says more than a problem does, and PyTorch needs no time.
std::string line_again(const std::string& key, const std::string& solution, const TunedEntry& entry) {
  if (solution.empty()) return key + "\n";
  return std::isnan(entry.us) ? fmt::format("{},{}\n", key, solution)
                              : fmt::format("{},{},{:.10g}\n", key, solution, entry.us / 1000);
}

}  // namespace

bool is_tunableop(std::string_view line) {
  const std::string_view first = line.substr(0, line.find(','));
  return first == validator_word || first.find("TunableOp_") != std::string_view::npos;
}

Result<TunableopFile> parse_tunableop_csv(const std::string& source, std::string content) {
  GEMMTUNE_TRY(const auto document, parse_csv(source, std::move(content)));
  TunableopFile file;
  Diagnostics diagnostics(source);
  for (const CsvLine& line : document.lines) {
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
  if (is_packed(problem)) return Status::unsupported("a packed weight, which TunableOp does not know");
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

std::string_view library_of_solution(std::string_view solution) {
  if (solution.starts_with("Gemm_Cublaslt")) return "cublaslt";
  if (solution.starts_with("Gemm_Hipblaslt")) return "hipblaslt";
  if (solution.starts_with("Gemm_Rocblas") || plain_number(solution)) return "rocblas";
  return "torch";
}

std::optional<std::int64_t> index_of_solution(std::string_view solution) {
  const std::string_view library = library_of_solution(solution);
  if (library != "hipblaslt" && library != "rocblas") return std::nullopt;
  return plain_number(solution.substr(solution.rfind('_') + 1));
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

Result<ConversionRows> read_tunableop_rows(const std::string& source, std::string content,
                                           const ConversionOptions& options) {
  GEMMTUNE_TRY(auto file, parse_tunableop_csv(source, std::move(content)));
  ConversionRows rows;
  rows.source = source;
  rows.origin = "tunableop";
  for (const TunableopValidator& validator : file.validators) {
    rows.parts.push_back({"Validator " + validator.key,
                          fmt::format("Validator,{},{}\n", validator.key, validator.value), validator.line});
  }
  rows.leave_out_lines(file.diagnostics);
  for (const TunableopRow& row : file.rows) {
    rows.own_keys[rows.entries.size()] = {row.key, row.strides};
    rows.entries.push_back(entry_of(row, options));
  }
  return rows;
}

Result<std::string> write_tunableop_rows(ConversionRows& rows, const ConversionOptions&) {
  GEMMTUNE_RETURN_IF_ERROR(require_types(rows));
  std::string text;
  for (CarriedPart& part : rows.parts) {
    if (rows.origin != "tunableop") continue;
    text += part.text;
    part.taken = true;
  }
  rows.take_each([&](std::size_t index, const TunedEntry& entry) -> std::string {
    const std::string solution = solution_of(entry);
    const auto own = rows.own_keys.find(index);
    if (own != rows.own_keys.end() && (entry.libtype.empty() || !solution.empty())) {
      text += line_again(own->second.text, solution, entry);
      return {};
    }
    if (solution.empty())
      return fmt::format("kernel '{}' of '{}', which PyTorch does not have", entry.kernel_name,
                         entry.libtype);
    if (!valid_time(entry.us)) return "no valid time";
    const std::int64_t workspace = cublaslt_partial_sums(entry.problem, entry.kernel_name);
    if (workspace > torch_workspace)
      return fmt::format("its partial sums need {} MiB of workspace, PyTorch gives cuBLASLt {}",
                         workspace >> 20, torch_workspace >> 20);
    const auto line = tunableop_line(entry.problem, solution, entry.us);
    if (!line.ok()) return line.message();
    text += *line;
    return {};
  });
  if (rows.origin != "tunableop") {
    rows.notes.push_back(
        fmt::format("{}: PyTorch reads the results beside its own Validator lines only; "
                    "gemmtune.torch.write_tunableop adds them",
                    rows.source));
  }
  return text;
}

}  // namespace gemmtune
