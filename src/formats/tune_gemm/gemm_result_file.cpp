#include "formats/tune_gemm/gemm_result_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/text.h"
#include "formats/yaml_guard.h"

namespace gemmtune {
namespace {

struct SameMeaning {
  std::string_view setting;
  std::string_view parameter;
};

/// Settings of GPU kernels that tune_gemm has a key for.
constexpr std::array<SameMeaning, 10> same_meanings{{{"bm", "BLOCK_SIZE_M"},
                                                     {"bn", "BLOCK_SIZE_N"},
                                                     {"bk", "BLOCK_SIZE_K"},
                                                     {"sk", "SPLIT_K"},
                                                     {"nw", "num_warps"},
                                                     {"st", "num_stages"},
                                                     {"gm", "GROUP_SIZE_M"},
                                                     {"mi", "matrix_instr_nonkdim"},
                                                     {"kp", "kpack"},
                                                     {"eu", "waves_per_eu"}}};

constexpr std::string_view type_parameters[] = {"dtype_a", "dtype_b", "dtype_c"};

bool is_swapped(const std::vector<std::pair<std::string, std::string>>& settings) {
  return std::ranges::any_of(
      settings, [](const auto& setting) { return setting.first == "swap" && setting.second == "1"; });
}

/// Of a kernel that swaps A and B, bm is a block of N: its settings keep their own names.
std::string parameter_name(const std::string& setting, bool swapped) {
  for (const SameMeaning& same : same_meanings) {
    if (!swapped && same.setting == setting) return std::string(same.parameter);
  }
  return setting;
}

Result<std::optional<DataType>> type_of(const GemmResult& result, std::string_view parameter,
                                        std::string_view architecture) {
  const GemmParameter* const found = result.find(parameter);
  if (found == nullptr) return std::optional<DataType>();
  const auto type = data_type_on(architecture, found->text);
  if (!type) return Status::invalid("{} '{}': expected a type such as fp16 or bf16", parameter, found->text);
  return type;
}

/// What makes two results one: texts of types as they stand, for a type that is unknown here is a key too.
auto key_of(const GemmResult& result) {
  const auto text = [&](std::string_view parameter, std::string_view absent) {
    const GemmParameter* const found = result.find(parameter);
    if (found == nullptr) return std::string(absent);
    const auto type = parse_data_type(found->text);
    return type ? std::string(to_string(*type)) : found->text;
  };
  const std::string x_type = text("dtype_a", to_string(DataType::f16));
  return std::tuple(result.m, result.n, result.k, result.a_order.value_or(Order::row_major),
                    result.b_order.value_or(Order::column_major), x_type, text("dtype_b", x_type),
                    text("dtype_c", x_type), text(bias_parameter, "0"));
}

/// The lines that an item has from `begin` (0-based) on: its first, and those of a map in block style.
std::size_t end_of_item(const std::vector<std::string_view>& lines, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < lines.size() && !lines[end].empty() && (lines[end][0] == ' ' || lines[end][0] == '\t') &&
         !trim(lines[end]).empty() && !trim(lines[end]).starts_with('#'))
    ++end;
  return end;
}

bool has_key(const std::vector<GemmResult>& results, const GemmResult& wanted) {
  return std::ranges::any_of(results,
                             [&](const GemmResult& result) { return key_of(result) == key_of(wanted); });
}

/// The file's text with the results in it.
Result<std::string> updated_text(const std::string& path, const std::string& content,
                                 const std::vector<GemmResult>& results) {
  GEMMTUNE_TRY(const auto known, parse_gemm_results(path, content));
  if (is_list_of_sizes(known)) return Status::invalid("{}: is a list of sizes, expected results", path);
  const std::vector<std::string_view> lines = split(content, '\n');
  std::string text;
  // Of two results of one key the later counts.
  std::vector<bool> is_written(results.size(), false);
  for (std::size_t index = 0; index < results.size(); ++index) {
    is_written[index] =
        std::any_of(results.begin() + static_cast<std::ptrdiff_t>(index) + 1, results.end(),
                    [&](const GemmResult& later) { return key_of(later) == key_of(results[index]); });
  }
  const auto write = [&](std::size_t index) {
    text += write_gemm_results({results[index]}, TuneGemmVersion::v3_4);
    is_written[index] = true;
  };
  for (std::size_t at = 0; at < lines.size();) {
    const auto item =
        std::ranges::find_if(known.results, [&](const GemmResult& result) { return result.line == at + 1; });
    std::size_t replaced_by = results.size();
    for (std::size_t index = 0; item != known.results.end() && index < results.size(); ++index) {
      if (key_of(results[index]) == key_of(*item)) replaced_by = index;
    }
    if (replaced_by < results.size()) {
      if (!is_written[replaced_by]) write(replaced_by);
      at = end_of_item(lines, at);
      continue;
    }
    const bool is_end = at + 1 == lines.size();
    text += fmt::format("{}{}", lines[at], is_end ? "" : "\n");
    ++at;
  }
  if (!text.empty() && text.back() != '\n') text += '\n';
  for (std::size_t index = 0; index < results.size(); ++index) {
    if (!is_written[index]) write(index);
  }
  // What is read back decides: a list in brackets, or indented items, would be damaged by lines behind it.
  const auto read = parse_gemm_results(path, text);
  const bool whole = read.ok() && std::ranges::all_of(results, [&](const GemmResult& result) {
                       return has_key(read->results, result);
                     });
  if (!whole)
    return Status::invalid("{}: expected a list whose items begin with '- ' at the beginning of a line",
                           path);
  return text;
}

/// Empty where there is none.
Result<std::string> content_of(const std::string& path) {
  return file_exists(path) ? read_file(path, max_yaml_bytes) : Result<std::string>(std::string());
}

/// What a probe writes into the text of a file.
Problem smallest_problem() {
  Problem problem;
  problem.m = problem.n = problem.k = 1;
  return problem;
}

}  // namespace

bool is_yaml_path(std::string_view path) { return ends_in(path, ".yaml") || ends_in(path, ".yml"); }

bool is_tune_gemm_problem(const Problem& problem) {
  return problem.operation == Operation::a16w16 && !problem.scale_ab && !is_packed(problem) &&
         problem.x_type == problem.w_type;
}

GemmResult gemm_size_of(const Problem& problem) {
  GemmResult size;
  size.m = problem.m;
  size.n = problem.n;
  size.k = problem.k;
  size.a_order = problem.x_order;
  // B [K, N] column-major is the weight [N, K] row by row.
  size.b_order = problem.w_order == Order::row_major ? Order::column_major : Order::row_major;
  return size;
}

GemmResult gemm_result_of(const TunedEntry& entry,
                          const std::vector<std::pair<std::string, std::string>>& settings) {
  GemmResult result = gemm_size_of(entry.problem);
  const bool swapped = is_swapped(settings);
  for (const auto& [setting, value] : settings) {
    std::string text = value;
    // A name of mfma says how many bytes of k a tile has; tune_gemm counts elements.
    if (const auto bytes = parse_integer(value); setting == "bk" && entry.libtype == "mfma" && bytes)
      text = std::to_string(*bytes * 8 / bits(entry.problem.x_type));
    result.parameters.push_back({parameter_name(setting, swapped), text, !parse_integer(text).has_value()});
  }
  order_parameters(TuneGemmVersion::v3_4, result.parameters);
  result.parameters.insert(result.parameters.begin(),
                           {std::string(kernel_name_parameter), entry.kernel_name, true});
  set_time(entry.problem, entry.us, result);
  return result;
}

void set_time(const Problem& problem, double us, GemmResult& result) {
  if (!valid_time(us)) return;
  result.us = us;
  result.tflops = flops(problem) / us * 1e-6;
}

void add_problem_parameters(const Problem& problem, GemmResult& result) {
  const DataType types[] = {problem.x_type, problem.w_type, problem.y_type};
  const bool plain =
      std::all_of(std::begin(types), std::end(types), [](DataType type) { return type == DataType::f16; });
  for (std::size_t index = 0; index < std::size(types) && !plain; ++index)
    result.parameters.push_back(
        {std::string(type_parameters[index]), std::string(to_string(types[index])), true});
  if (problem.bias) result.parameters.push_back({std::string(bias_parameter), "1", false});
}

bool has_types(const GemmResult& result) { return result.find(type_parameters[0]) != nullptr; }

bool is_list_of_sizes(const GemmResultFile& file) {
  const auto of_problem = [](const GemmParameter& parameter) {
    return parameter.name == bias_parameter ||
           std::find(std::begin(type_parameters), std::end(type_parameters), parameter.name) !=
               std::end(type_parameters);
  };
  const auto is_size = [&](const GemmResult& result) {
    return !result.us && std::ranges::all_of(result.parameters, of_problem);
  };
  return !file.results.empty() && std::ranges::all_of(file.results, is_size);
}

Result<Problem> problem_of_result(const GemmResult& result, std::optional<DataType> x_type,
                                  std::optional<DataType> y_type, std::string_view architecture) {
  const auto own_x = type_of(result, type_parameters[0], architecture);
  const auto own_w = type_of(result, type_parameters[1], architecture);
  const auto own_y = type_of(result, type_parameters[2], architecture);
  for (const Status& status : {own_x.status(), own_w.status(), own_y.status()})
    GEMMTUNE_RETURN_IF_ERROR(status);
  Problem problem = default_problem(Operation::a16w16);
  problem.m = result.m;
  problem.n = result.n;
  problem.k = result.k;
  problem.x_type = own_x->value_or(x_type.value_or(DataType::f16));
  problem.w_type = own_w->value_or(problem.x_type);
  problem.y_type = own_y->value_or(y_type.value_or(problem.x_type));
  problem.x_order = result.a_order.value_or(Order::row_major);
  const bool plain_weight = result.b_order.value_or(Order::column_major) == Order::column_major;
  problem.w_order = plain_weight ? Order::row_major : Order::column_major;
  const GemmParameter* const bias = result.find(bias_parameter);
  problem.bias = bias != nullptr && parse_bool(bias->text).value_or(false);
  return problem;
}

Status check_gemm_result_file(const std::string& path) {
  GEMMTUNE_TRY(const auto content, content_of(resolve_links(path)));
  return updated_text(path, content, {gemm_size_of(smallest_problem())}).status();
}

Status update_gemm_results(const std::string& path, const std::vector<GemmResult>& results) {
  if (results.empty()) return {};
  const std::string target = resolve_links(path);
  GEMMTUNE_TRY(const auto lock, FileLock::acquire(target + ".lock"));
  GEMMTUNE_TRY(const auto content, content_of(target));
  GEMMTUNE_TRY(const auto text, updated_text(path, content, results));
  return text == content ? Status() : write_file_atomically(target, text);
}

}  // namespace gemmtune
