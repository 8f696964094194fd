#include "cli/tune/m_range_options.h"

#include <fmt/format.h>

#include <cmath>

#include <CLI/CLI.hpp>

#include "base/text.h"
#include "cli/shared/interrupt.h"

namespace gemmtune::cli {

void declare_m_range(CLI::App& app, TuneOptions& options) {
  app.add_option(
         "--m-range", options.m_range,
         "Tune each weight (N, K, types) over M from A to B and store ranges: few rows, each the best "
         "kernel of an interval within --m-regret, verified inside it. With -n -k, -i or --model_dir, "
         "whose M then only weight the calls")
      ->type_name("A:B");
  app.add_option(
         "--m-regret", options.m_regret,
         "Percent that a range may be slower than the best kernel at an M (or the noise measured there)")
      ->capture_default_str();
}

Result<MRangeRequest> m_range_of(const TuneOptions& options) {
  const std::string& text = options.m_range;
  const auto colon = text.find(':');
  const auto bound = [&](std::string_view part) {
    const auto value =
        part.empty() || part.find('.') != std::string_view::npos ? std::nullopt : parse_integer(part);
    return value && *value >= 1 && *value <= max_dimension ? value : std::nullopt;
  };
  const auto first =
      colon == std::string::npos ? std::nullopt : bound(std::string_view(text).substr(0, colon));
  const auto last =
      colon == std::string::npos ? std::nullopt : bound(std::string_view(text).substr(colon + 1));
  if (!first || !last) {
    return Status::invalid("--m-range {}: expected A:B, two whole numbers from 1 to {}", text, max_dimension);
  }
  if (*first > *last) {
    return Status::invalid("--m-range {}: begins above its end; expected {}:{}", text, *last, *first);
  }
  if (!(options.m_regret > 0 && options.m_regret <= 100)) {
    return Status::invalid("--m-regret {}: expected percent above 0, up to 100", options.m_regret);
  }
  MRangeRequest request;
  request.range = {*first, *last};
  request.regret = options.m_regret / 100;
  request.stop = interrupted;
  return request;
}

Status take_m_range(TuneOptions& options) {
  if (options.m_range.empty()) {
    return options.m_regret == TuneOptions().m_regret ? Status()
                                                      : Status::invalid("--m-regret needs --m-range");
  }
  const auto request = m_range_of(options);
  if (!request.ok()) return request.status();
  if (options.run_config || options.compare) {
    return Status::invalid("--m-range: not with {}", options.compare ? "--compare" : "--run_config");
  }
  if (!options.size.any()) return {};
  if (!options.size.m.empty()) {
    return Status::invalid("-m {} and --m-range {}: give one of them; a range needs -n and -k",
                           options.size.m, options.m_range);
  }
  options.size.m = std::to_string(request->range.last);
  return {};
}

}  // namespace gemmtune::cli
