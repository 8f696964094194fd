#include "formats/aiter/rates.h"

#include <cmath>

#include "base/text.h"
#include "tuned/entry.h"

namespace gemmtune {
namespace {

/// Python's round(value, 2).
double rounded(double value) { return *parse_number(python_float(value, 2)); }

struct ElementBytes {
  double x = 2;
  double w = 2;
  double y = 2;
};

/// AITER counts the operation's default types, whatever types the row has.
ElementBytes element_bytes(OperationForm operation) {
  const Problem usual = default_problem(operation);
  return {bits(usual.x_type) / 8.0, bits(usual.w_type) / 8.0, bits(usual.y_type) / 8.0};
}

/// AITER's table of bytes for fused MoE: torch's packed fp4 counts as one byte an element.
double moe_bytes(DataType type) {
  if (type == DataType::i4) return 0.5;
  return type == DataType::f4_e2m1 ? 1 : bits(type) / 8.0;
}

double dense_bytes(const Problem& problem, const ElementBytes& bytes) {
  const auto m = static_cast<double>(problem.m);
  const auto n = static_cast<double>(problem.n);
  const auto k = static_cast<double>(problem.k);
  return (m * k * bytes.x + n * k * bytes.w + m * n * bytes.y) * static_cast<double>(problem.batch);
}

double table_bytes(const Problem& problem) {
  const auto m = static_cast<double>(problem.m);
  const auto n = static_cast<double>(problem.n);
  const auto k = static_cast<double>(problem.k);
  if (is_mixture(problem)) {
    const double halves = problem.moe.gated ? 3 : 2;
    return m * k * moe_bytes(problem.x_type) +
           halves * n * k * moe_bytes(problem.w_type) * problem.moe.experts +
           m * k * moe_bytes(problem.y_type);
  }
  return dense_bytes(problem, element_bytes(form_of(problem)));
}

double rate_of(double amount, double us, double unit) { return amount / (us * 1e-6) / unit; }

/// Equal up to the rounding of the cell to 2 decimals and of the time to 4.
bool agrees(double stored, double exact, double us) {
  return std::abs(stored - exact) <= 0.0051 + exact * (0.00006 / us);
}

}  // namespace

double tflops_column(const Problem& problem, double us) {
  return valid_time(us) ? rounded(flops(problem) / (us * 1e6)) : 0;
}

double bandwidth_column(const Problem& problem, double us) {
  return valid_time(us) ? rounded(table_bytes(problem) / (us * 1e-6) / 1e9) : 0;
}

bool agrees_with_tflops(const Problem& problem, double us, double stored) {
  return agrees(stored, rate_of(flops(problem), us, 1e12), us);
}

bool agrees_with_bandwidth(const Problem& problem, double us, double stored) {
  if (agrees(stored, rate_of(table_bytes(problem), us, 1e9), us)) return true;
  ElementBytes other;  // of the same operation in another tuner of AITER
  if (problem.operation == Operation::a16w16) {
    other = {bits(problem.x_type) / 8.0, bits(problem.w_type) / 8.0, bits(problem.y_type) / 8.0};
  } else if (problem.operation != Operation::batched_a8w8) {
    return false;
  }
  return agrees(stored, rate_of(dense_bytes(problem, other), us, 1e9), us);
}

}  // namespace gemmtune
