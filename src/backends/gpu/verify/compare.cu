// Compares the rows of y with the reference, as verify/check_report_builder.cpp does on the host. One block of 256 threads for each row.

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/verify/compare_arguments.h"

#define THREADS 256

using gemmtune::gpu::CompareArguments;
using Figures = gemmtune::gpu::DeviceRowFigures;

static __device__ inline bool is_poison(unsigned short bits) { return bits == 0xffffu; }
static __device__ inline bool is_poison(float value) { return __float_as_uint(value) == 0xffffffffu; }
static __device__ inline bool is_finite(float value) { return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u; }

#define MAX_FLOAT 3.4028234663852886e38

// Whether a result that is NaN or an infinity is right, as may_be() of verify/line_numbers.cpp has it.
static __device__ inline bool may_be(float value, double exact, double magnitude, double error) {
  // What float32 cannot hold may be any sum.
  if (!(magnitude <= MAX_FLOAT) && exact - exact == 0.0) return true;
  const bool is_nan = !(value == value);
  if (!(exact == exact)) return is_nan;
  if (exact - exact != 0.0) return (double)value == exact || (is_nan && !(magnitude <= MAX_FLOAT));
  const bool above = (magnitude + exact) / 2 + error > MAX_FLOAT;
  const bool below = (magnitude - exact) / 2 + error > MAX_FLOAT;
  if (is_nan) return above && below;
  if (value > 0.0f ? above : below) return true;
  return read_output(round_output((float)(exact + (value > 0.0f ? error : -error)))) == value;
}

static __device__ inline void add_element(const CompareArguments& a, long long column, output stored, double exact,
                                          double magnitude, Figures& row) {
  const float value = read_output(stored);
  // Rounds through float32, as kernels do and as round_to of numbers/data_type.h does.
  const float rounded_value = read_output(round_output((float)exact));
  const bool is_exact_finite = exact - exact == 0.0;
  if (!is_finite(value) && may_be(value, exact, magnitude, a.element_factor * magnitude)) {
    ++row.checked;
    return;
  }
  if (!is_finite(value) && is_exact_finite) {
    if (row.not_finite++ == 0) row.first_not_finite = column;
    if (is_poison(stored)) ++row.unwritten;
    return;
  }
  if (!is_exact_finite) {
    ++row.checked;
    ++row.misrounded;
    ++row.outside;
    if (row.worst_excess < 1e300) {
      row.worst_excess = (double)__uint_as_float(0x7f800000u);
      row.worst_column = column;
      row.worst_output = (double)value;
      row.worst_reference = exact;
    }
    return;
  }
  const double out = (double)value;
  const double rounded = (double)rounded_value;
  ++row.checked;
  if (out != rounded) ++row.misrounded;
  if (!(fabs(rounded - out) <= a.absolute + a.relative * fabs(out))) ++row.outside;
  row.max_output = fmax(row.max_output, fabs(out));
  row.max_error = fmax(row.max_error, fabs(rounded - out));
  const double error = fabs(out - exact);
  row.max_exact_error = fmax(row.max_exact_error, error);
  const double accumulated = a.element_factor * magnitude;
  const double bound = accumulated + a.output_epsilon * (fabs(exact) + accumulated) + a.output_tiny;
  const double excess = error / bound;
  if (excess > row.worst_excess) {
    row.worst_excess = excess;
    row.worst_column = column;
    row.worst_output = out;
    row.worst_reference = exact;
  }
  row.output += out * out;
  row.product += out * exact;
  row.error += error * error;
  row.reference += exact * exact;
  row.magnitude += magnitude * magnitude;
}

static __device__ inline void merge(Figures& to, const Figures& from) {
  to.error += from.error;
  to.reference += from.reference;
  to.magnitude += from.magnitude;
  to.output += from.output;
  to.product += from.product;
  to.max_output = fmax(to.max_output, from.max_output);
  to.max_error = fmax(to.max_error, from.max_error);
  to.max_exact_error = fmax(to.max_exact_error, from.max_exact_error);
  if (from.worst_excess > to.worst_excess ||
      (from.worst_excess == to.worst_excess && from.worst_column < to.worst_column)) {
    to.worst_excess = from.worst_excess;
    to.worst_output = from.worst_output;
    to.worst_reference = from.worst_reference;
    to.worst_column = from.worst_column;
  }
  to.checked += from.checked;
  to.misrounded += from.misrounded;
  to.outside += from.outside;
  if (from.not_finite > 0 && (to.not_finite == 0 || from.first_not_finite < to.first_not_finite))
    to.first_not_finite = from.first_not_finite;
  to.not_finite += from.not_finite;
  to.unwritten += from.unwritten;
  to.padding_written += from.padding_written;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) compare(const CompareArguments a) {
  __shared__ Figures parts[THREADS];
  const int thread = threadIdx.x;
  const long long row = blockIdx.x;
  Figures own = {};
  own.worst_excess = -1.0;
  own.worst_column = own.first_not_finite = -1;
  for (long long column = thread; column < a.n; column += THREADS)
    add_element(a, column, a.y[row * a.ldy + column], a.values[row * a.n + column],
                (double)a.magnitudes[row * a.n + column], own);
  for (long long column = a.n + thread; column < a.ldy; column += THREADS)
    if (!is_poison(a.y[row * a.ldy + column])) ++own.padding_written;
  parts[thread] = own;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) merge(parts[thread], parts[thread + half]);
  }
  if (thread == 0) a.rows[row] = parts[0];
}
