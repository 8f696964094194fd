#include "cli/report/report_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "cli/report/report_overview.h"
#include "cli/shared/console.h"
#include "cli/shared/report_parts.h"
#include "formats/json.h"
#include "tuned/choice.h"
#include "tuned/difference.h"
#include "tuned/groups.h"
#include "tuned/peaks.h"

namespace gemmtune::cli {
namespace {

ReportValue time_value(double us) { return valid_time(us) ? ReportValue(us) : ReportValue(); }

double rate_tflops(const Problem& problem, double us) { return flops(problem) / (us * 1e6); }
double rate_gigabytes(const Problem& problem, double us) { return bytes(problem) / (us * 1e3); }

/// The text of a problem behind its sizes: "x=bf16 w=bf16 …". With operation and sizes it is the problem again.
std::string problem_tail(const Problem& problem) {
  const std::string text = print(problem);
  const std::size_t k = text.find(" k=");
  const std::size_t end = k == std::string::npos ? k : text.find(' ', k + 1);
  return end == std::string::npos ? std::string() : text.substr(end + 1);
}

/// How often a workload calls each problem, and its layer.
class CapturedCalls {
 public:
  explicit CapturedCalls(const std::vector<ShapeList>& captures) {
    for (const ShapeList& list : captures) {
      for (const ShapeRow& row : list.rows) rows_.try_emplace(row.problem, &row);
    }
  }
  const ShapeRow* find(const Problem& problem) const {
    const auto found = rows_.find(problem);
    return found != rows_.end() ? found->second : nullptr;
  }

 private:
  std::unordered_map<Problem, const ShapeRow*, SameKeyHash, SameKey> rows_;
};

/// A row of a tuned file with all that the report says of it.
struct ReportRow {
  const TunedEntry* entry = nullptr;
  std::string view;
  bool chosen = false;  // answers look-ups of its key
  std::size_t findings = 0;
  std::optional<PairedRatio> paired;  // default over the row's kernel
  const MeasuredProblem* measured = nullptr;
};

/// One device and operation.
struct ReportView {
  std::vector<const ReportRow*> rows;  // those that are chosen
  double reached_tflops = 0;
  double reached_gigabytes = 0;
  Roof measured;    // by the runs of the rows; 0: not measured
  double peak = 0;  // of data sheets; 0: not known

  /// A row that is faster than the run's large product is the roof.
  bool has_compute_roof() const { return measured.tflops > reached_tflops; }
  double roof_tflops(const Roof& given) const {
    if (given.tflops > 0) return given.tflops;
    return has_compute_roof() ? measured.tflops : reached_tflops;
  }
  double roof_gigabytes(const Roof& given) const {
    if (given.gigabytes > 0) return given.gigabytes;
    return measured.gigabytes > 0 ? measured.gigabytes : reached_gigabytes;
  }
};
using ReportViews = std::map<std::string, ReportView>;

/// A speed-up of a damaged row, infinite for example, would be all that a mean shows.
bool is_compared(const TunedEntry& row) {
  return row.speedup.has_value() && *row.speedup > 0 && std::isfinite(*row.speedup);
}

/// What one call of the row saves, by the paired ratio: the two stored times may be of other minutes.
std::optional<double> saved_microseconds(const TunedEntry& row) {
  if (!is_compared(row) || !valid_time(row.us)) return std::nullopt;
  return row.us * (*row.speedup - 1);
}

std::vector<ReportRow> rows_of_report(const ReportInputs& inputs) {
  Rows all;
  std::map<std::pair<std::uint32_t, std::size_t>, std::size_t> findings;
  for (const Finding& finding : inputs.findings) ++findings[{finding.source, finding.line}];
  for (const TunedFile& file : inputs.tuned.files) {
    for (const TunedEntry& entry : file.entries) all.push_back(&entry);
  }
  std::set<const TunedEntry*> chosen;
  for (const Rows& group : rows_by_group(all)) {
    for (const TunedEntry* row : chosen_rows(group)) {
      if (may_be_chosen(*row)) chosen.insert(row);
    }
  }
  std::vector<ReportRow> rows;
  for (const TunedEntry* entry : all) {
    ReportRow row{entry, view_of(*entry), chosen.count(entry) > 0,
                  0,     std::nullopt,    inputs.measurements.find(*entry)};
    const auto found = findings.find({entry->source, entry->line});
    if (found != findings.end() && entry->line > 0) row.findings = found->second;
    if (row.measured != nullptr && !entry->default_kernel.empty() &&
        entry->default_kernel != entry->kernel_name)
      row.paired =
          row.measured->ratio(entry->default_kernel, entry->kernel_name, MeasuredProblem::Rounds::fresh);
    rows.push_back(std::move(row));
  }
  return rows;
}

ReportViews views_of(const std::vector<ReportRow>& rows, const EnvironmentObjects& environments) {
  std::map<std::string, Roof, std::less<>> measured;
  for (const auto& [hash, text] : environments) measured.emplace(hash, measured_roof(text));
  ReportViews views;
  for (const ReportRow& row : rows) {
    ReportView& view = views[row.view];
    if (!row.chosen) continue;
    const TunedEntry& entry = *row.entry;
    view.rows.push_back(&row);
    if (const auto of_run = measured.find(entry.env); of_run != measured.end()) {
      view.measured.tflops = std::max(view.measured.tflops, of_run->second.tflops);
      view.measured.gigabytes = std::max(view.measured.gigabytes, of_run->second.gigabytes);
    }
    for (const double us : {entry.us, entry.default_us.value_or(0)}) {
      if (!valid_time(us)) continue;
      view.reached_tflops = std::max(view.reached_tflops, rate_tflops(entry.problem, us));
      view.reached_gigabytes = std::max(view.reached_gigabytes, rate_gigabytes(entry.problem, us));
    }
    const double peak = peak_tflops(entry.gfx, entry.cu_num, entry.problem);
    if (peak < unknown_device_peak) view.peak = std::max(view.peak, peak);
  }
  return views;
}

std::size_t verdicts(const ReportView& view, Verdict verdict) {
  return static_cast<std::size_t>(
      std::ranges::count_if(view.rows, [&](const ReportRow* row) { return row->entry->verdict == verdict; }));
}

std::optional<double> mean_speedup(const std::vector<const ReportRow*>& rows) {
  std::vector<double> speedups;
  for (const ReportRow* row : rows) {
    if (is_compared(*row->entry)) speedups.push_back(*row->entry->speedup);
  }
  return speedups.empty() ? std::nullopt : std::optional(geometric_mean(speedups));
}

ReportTable summary_table(const ReportViews& views) {
  ReportTable table(
      "summary", "Summary",
      "Rows that look-ups choose. The speed-up is the geometric mean over rows that were compared with the "
      "default kernel in paired rounds.",
      {{"view", "device and operation", text_kind},
       {"rows", "rows"},
       {"compared", "compared with the default"},
       {"geometric_mean_speedup", "speed-up", ReportKind::number, 3},
       {"speedup_low", "from", ReportKind::number, 3},
       {"speedup_high", "to", ReportKind::number, 3},
       {"win", "win"},
       {"default", "default"},
       {"undecided", "undecided"},
       {"only", "only"},
       {"default_wrong", "default wrong"},
       {"default_untimed", "default untimed"},
       {"energy", "energy"},
       {"kernels", "distinct kernels"}});
  for (const auto& [name, view] : views) {
    std::size_t compared = 0;
    std::vector<TunedEntry> entries;
    std::set<std::string_view> kernels;
    for (const ReportRow* row : view.rows) {
      compared += is_compared(*row->entry) ? 1 : 0;
      if (is_compared(*row->entry)) entries.push_back(*row->entry);
      kernels.insert(row->entry->kernel_name);
    }
    const auto interval = gain_interval(entries);
    const bool has_verdicts = verdicts(view, Verdict::none) < view.rows.size();
    const auto verdict_value = [has_verdicts, &of_view = view](Verdict verdict) {
      return has_verdicts ? verdicts(of_view, verdict) : ReportValue();
    };
    table.add({name, view.rows.size(), compared > 0 ? compared : ReportValue(), mean_speedup(view.rows),
               interval ? ReportValue(interval->low) : ReportValue(),
               interval ? ReportValue(interval->high) : ReportValue(), verdict_value(Verdict::win),
               verdict_value(Verdict::keep_default), verdict_value(Verdict::undecided),
               verdict_value(Verdict::only), verdict_value(Verdict::default_wrong),
               verdict_value(Verdict::default_untimed), verdict_value(Verdict::energy), kernels.size()});
  }
  return table;
}

double floor_microseconds(const ReportView& view, const Roof& roof, const Problem& problem) {
  const double tflops = view.roof_tflops(roof);
  const double gigabytes = view.roof_gigabytes(roof);
  if (tflops <= 0 || gigabytes <= 0) return 0;
  return std::max(flops(problem) / (tflops * 1e6), bytes(problem) / (gigabytes * 1e3));
}

ReportTable by_m_table(const ReportViews& views, const Roof& roof) {
  ReportTable table(
      "by_m", "By M",
      "Rows that look-ups choose, M in powers of two; medians of time and of the share of the floor.",
      {{"view", "device and operation", text_kind},
       {"m_from", "M from"},
       {"m_to", "to"},
       {"rows", "rows"},
       {"compared", "compared"},
       {"geometric_mean_speedup", "speed-up", ReportKind::number, 3},
       {"lowest_speedup", "lowest", ReportKind::number, 3},
       {"highest_speedup", "highest", ReportKind::number, 3},
       {"median_us", "median µs", ReportKind::number, 2},
       {"median_floor_share", "share of the floor", ReportKind::number, 3}});
  for (const auto& [name, view] : views) {
    std::map<std::uint64_t, std::vector<const ReportRow*>> classes;
    for (const ReportRow* row : view.rows)
      classes[std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(1, row->entry->problem.m)))]
          .push_back(row);
    for (const auto& [to, rows] : classes) {
      std::vector<double> speedups;
      std::vector<double> times;
      std::vector<double> shares;
      for (const ReportRow* row : rows) {
        const TunedEntry& entry = *row->entry;
        if (is_compared(entry)) speedups.push_back(*entry.speedup);
        times.push_back(entry.us);
        const double floor = floor_microseconds(view, roof, entry.problem);
        if (floor > 0) shares.push_back(floor / entry.us);
      }
      const bool compared = !speedups.empty();
      const auto [low, high] = std::minmax_element(speedups.begin(), speedups.end());
      const std::uint64_t from = to / 2 + 1;
      table.add({name, from, to, rows.size(), compared ? speedups.size() : ReportValue(), mean_speedup(rows),
                 compared ? ReportValue(*low) : ReportValue(), compared ? ReportValue(*high) : ReportValue(),
                 median(times), shares.empty() ? ReportValue() : ReportValue(median(shares))});
    }
  }
  return table;
}

ReportTable roofs_table(const ReportViews& views, const Roof& given) {
  ReportTable table(
      "roofs", "Roofs",
      "The floor of a shape is the longer of its operations at the compute roof and its bytes (x, w and y, "
      "each once) at the memory roof. The compute roof is --peak, else the rate of the large product that "
      "the run timed, or of a row here that is faster. The memory roof is --bandwidth, else the rate at "
      "which the run read weights, else the highest that a row here reaches.",
      {{"view", "device and operation", text_kind},
       {"tflops", "compute roof TFLOP/s", ReportKind::number, 1},
       {"gigabytes", "memory roof GB/s", ReportKind::number, 0},
       {"reached_tflops", "reached TFLOP/s", ReportKind::number, 1},
       {"reached_gigabytes", "reached GB/s", ReportKind::number, 0},
       {"peak_tflops", "data sheet TFLOP/s", ReportKind::number, 1},
       {"compute_from", "compute roof of", text_kind},
       {"memory_from", "memory roof of", text_kind}});
  for (const auto& [name, view] : views) {
    if (view.rows.empty()) continue;
    table.add({name, view.roof_tflops(given), view.roof_gigabytes(given), view.reached_tflops,
               view.reached_gigabytes, view.peak > 0 ? ReportValue(view.peak) : ReportValue(),
               given.tflops > 0          ? "--peak"
               : view.has_compute_roof() ? "the run"
                                         : "the best row here",
               given.gigabytes > 0           ? "--bandwidth"
               : view.measured.gigabytes > 0 ? "the run"
                                             : "the best row here"});
  }
  return table;
}

/// The interval of the speed-up: of the row, else of paired rounds in a journal, else what the spread of the row's own
/// time leaves.
struct SpeedupInterval {
  ReportValue low;
  ReportValue high;
  std::string_view from;
};
SpeedupInterval speedup_interval(const ReportRow& row) {
  const TunedEntry& entry = *row.entry;
  if (!is_compared(entry)) return {};
  if (entry.speedup_low && entry.speedup_high) return {*entry.speedup_low, *entry.speedup_high, "row"};
  if (row.paired) return {row.paired->interval.low, row.paired->interval.high, "rounds"};
  if (!entry.spread || !valid_time(entry.us) || *entry.spread >= entry.us) return {};
  if (entry.kernel_name == entry.default_kernel) return {};
  const double share = *entry.spread / entry.us;
  return {*entry.speedup / (1 + share), *entry.speedup / (1 - share), "spread"};
}

ReportTable rows_table(const ReportInputs& inputs, const std::vector<ReportRow>& rows,
                       const ReportViews& views, const CapturedCalls& captured, const Roof& roof) {
  const std::vector<std::string> names = shown_file_names(inputs);
  ReportTable table("rows", "Rows", "Every row of the tuned files; µs saved by the paired ratio.",
                    {{"view", "device and operation", text_kind},
                     {"m", "M"},
                     {"n", "N"},
                     {"k", "K"},
                     {"verdict", "verdict", text_kind},
                     {"speedup", "speed-up", ReportKind::number, 3},
                     {"speedup_low", "from", ReportKind::number, 3},
                     {"speedup_high", "to", ReportKind::number, 3},
                     {"us", "µs", ReportKind::number, 3},
                     {"default_us", "default µs", ReportKind::number, 3},
                     {"saved_us", "µs saved", ReportKind::number, 2},
                     {"calls", "calls", ReportKind::number, ReportColumn::all_digits, true},
                     {"ties", "ties"},
                     {"libtype", "libtype", text_kind, ReportColumn::all_digits, true},
                     {"kernel", "kernel", text_kind},
                     {"default_kernel", "default kernel", text_kind, ReportColumn::all_digits, true},
                     {"tflops", "TFLOP/s", ReportKind::number, 1, true},
                     {"gigabytes", "GB/s", ReportKind::number, 0, true},
                     {"default_tflops", "default TFLOP/s", ReportKind::number, 1, true},
                     {"flop_per_byte", "FLOP/byte", ReportKind::number, 1, true},
                     {"floor_share", "share of the floor", ReportKind::number, 3},
                     {"spread", "spread µs", ReportKind::number, 3, true},
                     {"err_ratio", "error share", ReportKind::number, ReportColumn::all_digits, true},
                     {"accuracy", "accuracy", text_kind, ReportColumn::all_digits, true},
                     {"m_from", "M from", ReportKind::number, ReportColumn::all_digits, true},
                     {"regret", "regret", ReportKind::number, 4, true},
                     {"pdl_us", "dependent µs", ReportKind::number, 3, true},
                     {"noise_floor", "noise floor", ReportKind::number, 4, true},
                     {"rounds", "rounds", ReportKind::number, ReportColumn::all_digits, true},
                     {"disturbed", "disturbed", ReportKind::number, ReportColumn::all_digits, true},
                     {"findings", "findings"},
                     {"busy", "busy machine", text_kind, ReportColumn::all_digits, true},
                     {"not_chosen", "never chosen", text_kind, ReportColumn::all_digits, true},
                     {"interval_of", "interval of", text_kind, ReportColumn::all_digits, true},
                     {"split_k", "splitK", ReportKind::number, ReportColumn::all_digits, true},
                     {"env", "env", text_kind, ReportColumn::all_digits, true},
                     {"layer", "layer", text_kind, ReportColumn::all_digits, true},
                     {"types", "types", text_kind, ReportColumn::all_digits, true},
                     {"own_kernel", "own kernel", text_kind, ReportColumn::all_digits, true},
                     {"file", "file", text_kind, ReportColumn::all_digits, true},
                     {"line", "line", ReportKind::number, ReportColumn::all_digits, true}});
  for (const ReportRow& row : rows) {
    const TunedEntry& entry = *row.entry;
    const Problem& problem = entry.problem;
    const bool timed = valid_time(entry.us);
    const double floor = floor_microseconds(views.at(row.view), roof, problem);
    const SpeedupInterval interval = speedup_interval(row);
    const ShapeRow* const shape = captured.find(problem);
    const bool rounds = row.measured != nullptr && row.measured->quietness.rounds > 0;
    const bool own = family_of_kernel_name(entry.kernel_name) == entry.libtype;
    const std::string kernel = entry.stages != nullptr && !entry.stages->kernel_name2.empty()
                                   ? entry.kernel_name + " + " + entry.stages->kernel_name2
                                   : entry.kernel_name;
    std::string_view not_chosen = why_never_chosen(entry);
    if (not_chosen.empty() && !row.chosen) not_chosen = "another row of the same key is chosen";
    const std::string tail = problem_tail(problem) +
                             (entry.unknown_types.empty() ? "" : " " + entry.unknown_types) +
                             (entry.other_key.empty() ? "" : " " + std::string(entry.other_key.view()));
    const bool errors = std::isfinite(entry.err_ratio);
    table.add({row.view,
               problem.m,
               problem.n,
               problem.k,
               to_string(entry.verdict),
               entry.speedup,
               interval.low,
               interval.high,
               time_value(entry.us),
               entry.default_us ? time_value(*entry.default_us) : ReportValue(),
               saved_microseconds(entry),
               shape != nullptr ? ReportValue(shape->calls) : ReportValue(),
               entry.ties,
               entry.libtype,
               kernel,
               entry.default_kernel,
               timed ? ReportValue(rate_tflops(problem, entry.us)) : ReportValue(),
               timed ? ReportValue(rate_gigabytes(problem, entry.us)) : ReportValue(),
               entry.default_us && valid_time(*entry.default_us)
                   ? ReportValue(rate_tflops(problem, *entry.default_us))
                   : ReportValue(),
               flops(problem) / bytes(problem),
               timed && row.chosen && floor > 0 ? ReportValue(floor / entry.us) : ReportValue(),
               entry.spread,
               errors ? ReportValue(entry.err_ratio) : ReportValue(),
               entry.accuracy ? ReportValue(to_string(*entry.accuracy)) : ReportValue(),
               entry.m_from,
               entry.regret,
               entry.pdl_us,
               rounds ? row.measured->noise_floor : ReportValue(),
               rounds ? ReportValue(row.measured->quietness.rounds) : ReportValue(),
               rounds ? ReportValue(row.measured->quietness.disturbed) : ReportValue(),
               row.findings,
               rounds && row.measured->quietness.busy() ? "yes" : "",
               not_chosen,
               interval.from,
               entry.split_k,
               entry.env,
               shape != nullptr ? ReportValue(shape->layer) : ReportValue(),
               tail,
               own ? "yes" : "",
               names[entry.source],
               entry.line});
  }
  return table;
}

ReportTable ties_table(const ReportViews& views) {
  ReportTable table("ties", "Kernels that are as fast as the winner",
                    "Other kernels that the run could not tell from the winner: a fixed order decided, so "
                    "two runs name the same one.",
                    {{"view", "device and operation", text_kind}, {"ties", "ties"}, {"rows", "rows"}});
  for (const auto& [name, view] : views) {
    std::map<std::int64_t, std::size_t> counts;
    for (const ReportRow* row : view.rows) {
      if (row->entry->ties) ++counts[*row->entry->ties];
    }
    for (const auto& [ties, rows] : counts) table.add({name, ties, rows});
  }
  return table;
}

ReportTable libtypes_table(const ReportViews& views) {
  ReportTable table("libtypes", "Whose kernels win", "",
                    {{"view", "device and operation", text_kind},
                     {"libtype", "libtype", text_kind},
                     {"rows", "rows"},
                     {"kernels", "distinct kernels"},
                     {"geometric_mean_speedup", "speed-up", ReportKind::number, 3},
                     {"highest_err_ratio", "largest error share"}});
  for (const auto& [name, view] : views) {
    std::map<std::string, std::vector<const ReportRow*>> libtypes;
    for (const ReportRow* row : view.rows) {
      // Some of AITER's tables have no libtype.
      const std::string& given = row->entry->libtype;
      libtypes[given.empty() ? family_of_kernel_name(row->entry->kernel_name).value_or("(not said)") : given]
          .push_back(row);
    }
    for (const auto& [libtype, rows] : libtypes) {
      std::set<std::string_view> kernels;
      std::optional<double> error;
      for (const ReportRow* row : rows) {
        kernels.insert(row->entry->kernel_name);
        if (const double ratio = row->entry->err_ratio; std::isfinite(ratio))
          error = std::max(ratio, error.value_or(0));
      }
      table.add({name, libtype, rows.size(), kernels.size(), mean_speedup(rows), error});
    }
  }
  return table;
}

ReportTable accuracy_table(const ReportViews& views) {
  ReportTable table("accuracy", "Accuracy classes",
                    "Rows that look-ups choose; the error share is of elements outside of the tolerance.",
                    {{"view", "device and operation", text_kind},
                     {"accuracy", "class", text_kind},
                     {"rows", "rows"},
                     {"with_error", "with an error share"},
                     {"median_err_ratio", "median error share"},
                     {"highest_err_ratio", "largest error share"}});
  for (const auto& [name, view] : views) {
    std::map<std::string_view, std::vector<double>> errors;
    std::map<std::string_view, std::size_t> rows;
    for (const ReportRow* row : view.rows) {
      const auto& accuracy = row->entry->accuracy;
      const std::string_view class_name = accuracy ? to_string(*accuracy) : "not said";
      ++rows[class_name];
      if (std::isfinite(row->entry->err_ratio)) errors[class_name].push_back(row->entry->err_ratio);
    }
    for (const auto& [class_name, count] : rows) {
      const std::vector<double>& of_class = errors[class_name];
      const bool any = !of_class.empty();
      table.add({name, class_name, count, of_class.size(),
                 any ? ReportValue(median(of_class)) : ReportValue(),
                 any ? ReportValue(*std::ranges::max_element(of_class)) : ReportValue()});
    }
  }
  return table;
}

void add_base_tables(const ReportInputs& inputs, std::vector<ReportTable>& tables) {
  if (!inputs.base) return;
  std::vector<TunedEntry> before;
  std::vector<TunedEntry> after;
  for (const TunedFile& file : *inputs.base)
    before.insert(before.end(), file.entries.begin(), file.entries.end());
  for (const TunedFile& file : inputs.tuned.files)
    after.insert(after.end(), file.entries.begin(), file.entries.end());
  const Difference difference = compare_rows(before, after, inputs.tolerance / 100);
  ReportTable summary("changes_summary", "Against the base", "As `gemmtune diff` counts.",
                      {{"kind", "kind", text_kind}, {"keys", "keys"}});
  std::map<ChangeKind, std::size_t> counts;
  for (const RowChange& change : difference.changes) ++counts[change.kind];
  summary.add({"as before", difference.equal});
  for (const auto& [kind, count] : counts) summary.add({to_string(kind), count});
  ReportTable changes("changes", "What changed", "A ratio above 1 is slower than the base.",
                      {{"kind", "kind", text_kind},
                       {"view", "device and operation", text_kind},
                       {"m", "M"},
                       {"n", "N"},
                       {"k", "K"},
                       {"before_us", "before µs", ReportKind::number, 3},
                       {"after_us", "µs", ReportKind::number, 3},
                       {"ratio", "ratio", ReportKind::number, 3},
                       {"before_kernel", "kernel before", text_kind},
                       {"after_kernel", "kernel", text_kind}});
  for (const RowChange& change : difference.changes) {
    const TunedEntry& row = change.row();
    const bool both = change.before != nullptr && change.after != nullptr && valid_time(change.before->us) &&
                      valid_time(change.after->us);
    changes.add({to_string(change.kind), view_of(row), row.problem.m, row.problem.n, row.problem.k,
                 change.before != nullptr ? time_value(change.before->us) : ReportValue(),
                 change.after != nullptr ? time_value(change.after->us) : ReportValue(),
                 both ? ReportValue(change.after->us / change.before->us) : ReportValue(),
                 change.before != nullptr ? ReportValue(change.before->kernel_name) : ReportValue(),
                 change.after != nullptr ? ReportValue(change.after->kernel_name) : ReportValue()});
  }
  tables.push_back(std::move(summary));
  tables.push_back(std::move(changes));
}

void add_finding_tables(const ReportInputs& inputs, std::vector<ReportTable>& tables) {
  ReportTable summary(
      "findings_summary", "Audit", "As `gemmtune audit` counts.",
      {{"kind", "kind", text_kind}, {"findings", "findings"}, {"meaning", "meaning", text_kind}});
  for (const FindingKind kind : all_finding_kinds()) {
    const auto count =
        std::ranges::count_if(inputs.findings, [&](const Finding& finding) { return finding.kind == kind; });
    if (count > 0) summary.add({to_string(kind), count, describe(kind)});
  }
  ReportTable list("findings", "Findings", "",
                   {{"file", "file", text_kind},
                    {"line", "line"},
                    {"kind", "kind", text_kind},
                    {"text", "finding", text_kind}});
  const std::vector<std::string> names = shown_file_names(inputs);
  for (const Finding& finding : inputs.findings) {
    list.add({names[finding.source], finding.line, to_string(finding.kind), finding.text});
  }
  tables.push_back(std::move(summary));
  tables.push_back(std::move(list));
}

/// Members of members as "libraries.cublasLt".
void add_members(const std::string& env, const std::string& prefix, const Json& json, ReportTable& table) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix.empty() ? key : fmt::format("{}.{}", prefix, key);
    if (value.is_object()) {
      add_members(env, name, value, table);
    } else {
      table.add({env, name, value.is_string() ? value.get<std::string>() : json_line(value)});
    }
  }
}

ReportTable environment_table(const ReportInputs& inputs) {
  ReportTable table(
      "environment", "Environment",
      "What stands behind the env of the rows: device, libraries, policy, clocks, throttling, busy rows.",
      {{"env", "env", text_kind}, {"name", "name", text_kind}, {"value", "value", text_kind}});
  for (const auto& [env, text] : inputs.environments) {
    if (const Json json = parse_json(text); json.is_object()) add_members(env, "", json, table);
  }
  return table;
}

ReportTable files_table(const ReportInputs& inputs) {
  ReportTable table("files", "Files", "",
                    {{"file", "file", text_kind},
                     {"table", "table", text_kind},
                     {"rows", "rows"},
                     {"unread", "rows that cannot be read"}});
  const std::vector<std::string> names = shown_file_names(inputs);
  for (const TunedFile& file : inputs.tuned.files)
    table.add({names[static_cast<std::size_t>(&file - inputs.tuned.files.data())], file.schema().name,
               file.entries.size(), unread_rows(file).size()});
  return table;
}

ReportTable runs_table(const ReportInputs& inputs) {
  ReportTable table("runs", "Runs of the journal", "",
                    {{"run", "run"},
                     {"started", "started", text_kind},
                     {"finished", "finished", text_kind},
                     {"problems", "problems"},
                     {"decided", "decided"},
                     {"candidates", "candidates"},
                     {"failures", "failures"},
                     {"device", "device", text_kind},
                     {"policy", "policy", text_kind}});
  for (const JournalRunReport& run : inputs.runs) {
    table.add({run.id, run.started, run.finished, run.problems, run.decided, run.candidates, run.failures,
               run.device, run.policy});
  }
  return table;
}

void add_run_tables(const ReportInputs& inputs, std::vector<ReportTable>& tables) {
  if (!inputs.run) return;
  const RunState& run = *inputs.run;
  ReportTable state("run", "The run", "",
                    {{"shapes", "shapes"},
                     {"done", "done"},
                     {"candidates", "candidates"},
                     {"skipped", "lines of events left out"},
                     {"ended", "ended", text_kind}});
  state.add({run.shapes, run.done, run.candidates, run.skipped, run.ended ? "yes" : "no"});
  ReportTable work("in_work", "In work", "",
                   {{"problem", "problem", text_kind}, {"last", "tried last", text_kind}});
  for (const auto& [problem, last] : run.in_work) work.add({problem, last});
  tables.push_back(std::move(state));
  tables.push_back(std::move(work));
}

}  // namespace

std::string view_of(const TunedEntry& row) {
  const std::string_view gfx = row.gfx.empty() ? gfx_of_cu_num(row.cu_num) : std::string_view(row.gfx);
  return fmt::format("{}/{} {}", gfx.empty() ? "(no gfx)" : gfx, row.cu_num, to_string(form_of(row.problem)));
}

std::vector<ReportTable> report_tables(const ReportInputs& inputs) {
  const std::vector<ReportRow> rows = rows_of_report(inputs);
  const ReportViews views = views_of(rows, inputs.environments);
  const CapturedCalls captured(inputs.captures);
  std::vector<ReportTable> tables;
  const Roof& roof = inputs.roof;
  tables.push_back(summary_table(views));
  tables.push_back(next_steps_table(inputs));
  add_run_tables(inputs, tables);
  add_workload_tables(inputs, tables);
  tables.push_back(by_m_table(views, roof));
  tables.push_back(roofs_table(views, roof));
  tables.push_back(side_by_side_table(inputs));
  tables.push_back(libtypes_table(views));
  tables.push_back(ties_table(views));
  add_search_tables(inputs, tables);
  tables.push_back(accuracy_table(views));
  add_base_tables(inputs, tables);
  add_finding_tables(inputs, tables);
  tables.push_back(environment_table(inputs));
  tables.push_back(runs_table(inputs));
  tables.push_back(files_table(inputs));
  tables.push_back(rows_table(inputs, rows, views, captured, roof));
  std::vector<const TunedEntry*> entries;
  for (const ReportRow& row : rows) entries.push_back(row.entry);
  tables.push_back(competitors_table(inputs, entries));
  std::erase_if(tables, [](const ReportTable& table) {
    return table.empty() && table.id() != "summary" && table.id() != "rows";
  });
  return tables;
}

}  // namespace gemmtune::cli
