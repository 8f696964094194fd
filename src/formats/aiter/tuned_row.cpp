#include "formats/aiter/tuned_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "formats/aiter/operation_header.h"
#include "formats/aiter/rates.h"

namespace gemmtune {
namespace {

constexpr int time_digits = 4;      // AITER rounds us and err_ratio to 4 decimals
constexpr double time_scale = 1e4;  // 10^time_digits
constexpr int rate_digits = 2;
constexpr int percent_digits = 1;
constexpr int share_digits = 3;  // what percent_digits leave of a share

std::string float_text(double value, int digits) {
  return std::isnan(value) ? std::string() : python_float(value, digits);
}

std::string float_text(const std::optional<double>& value, int digits) {
  return value ? float_text(*value, digits) : std::string();
}

/// True where float_text() gives a finite value back.
bool is_written_whole(double value, double scale) {
  const double scaled = std::abs(value) * scale;
  constexpr double rounding = 4 * std::numeric_limits<double>::epsilon();
  return !std::isfinite(value) || std::abs(scaled - std::nearbyint(scaled)) <= 1e-9 + scaled * rounding;
}

bool same_number(double a, double b, int digits) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || python_float(a, digits) == python_float(b, digits);
}

bool same_number(const std::optional<double>& a, const std::optional<double>& b, int digits) {
  const double absent = std::numeric_limits<double>::quiet_NaN();
  return same_number(a.value_or(absent), b.value_or(absent), digits);
}

/// A share as AITER's fused MoE tables write it: "3.8%".
std::string percent_text(double share) {
  return std::isnan(share) ? std::string() : python_float(share * 100, percent_digits) + "%";
}

std::string missing_columns(const Columns& columns) {
  const Schema& schema = columns.schema();
  std::vector<Column> needed;
  for (const SchemaColumn& column : schema.key()) {
    // Files of all ages lack these, and each has a meaning where it is absent.
    static constexpr std::array may_miss{
        Column::gfx,         Column::cu_num,   Column::bias,   Column::outdtype, Column::scale_ab,
        Column::bpreshuffle, Column::act_type, Column::q_type, Column::use_g1u1, Column::doweight_stage1};
    const bool optional = std::find(may_miss.begin(), may_miss.end(), column.column) != may_miss.end() ||
                          (column.column == Column::q_dtype_w && !traits(schema.operation.operation).mixture);
    if (!optional) needed.push_back(column.column);
  }
  if (schema.kind != TableKind::heterogeneous_moe) needed.push_back(Column::us);
  std::string missing;
  for (const Column column : needed) {
    if (columns.has(column)) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", schema.column_name(column));
  }
  return missing;
}

}  // namespace

Result<TunedHeader> read_tuned_header(const CsvDocument& document, std::optional<OperationForm> wanted) {
  TunedHeader header;
  header.index = header_line(document);
  if (header.index == document.lines.size()) {
    const auto named = table_of_file_name(document.source);
    header.columns = Columns({}, wanted ? schema_of(*wanted) : schema_of(named.value_or(TableKind::bf16)));
    return header;
  }
  const CsvLine& line = document.lines[header.index];
  CsvCells cells;
  if (!cells.split(without_mark(line.text))) {
    return Status::invalid("{}:{}: {}", document.source, line.number, unclosed_quote);
  }
  GEMMTUNE_TRY(const auto detected, detect_table(document, header.index, cells, {.wanted = wanted}));
  const Schema* const schema = detected.schema;
  header.columns = Columns(cells, *schema);
  if (!wanted) header.disagreement = name_disagreement(document.source, *schema);
  const std::string missing = missing_columns(header.columns);
  if (missing.empty()) return header;
  return Status::invalid("{}:{}: no column {}, which a tuned file of {} needs", document.source, line.number,
                         missing, schema->name);
}

bool EntryReader::read_key(const CsvCells& row, std::size_t line, TunedEntry& entry,
                           Diagnostics* diagnostics) {
  const Schema& schema = columns_.schema();
  entry.line = line;
  entry.gfx = columns_.cell(row, Column::gfx);
  if (is_missing(entry.gfx)) entry.gfx.clear();
  entry.unknown_types.clear();
  if (!problems_.read(row, line, entry.problem, diagnostics, &entry.unknown_types)) return false;
  entry.other_key = "";
  if (!schema.dispatched) entry.other_key = fmt::format("{} {}", schema.name, columns_.further_key(row));
  entry.cu_num = 0;
  if (!columns_.has(Column::cu_num)) return true;
  const std::string_view cell = columns_.cell(row, Column::cu_num);
  if (is_missing(cell)) return true;
  const auto cu_num = parse_integer(cell);
  if (cu_num && *cu_num >= 1 && *cu_num <= std::numeric_limits<int>::max()) {
    entry.cu_num = static_cast<int>(*cu_num);
    return true;
  }
  if (diagnostics != nullptr) diagnostics->cell(line, "cu_num", cell, "a whole number of at least 1");
  return false;
}

/// Reads the cells of one row and remembers whether one of AITER's was bad.
struct EntryReader::Values {
  const Columns& columns;
  const CsvCells& cells;
  std::size_t line;
  Diagnostics* diagnostics;
  bool good = true;
  CarriedCells carried = {};

  std::string_view cell(Column column) const { return columns.cell(cells, column); }
  void carry(Column column) {
    carried.push_back({std::string(columns.schema().column_name(column)), std::string(cell(column))});
  }
  /// A cell that counts as empty, but keeps its text.
  void not_understood(Column column, std::string_view expected) {
    complain(column, expected);
    carry(column);
  }
  void complain(Column column, std::string_view expected) const {
    if (diagnostics != nullptr) diagnostics->cell(line, columns.name(column), cell(column), expected);
  }
  std::int64_t integer(Column column) {
    if (is_missing(cell(column))) return 0;
    const auto value = parse_integer(cell(column));
    if (value) return *value;
    if (good) complain(column, "a whole number");
    good = false;
    return 0;
  }
  double number(Column column, std::string_view expected, double scale = time_scale) {
    std::string_view text = cell(column);
    if (is_missing(text)) return std::numeric_limits<double>::quiet_NaN();
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    const auto value = parse_number(text);
    if (value) {
      const double share = percent ? *value / 100 : *value;
      if (!is_written_whole(share, scale)) carry(column);
      return share;
    }
    if (good) complain(column, expected);
    good = false;
    return 0;
  }
  std::optional<double> own_number(Column column) {
    if (is_missing(cell(column))) return std::nullopt;
    const auto value = parse_number(cell(column));
    if (!value) {
      not_understood(column, "a number");
    } else if (!is_written_whole(*value, time_scale)) {
      carry(column);
    }
    return value;
  }
  bool own_switch(Column column) {
    if (is_missing(cell(column))) return false;
    if (const auto value = parse_bool(cell(column))) return *value;
    const auto value = parse_integer(cell(column));  // 1.0: a column with a missing cell, in pandas
    if (value && (*value == 0 || *value == 1)) return *value == 1;
    not_understood(column, "0 or 1");
    return false;
  }
  std::int64_t own_count(Column column) {
    if (is_missing(cell(column))) return 0;
    if (const auto word = parse_bool(cell(column))) return *word ? 1 : 0;
    const auto value = parse_integer(cell(column));
    if (value && *value >= 0) return *value;
    not_understood(column, "a whole number of at least 0");
    return 0;
  }
};

/// "win, default, … or nothing".
std::string verdict_words() {
  std::string words;
  for (const Verdict verdict : all_verdicts()) {
    if (verdict != Verdict::none) words += fmt::format("{}{}", words.empty() ? "" : ", ", to_string(verdict));
  }
  return words + " or nothing";
}

void EntryReader::read_own(Values& values, TunedEntry& entry) const {
  entry.spread = values.own_number(Column::spread);
  entry.default_us = values.own_number(Column::default_us);
  entry.default_kernel = values.cell(Column::default_kernel);
  entry.speedup = values.own_number(Column::speedup);
  entry.speedup_low = values.own_number(Column::speedup_low);
  entry.speedup_high = values.own_number(Column::speedup_high);
  const auto verdict = parse_verdict(values.cell(Column::verdict));
  if (!verdict) values.not_understood(Column::verdict, verdict_words());
  entry.verdict = verdict.value_or(Verdict::none);
  entry.ties.reset();
  if (!is_missing(values.cell(Column::ties))) {
    entry.ties = parse_integer(values.cell(Column::ties));
    if (!entry.ties || *entry.ties < 0) {
      values.not_understood(Column::ties, "a whole number of at least 0");
      entry.ties.reset();
    }
  }
  entry.m_from.reset();
  if (!is_missing(values.cell(Column::m_from))) {
    entry.m_from = parse_integer(values.cell(Column::m_from));
    if (!entry.m_from || *entry.m_from < 1 || *entry.m_from > entry.problem.m) {
      values.not_understood(Column::m_from, "a whole number from 1 to the row's M");
      entry.m_from.reset();
    }
  }
  entry.regret = values.own_number(Column::regret);
  entry.pdl_kernel_name = values.cell(Column::pdl_kernel_name);
  entry.pdl_us = values.own_number(Column::pdl_us);
  entry.env = values.cell(Column::env);
  entry.routing = values.cell(Column::routing);
  entry.bits = is_missing(values.cell(Column::bits)) ? std::string_view() : values.cell(Column::bits);
  entry.accuracy.reset();
  if (!is_missing(values.cell(Column::accuracy))) {
    entry.accuracy = parse_accuracy(values.cell(Column::accuracy));
    if (!entry.accuracy) values.not_understood(Column::accuracy, "fp32, tensor_core or nothing");
  }
}

void EntryReader::read_stages(Values& values, TunedEntry& entry) const {
  constexpr std::string_view microseconds = "microseconds";
  constexpr std::string_view share = "a share of elements: 0.0 to 1.0, or percent";
  constexpr double share_scale = 1e3;  // 10^share_digits
  auto stages = std::make_shared<MoeStages>();
  stages->block_m = values.integer(Column::block_m);
  stages->us1 = values.number(Column::us1, microseconds);
  stages->us2 = values.number(Column::us2, microseconds);
  stages->err1 = values.number(Column::err1, share, share_scale);
  stages->err2 = values.number(Column::err2, share, share_scale);
  stages->kernel_name2 = values.cell(Column::kernel_name2);
  if (is_missing(stages->kernel_name2)) stages->kernel_name2.clear();  // AITER writes Null for one stage
  const bool lacks_stage1 = columns_.has(Column::kernel_name) && is_missing(entry.kernel_name);
  if (lacks_stage1 && !stages->kernel_name2.empty() && values.good) {
    values.complain(Column::kernel_name, "the kernel of stage 1: a row of stage 2 alone is of a profile");
    values.good = false;
  }
  stages->run_1stage = values.own_switch(Column::run_1stage);
  stages->xbf16 = columns_.has(Column::xbf16) ? values.own_switch(Column::xbf16)
                                              : entry.kernel_name.find("blockscaleBf16") != std::string::npos;
  stages->flat = values.own_count(Column::flat);
  stages->tag = values.cell(Column::tag);
  entry.err_ratio = std::fmax(stages->err1, stages->err2);  // the number where one is NaN
  entry.stages = std::move(stages);
}

/// The type columns of a row with types that are not known, and the bandwidth, which depends on them.
void EntryReader::carry_types(Values& values) const {
  for (const Column column : {Column::dtype, Column::outdtype, Column::q_dtype_a, Column::q_dtype_w}) {
    const std::string_view cell = values.cell(column);
    if (!is_missing(cell) && !parse_data_type(cell)) values.carry(column);
  }
  values.carry(Column::bw);
}

/// Rates, digits of times and words for a missing cell as they stand. Key cells are written as AITER's look-up needs them.
void EntryReader::keep_cells(Values& values, const TunedEntry& entry) const {
  const Schema& schema = columns_.schema();
  for (std::size_t position = 0; position < columns_.width(); ++position) {
    const Column* column = columns_.known_at(position);
    if (column == nullptr || schema.in_key(*column)) continue;
    const std::string_view cell = values.cell(*column);
    const auto carried = [&](const CarriedCell& one) { return one.column == schema.column_name(*column); };
    if (cell == cell_text(entry, *column).value_or(std::string()) ||
        std::ranges::any_of(values.carried, carried))
      continue;
    values.carry(*column);
  }
}

bool EntryReader::read_values(const CsvCells& row, std::size_t line, TunedEntry& entry,
                              Diagnostics* diagnostics) const {
  Values values{columns_, row, line, diagnostics};
  entry.libtype = values.cell(Column::libtype);
  entry.solidx = values.integer(Column::solidx);
  entry.split_k = values.integer(Column::split_k);
  entry.us = values.number(Column::us, "microseconds");
  entry.kernel_name = values.cell(Column::kernel_name);
  entry.err_ratio = values.number(Column::err_ratio, "a share of elements from 0 to 1");
  entry.stages.reset();
  if (traits(columns_.schema().operation.operation).mixture) read_stages(values, entry);
  if (!values.good) return false;
  read_own(values, entry);
  if (!entry.unknown_types.empty()) carry_types(values);
  if (keeps_cells_) keep_cells(values, entry);
  for (const Columns::Unknown& column : columns_.unknown()) {
    if (!row[column.position].empty())
      values.carried.push_back({column.name, std::string(row[column.position])});
  }
  entry.carried.reset();
  if (!values.carried.empty())
    entry.carried = std::make_shared<const CarriedCells>(std::move(values.carried));
  return true;
}

std::string row_key(const TunedEntry& entry, const Schema& schema, bool with_gfx) {
  std::string text = fmt::format("{},{}", with_gfx ? entry.gfx : std::string(), entry.cu_num);
  for (const SchemaColumn& column : schema.key()) {
    if (const auto cell = problem_cell(entry.problem, column.column))
      fmt::format_to(std::back_inserter(text), ",{}", *cell);
  }
  // AITER's key of a mixture lacks them.
  if (is_mixture(entry.problem) && has_weight_groups(entry.problem))
    text += fmt::format(",{},{}", group_text(entry.problem), python_bool(entry.problem.zero_points));
  if (entry.stages != nullptr && !entry.stages->tag.empty()) text += "," + entry.stages->tag;
  for (const std::string_view more : {entry.other_key.view(), std::string_view(entry.unknown_types)}) {
    if (!more.empty()) text.append(",").append(more);
  }
  return text;
}

bool sorts_before(const TunedEntry& a, const TunedEntry& b) {
  const auto rank = [](const TunedEntry& entry) {
    const Problem& problem = entry.problem;
    const bool moe = is_mixture(problem);
    // The key of fused MoE begins token, model_dim, inter_dim; the others sort by N before M.
    return std::tuple(std::string_view(entry.gfx), entry.cu_num, problem.batch, moe ? problem.m : problem.n,
                      moe ? problem.k : problem.m, moe ? problem.n : problem.k, problem.moe.experts,
                      problem.moe.topk, problem.moe.activation, problem.bias, problem.x_type, problem.y_type,
                      problem.w_type, problem.moe.quant_type, problem.moe.gated, problem.moe.doweight_stage1,
                      problem.scale_ab, is_packed(problem), problem.w_group, problem.zero_points,
                      entry.other_key.view(), std::string_view(entry.unknown_types));
  };
  return rank(a) < rank(b);
}

namespace {

std::optional<std::string> stage_cell(const MoeStages& stages, Column column) {
  const auto digit = [](bool value) { return std::string(value ? "1" : "0"); };
  switch (column) {
    case Column::block_m:
      return std::to_string(stages.block_m);
    case Column::us1:
      return float_text(stages.us1, time_digits);
    case Column::us2:
      return float_text(stages.us2, time_digits);
    case Column::err1:
      return percent_text(stages.err1);
    case Column::err2:
      return percent_text(stages.err2);
    case Column::kernel_name2:
      return stages.kernel_name2;
    case Column::run_1stage:
      return digit(stages.run_1stage);
    case Column::xbf16:
      return digit(stages.xbf16);
    case Column::flat:
      return std::to_string(stages.flat);
    case Column::tag:
      return stages.tag;
    default:
      return std::nullopt;
  }
}

std::optional<std::string> own_cell(const TunedEntry& entry, Column column) {
  switch (column) {
    case Column::spread:
      return float_text(entry.spread, time_digits);
    case Column::default_us:
      return float_text(entry.default_us, time_digits);
    case Column::default_kernel:
      return entry.default_kernel;
    case Column::speedup:
      return float_text(entry.speedup, time_digits);
    case Column::speedup_low:
      return float_text(entry.speedup_low, time_digits);
    case Column::speedup_high:
      return float_text(entry.speedup_high, time_digits);
    case Column::verdict:
      return std::string(to_string(entry.verdict));
    case Column::ties:
      return entry.ties ? std::to_string(*entry.ties) : std::string();
    case Column::m_from:
      return entry.m_from ? std::to_string(*entry.m_from) : std::string();
    case Column::regret:
      return float_text(entry.regret, time_digits);
    case Column::pdl_kernel_name:
      return entry.pdl_kernel_name;
    case Column::pdl_us:
      return float_text(entry.pdl_us, time_digits);
    case Column::env:
      return entry.env;
    case Column::accuracy:
      return std::string(entry.accuracy ? to_string(*entry.accuracy) : "");
    case Column::bits:
      return std::string(entry.bits.view());
    case Column::routing:
      return std::string(entry.routing.view());
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<std::string> cell_text(const TunedEntry& entry, Column column) {
  const Problem& problem = entry.problem;
  switch (column) {
    case Column::gfx:
      return entry.gfx;
    case Column::cu_num:
      return entry.cu_num == 0 ? std::string() : std::to_string(entry.cu_num);
    case Column::libtype:
      return entry.libtype;
    case Column::solidx:
      return std::to_string(entry.solidx);
    case Column::split_k:
      return std::to_string(entry.split_k);
    case Column::us:
      return float_text(entry.us, time_digits);
    case Column::kernel_name:
      return entry.kernel_name;
    case Column::err_ratio:
      return float_text(entry.err_ratio, time_digits);
    case Column::tflops:
      return python_float(tflops_column(problem, entry.us), rate_digits);
    case Column::bw:
      return python_float(bandwidth_column(problem, entry.us), rate_digits);
    default:
      break;
  }
  if (auto cell = problem_cell(problem, column)) return cell;
  if (is_mixture(problem)) {
    static const MoeStages none;
    if (auto cell = stage_cell(entry.stages != nullptr ? *entry.stages : none, column)) return cell;
  }
  return own_cell(entry, column);
}

namespace {

bool same_stages(const MoeStages* a, const MoeStages* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->block_m == b->block_m && same_number(a->us1, b->us1, time_digits) &&
         same_number(a->us2, b->us2, time_digits) && same_number(a->err1, b->err1, share_digits) &&
         same_number(a->err2, b->err2, share_digits) && a->kernel_name2 == b->kernel_name2 &&
         a->run_1stage == b->run_1stage && a->xbf16 == b->xbf16 && a->flat == b->flat && a->tag == b->tag;
}

}  // namespace

bool same_row(const TunedEntry& old_row, const TunedEntry& entry) {
  // The error of a fused MoE stands in its stages, rounded in another way.
  const bool same_error =
      entry.stages != nullptr || same_number(old_row.err_ratio, entry.err_ratio, time_digits);
  return same_stages(old_row.stages.get(), entry.stages.get()) && same_error &&
         old_row.libtype == entry.libtype && old_row.solidx == entry.solidx &&
         old_row.split_k == entry.split_k && same_number(old_row.us, entry.us, time_digits) &&
         old_row.kernel_name == entry.kernel_name && same_number(old_row.spread, entry.spread, time_digits) &&
         same_number(old_row.default_us, entry.default_us, time_digits) &&
         old_row.default_kernel == entry.default_kernel &&
         same_number(old_row.speedup, entry.speedup, time_digits) &&
         same_number(old_row.speedup_low, entry.speedup_low, time_digits) &&
         same_number(old_row.speedup_high, entry.speedup_high, time_digits) &&
         old_row.verdict == entry.verdict && old_row.ties == entry.ties && old_row.m_from == entry.m_from &&
         same_number(old_row.regret, entry.regret, time_digits) &&
         old_row.pdl_kernel_name == entry.pdl_kernel_name &&
         same_number(old_row.pdl_us, entry.pdl_us, time_digits) && old_row.env == entry.env &&
         old_row.accuracy == entry.accuracy && old_row.routing == entry.routing &&
         old_row.bits == entry.bits &&
         old_row.problem.moe.shared_experts == entry.problem.moe.shared_experts &&
         old_row.problem.bias == entry.problem.bias;
}

}  // namespace gemmtune
