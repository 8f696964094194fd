#include "formats/aic/aic_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/rounding.h"
#include "base/text.h"
#include "formats/conversion.h"
#include "formats/csv/csv.h"
#include "formats/diagnostics.h"

namespace gemmtune {
namespace {

struct DeviceWord {
  std::string_view word;  // in "NVIDIA H200"
  std::string_view gfx;
  int cu_num;
};
/// A longer word stands before any that it contains.
constexpr std::array<DeviceWord, 7> device_words{{{"H100 PCIe", "sm_90", 114},
                                                  {"H200", "sm_90", 132},
                                                  {"H100", "sm_90", 132},
                                                  {"H20", "sm_90", 78},
                                                  {"GB200", "sm_100", 148},
                                                  {"B200", "sm_100", 148},
                                                  {"A100", "sm_80", 108}}};

struct TypeOfWord {
  std::string_view word;
  OperationForm operation;
  DataType type;
  bool scale_ab;
};
/// Of several words of one problem the first is written.
constexpr std::array<TypeOfWord, 7> dense_words{{
    {"bfloat16", Operation::a16w16, DataType::bf16, false},
    {"fp8", Operation::a16w16, DataType::f8_e4m3fn, true},
    {"fp8_static", Operation::a16w16, DataType::f8_e4m3fn, true},
    {"fp8_ootb", Operation::a16w16, DataType::f8_e4m3fn, true},
    {"fp8_block", Operation::a8w8_blockscale, DataType::f8_e4m3fn, false},
    {"fp8_block", {Operation::a8w8_blockscale, true}, DataType::f8_e4m3fn, false},
    {"sq", Operation::a8w8, DataType::i8, false},
}};

struct MixtureWord {
  std::string_view word;
  DataType x_type;
  DataType w_type;
  QuantType quant_type;
};
constexpr std::array<MixtureWord, 4> mixture_words{{
    {"bfloat16", DataType::bf16, DataType::bf16, QuantType::none},
    {"fp8", DataType::f8_e4m3fn, DataType::f8_e4m3fn, QuantType::per_tensor},
    {"fp8_block", DataType::f8_e4m3fn, DataType::f8_e4m3fn, QuantType::per_1x128},
    {"w4a16_mxfp4", DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32},
}};

/// How many of the numbers below `end` leave a rest below `wanted` when they are divided by `divisor`.
std::int64_t rests_below(std::int64_t end, std::int64_t wanted, std::int64_t divisor) {
  return end / divisor * wanted + std::min(end % divisor, wanted);
}

/// The tokens' choices of experts that are the first rank's where the collectors route them evenly: a token's experts are one stride
/// apart, the next token's one further; fewer tokens than a stride lie apart. nullopt: some of a token's experts are equal.
std::optional<std::int64_t> even_choices(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                                         std::int64_t of_rank) {
  const std::int64_t stride = ceil_div(experts, topk);
  if ((topk - 1) * stride >= experts) return std::nullopt;
  std::int64_t choices = 0;
  for (std::int64_t place = 0; place < topk; ++place) {
    const std::int64_t first = place * stride;
    if (tokens >= stride) {
      choices += rests_below(first + tokens, of_rank, experts) - rests_below(first, of_rank, experts);
      continue;
    }
    for (std::int64_t token = 0; token < tokens; ++token)
      choices += (token * stride / tokens + first) % experts < of_rank ? 1 : 0;
  }
  return choices;
}

/// The part of all choices of experts that a row of several ranks surely timed: the collectors measure the first rank. Under a power
/// law its experts are exchanged with those of the rank that most tokens choose, so that it has an even part at least. 0: of
/// other ways of routing nothing is known.
double share_of_rank(std::string_view operation, std::string_view distribution, const Problem& problem,
                     std::int64_t ranks) {
  if (ranks == 1) return 1;
  if (operation != "moe") return 0;
  const MoeShape& moe = problem.moe;
  if (distribution.starts_with("power_law_") && distribution.find("eplb") == std::string_view::npos)
    return 1.0 / static_cast<double>(ranks);
  if (distribution != "balanced") return 0;
  const auto choices = even_choices(problem.m, moe.topk, moe.experts, moe.experts / ranks);
  return choices ? static_cast<double>(*choices) / static_cast<double>(problem.m * moe.topk) : 0;
}

/// Columns that say neither what was measured nor where: sizes and types have members of their own, the others are values.
bool is_value_or_size(std::string_view name) {
  constexpr std::array<std::string_view, 17> names{
      "device",           "gemm_dtype",    "moe_dtype", "m",           "n",       "k",     "num_tokens",
      "hidden_size",      "inter_size",    "topk",      "num_experts", "latency", "power", "power_limit",
      "rank0_num_tokens", "dp_num_tokens", "energy"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// One row; remembers the first cell that means nothing.
class AicRow {
 public:
  AicRow(const CsvCells& header, const NamedCells& names, const CsvCells& cells, std::size_t line,
         Diagnostics& diagnostics)
      : header_(header), names_(names), cells_(cells), line_(line), diagnostics_(diagnostics) {}

  /// Why no time of the row is too short; empty: one may be.
  const std::string& why_unrated() const { return why_unrated_; }

  std::optional<TunedEntry> read(bool mixture) {
    TunedEntry entry;
    entry.line = line_;
    entry.err_ratio = std::numeric_limits<double>::quiet_NaN();
    read_device(entry);
    if (mixture) {
      read_mixture(entry);
    } else {
      read_dense(entry);
    }
    entry.kernel_name = cell("kernel_source");
    entry.other_key = further_key();
    if (!entry.unknown_types.empty())
      why_unrated_ = fmt::format("{}: no peak of it is known", entry.unknown_types);
    // Milliseconds.
    const auto latency = parse_number(cell("latency"));
    if (!latency) wrong("latency", "milliseconds");
    entry.us = latency.value_or(0) * 1000;
    if (!good_) return std::nullopt;
    return entry;
  }

 private:
  std::string further_key() const {
    std::string key = "aic";
    for (std::size_t index = 0; index < header_.size(); ++index)
      if (!is_value_or_size(header_[index])) key += fmt::format(" {}", cells_[index]);
    return key;
  }
  std::string_view cell(std::string_view name) const { return names_.of(cells_, name); }
  void wrong(std::string_view name, std::string_view expected) {
    if (good_) diagnostics_.cell(line_, name, cell(name), expected);
    good_ = false;
  }
  std::int64_t size(std::string_view name) {
    const auto value = parse_integer(cell(name));
    if (value && *value >= 1 && *value <= max_dimension) return *value;
    wrong(name, fmt::format("a whole number from 1 to {}", max_dimension));
    return 1;
  }
  void read_device(TunedEntry& entry) const {
    for (const DeviceWord& device : device_words) {
      if (cell("device").find(device.word) == std::string_view::npos) continue;
      entry.gfx = device.gfx;
      entry.cu_num = device.cu_num;
      return;
    }
    entry.gfx = cell("device");
  }
  void read_dense(TunedEntry& entry) {
    const std::string_view word = cell("gemm_dtype");
    const TypeOfWord* known = nullptr;
    for (const TypeOfWord& one : dense_words)
      if (known == nullptr && one.word == word) known = &one;
    entry.problem = default_problem(known != nullptr ? known->operation : OperationForm());
    if (known != nullptr) {
      set_types(entry.problem, known->type);
      entry.problem.scale_ab = known->scale_ab;
    } else {
      entry.unknown_types = fmt::format("gemm_dtype={}", word);
    }
    entry.problem.m = size("m");
    entry.problem.n = size("n");
    entry.problem.k = size("k");
  }
  void read_mixture(TunedEntry& entry) {
    const std::string_view word = cell("moe_dtype");
    const MixtureWord* known = nullptr;
    for (const MixtureWord& one : mixture_words)
      if (one.word == word) known = &one;
    entry.problem = default_problem(Operation::fused_moe);
    MoeShape& moe = entry.problem.moe;
    if (known != nullptr) {
      entry.problem.x_type = known->x_type;
      entry.problem.w_type = known->w_type;
      moe.quant_type = known->quant_type;
    }
    const std::int64_t shards = size("moe_tp_size");
    const std::int64_t parallel = size("moe_ep_size");
    entry.problem.m = size("num_tokens");
    entry.problem.k = size("hidden_size");
    entry.problem.n = std::max<std::int64_t>(1, size("inter_size") / shards);
    moe.experts = static_cast<std::int32_t>(size("num_experts"));
    moe.topk = static_cast<std::int32_t>(size("topk"));
    moe.gated = true;
    if (known == nullptr) entry.unknown_types = fmt::format("moe_dtype={}", word);
    if (!good_) return;
    const double share = share_of_rank(cell("op_name"), cell("distribution"), entry.problem, parallel);
    // Whether w1 has a gate, which is a third of the products, is not in the row.
    constexpr double without_gate = 0.6666;
    entry.rated_share = static_cast<float>(without_gate * share);
    if (share == 0)
      why_unrated_ = fmt::format(
          "{} of distribution {} with moe_ep_size > 1: which part of the tokens the timed rank computes is "
          "not known",
          cell("op_name"), cell("distribution"));
  }

  const CsvCells& header_;
  const NamedCells& names_;
  const CsvCells& cells_;
  std::size_t line_;
  Diagnostics& diagnostics_;
  std::string why_unrated_;
  bool good_ = true;
};

/// Why aiconfigurator has no row for it; empty: it has one.
std::string why_not_aic(const TunedEntry& entry) {
  const Problem& problem = entry.problem;
  if (!entry.other_key.empty()) return "of a table that is only read";
  if (!valid_time(entry.us)) return "no valid time";
  if (aic_dtype(problem).empty())
    return fmt::format("{}: no gemm_dtype or moe_dtype of its types", short_name(problem));
  if (problem.bias) return "a bias, for which the table has no column";
  if (!all_row_major(problem)) return "column-major operands, for which the table has no column";
  if (traits(problem.operation).batched) return "a batched GEMM, for which the table has no column";
  return {};
}

std::string aic_key(const TunedEntry& entry) {
  const Problem& problem = entry.problem;
  if (!is_mixture(problem))
    return fmt::format("{},{},{},{}", aic_dtype(problem), problem.m, problem.n, problem.k);
  const std::string routing =
      entry.routing.empty() ? std::string("uniform") : std::string(entry.routing.view());
  return fmt::format("{},{},{},{},{},{},1,1,{}", aic_dtype(problem), problem.m, problem.k, problem.n,
                     problem.moe.topk, problem.moe.experts, csv_cell(routing));
}

}  // namespace

bool is_aic_header(std::string_view first_line) {
  CsvCells header;
  if (!header.split(first_line)) return false;
  const NamedCells names(header);
  return names.has("latency") && (names.has("gemm_dtype") || names.has("moe_dtype"));
}

Result<AicFile> parse_aic_csv(const std::string& source, std::string content) {
  GEMMTUNE_TRY(const auto document, parse_csv(source, std::move(content)));
  const std::size_t header_index = header_line(document);
  CsvCells header;
  if (header_index == document.lines.size() || !header.split(without_mark(document.lines[header_index].text)))
    return Status::invalid("{}: no header, expected gemm_dtype or moe_dtype, sizes and latency", source);
  const NamedCells names(header);
  const bool mixture = names.has("moe_dtype");
  AicFile file;
  if (mixture) file.operation = Operation::fused_moe;
  Diagnostics diagnostics(source);
  CsvCells cells;
  for (std::size_t index = header_index + 1; index < document.lines.size(); ++index) {
    const CsvLine& line = document.lines[index];
    if (is_blank_row(line.text, cells)) continue;
    if (!cells.split(line.text)) {
      diagnostics.row(line.number, unclosed_quote);
      continue;
    }
    AicRow row(header, names, cells, line.number, diagnostics);
    auto entry = row.read(mixture);
    if (!entry) continue;
    file.entries.push_back(std::move(*entry));
    if (!row.why_unrated().empty()) ++file.unrated[row.why_unrated()];
  }
  file.diagnostics = diagnostics.take();
  return file;
}

std::string_view aic_dtype(const Problem& problem) {
  if (is_mixture(problem)) {
    for (const MixtureWord& one : mixture_words) {
      if (one.x_type == problem.x_type && one.w_type == problem.w_type &&
          one.quant_type == problem.moe.quant_type)
        return one.word;
    }
    return {};
  }
  for (const TypeOfWord& one : dense_words) {
    if (one.operation == form_of(problem) && one.type == problem.x_type && one.type == problem.w_type &&
        one.scale_ab == problem.scale_ab)
      return one.word;
  }
  return {};
}

Result<ConversionRows> read_aic_rows(const std::string& source, std::string content,
                                     const ConversionOptions& /*options*/) {
  GEMMTUNE_TRY(auto file, parse_aic_csv(source, std::move(content)));
  ConversionRows rows;
  rows.source = source;
  rows.origin = "aic";
  rows.operation = file.operation;
  rows.entries = std::move(file.entries);
  rows.leave_out_lines(file.diagnostics);
  return rows;
}

Result<std::string> write_aic_rows(ConversionRows& rows, const ConversionOptions& /*options*/) {
  const bool mixture = traits(rows.operation.operation).mixture;
  std::string text = "framework,version,device,op_name,kernel_source,";
  text += mixture ? "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
                    "distribution,latency\n"
                  : "gemm_dtype,m,n,k,latency\n";
  std::unordered_set<std::string> known;
  rows.take_each([&](std::size_t, const TunedEntry& entry) -> std::string {
    if (std::string why = why_not_aic(entry); !why.empty()) return why;
    const std::string key = aic_key(entry);
    // aiconfigurator reads the first row of a key.
    if (!known.insert(fmt::format("{} {}", entry.gfx, key)).second)
      return fmt::format("another row of M = {} comes first", entry.problem.m);
    text += fmt::format("GEMMTUNE,{},{},{},{},{},{:.10g}\n", csv_cell(entry.env), csv_cell(entry.gfx),
                        mixture ? "moe" : "gemm", csv_cell(entry.kernel_name), key, entry.us / 1000);
    return {};
  });
  return text;
}

}  // namespace gemmtune
