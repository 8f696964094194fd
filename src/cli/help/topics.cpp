#include "cli/help/topics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/environment.h"
#include "base/environment_variables.h"
#include "formats/aiter/schema.h"
#include "resolve/table_set.h"
#include "tuned/entry.h"
#include "tuning/operator_bench.h"

namespace gemmtune::cli {
namespace {

constexpr std::string_view verdicts_footer =
    "The tests behind these words: docs/statistics.md. One row measured anew:\n"
    "  gemmtune tune --problem 'a16w16 m=16 n=2048 k=8192 …' --all -o tuned.csv\n";

HelpTopic verdicts_topic() {
  HelpTopicGroup rows{"Verdict of a row", {}};
  for (const Verdict verdict : all_verdicts())
    if (verdict != Verdict::none)
      rows.entries.push_back({std::string(to_string(verdict)), std::string(describe(verdict))});
  HelpTopicGroup bench{"Verdict of bench", {}};
  for (const BenchVerdict verdict :
       {BenchVerdict::win, BenchVerdict::slower, BenchVerdict::undecided, BenchVerdict::same_kernel})
    bench.entries.push_back({std::string(to_string(verdict)), std::string(describe(verdict))});
  HelpTopicGroup words{
      "Words beside it",
      {{"speed-up", "The default's time over the kernel's: the median of the ratios, round by round."},
       {"95 %", "The interval that holds the true median with 95 % confidence."},
       {"ties",
        "How many other kernels cannot be told apart from this one (1 %, or the noise floor). They take "
        "nothing from a win; a fixed order decides among them."},
       {"default kernel",
        "What a program runs without tuning: the first choice of the vendor's library, or of our family for "
        "few rows."},
       {"noise floor", "How far one kernel differs from itself, timed twice a round."},
       {"busy machine",
        "Other programs disturbed many rounds. Repeat the row on a quiet machine, or on a CPU with tune "
        "--clock processor."}}};
  return {"verdicts",
          "The words of results. tune, lookup, bench and report have the same.",
          {std::move(rows), std::move(bench), std::move(words)},
          verdicts_footer};
}

HelpTopicEntry column_entry(Column column) {
  return {fmt::format("{}", fmt::join(column_names(column), ", ")), std::string(describe(column))};
}

HelpTopic columns_topic() {
  HelpTopicGroup aiters{"AITER's column", {}};
  HelpTopicGroup own{"gemmtune's column", {}};
  HelpTopicGroup lists{"Column of lists of shapes", {}};
  std::vector<bool> is_own(column_count);
  for (const SchemaColumn& column : own_columns()) is_own[static_cast<std::size_t>(column.column)] = true;
  for (std::size_t i = 0; i < column_count; ++i) {
    const auto column = static_cast<Column>(i);
    HelpTopicGroup& group = column >= Column::calls ? lists : is_own[i] ? own : aiters;
    group.entries.push_back(column_entry(column));
  }
  return {"columns",
          "The columns of tuned files. Which table has which: docs/tuned_csv.md.",
          {std::move(aiters), std::move(own), std::move(lists)},
          {}};
}

HelpTopic variables_topic() {
  HelpTopicGroup files{"Variable with tuned files", {}};
  for (const OperationForm operation : all_operation_forms()) {
    std::string names = tuned_files_variable(operation);
    if (const std::string_view aiters = names_of(operation).aiter_variable; !aiters.empty())
      names += fmt::format(", {}", aiters);
    files.entries.push_back(
        {std::move(names),
         fmt::format("Tuned files of {}, colon-separated, in place of the config folder's (docs/lookup.md).",
                     to_string(operation))});
  }
  HelpTopicGroup others{"Variable", {}};
  for (const EnvironmentVariable& variable : environment_variables()) {
    std::string names(variable.name);
    if (!variable.other_names.empty()) names += fmt::format(", {}", variable.other_names);
    others.entries.push_back({std::move(names), std::string(variable.meaning)});
  }
  HelpTopicGroup schedulers{"Variable of a scheduler", {}};
  for (const char* const name : scheduler_variable_names())
    schedulers.entries.push_back(
        {name, "Which process of how many this is, for tune --shard auto (docs/many_machines.md)."});
  return {"variables",
          "Environment variables. Of several names the first one that is set counts.",
          {std::move(files), std::move(others), std::move(schedulers)},
          {}};
}

}  // namespace

std::vector<HelpTopic> help_topics() { return {verdicts_topic(), columns_topic(), variables_topic()}; }

}  // namespace gemmtune::cli
