#include "cli/shared/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

std::string check_text(const RowCheck& check) {
  switch (check.state) {
    case RowCheckState::right:
      return fmt::format("✅ err_ratio {:.4g}{}", check.err_ratio, error_text(check.error));
    case RowCheckState::wrong:
      return fmt::format("❌ {}{}", check.reason, error_text(check.error));
    case RowCheckState::not_runnable:
      break;
  }
  return "not run: " + check.reason;
}

}  // namespace

Json error_json(const MeasuredError& error) {
  const auto cell = [](double value) { return std::isfinite(value) ? Json(value) : Json(); };
  return {{"rms", cell(error.rms)}, {"max", cell(error.max)}, {"one_sign", cell(error.one_sign)}};
}

std::string error_text(const MeasuredError& error) {
  std::string text;
  if (std::isfinite(error.rms)) text += fmt::format(", error {:.2g} (largest {:.2g})", error.rms, error.max);
  if (std::isfinite(error.one_sign)) text += fmt::format(", {:.2g} on operands of one sign", error.one_sign);
  return text;
}

Json check_json(const RowCheck& check) {
  return {{"state", to_string(check.state)},  {"reason", check.reason},
          {"err_ratio", check.err_ratio},     {"accuracy", to_string(check.accuracy)},
          {"error", error_json(check.error)}, {"deterministic", check.deterministic}};
}

Json checked_rows_json(const std::vector<CheckedRow>& rows) {
  Json list = Json::array();
  for (const CheckedRow& row : rows) {
    Json json = {{"line", row.entry.line},
                 {"problem", print(row.entry.problem)},
                 {"kernelName", row.entry.kernel_name}};
    json.update(check_json(row.check));
    list.push_back(std::move(json));
  }
  return list;
}

std::string correctness_text(const std::vector<CheckedRow>& rows) {
  std::string text;
  for (const CheckedRow& row : rows)
    text += fmt::format("{} {}: correctness: {}\n", short_name(row.entry.problem), row.entry.kernel_name,
                        check_text(row.check));
  return text;
}

bool all_right(const std::vector<CheckedRow>& rows) {
  return std::ranges::all_of(rows,
                             [](const CheckedRow& row) { return row.check.state == RowCheckState::right; });
}

}  // namespace gemmtune::cli
