#include "cli/tune/option_exclusions.h"

#include <string>
#include <string_view>
#include <vector>

namespace gemmtune::cli {
namespace {

/// An option, or several that are given for one purpose.
struct Subject {
  std::string_view name;
  bool (*is_given)(const TuneOptions& options);
};

template <auto field>
bool differs(const TuneOptions& options) {
  return options.*field != TuneOptions().*field;
}

/// The options under their names.
namespace subject {
constexpr Subject run_config{"--run_config", differs<&TuneOptions::run_config>};
constexpr Subject compare_wo_tuning{"--compare_wo_tuning", differs<&TuneOptions::compare_wo_tuning>};
constexpr Subject benchmark{"--benchmark", differs<&TuneOptions::benchmark>};
constexpr Subject compare{
    "--compare", [](const TuneOptions& options) { return options.compare || options.checks_winners; }};
constexpr Subject m_range{"--m-range", differs<&TuneOptions::m_range>};
constexpr Subject buckets{"--buckets", differs<&TuneOptions::buckets>};
constexpr Subject shard{"--shard", differs<&TuneOptions::shard>};
constexpr Subject list{"--list", differs<&TuneOptions::list>};
constexpr Subject record{"--record", differs<&TuneOptions::record>};
constexpr Subject replay{"--replay", differs<&TuneOptions::replay>};
constexpr Subject events{"--events", differs<&TuneOptions::events>};
constexpr Subject retry_failed{"--retry-failed", differs<&TuneOptions::retry_failed>};
constexpr Subject keep{"--keep", differs<&TuneOptions::keep>};
constexpr Subject journal{"--journal", differs<&TuneOptions::journal_folder>};
constexpr Subject dry_run{"--dry-run", differs<&TuneOptions::dry_run>};
constexpr Subject invariant{"--invariant", differs<&TuneOptions::invariant>};
constexpr Subject pdl{"--pdl", differs<&TuneOptions::pdl>};
constexpr Subject budget{"--budget",
                         [](const TuneOptions& options) { return options.request.budget_seconds > 0; }};
constexpr Subject further_passes{"--confirmations",
                                 [](const TuneOptions& options) { return options.confirmations > 1; }};
constexpr Subject objective{"--objective", differs<&TuneOptions::objective>};
constexpr Subject energy{"--energy", [](const TuneOptions& options) { return options.request.energy; }};
constexpr Subject single_size{"-m -n -k", [](const TuneOptions& options) { return options.size.any(); }};
constexpr Subject model{"--model_dir",
                        [](const TuneOptions& options) { return !options.model.folder.empty(); }};
constexpr Subject baseline{"--baseline", [](const TuneOptions& options) {
                             return options.device.baseline != DeviceOptions().baseline;
                           }};
}  // namespace subject

struct Exclusion {
  std::vector<Subject> some;
  std::vector<Subject> others;
  std::string_view reason;  // behind the sentence
};

const std::vector<Exclusion>& exclusions() {
  using namespace subject;
  static const std::vector<Exclusion> all{
      {{run_config}, {compare_wo_tuning, benchmark, compare}, ""},
      {{compare_wo_tuning}, {benchmark}, ""},
      {{compare_wo_tuning, benchmark}, {compare, single_size, model}, "; it takes a file of results"},
      // These tune nothing.
      {{run_config, compare_wo_tuning, benchmark},
       {m_range, buckets, shard, record, replay, events, retry_failed, keep, energy, objective, dry_run,
        invariant},
       ""},
      {{compare},
       {m_range, buckets, shard, record, replay, events, retry_failed, energy, objective, dry_run},
       ""},
      {{buckets}, {m_range, shard, dry_run}, ""},
      {{objective}, {buckets}, ", whose kernels are compared by time"},
      {{objective, energy}, {replay}, ", a recording has no joules"},
      {{baseline}, {m_range, buckets, compare, record, replay}, ""},
      {{record}, {replay}, ""},
      {{invariant},
       {compare, m_range, buckets, shard, replay, pdl, objective, energy, budget, further_passes},
       ": all M of a weight are decided together, by time"},
      {{dry_run}, {keep, journal, list}, ""},
  };
  return all;
}

/// With the word of an option whose other words are no contradiction.
std::string text_of(const TuneOptions& options, const Subject& one) {
  std::string text(one.name);
  if (one.name == subject::objective.name) text += " " + options.objective;
  if (one.name == subject::invariant.name) text += " " + options.invariant;
  if (one.name == subject::baseline.name) text += " " + options.device.baseline;
  return text;
}

}  // namespace

Status check_exclusions(const TuneOptions& options) {
  for (const Exclusion& exclusion : exclusions()) {
    for (const Subject& one : exclusion.some) {
      if (!one.is_given(options)) continue;
      for (const Subject& other : exclusion.others) {
        if (other.is_given(options))
          return Status::invalid("{}: not with {}{}", text_of(options, one), text_of(options, other),
                                 exclusion.reason);
      }
    }
  }
  return {};
}

}  // namespace gemmtune::cli
