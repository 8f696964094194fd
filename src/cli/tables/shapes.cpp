// gemmtune shapes: shapes of a model or a file, as an untuned CSV.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/model_options.h"
#include "cli/shared/output_path.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "formats/aiter/schema.h"
#include "formats/all_formats.h"
#include "formats/json.h"
#include "formats/models/model_config.h"
#include "formats/shapes/call_log.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune::cli {
namespace {

using RowsByOperation = std::map<OperationForm, std::vector<ShapeRow>>;

RowsByOperation by_operation(const std::vector<ShapeRow>& rows) {
  RowsByOperation parts;
  for (const ShapeRow& row : rows) parts[form_of(row.problem)].push_back(row);
  return parts;
}

/// A CSV as write_shape_list() makes it, of any operation; its header alone too.
bool is_shape_list(const std::string& path, const std::string& content) {
  if (detect_format(path, content).name != "untuned") return false;
  ShapeListOptions with_type;  // for a list without types
  with_type.x_type = DataType::bf16;
  if (parse_shape_list(path, content, with_type).ok()) return true;
  const auto operations = all_operation_forms();
  return std::ranges::any_of(operations, [&](OperationForm operation) {
    ShapeListOptions of_operation;  // two operations may have one header
    of_operation.operation = operation;
    if (parse_shape_list(path, content, of_operation).ok()) return true;
    const std::string header = empty_shape_list(operation);
    return trim(header) == trim(std::string_view(content));
  });
}

Result<std::string> write_file(const std::vector<ShapeRow>& rows, const std::string& path) {
  GEMMTUNE_RETURN_IF_ERROR(check_writable("-o", path));
  GEMMTUNE_RETURN_IF_ERROR(check_replaces_only("-o", path, "a list of shapes", is_shape_list));
  GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(path, write_shape_list(rows)));
  return fmt::format("{} in {}", counted(rows.size(), "shape"), path);
}

/// The rows as CSV; of several operations one list behind another, each below a line "# operation".
std::string shapes_text(const std::vector<ShapeRow>& rows) {
  const RowsByOperation parts = by_operation(rows);
  if (parts.size() <= 1) return write_shape_list(rows);
  std::string text;
  for (const auto& [operation, part] : parts) {
    text += fmt::format("# {}\n{}", to_string(operation), write_shape_list(part));
  }
  return text;
}

/// Writes the rows to `output`: a file, for rows of one operation; or a folder (one that is there, or a name
/// that ends with '/', made where missing), into which each operation goes under the base name of AITER's
/// untuned table. Answers a line for the user.
Result<std::string> write_shapes(const std::vector<ShapeRow>& rows, const std::string& output) {
  const RowsByOperation parts = by_operation(rows);
  if (!names_folder(output)) {
    if (parts.size() <= 1) return write_file(rows, output);
    return Status::invalid("-o {}: a file holds one operation and there are {}: give --op, or a folder ({}/)",
                           output, operation_counts(rows), output);
  }
  GEMMTUNE_RETURN_IF_ERROR(make_folders(output));
  std::string said;
  for (const auto& [operation, part] : parts) {
    const std::string path = (std::filesystem::path(output) / untuned_file_name(operation)).string();
    GEMMTUNE_TRY(const auto written, write_file(part, path));
    said += (said.empty() ? "" : "\n") + written;
  }
  return said;
}

constexpr const char* shapes_footer = R"(
Examples:
  gemmtune shapes --model_dir Llama-3.1-8B --tp 8 --nsets 1,16,512 -o untuned.csv
  gemmtune shapes --model_dir Llama-3.2-1B --nsets 1 --layers
  gemmtune shapes --model_dir DeepSeek-V3 --tp 8 --nsets 1,64,4096 -o untuned/
  gemmtune shapes --model_dir Llama-3.1-8B --for vllm --max-num-seqs 64 -o untuned.csv
  gemmtune shapes --model_dir DeepSeek-V3 --tp 8 --op fused_moe -o untuned_fmoe.csv
  gemmtune shapes -i sizes.yaml -o untuned.csv
  cat a.csv | gemmtune shapes -i -
  gemmtune shapes --from-log server.log --nsets 1,16,256 -o untuned/

--from-log reads what a program's log says of GEMMs, each line as a call: AITER's "not found tuned config" and "[fused_moe]
using … default", vLLM's "Config file not found at" (which says no M: --nsets does), command lines of hipblaslt-bench and
rocblas-bench, onednn_verbose, a trace of PyTorch's profiler (record_shapes=True), TunableOp's files. Other lines are passed
over.

Exit codes: 0 done, 1 some rows or lines could not be read, 2 usage or input.)";

struct ShapesOptions {
  SizeOptions size;
  ModelOptions model;
  std::string gfx;  // of the device that words of types are meant for; empty: of none
  std::string input;
  std::string log;
  std::string output;
  bool layers = false;
  bool strict = false;
  bool json = false;
};

Result<ShapeList> read_log(const ShapesOptions& options) {
  CallLogOptions log;
  GEMMTUNE_TRY(log.list.x_type, x_type_of(options.size, options.gfx));
  GEMMTUNE_TRY(log.list.y_type, y_type_of(options.size, options.gfx));
  GEMMTUNE_TRY(const auto tokens, token_counts(options.model.tokens));
  if (!options.size.operation.empty()) {
    log.list.operation = parse_operation(options.size.operation);
    if (!log.list.operation) return operation_of(options.size).status();
  }
  log.list.strict = options.strict;
  log.list.architecture = options.gfx;
  if (!options.model.tokens.empty()) log.tokens = tokens;
  GEMMTUNE_TRY(auto content, read_file(options.log));
  return parse_call_log(options.log == "-" ? "standard input" : options.log, std::move(content), log);
}

Result<ShapeList> read_shapes(const ShapesOptions& options, const Environment& environment) {
  if (!options.input.empty() && !options.model.folder.empty()) {
    return Status::invalid("-i and --model_dir: give one of them, not both");
  }
  if (!options.log.empty() && (!options.input.empty() || !options.model.folder.empty())) {
    return Status::invalid("--from-log: give it alone, without -i and --model_dir");
  }
  GEMMTUNE_RETURN_IF_ERROR(check_words(options.model));
  if (!options.log.empty()) return read_log(options);
  if (options.input.empty()) {
    if (model_folder(options.model, environment).empty()) {
      return Status::invalid("no shapes: give --model_dir DIR, -i FILE or --from-log FILE");
    }
    return shapes_of_model(options.model, options.size, environment, options.gfx, options.layers);
  }
  ShapeListOptions list;
  GEMMTUNE_TRY(list.operation, operation_of(options.size));
  GEMMTUNE_TRY(list.x_type, x_type_of(options.size, options.gfx));
  GEMMTUNE_TRY(list.y_type, y_type_of(options.size, options.gfx));
  list.strict = options.strict;
  list.architecture = options.gfx;
  return read_shape_list(options.input, list);
}

std::string shapes_json(const ShapeList& list) {
  OrderedJson json;
  json["command"] = "shapes";
  json["source"] = list.source;
  json["shapes"] = OrderedJson::array();
  for (const ShapeRow& row : list.rows) {
    const Problem& problem = row.problem;
    json["shapes"].push_back({{"operation", to_string(form_of(problem))},
                              {"m", problem.m},
                              {"n", problem.n},
                              {"k", problem.k},
                              {"problem", print(problem)},
                              {"calls", row.calls},
                              {"layer", row.layer}});
  }
  json["diagnostics"] = list.diagnostics;
  json["notes"] = list.notes;
  json["left_out"] = left_out_json(list.ignored);
  return json_document(json);
}

Result<int> run_shapes(const ShapesOptions& options) {
  GEMMTUNE_TRY(const auto list, read_shapes(options, read_environment()));
  for (const std::string& diagnostic : list.diagnostics) print_note(diagnostic);
  for (const std::string& note : notes_of(list)) print_note(note);
  const bool to_stdout = options.output.empty() || options.output == "-";
  if (!to_stdout) {
    GEMMTUNE_TRY(const auto written, write_shapes(list.rows, options.output));
    print_note(written);
  }
  if (options.json || to_stdout) print_document(options.json ? shapes_json(list) : shapes_text(list.rows));
  return list.diagnostics.empty() && list.ignored.empty() ? exit_done : exit_findings;
}

}  // namespace

std::function<Result<int>()> declare_shapes(CommandOptions& app) {
  auto options = std::make_shared<ShapesOptions>();
  declare_model_options(app, options->model);
  app.add_option("--op", options->size.operation, "The operation: of a model, rows of this one only");
  app.add_option("--indtype", options->size.x_type,
                 "Type of x and w (default: the model's or the file's); of a model's layers of as many bits");
  app.add_option("--outdtype", options->size.y_type, "Type of y (default: the model's or the file's)");
  app.add_option(
      "--gfx", options->gfx,
      "The architecture that the shapes are for: fp8 is its own (e4m3fnuz on gfx94x, else e4m3fn)");
  app.add_flag(
      "--bpreshuffle", options->size.bpreshuffle,
      "Weights of the model packed once: a8w8_bpreshuffle, a8w8_blockscale_bpreshuffle, bf16 so marked");
  app.add_flag("--layers", options->layers, "With the name of each layer of the model");
  app.add_option(
      "file,-i,--input,--untune-file,--input-file,--gemm-size-file", options->input,
      "Shapes of a file instead of a model (CSV, YAML, tuned file, - for stdin), duplicates removed");
  app.add_option("--from-log", options->log,
                 "Shapes of the GEMMs that a program's log or trace names (- for stdin); see below");
  app.add_option(
      "-o,--output", options->output,
      "Where the CSV goes (default, and -: stdout); a folder (or NAME/) gets one file an operation");
  app.add_flag("--strict", options->strict, "A row that cannot be read is an error");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(shapes_footer);
  return [options] { return run_shapes(*options); };
}

}  // namespace gemmtune::cli
