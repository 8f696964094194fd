#include "cli/tune/shape_choice.h"

#include <algorithm>
#include <utility>

namespace gemmtune::cli {
namespace {

/// Every shape without a bias and with one, once each.
Status add_both_biases(ShapeList& shapes) {
  std::vector<ShapeRow> rows;
  for (const ShapeRow& row : shapes.rows) {
    if (row.problem.operation != Operation::a16w16)
      return Status::invalid("--all_bias: only of a16w16, not of {}", to_string(form_of(row.problem)));
    for (const bool bias : {false, true}) {
      ShapeRow one = row;
      one.problem.bias = bias;
      GEMMTUNE_RETURN_IF_ERROR(check(one.problem));
      const bool is_new =
          std::ranges::none_of(rows, [&](const ShapeRow& other) { return other.problem == one.problem; });
      if (is_new) rows.push_back(std::move(one));
    }
  }
  shapes.rows = std::move(rows);
  return {};
}

}  // namespace

Status choose_shapes(const TuneOptions& options, ShapeList& shapes) {
  if (options.last && shapes.rows.size() > 1) shapes.rows.erase(shapes.rows.begin(), shapes.rows.end() - 1);
  return options.all_bias ? add_both_biases(shapes) : Status();
}

Status add_bias(const TuneOptions& options, ShapeList& shapes) {
  for (ShapeRow& row : shapes.rows) {
    if (!options.bias_vector) break;
    row.problem.bias = true;
    GEMMTUNE_RETURN_IF_ERROR(check(row.problem));
  }
  return {};
}

}  // namespace gemmtune::cli
