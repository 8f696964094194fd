#include "formats/tune_gemm/gemm_result_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/diagnostics.h"
#include "formats/yaml_guard.h"

namespace gemmtune {
namespace {

constexpr std::string_view v2_order[] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M",
                                         "SPLIT_K",      "num_warps",    "num_stages"};
constexpr std::string_view v3_4_order[] = {"BLOCK_SIZE_M",
                                           "BLOCK_SIZE_N",
                                           "BLOCK_SIZE_K",
                                           "GROUP_SIZE_M",
                                           "SPLIT_K",
                                           "num_warps",
                                           "num_stages",
                                           "waves_per_eu",
                                           "matrix_instr_nonkdim",
                                           "kpack",
                                           "instruction_sched_variant"};

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char character) { return character >= 0x20 && character < 0x7f; });
}

/// Of one line, and nothing that yaml_guard.h counts as another level: within the braces that are written it
/// might be one too many.
bool is_text(std::string_view text) {
  return is_printable(text) && text.find_first_of("[{") == std::string_view::npos;
}

/// What YAML and Python read as one word without quotes.
bool is_plain(std::string_view text) {
  constexpr std::string_view signs = "_.+-";
  const auto is_plain_character = [&](char character) {
    return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'z') ||
           (character >= 'A' && character <= 'Z') || signs.find(character) != std::string_view::npos;
  };
  // A word of signs alone, or with one before a letter, may be a marker of YAML's ("---", "-").
  const bool begins_well = !text.empty() && signs.substr(1).find(text.front()) == std::string_view::npos;
  const bool is_number = !text.empty() && parse_number(text).has_value();
  return (begins_well || is_number) && std::ranges::all_of(text, is_plain_character);
}

std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (const char character : text) {
    result += character;
    if (character == '\'') result += character;
  }
  return result + "'";
}

/// Number behind `label`, up to the next blank.
std::optional<double> number_behind(std::string_view comment, std::string_view label) {
  const auto at = comment.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = trim(comment.substr(at + label.size()));
  const auto value = parse_number(rest.substr(0, rest.find(' ')));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// One item of the list at a time.
class ResultReader {
 public:
  ResultReader(const std::string& content, Diagnostics& diagnostics)
      : lines_(split(content, '\n')), diagnostics_(diagnostics) {}

  bool read(const YAML::Node& node, GemmResult& result) {
    result.line = yaml_line(node);
    line_ = result.line;
    if (!node.IsMap()) return complain("-", node.IsScalar() ? node.Scalar() : "", "a map with M, N and K");
    std::unordered_set<std::string> seen;
    for (const auto& member : node) {
      if (!is_name(member.first)) return complain("-", "", "names as keys");
      const std::string& name = member.first.Scalar();
      if (!seen.insert(name).second) return complain(name, "", "the key once");
      if (!read_value(name, member.second, result)) return false;
    }
    for (const char* size : {"M", "N", "K"}) {
      if (!seen.contains(size)) return complain(size, "", size_expected());
    }
    read_comment(result);
    return true;
  }

 private:
  bool complain(std::string_view key, std::string_view value, std::string_view expected) {
    diagnostics_.cell(line_, key, value, expected);
    return false;
  }

  /// YAML allows no longer key in a flow map than 1024 characters.
  static bool is_name(const YAML::Node& node) {
    return node.IsScalar() && is_text(node.Scalar()) && node.Scalar().size() <= 200;
  }

  static std::string size_expected() { return fmt::format("a whole number from 1 to {}", max_dimension); }

  bool read_value(const std::string& key, const YAML::Node& node, GemmResult& result) {
    if (!node.IsScalar() || !is_text(node.Scalar())) {
      return complain(key, "", "a number or a text of one line that opens no bracket");
    }
    const std::string& text = node.Scalar();
    if (key == "M") return read_size(key, text, result.m);
    if (key == "N") return read_size(key, text, result.n);
    if (key == "K") return read_size(key, text, result.k);
    if (key == "rowMajorA") return read_order(key, text, result.a_order);
    if (key == "rowMajorB") return read_order(key, text, result.b_order);
    const bool quoted_there = node.Tag() != "?";  // "?" is the tag of a word without quotes
    result.parameters.push_back({key, text, quoted_there || !is_plain(text)});
    return true;
  }

  bool read_size(const std::string& key, const std::string& text, std::int64_t& target) {
    const auto value = parse_integer(text);
    if (!value || *value < 1 || *value > max_dimension) return complain(key, text, size_expected());
    target = *value;
    return true;
  }

  bool read_order(const std::string& key, const std::string& text, std::optional<Order>& target) {
    if (text != "T" && text != "N") return complain(key, text, "T (row-major) or N (column-major)");
    target = text == "T" ? Order::row_major : Order::column_major;
    return true;
  }

  /// yaml-cpp drops comments: this one is looked for in the line on which the map begins, behind its braces.
  void read_comment(GemmResult& result) {
    const std::string_view line = result.line <= lines_.size() ? lines_[result.line - 1] : std::string_view();
    const auto at = line.rfind("# TFLOPS:");
    const auto brace = line.rfind('}');
    if (at == std::string_view::npos || (brace != std::string_view::npos && brace > at)) return;
    const std::string_view comment = line.substr(at);
    const auto tflops = number_behind(comment, "TFLOPS:");
    const auto us = number_behind(comment, "time(us):");
    if (!tflops || !us) {
      complain("comment", trim(comment), "# TFLOPS: number time(us): number");
      return;
    }
    result.tflops = tflops;
    result.us = us;
  }

  std::vector<std::string_view> lines_;
  Diagnostics& diagnostics_;
  std::size_t line_ = 0;
};

char letter(Order order) { return order == Order::row_major ? 'T' : 'N'; }

std::string result_line(const GemmResult& result, TuneGemmVersion version) {
  std::string text = fmt::format("- {{'M': {}, 'N': {}, 'K': {}", result.m, result.n, result.k);
  if (version == TuneGemmVersion::v3_4) {
    if (result.a_order) text += fmt::format(", 'rowMajorA': '{}'", letter(*result.a_order));
    if (result.b_order) text += fmt::format(", 'rowMajorB': '{}'", letter(*result.b_order));
  }
  for (const GemmParameter& parameter : result.parameters) {
    text += fmt::format(", {}: {}", in_quotes(parameter.name),
                        parameter.quoted ? in_quotes(parameter.text) : parameter.text);
  }
  text += "}";
  if (result.tflops && result.us) {
    text += fmt::format(" # TFLOPS: {} time(us): {}", gemm_result_number(*result.tflops, version),
                        gemm_result_number(*result.us, version));
  }
  return text + "\n";
}

}  // namespace

std::optional<std::int64_t> GemmParameter::integer() const {
  return quoted ? std::nullopt : parse_integer(text);
}

const GemmParameter* GemmResult::find(std::string_view name) const {
  const auto at = std::ranges::find_if(
      parameters, [&](const GemmParameter& parameter) { return parameter.name == name; });
  return at == parameters.end() ? nullptr : &*at;
}

Result<GemmResultFile> parse_gemm_results(const std::string& source, const std::string& content) {
  GEMMTUNE_TRY(const auto root, load_yaml_list(source, content));
  GemmResultFile file;
  file.path = source;
  Diagnostics diagnostics(source);
  ResultReader reader(content, diagnostics);
  for (const YAML::Node& node : root) {
    GemmResult result;
    if (!reader.read(node, result)) continue;
    if (result.a_order || result.b_order) file.version = TuneGemmVersion::v3_4;
    file.results.push_back(std::move(result));
  }
  file.diagnostics = diagnostics.take();
  return file;
}

void order_parameters(TuneGemmVersion version, std::vector<GemmParameter>& parameters) {
  const std::span<const std::string_view> order =
      version == TuneGemmVersion::v2 ? std::span<const std::string_view>(v2_order) : v3_4_order;
  const auto rank = [&](const GemmParameter& parameter) {
    return std::find(order.begin(), order.end(), parameter.name) - order.begin();
  };
  std::ranges::stable_sort(parameters,
                           [&](const GemmParameter& a, const GemmParameter& b) { return rank(a) < rank(b); });
}

std::string gemm_result_number(double value, TuneGemmVersion version) {
  if (value < 0.0001) return fmt::format("{:.3e}", value);
  if (version == TuneGemmVersion::v3_4 && value > 1000) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string write_gemm_results(const std::vector<GemmResult>& results, TuneGemmVersion version) {
  std::string text;
  for (const GemmResult& result : results) text += result_line(result, version);
  return text;
}

std::string write_gemm_benchmark_csv(const std::vector<GemmResult>& results) {
  std::string text = "trans,M,N,K,TFLOPS,us\n";
  for (const GemmResult& result : results) {
    if (!result.tflops || !result.us) continue;
    const auto number = [](double value) { return gemm_result_number(value, TuneGemmVersion::v3_4); };
    text += fmt::format("{}{},{},{},{},{},{}\n", letter(result.a_order.value_or(Order::row_major)),
                        letter(result.b_order.value_or(Order::column_major)), result.m, result.n, result.k,
                        number(*result.tflops), number(*result.us));
  }
  return text;
}

}  // namespace gemmtune
