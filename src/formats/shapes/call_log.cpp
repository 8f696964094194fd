#include "formats/shapes/call_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.h"
#include "formats/aiter/operation_header.h"
#include "formats/aiter/problem_cells.h"
#include "formats/bench/bench_call.h"
#include "formats/csv/csv.h"
#include "formats/diagnostics.h"
#include "formats/json.h"
#include "formats/shapes/shape_collector.h"
#include "formats/triton/triton_lookup.h"
#include "formats/tunableop/tunableop_csv.h"

namespace gemmtune {
namespace {

using Cells = std::vector<std::pair<std::string_view, std::string>>;  // column and text

/// The text behind `name`, up to a comma or a blank; without quotes.
std::string field_of(std::string_view line, std::string_view name) {
  for (std::size_t at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
    if (at > 0 && line[at - 1] != ' ' && line[at - 1] != ',') continue;
    std::string_view text = line.substr(at + name.size());
    text = text.substr(0, text.find_first_of(", \t"));
    if (text.size() >= 2 && text.front() == '\'' && text.back() == '\'')
      text = text.substr(1, text.size() - 2);
    return std::string(text);
  }
  return {};
}

/// One row of a table's list, read by the rules of such lists.
class RowReader {
 public:
  RowReader(const TypeOverrides& overrides, Diagnostics& diagnostics)
      : overrides_(overrides), diagnostics_(diagnostics) {}

  std::optional<Problem> read(TableKind table, const Cells& cells, std::size_t line) {
    std::string header;
    std::string row;
    for (const auto& [column, text] : cells) {
      if (text.empty()) continue;
      header += fmt::format("{}{}", header.empty() ? "" : ",", column);
      row += fmt::format("{}{}", row.empty() ? "" : ",", csv_cell(text));
    }
    Reader& reader = reader_of(table, header);
    CsvCells split;
    Problem problem;
    if (!split.split(row) || !reader.problems.read(split, line, problem, &diagnostics_)) return std::nullopt;
    if (const Status status = check(problem); !status.ok()) {
      diagnostics_.row(line, status.message());
      return std::nullopt;
    }
    return problem;
  }

 private:
  struct Reader {
    Reader(const CsvCells& header, const Schema& schema, const TypeOverrides& overrides)
        : columns(header, schema), problems(columns, overrides) {}
    Columns columns;
    ProblemReader problems;
  };
  Reader& reader_of(TableKind table, const std::string& header) {
    auto& reader = readers_[{table, header}];
    if (reader == nullptr) {
      CsvCells cells;
      cells.split(header);
      reader = std::make_unique<Reader>(cells, schema_of(table), overrides_);
    }
    return *reader;
  }

  TypeOverrides overrides_;
  Diagnostics& diagnostics_;
  std::map<std::pair<TableKind, std::string>, std::unique_ptr<Reader>> readers_;
};

/// The words of a tuple's text between commas that are in no bracket, without quotes; <ActivationType.Silu: 0> as its name.
std::vector<std::string> tuple_words(std::string_view text) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char letter : text) {
    if (letter == '(' || letter == '<') ++depth;
    if (letter == ')' || letter == '>') --depth;
    if (depth < 0) break;
    if (letter == ',' && depth == 0) {
      words.emplace_back();
    } else if (letter != '\'' && letter != ' ' && letter != '<' && letter != '>') {
      words.back() += letter;
    }
  }
  for (std::string& word : words) word = word.substr(0, word.find(':'));
  return words;
}

class CallLog {
 public:
  CallLog(const std::string& source, const CallLogOptions& options)
      : options_(options),
        diagnostics_(source),
        rows_({options.list.x_type, options.list.y_type, options.list.architecture}, diagnostics_) {}

  void read_line(std::string_view line, std::size_t number) {
    line_ = number;
    if (line.find("not found tuned config") != std::string_view::npos) return read_aiter(line);
    if (line.find("[fused_moe] using") != std::string_view::npos &&
        line.find(" default for (") != std::string_view::npos)
      return read_aiter_mixture(line);
    if (line.find("onfig file not found at") != std::string_view::npos) return read_missing_config(line);
    if (line.find("onednn_verbose,") != std::string_view::npos) return read_onednn(line);
    if (auto call = bench_call_of_line(line)) {
      if (call->ok())
        add((*call)->problem);
      else
        refuse(call->message());
    }
  }

  /// The events of a trace in Chrome's form.
  Status read_trace(const std::string& source, const std::string& content) {
    const Json json = parse_json(content);
    if (json.is_discarded())
      return Status::invalid("{}: no JSON, expected a trace of PyTorch's profiler", source);
    const Json* events = &json;
    if (json.is_object()) {
      const auto found = json.find("traceEvents");
      if (found == json.end())
        return Status::invalid("{}: is JSON without traceEvents, expected a trace of PyTorch's profiler",
                               source);
      events = &*found;
    }
    if (!events->is_array()) return Status::invalid("{}: traceEvents is no list", source);
    bool has_shapes = false;
    for (const Json& event : *events) has_shapes = read_event(event) || has_shapes;
    if (!has_shapes)
      return Status::invalid("{}: no event has 'Input Dims'; profile with record_shapes=True", source);
    return {};
  }

  std::size_t named() const { return named_; }
  ShapeList take(const std::string& source) {
    ShapeList list;
    list.source = source;
    list.rows = shapes_.take();
    if (!list.rows.empty()) list.operation = form_of(list.rows.front().problem);
    list.diagnostics = diagnostics_.take();
    return list;
  }

 private:
  void add(const Problem& problem) {
    ++named_;
    const ShapeListOptions& list = options_.list;
    if (list.operation && form_of(problem) != *list.operation) return;
    shapes_.add({problem, 1, {}, line_});
  }
  void refuse(std::string_view why) {
    ++named_;
    diagnostics_.row(line_, why);
  }
  void add_row(TableKind table, const Cells& cells) {
    ++named_;
    if (auto problem = rows_.read(table, cells, line_)) {
      --named_;
      add(*problem);
    }
  }

  /// "shape is M:16, N:1536, K:7168, not found tuned config in /tmp/aiter_configs/a8w8_tuned_gemm.csv, …"
  void read_aiter(std::string_view line) {
    constexpr std::string_view before_file = "tuned config in ";
    const std::size_t at = line.find(before_file);
    std::string_view file =
        at == std::string_view::npos ? std::string_view() : line.substr(at + before_file.size());
    file = file.substr(0, file.find(','));
    Cells cells{{"M", field_of(line, "M:")}, {"N", field_of(line, "N:")}, {"K", field_of(line, "K:")}};
    const std::string batch = field_of(line, "B:");
    const std::string dtype = field_of(line, "dtype=");
    const std::string q_dtype = field_of(line, "q_dtype_w:");
    std::optional<TableKind> table = table_of_file_name(std::string(trim(file)));
    if (!table && options_.list.operation) table = schema_of(*options_.list.operation).kind;
    if (!table && !batch.empty())
      table = line.find("dtype is bf16") != std::string_view::npos ? TableKind::batched_bf16
                                                                   : TableKind::batched_a8w8;
    if (!table && !dtype.empty()) table = TableKind::bf16;
    if (!table)
      return refuse(fmt::format("'{}' is no table of AITER's; name the operation with --op", trim(file)));
    if (!batch.empty()) cells.insert(cells.begin(), {"B", batch});
    cells.emplace_back("dtype", dtype);
    cells.emplace_back("outdtype", field_of(line, "otype="));
    cells.emplace_back("bias", field_of(line, "bias="));
    cells.emplace_back("scaleAB", field_of(line, "scaleAB="));
    cells.emplace_back("bpreshuffle", field_of(line, "bpreshuffle="));
    cells.emplace_back("q_dtype_w", q_dtype);
    add_row(*table, cells);
  }

  /// "[fused_moe] using 2stage default for ('gfx950', 256, 16, 7168, 256, 257, 9, 'ActivationType.Silu', …)"
  void read_aiter_mixture(std::string_view line) {
    constexpr std::array<std::string_view, 12> columns{
        "token", "model_dim", "inter_dim", "expert", "topk",     "act_type",
        "dtype", "q_dtype_a", "q_dtype_w", "q_type", "use_g1u1", "doweight_stage1"};
    const std::vector<std::string> words = tuple_words(line.substr(line.find(" default for (") + 14));
    // Before it was keyed by architecture the tuple had no gfx.
    const std::size_t first = !words.empty() && words[0].starts_with("gfx") ? 2 : 1;
    if (words.size() != first + columns.size())
      return refuse(
          fmt::format("{} words in the key of a mixture, expected {}", words.size(), first + columns.size()));
    Cells cells;
    for (std::size_t index = 0; index < columns.size(); ++index)
      cells.emplace_back(columns[index], words[first + index]);
    add_row(TableKind::fused_moe, cells);
  }

  /// "… Config file not found at /…/N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
  void read_missing_config(std::string_view line) {
    const std::size_t end = line.find(".json");
    const std::size_t begin = line.rfind('/', end);
    if (end == std::string_view::npos || begin == std::string_view::npos) return;
    const std::string file(line.substr(begin + 1, end + 5 - begin - 1));
    const auto name = parse_triton_file_name(file);
    if (!name || (name->family != nearest_dense_family && name->family != nearest_moe_family)) return;
    if (name->e)
      return refuse(
          fmt::format("E = {}, N = {}: the line does not say model_dim and topk; gemmtune shapes "
                      "--model_dir --op fused_moe does",
                      *name->e, name->n.value_or(0)));
    if (!name->n || !name->k) return;
    if (options_.tokens.empty())
      return refuse(fmt::format("N = {}, K = {}: the line does not say M; give --nsets", *name->n, *name->k));
    const bool blocks = name->specialisation.find("block_shape=[128,128]") != std::string::npos;
    const bool fp8 = name->specialisation.find("dtype=fp8_w8a8") != std::string::npos;
    const bool int8 = name->specialisation.find("dtype=int8_w8a8") != std::string::npos;
    if ((!fp8 && !int8) || (int8 && blocks)) return refuse(fmt::format("{}: types that no list holds", file));
    for (const std::int64_t m : options_.tokens) {
      const std::string& architecture = options_.list.architecture;
      Problem problem =
          default_problem({blocks ? Operation::a8w8_blockscale : Operation::a8w8, false}, architecture);
      if (!blocks && fp8) set_types(problem, device_fp8(architecture));
      problem.m = m;
      problem.n = *name->n;
      problem.k = *name->k;
      if (const Status status = check(problem); !status.ok()) return refuse(status.message());
      add(problem);
    }
  }

  struct OnednnOperand {
    std::optional<DataType> type;
    std::string format;  // "ab", "ba", "BA16a64b2a"
  };
  static OnednnOperand onednn_operand(std::string_view memories, std::string_view name) {
    constexpr std::array<std::pair<std::string_view, DataType>, 3> words{
        {{"bf16", DataType::bf16}, {"f16", DataType::f16}, {"f32", DataType::f32}}};
    OnednnOperand operand;
    for (const std::string_view memory : split(memories, ' ')) {
      if (!memory.starts_with(name)) continue;
      std::vector<std::string_view> parts;
      for (const std::string_view part : split(memory.substr(name.size()), ':'))
        if (!part.empty()) parts.push_back(part);
      if (parts.empty()) continue;
      std::string_view type = parts[0];
      for (const auto& [word, known] : words)
        if (type == word) operand.type = known;
      // "a:blocked:ab:f0", where the runtime's formats come first.
      for (std::size_t index = 1; index + 1 < parts.size(); ++index)
        if (parts[index] == "blocked") operand.format = parts[index + 1];
      break;
    }
    return operand;
  }

  /// "onednn_verbose,v1,primitive,exec,cpu,matmul,…,src:bf16::blocked:ab::f0 wei:…,,,16x7168:7168x1536,0.1"
  void read_onednn(std::string_view line) {
    const std::vector<std::string_view> fields = split(line.substr(line.find("onednn_verbose,")), ',');
    const auto has = [&](std::string_view word) {
      return std::find(fields.begin(), fields.end(), word) != fields.end();
    };
    if (!has("exec") || (!has("matmul") && !has("inner_product"))) return;
    const auto memories = std::ranges::find_if(fields, [](std::string_view field) {
      return field.starts_with("src_") || field.starts_with("src:");
    });
    if (memories == fields.end()) return;
    Problem problem;
    const bool colon = memories->starts_with("src:");
    const OnednnOperand x = onednn_operand(*memories, colon ? "src:" : "src_");
    const OnednnOperand w = onednn_operand(*memories, colon ? "wei:" : "wei_");
    const OnednnOperand y = onednn_operand(*memories, colon ? "dst:" : "dst_");
    if (!x.type || !w.type || !y.type) return refuse("a matmul of types that no list of a16w16 holds");
    problem.x_type = *x.type;
    problem.w_type = *w.type;
    problem.y_type = *y.type;
    problem.bias = memories->find(" bia") != std::string_view::npos;
    if (has("matmul") ? !sizes_of_matmul(fields, w.format, x.format, problem)
                      : !sizes_of_inner_product(fields, problem))
      return refuse("a matmul without sizes MxK:KxN, or of several matrices");
    if (const Status status = check(problem); !status.ok()) return refuse(status.message());
    add(problem);
  }

  static bool sizes_of_matmul(const std::vector<std::string_view>& fields, std::string_view w_format,
                              std::string_view x_format, Problem& problem) {
    for (const std::string_view field : fields) {
      const std::vector<std::string_view> operands = split(field, ':');
      if (operands.size() < 2) continue;
      const std::vector<std::string_view> x = split(operands[0], 'x');
      const std::vector<std::string_view> w = split(operands[1], 'x');
      if (x.size() != 2 || w.size() != 2) continue;
      const auto m = parse_integer(x[0]);
      const auto k = parse_integer(x[1]);
      const auto n = parse_integer(w[1]);
      if (!m || !k || !n || parse_integer(w[0]) != k) continue;
      problem.m = *m;
      problem.n = *n;
      problem.k = *k;
      // oneDNN's weight is [K, N]: "ba" is ours, row by row; a packed one was made of that.
      if (w_format == "ab") problem.w_order = Order::column_major;
      if (x_format == "ba") problem.x_order = Order::column_major;
      return true;
    }
    return false;
  }

  /// "mb16ic7168oc1536"
  static bool sizes_of_inner_product(const std::vector<std::string_view>& fields, Problem& problem) {
    for (const std::string_view field : fields) {
      const std::size_t ic = field.find("ic");
      const std::size_t oc = field.find("oc");
      if (!field.starts_with("mb") || ic == std::string_view::npos || oc == std::string_view::npos || oc < ic)
        continue;
      const auto m = parse_integer(field.substr(2, ic - 2));
      const auto k = parse_integer(field.substr(ic + 2, oc - ic - 2));
      const auto n = parse_integer(field.substr(oc + 2));
      if (!m || !k || !n) return false;
      problem.m = *m;
      problem.n = *n;
      problem.k = *k;
      return true;
    }
    return false;
  }

  using Sizes = std::vector<std::int64_t>;
  /// A member of an event's args, a list of lists of sizes.
  static std::vector<Sizes> sizes_of(const Json& args, const char* name) {
    std::vector<Sizes> all;
    const auto found = args.find(name);
    if (found == args.end() || !found->is_array()) return all;
    for (const Json& one : *found) {
      Sizes& sizes = all.emplace_back();
      if (!one.is_array()) continue;
      for (const Json& size : one)
        if (size.is_number_integer()) sizes.push_back(size.get<std::int64_t>());
    }
    return all;
  }
  static std::optional<DataType> trace_type(const Json& args, std::size_t index) {
    constexpr std::array<std::pair<std::string_view, DataType>, 5> words{
        {{"c10::BFloat16", DataType::bf16},
         {"c10::Half", DataType::f16},
         {"float", DataType::f32},
         {"c10::Float8_e4m3fn", DataType::f8_e4m3fn},
         {"c10::Float8_e4m3fnuz", DataType::f8_e4m3fnuz}}};
    const auto found = args.find("Input type");
    if (found == args.end() || !found->is_array() || index >= found->size() || !(*found)[index].is_string())
      return std::nullopt;
    const std::string text = (*found)[index].get<std::string>();
    for (const auto& [word, type] : words)
      if (word == text) return type;
    return std::nullopt;
  }

  /// False for an event without sizes.
  bool read_event(const Json& event) {
    if (!event.is_object()) return false;
    const auto name_at = event.find("name");
    const auto args_at = event.find("args");
    if (name_at == event.end() || !name_at->is_string() || args_at == event.end() || !args_at->is_object())
      return false;
    const std::vector<Sizes> dims = sizes_of(*args_at, "Input Dims");
    if (dims.empty()) return false;
    const std::string name = name_at->get<std::string>();
    const bool scaled = name == "aten::_scaled_mm";
    const bool with_bias = name == "aten::addmm";
    if (!scaled && !with_bias && name != "aten::mm") {
      if (name == "aten::bmm" || name == "aten::baddbmm") refuse(fmt::format("{}: several matrices", name));
      return true;
    }
    const std::size_t first = with_bias ? 1 : 0;
    if (dims.size() < first + 2 || dims[first].size() != 2 || dims[first + 1].size() != 2) return true;
    Problem problem;
    problem.m = dims[first][0];
    problem.k = dims[first][1];
    problem.n = dims[first + 1][1];
    const auto x = trace_type(*args_at, first);
    const auto w = trace_type(*args_at, first + 1);
    if (!x || !w) {
      refuse(fmt::format("{}: types that no list of a16w16 holds", name));
      return true;
    }
    problem.x_type = *x;
    problem.w_type = *w;
    problem.y_type = scaled ? DataType::bf16 : *x;
    problem.scale_ab = scaled;
    problem.bias = with_bias && dims[0].size() == 1;
    const std::vector<Sizes> strides = sizes_of(*args_at, "Input Strides");
    // mm's second operand is [K, N]: F.linear passes the weight [N, K] transposed.
    if (strides.size() > first + 1 && strides[first + 1].size() == 2 && strides[first + 1][1] == 1 &&
        problem.n > 1 && strides[first + 1][0] != 1)
      problem.w_order = Order::column_major;
    if (strides.size() > first && strides[first].size() == 2 && strides[first][0] == 1 &&
        strides[first][1] != 1)
      problem.x_order = Order::column_major;
    if (const Status status = check(problem); !status.ok())
      refuse(status.message());
    else
      add(problem);
    return true;
  }

  const CallLogOptions& options_;
  Diagnostics diagnostics_;
  RowReader rows_;
  ShapeCollector shapes_{true};
  std::size_t line_ = 0;
  std::size_t named_ = 0;
};

}  // namespace

Result<ShapeList> parse_call_log(const std::string& source, std::string content,
                                 const CallLogOptions& options) {
  const std::string_view first = trim(first_row(content));
  if (is_tunableop(first)) return parse_shape_list(source, std::move(content), options.list);
  CallLog log(source, options);
  if (first.starts_with('{') || first.starts_with('[')) {
    GEMMTUNE_RETURN_IF_ERROR(log.read_trace(source, content));
  } else {
    std::size_t number = 0;
    for (const std::string_view line : split(std::string_view(content), '\n')) log.read_line(line, ++number);
  }
  const std::size_t named = log.named();
  ShapeList list = log.take(source);
  if (named == 0)
    return Status::invalid(
        "{}: no line names a GEMM; expected AITER's 'not found tuned config', vLLM's 'Config file not found "
        "at', "
        "hipblaslt-bench, rocblas-bench, onednn_verbose, a PyTorch profiler trace or TunableOp's files",
        source);
  if (options.list.strict && !list.diagnostics.empty())
    return Status::invalid("{}", list.diagnostics.front());
  return list;
}

}  // namespace gemmtune
