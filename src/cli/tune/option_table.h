// The options of `gemmtune tune`: one line each. The command line, --help, the checks of values, what "the
// same run" means and what a worker measures with all come from here. Sizes, models and devices, which other
// commands have too, are in cli/shared.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "cli/tune/tune_options.h"

namespace gemmtune::cli {

class CommandOptions;

enum class OptionSection { files, ranges, search, measuring, operator_times, aiter, tune_gemm, output };

/// Where an option's value goes. A field of Policy changes how a time is taken: it is forwarded to workers,
/// and most are part of a row's environment. A field of the request goes to the tuner as it is.
using OptionField =
    std::variant<bool TuneOptions::*, int TuneOptions::*, std::int64_t TuneOptions::*, double TuneOptions::*,
                 std::string TuneOptions::*, std::optional<std::string> TuneOptions::*, bool TuneRequest::*,
                 int TuneRequest::*, double TuneRequest::*, std::string TuneRequest::*, int Policy::*,
                 double Policy::*, int DeviceOptions::*>;

/// What another value of the option means for measurements that were taken before.
enum class OptionEffect {
  none,       // they stay: an unfinished run goes on with the new value
  run,        // a run with another value is another run; times stay comparable
  measuring,  // times are of another kind: another run, and another environment of its rows
};

struct OptionBounds {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  const char* expected = nullptr;  // in the error; null: "a number of at least MIN", or CLI11's words
  bool excludes_min = false;
};

struct OptionDetails {
  OptionEffect effect = OptionEffect::none;
  bool shows_default = false;        // in --help
  const char* value_name = nullptr;  // in --help; null: by type
  OptionBounds bounds{};
  /// A word or text into the request, or an error that names the option and what was expected. Null: the
  /// field is all.
  Status (*apply)(const TuneOptions& options, TuneRequest& request) = nullptr;
  /// "name=value" in the text of a run, empty for none. Null: the policy's text has the option, or no effect.
  std::string (*identity)(const TuneRequest& request) = nullptr;
};

struct TuneOption {
  OptionSection section;
  const char* names;  // all spellings as CLI11 reads them, AITER's and tune_gemm's too
  OptionField field;
  const char* help;
  OptionDetails details{};
};

std::span<const TuneOption> tune_option_table();
/// Its section of tune_gemm (tune_gemm_option_table.cpp).
std::vector<TuneOption> tune_gemm_option_rows();
/// Its section of AITER's tuners (aiter_option_table.cpp).
std::vector<TuneOption> aiter_option_rows();
/// "--profile-file" of the option's spellings: its first long one.
std::string_view long_name(const TuneOption& option);

/// The options of a section on the command line; `options` must outlive the app.
void declare_section(CommandOptions& app, OptionSection section, TuneOptions& options);

/// An option of the section has another value than its default.
bool uses_section(const TuneOptions& options, OptionSection section);

/// Each value is within its bounds.
Status check_bounds(const TuneOptions& options);
/// Each option's `apply`.
Status apply_options(const TuneOptions& options, TuneRequest& request);
/// The fields of Policy that options set, from one to the other.
void copy_policy_options(const Policy& from, Policy& to);
/// "libtypes=tiled splitK=1 search=staged …": what decides, beside device, environment and policy, which
/// measurements a run asks for.
std::string identity_text(const TuneRequest& request);

}  // namespace gemmtune::cli
