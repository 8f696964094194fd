// gemmtune convert: tuned files and sizes from one format into another.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/environment.h"
#include "base/file.h"
#include "base/path_list.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "formats/all_formats.h"
#include "formats/json.h"
#include "formats/parquet/parquet.h"

namespace gemmtune::cli {
namespace {

constexpr const char* convert_footer = R"(
What the new format cannot hold is named on stderr: each row, each column with the count of its rows, each key of a
file; --json has the same list. Formats without a device or types need --gfx,
--cu_num, --indtype; a Triton file without N and K in its name needs -n and -k. A Triton bucket becomes a row at its
largest M without a time; with M_LEQ_x the largest M written stands as `any`, too. gemmtune convert --list names the
formats.

Exit codes: 0 all was carried, 1 something was left out, 2 usage or input (with --strict also: something left out).

Examples:
  gemmtune convert old_tuned.csv --to aiter -o bf16_tuned_gemm.csv
  gemmtune convert results.yaml --to aiter --gfx gfx942 --cu_num 304 --indtype fp16 -o bf16_tuned_gemm.csv
  gemmtune convert bf16_tuned_gemm.csv --to untuned
  gemmtune convert --list)";

struct ConvertOptions {
  std::string file;
  std::string from;
  std::string to;
  std::string output;
  std::string operation;
  std::string gfx;
  std::string cu_num;
  std::string n;
  std::string k;
  std::string x_type;
  std::string y_type;
  std::string scheme;
  bool list = false;
  bool strict = false;
  bool json = false;
};

Status read_number(const std::string& option, const std::string& text, std::optional<std::int64_t>& value) {
  if (text.empty()) return {};
  value = parse_integer(text);
  if (value && *value >= 1 && *value <= max_dimension) return {};
  return Status::invalid("{} {}: expected a whole number of at least 1", option, text);
}

Status read_type(const std::string& option, const std::string& text, const ConversionOptions& conversion,
                 std::optional<DataType>& type) {
  if (text.empty()) return {};
  const std::string_view of_units = gfx_of_cu_num(conversion.cu_num);
  type = data_type_on(conversion.gfx.empty() ? of_units : std::string_view(conversion.gfx), text);
  if (type) return {};
  return Status::invalid("{} {}: expected a type such as bf16, fp16 or torch.bfloat16", option, text);
}

Result<ConversionOptions> conversion_options(const ConvertOptions& options) {
  ConversionOptions conversion;
  GEMMTUNE_TRY(conversion.operation, operation_word(options.operation));
  conversion.gfx = options.gfx;
  std::optional<std::int64_t> cu_num;
  GEMMTUNE_RETURN_IF_ERROR(read_number("--cu_num", options.cu_num, cu_num));
  conversion.cu_num = static_cast<int>(cu_num.value_or(0));
  GEMMTUNE_RETURN_IF_ERROR(read_number("-n", options.n, conversion.n));
  GEMMTUNE_RETURN_IF_ERROR(read_number("-k", options.k, conversion.k));
  GEMMTUNE_RETURN_IF_ERROR(read_type("--indtype", options.x_type, conversion, conversion.x_type));
  GEMMTUNE_RETURN_IF_ERROR(read_type("--outdtype", options.y_type, conversion, conversion.y_type));
  if (!options.scheme.empty() && options.scheme != "m_leq" && options.scheme != "small_medium_large") {
    return Status::invalid("--scheme {}: expected m_leq or small_medium_large", options.scheme);
  }
  if (!options.scheme.empty()) conversion.thirds = options.scheme == "small_medium_large";
  return conversion;
}

int print_formats() {
  TextTable table({{"format"}, {"read"}, {"written"}, {"files"}, {"meaning"}});
  for (const Format& format : all_formats()) {
    table.add({std::string(format.name), format.read != nullptr ? "yes" : "no",
               format.write != nullptr ? "yes" : "no", std::string(format.file_names),
               std::string(format.description)});
  }
  print_text(table.text(0));
  return exit_done;
}

struct Converted {
  std::string text;
  ConversionRows rows;  // with all that was left out
  const Format* target = nullptr;
};

Result<ConversionRows> read_one(const std::string& path, const std::string& from,
                                const ConversionOptions& conversion) {
  GEMMTUNE_TRY(auto content, read_text_of_table(path, {.python = read_environment().python}));
  const std::string source = path == "-" ? "standard input" : path;
  const auto origin =
      from.empty() ? Result<const Format*>(&detect_format(source, content)) : find_format(from);
  if (!origin.ok()) return Status::invalid("--from {}", origin.message());
  if ((*origin)->read == nullptr) return Status::unsupported("--from {}: is only written", from);
  return (*origin)->read(source, std::move(content), conversion);
}

/// The rows of every file of the list.
Result<ConversionRows> read_all(const ConvertOptions& options, const ConversionOptions& conversion) {
  const std::vector<std::string> paths = path_list(options.file);
  if (paths.empty()) return Status::invalid("'{}': expected the path of a file", options.file);
  auto rows = read_one(paths.front(), options.from, conversion);
  for (std::size_t index = 1; rows.ok() && index < paths.size(); ++index) {
    GEMMTUNE_TRY(auto more, read_one(paths[index], options.from, conversion));
    GEMMTUNE_RETURN_IF_ERROR(rows->append(std::move(more)));
  }
  return rows;
}

Result<Converted> convert(const ConvertOptions& options) {
  GEMMTUNE_TRY(const auto conversion, conversion_options(options));
  if (options.file.empty()) return Status::invalid("no file: give the file to convert (or --list)");
  if (options.to.empty()) return Status::invalid("--to is missing: give a format (see --list)");
  const auto target = find_format(options.to);
  if (!target.ok()) return Status::invalid("--to {}", target.message());
  if ((*target)->write == nullptr) return Status::unsupported("--to {}: is only read", options.to);
  GEMMTUNE_TRY(auto rows, read_all(options, conversion));
  GEMMTUNE_TRY(auto text, write_rows(**target, rows, conversion));
  return Converted{std::move(text), std::move(rows), *target};
}

Status write(const ConvertOptions& options, const Format& target, const std::string& text) {
  if (options.output.empty() || options.output == "-") {
    print_document(text);
    return {};
  }
  for (const std::string& input : path_list(options.file)) {
    if (resolve_links(options.output) != resolve_links(input)) continue;
    return Status::invalid("-o {}: is the input, which is never changed; write to another file",
                           options.output);
  }
  GEMMTUNE_RETURN_IF_ERROR(check_writable("-o", options.output));
  if (!is_tuned_format(target)) GEMMTUNE_RETURN_IF_ERROR(check_replaces_no_tuned_file("-o", options.output));
  return write_file_atomically(options.output, text);
}

void print_json(const ConvertOptions& options, const ConversionRows& rows) {
  OrderedJson json;
  json["command"] = "convert";
  json["file"] = options.file;
  json["to"] = options.to;
  json["output"] = options.output;
  json["rows"] = rows.entries.size();
  json["left_out"] = left_out_json(rows.left_out);
  json["notes"] = rows.notes;
  print_document(json_document(json));
}

Result<int> run_convert(const ConvertOptions& options) {
  if (options.list) return print_formats();
  if (options.json && (options.output.empty() || options.output == "-")) {
    return Status::invalid("--json: stdout holds the document; name the file with -o");
  }
  GEMMTUNE_TRY(const auto converted, convert(options));
  const std::vector<LeftOut>& lost = converted.rows.left_out;
  for (const std::string& note : converted.rows.notes) print_note(note);
  for (const LeftOut& item : lost) print_note(describe(converted.rows.source, item));
  if (!lost.empty() && options.strict) {
    return Status::invalid("{}, and --strict was given: nothing is written", summary_of(lost));
  }
  GEMMTUNE_RETURN_IF_ERROR(write(options, *converted.target, converted.text));
  print_note(fmt::format("{} read, {}", counted(converted.rows.entries.size(), "row"),
                         lost.empty() ? "nothing left out" : summary_of(lost)));
  if (options.json) print_json(options, converted.rows);
  return lost.empty() ? exit_done : exit_findings;
}

}  // namespace

std::function<Result<int>()> declare_convert(CommandOptions& app) {
  auto options = std::make_shared<ConvertOptions>();
  app.add_option("FILE", options->file,
                 "What is converted; - for stdin, several files of one format colon-separated");
  app.add_option("--to", options->to, "The format to write (see --list)");
  app.add_option("--from", options->from, "The file's format (default: by its name and what it begins with)");
  app.add_option("-o,--output", options->output, "Where it goes (default: - for stdout)");
  app.add_flag("--list", options->list, "Name the formats");
  app.add_option("--op", options->operation, "The operation, where the file does not state it");
  app.add_option("--gfx", options->gfx, "The architecture, where the file does not state it");
  app.add_option("--cu-num", options->cu_num, "Compute units, where the file does not state them");
  app.add_option("--indtype", options->x_type, "Type of x and w, where the file does not state it");
  app.add_option("--outdtype", options->y_type, "Type of y (default: as x)");
  app.add_option("-n", options->n, "N of a Triton file whose name does not state it");
  app.add_option("-k", options->k, "K of a Triton file whose name does not state it");
  app.add_option("--scheme", options->scheme,
                 "Buckets of a Triton file: m_leq or small_medium_large (default: those "
                 "that a Triton config has, else m_leq)");
  app.add_flag("--strict", options->strict, "What cannot be carried is an error; nothing is written");
  app.add_flag("--json", options->json, "One JSON document on stdout: what was left out; needs -o");
  app.footer(convert_footer);
  return [options] { return run_convert(*options); };
}

}  // namespace gemmtune::cli
