// tune_gemm's results and sizes among the formats. A winner's kernelName is tune_gemm's own name of a
// configuration: BM64_BN128_BK64_GM4_SK1_nW8_nS2_EU0_kP2_mfma16_schedNONE.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/text.h"
#include "candidates/config.h"
#include "formats/conversion.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "formats/tune_gemm/gemm_result_yaml.h"

namespace gemmtune {
namespace {

/// AITER's word for such kernels.
constexpr std::string_view triton_libtype = "triton";

struct NamePart {
  std::string_view part;
  std::string_view parameter;
  bool is_word = false;  // upper case in the name, a quoted text in the file
};

/// In the order of the name.
constexpr std::array<NamePart, 11> kernel_name_parts{{
    {"BM", "BLOCK_SIZE_M"},
    {"BN", "BLOCK_SIZE_N"},
    {"BK", "BLOCK_SIZE_K"},
    {"GM", "GROUP_SIZE_M"},
    {"SK", "SPLIT_K"},
    {"nW", "num_warps"},
    {"nS", "num_stages"},
    {"EU", "waves_per_eu"},
    {"kP", "kpack"},
    {"mfma", "matrix_instr_nonkdim"},
    {"sched", "instruction_sched_variant", true},
}};

std::string upper(std::string text) {
  for (char& character : text) {
    if (character >= 'a' && character <= 'z') character = static_cast<char>(character - 'a' + 'A');
  }
  return text;
}

const NamePart* part_of(const GemmParameter& parameter) {
  for (const NamePart& part : kernel_name_parts) {
    if (part.parameter != parameter.name) continue;
    const auto number = parameter.integer();
    const bool reads_back =
        part.is_word ? parameter.quoted && to_lower(upper(parameter.text)) == parameter.text &&
                           parameter.text.find_first_of("_;") == std::string::npos && !parameter.text.empty()
                     : number && std::to_string(*number) == parameter.text;
    return reads_back ? &part : nullptr;
  }
  return nullptr;
}

/// As in a result file, without the blanks: NUM_SMS=304, mode='fast'.
std::string assignment(const GemmParameter& parameter) {
  std::string text = parameter.name + "=";
  if (!parameter.quoted) return text + parameter.text;
  text += '\'';
  for (const char character : parameter.text) {
    text += character;
    if (character == '\'') text += character;
  }
  return text + '\'';
}

/// tune_gemm's own name, and behind it ";name=value" of each parameter that the name has no part for. Empty
/// where a parameter's own name holds one of ";='".
std::string tune_gemm_kernel_name(const GemmResult& result) {
  std::string name;
  std::string others;
  for (const NamePart& part : kernel_name_parts) {
    const GemmParameter* parameter = result.find(part.parameter);
    if (parameter == nullptr || part_of(*parameter) == nullptr) continue;
    name += fmt::format("{}{}{}", name.empty() ? "" : "_", part.part,
                        part.is_word ? upper(parameter->text) : parameter->text);
  }
  for (const GemmParameter& parameter : result.parameters) {
    if (part_of(parameter) != nullptr) continue;
    if (parameter.name.find_first_of(";='") != std::string::npos || parameter.name.empty()) return {};
    others += ";" + assignment(parameter);
  }
  return name + others;
}

std::optional<GemmParameter> parameter_of(std::string_view word) {
  for (const NamePart& part : kernel_name_parts) {
    if (!word.starts_with(part.part) || word.size() == part.part.size()) continue;
    const std::string_view value = word.substr(part.part.size());
    if (part.is_word) return GemmParameter{std::string(part.parameter), to_lower(value), true};
    if (parse_integer(value)) return GemmParameter{std::string(part.parameter), std::string(value), false};
  }
  return std::nullopt;
}

/// What assignment() gives; nullopt for other texts.
std::optional<GemmParameter> assigned_parameter(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  GemmParameter parameter{std::string(text.substr(0, equals)), {}, false};
  std::string_view value = text.substr(equals + 1);
  if (!value.starts_with('\'')) {
    parameter.text = value;
    return value.empty() ? std::nullopt : std::optional(parameter);
  }
  if (value.size() < 2 || !value.ends_with('\'')) return std::nullopt;
  value = value.substr(1, value.size() - 2);
  parameter.quoted = true;
  for (std::size_t at = 0; at < value.size(); ++at) {
    parameter.text += value[at];
    if (value[at] == '\'') ++at;
  }
  return parameter;
}

/// The parts of a name between semicolons outside quotes.
std::vector<std::string_view> between_semicolons(std::string_view name) {
  std::vector<std::string_view> parts;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < name.size(); ++at) {
    if (name[at] == '\'') quoted = !quoted;
    if (name[at] != ';' || quoted) continue;
    parts.push_back(name.substr(begin, at - begin));
    begin = at + 1;
  }
  parts.push_back(name.substr(begin));
  return parts;
}

/// The parameters of a name as above; empty where it is none.
std::vector<GemmParameter> parameters_of(std::string_view name) {
  std::vector<GemmParameter> parameters;
  const std::vector<std::string_view> parts = between_semicolons(name);
  for (const std::string_view word : split(parts.front(), '_')) {
    if (parts.front().empty()) break;
    auto parameter = parameter_of(word);
    if (!parameter) return {};
    parameters.push_back(std::move(*parameter));
  }
  for (std::size_t index = 1; index < parts.size(); ++index) {
    auto parameter = assigned_parameter(parts[index]);
    if (!parameter) return {};
    parameters.push_back(std::move(*parameter));
  }
  return parameters;
}

/// The first parameter that keeps tune_gemm_kernel_name() from naming the result.
std::string unnameable(const GemmResult& result) {
  for (const GemmParameter& parameter : result.parameters) {
    if (parameter.name.empty() || parameter.name.find_first_of(";='") != std::string::npos)
      return parameter.name;
  }
  return {};
}

Result<TunedEntry> entry_of(const GemmResult& result, const ConversionOptions& options) {
  TunedEntry entry;
  entry.gfx = options.gfx;
  entry.cu_num = options.cu_num;
  entry.line = result.line;
  GEMMTUNE_TRY(entry.problem, problem_of_result(result, options.x_type, options.y_type, options.gfx));
  entry.us = result.us.value_or(std::numeric_limits<double>::quiet_NaN());
  entry.err_ratio = std::numeric_limits<double>::quiet_NaN();
  if (const GemmParameter* split = result.find("SPLIT_K")) entry.split_k = split->integer().value_or(0);
  if (const GemmParameter* kernel = result.find(kernel_name_parameter)) {
    entry.kernel_name = kernel->text;
    entry.libtype = family_of_kernel_name(kernel->text).value_or(std::string());
    if (entry.libtype.empty())
      return Status::invalid("kernelName '{}': expected the name of a kernel of gemmtune", kernel->text);
  } else if (!result.parameters.empty()) {
    entry.libtype = triton_libtype;
    entry.kernel_name = tune_gemm_kernel_name(result);
    if (entry.kernel_name.empty())
      return Status::invalid("parameter {}: no name that a kernelName can hold", unnameable(result));
  }
  return entry;
}

constexpr const char* no_such_gemm =
    "tune_gemm knows plain GEMMs only (one type of x and w, no bias, scales or packed weight)";

bool is_convertible(const Problem& problem) { return is_tune_gemm_problem(problem) && !problem.bias; }

/// The line of a row: a configuration of Triton, or a kernel of gemmtune; nullopt for other kernels.
std::optional<GemmResult> result_of(const TunedEntry& entry, TuneGemmVersion version) {
  if (family_of_kernel_name(entry.kernel_name) == entry.libtype) {
    std::vector<std::pair<std::string, std::string>> settings;
    if (entry.split_k > 0) settings.emplace_back("sk", std::to_string(entry.split_k));
    return gemm_result_of(entry, settings);
  }
  GemmResult result = gemm_size_of(entry.problem);
  result.parameters = parameters_of(entry.kernel_name);
  if (entry.libtype != triton_libtype || result.parameters.empty()) return std::nullopt;
  order_parameters(version, result.parameters);
  set_time(entry.problem, entry.us, result);
  return result;
}

Result<std::string> write_results(ConversionRows& rows, TuneGemmVersion version) {
  std::vector<GemmResult> results;
  rows.take_each([&](std::size_t, const TunedEntry& entry) -> std::string {
    if (!is_convertible(entry.problem)) return no_such_gemm;
    auto result = result_of(entry, version);
    if (!result)
      return fmt::format("kernel '{}' ({}): no configuration of tune_gemm", entry.kernel_name, entry.libtype);
    if (version == TuneGemmVersion::v2 &&
        (result->a_order != Order::row_major || result->b_order != Order::column_major))
      return "version 2 has no column for the orders of the operands";
    results.push_back(std::move(*result));
    return {};
  });
  return write_gemm_results(results, version);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): as every format's
Result<ConversionRows> read_tune_gemm_rows(const std::string& source, std::string content,
                                           const ConversionOptions& options) {
  GEMMTUNE_TRY(auto file, parse_gemm_results(source, content));
  ConversionRows rows;
  rows.source = source;
  rows.has_types = options.x_type.has_value() || std::ranges::all_of(file.results, has_types);
  rows.origin = file.version == TuneGemmVersion::v3_4 ? "tune_gemm_yaml" : "tune_gemm_yaml_v2";
  // A bad comment costs the time, anything else the item.
  rows.leave_out_lines(file.diagnostics);
  for (const GemmResult& result : file.results) {
    auto entry = entry_of(result, options);
    if (entry.ok()) {
      rows.entries.push_back(std::move(*entry));
    } else {
      rows.leave_out_line(result.line, entry.message());
    }
  }
  return rows;
}

Result<std::string> write_tune_gemm_v2_rows(ConversionRows& rows, const ConversionOptions&) {
  return write_results(rows, TuneGemmVersion::v2);
}

Result<std::string> write_tune_gemm_rows(ConversionRows& rows, const ConversionOptions&) {
  return write_results(rows, TuneGemmVersion::v3_4);
}

Result<std::string> write_tune_gemm_sizes(ConversionRows& rows, const ConversionOptions&) {
  std::vector<GemmResult> sizes;
  rows.take_each([&](std::size_t, const TunedEntry& entry) -> std::string {
    if (!is_convertible(entry.problem)) return no_such_gemm;
    GemmResult size = gemm_size_of(entry.problem);
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(std::move(size));
    return {};
  });
  return write_gemm_results(sizes, TuneGemmVersion::v3_4);
}

}  // namespace gemmtune
