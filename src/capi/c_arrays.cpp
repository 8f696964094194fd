// Operands as arrays with types, shapes and strides: the one place that decides which are right, for every interface.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "capi/c_support.h"
#include "dispatch/planner.h"
#include "problem/operands.h"

namespace gemmtune::c {
namespace {

constexpr std::int32_t max_dimensions = 64;

// ---- what is asked of one array --------------------------------------------------------------------------

std::string list_of(const std::int64_t* numbers, std::int32_t count) {
  return fmt::format("[{}]", fmt::join(numbers, numbers + count, ", "));
}

std::string shape_of(const gemmtune_array& array) { return list_of(array.sizes, array.dimensions); }

std::int64_t size_of(const gemmtune_array& array, std::int32_t i) { return array.sizes[i]; }
std::int64_t last_size(const gemmtune_array& array) { return array.sizes[array.dimensions - 1]; }

/// Sizes are at most max_tensor_bytes, so that two of them may be multiplied only if one is a dimension.
std::int64_t capped_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() : product;
}

std::int64_t stride_of(const gemmtune_array& array, std::int32_t i) {
  if (array.strides != nullptr) return array.strides[i];
  std::int64_t stride = 1;
  for (std::int32_t inner = i + 1; inner < array.dimensions; ++inner)
    stride = capped_product(stride, size_of(array, inner));
  return stride;
}

std::string strides_of(const gemmtune_array& array) {
  std::array<std::int64_t, max_dimensions> strides{};
  for (std::int32_t i = 0; i < array.dimensions; ++i)
    strides[static_cast<std::size_t>(i)] = stride_of(array, i);
  return list_of(strides.data(), array.dimensions);
}

bool is_empty(const gemmtune_array& array) {
  return std::any_of(array.sizes, array.sizes + array.dimensions,
                     [](std::int64_t size) { return size == 0; });
}

std::int64_t elements_of(const gemmtune_array& array) {
  std::int64_t product = 1;
  for (std::int32_t i = 0; i < array.dimensions; ++i) product = capped_product(product, size_of(array, i));
  return product;
}

bool is_contiguous(const gemmtune_array& array) {
  if (array.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = array.dimensions - 1; i >= 0; --i) {
    const std::int64_t size = size_of(array, i);
    if (size != 1 && array.strides[i] != expected) return is_empty(array);
    expected = capped_product(expected, size);
  }
  return true;
}

bool is_at_multiple(const gemmtune_array& array, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(array.data) % bytes == 0;
}

/// The same sizes, but for those of 1.
bool has_shape(const gemmtune_array& array, const std::int64_t* wanted, std::int32_t count) {
  std::int32_t i = 0;
  for (std::int32_t j = 0; j < count; ++j) {
    if (wanted[j] == 1) continue;
    while (i < array.dimensions && size_of(array, i) == 1) ++i;
    if (i == array.dimensions || size_of(array, i) != wanted[j]) return false;
    ++i;
  }
  while (i < array.dimensions && size_of(array, i) == 1) ++i;
  return i == array.dimensions;
}

/// The leading dimensions of an array as one.
struct Rows {
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  std::int64_t distance = 0;  // in elements
};

/// False if the rows are not contiguous, or not at one distance. `rows` and `columns` are set in any case. Requires a
/// dimension.
bool find_rows(const gemmtune_array& array, Rows& found) {
  const std::int32_t last = array.dimensions - 1;
  found.columns = found.distance = size_of(array, last);
  for (std::int32_t i = 0; i < last; ++i) found.rows = capped_product(found.rows, size_of(array, i));
  if (array.strides == nullptr || found.rows == 0 || found.columns == 0) return true;
  if (found.columns > 1 && array.strides[last] != 1) return false;
  if (found.rows > max_dimension) return false;
  std::int64_t inner = 1;
  for (std::int32_t i = last - 1; i >= 0; --i) {
    if (size_of(array, i) == 1) continue;
    const std::int64_t stride = array.strides[i];
    if (inner == 1) {
      if (stride < found.columns || stride > max_dimension) return false;
      found.distance = stride;
    } else if (stride != inner * found.distance) {
      return false;
    }
    inner *= size_of(array, i);
  }
  return true;
}

// ---- types -------------------------------------------------------------------------------------------------

std::string type_text(std::int32_t type) {
  if (type == GEMMTUNE_ARRAY_I32) return "int32";
  DataType known{};
  if (type == GEMMTUNE_TYPE_UNSET ||
      read_type("type", static_cast<gemmtune_type>(type), known) != GEMMTUNE_OK)
    return "another one";
  return std::string(to_string(known));
}

bool is_wide(std::int32_t type) {
  return type == GEMMTUNE_BF16 || type == GEMMTUNE_F16 || type == GEMMTUNE_F32;
}

std::int64_t per_byte(std::int32_t type) { return type == GEMMTUNE_F4_E2M1 || type == GEMMTUNE_I4 ? 2 : 1; }

/// Libraries hold elements of 4 bits in bytes.
gemmtune_type element_type(const gemmtune_array& array, std::span<const DataType> types) {
  const auto type = static_cast<gemmtune_type>(array.type);
  if (type != GEMMTUNE_U8) return type;
  const auto takes = [&](DataType wanted) {
    return std::find(types.begin(), types.end(), wanted) != types.end();
  };
  if (takes(DataType::f4_e2m1)) return GEMMTUNE_F4_E2M1;
  return takes(DataType::i4) ? GEMMTUNE_I4 : type;
}

/// "[16, 3]" of count, rows and columns; `counted`: there are several matrices.
std::string scale_text(const std::array<std::int64_t, 3>& wanted, bool counted) {
  if (wanted == std::array<std::int64_t, 3>{1, 1, 1}) return "one element";
  const std::int64_t* const first = wanted.data() + (counted ? 0 : 1);
  const std::int64_t* last = wanted.data() + wanted.size();
  while (last - first > 1 && last[-1] == 1) --last;
  return list_of(first, static_cast<std::int32_t>(last - first));
}

// ---- one call ----------------------------------------------------------------------------------------------

constexpr const char* rows_expected = "contiguous rows at one distance, which is not below their length";

/// The functions return false where the call ends: with `status`, or with `strided`.
struct Reader {
  const bool may_copy;
  gemmtune_status status = GEMMTUNE_OK;
  const gemmtune_array* strided = nullptr;

  explicit Reader(bool copies) : may_copy(copies) {}

  template <typename... Values>
  bool refuse(fmt::format_string<Values...> format, Values&&... values) {
    status = fail(GEMMTUNE_INVALID_ARGUMENT, fmt::format(format, std::forward<Values>(values)...));
    return false;
  }
  bool refuse_strides(const char* name, const gemmtune_array& array, const char* expected) {
    return refuse("{} has strides {} and shape {}, expected {}", name, strides_of(array), shape_of(array),
                  expected);
  }
  /// Of an array that belongs to one call.
  bool ask_for_copy(const char* name, const gemmtune_array& array, const char* expected) {
    if (!may_copy) return refuse_strides(name, array, expected);
    strided = &array;
    return false;
  }
  bool is_legal(const char* name, const gemmtune_array& array) {
    if (array.dimensions < 0 || array.dimensions > max_dimensions ||
        (array.dimensions > 0 && array.sizes == nullptr))
      return refuse("{} has {} dimensions, expected 0 to {} with their sizes", name, array.dimensions,
                    max_dimensions);
    for (std::int32_t i = 0; i < array.dimensions; ++i)
      if (size_of(array, i) < 0 || size_of(array, i) > max_tensor_bytes)
        return refuse("{} has shape {}, expected sizes from 0 to 2^47", name, shape_of(array));
    return true;
  }
  bool has_known_type(const char* name, const gemmtune_array* array) {
    if (array == nullptr || array->type != GEMMTUNE_TYPE_UNSET) return true;
    return refuse(
        "dtype of {} is one that gemmtune does not know, expected bf16, f16, f32, fp8 e4m3, int8 or uint8",
        name);
  }
};

struct ArrayReader : Reader {
  const gemmtune_arrays& given;
  gemmtune_problem problem{};
  gemmtune_operands operands{};
  gemmtune_moe moe{};
  gemmtune_moe_operands moe_operands{};
  OperationForm form;
  const OperationTraits* operation = nullptr;
  std::int64_t given_k = 0;

  ArrayReader(const gemmtune_arrays& arrays, bool copies) : Reader(copies), given(arrays) {}

  bool require(const char* name, const gemmtune_array* array) {
    if (array != nullptr) return true;
    status = fail(GEMMTUNE_NULL_POINTER, fmt::format("{} is missing", name));
    return false;
  }

  const char* w_name() const { return operation->mixture ? "w1" : "w"; }
  const char* w_scale_name() const { return operation->mixture ? "w1_scale" : "w_scale"; }
  const char* w_global_scale_name() const {
    return operation->mixture ? "w1_global_scale" : "w_global_scale";
  }
  const char* w_zero_points_name() const { return operation->mixture ? "w1_zero_points" : "w_zero_points"; }
  const char* bias_name() const { return operation->mixture ? "bias1" : "bias"; }
  bool packed() const { return problem.weight_layout != GEMMTUNE_LAYOUT_PLAIN; }
  std::int64_t columns() const { return operation->mixture ? problem.k : problem.n; }

  bool is_legal_or_absent(const char* name, const gemmtune_array* array) {
    return array == nullptr || is_legal(name, *array);
  }

  bool read_presence() {
    if (!require("x", given.x) || !require(w_name(), given.w) || !is_legal("x", *given.x) ||
        !is_legal(w_name(), *given.w) || !is_legal_or_absent("out", given.out) ||
        !is_legal_or_absent(bias_name(), given.bias) || !is_legal_or_absent("x_scale", given.x_scale) ||
        !is_legal_or_absent(w_scale_name(), given.w_scale) ||
        !is_legal_or_absent("x_global_scale", given.x_global_scale) ||
        !is_legal_or_absent(w_global_scale_name(), given.w_global_scale) ||
        !is_legal_or_absent(w_zero_points_name(), given.w_zero_points) || !has_known_type("x", given.x) ||
        !has_known_type(w_name(), given.w) || !has_known_type("out", given.out))
      return false;
    for (const auto& [name, array] :
         {std::pair("w2", given.w2), std::pair("w2_scale", given.w2_scale), std::pair("bias2", given.bias2),
          std::pair("topk_ids", given.topk_ids), std::pair("topk_weights", given.topk_weights),
          std::pair("w2_global_scale", given.w2_global_scale),
          std::pair("w2_zero_points", given.w2_zero_points)}) {
      if (array == nullptr) continue;
      if (!operation->mixture) return refuse("{} is given, expected none with {}", name, to_string(form));
      if (!is_legal(name, *array)) return false;
    }
    return !operation->mixture || (require("w2", given.w2) && require("topk_ids", given.topk_ids) &&
                                   require("topk_weights", given.topk_weights));
  }

  bool has_groups() const {
    return operation->w_quantization == QuantType::per_group ||
           (operation->mixture && moe.quant_type == GEMMTUNE_QUANT_PER_GROUP);
  }

  /// Types that w may have.
  std::span<const DataType> w_types() const {
    if (has_groups()) return traits(Operation::a16w4_int4).w_types;
    return operation->w_types.empty() ? operation->x_types : operation->w_types;
  }

  void read_types() {
    problem.x_type = element_type(*given.x, operation->x_types);
    if (!packed()) {
      problem.w_type = element_type(*given.w, w_types());
    } else if (problem.w_type == GEMMTUNE_TYPE_UNSET) {
      problem.w_type = operation->own_w_type() ? type_to_c(operation->w_types.front()) : problem.x_type;
    }
    if (given.out != nullptr) problem.y_type = static_cast<gemmtune_type>(given.out->type);
    if (problem.y_type == GEMMTUNE_TYPE_UNSET)
      problem.y_type = is_wide(problem.x_type) ? problem.x_type : GEMMTUNE_BF16;
    if (operation->scale_ab) problem.scale_ab = given.x_scale != nullptr || given.w_scale != nullptr ? 1 : 0;
    problem.e8m0_scales = operation->quantization == QuantType::per_1x128 && given.w_scale != nullptr &&
                                  given.w_scale->type == GEMMTUNE_U8
                              ? 1
                              : 0;
  }

  bool is_dimension(const char* name, std::int64_t size) {
    return size <= max_dimension || refuse("{} = {}, expected 0 to {}", name, size, max_dimension);
  }

  /// Rows of x or `out` of a batched operation.
  bool find_batches(const gemmtune_array& array, std::int64_t& leading, std::int64_t& stride) const {
    const std::int64_t batch = size_of(array, 0);
    const std::int64_t m = size_of(array, 1);
    leading = size_of(array, 2);
    stride = 0;
    if (array.strides == nullptr || is_empty(array)) return true;
    if (leading > 1 && array.strides[2] != 1) return false;
    const std::int64_t columns_of_array = leading;
    if (m > 1) leading = array.strides[1];
    if (leading < columns_of_array || leading > max_dimension) return false;
    if (batch == 1) return true;
    stride = array.strides[0];
    return is_batch_stride({batch, m, leading, columns_of_array}, stride);
  }

  bool read_x() {
    const gemmtune_array& x = *given.x;
    const std::int32_t dimensions = operation->batched ? 3 : 2;
    if (operation->batched || operation->mixture ? x.dimensions != dimensions : x.dimensions < 1)
      return refuse("x has shape {}, expected {}", shape_of(x),
                    operation->batched   ? "[B, M, K]"
                    : operation->mixture ? "[T, K]"
                                         : "[..., K]");
    const std::int64_t per = per_byte(problem.x_type);
    operands.x = x.data;
    problem.k = last_size(x) * per;
    if (operation->batched) {
      problem.batch = size_of(x, 0);
      problem.m = size_of(x, 1);
      return is_dimension("batch", problem.batch) && is_dimension("M", problem.m) &&
             is_dimension("K", problem.k) &&
             (find_batches(x, operands.ldx, operands.x_batch_stride) || ask_for_copy("x", x, rows_expected));
    }
    Rows found;
    const bool has_rows = find_rows(x, found);
    problem.m = found.rows;
    if (!is_dimension("M", problem.m) || !is_dimension("K", problem.k)) return false;
    operands.ldx = found.distance * per;
    if (has_rows) return true;
    // Few kernels read fp8 column by column.
    const bool may_be_column_major =
        operation->key_switches && !operation->own_w_type() && x.dimensions == 2 && is_wide(problem.x_type);
    if (!may_be_column_major || problem.m < 2 || problem.k < 2 || x.strides[0] != 1 ||
        x.strides[1] < problem.m || x.strides[1] > max_dimension)
      return ask_for_copy("x", x, rows_expected);
    problem.x_order = GEMMTUNE_COLUMN_MAJOR;
    operands.ldx = x.strides[1];
    return true;
  }

  bool read_packed_weight() {
    const gemmtune_array& w = *given.w;
    const std::int64_t k = last_size(*given.x) * per_byte(problem.x_type);
    if (given_k != 0 && given_k != k) return refuse("w has {} columns, expected {} as x has", given_k, k);
    const std::int64_t plain_bytes = problem.n < 1 || problem.n > max_dimension
                                         ? 0
                                         : problem.n * k / per_byte(problem.w_type) *
                                               (problem.w_type == GEMMTUNE_F32 ? 4
                                                : is_wide(problem.w_type)      ? 2
                                                                               : 1);
    // Packed weights are never smaller than plain ones.
    if (problem.n < 1 || problem.n > max_dimension || w.type != GEMMTUNE_U8 || !is_contiguous(w) ||
        elements_of(w) < plain_bytes)
      return refuse("w has shape {}, expected the bytes of a packed weight [{}, {}]", shape_of(w), problem.n,
                    k);
    return true;
  }

  bool read_weight() {
    const gemmtune_array& w = *given.w;
    operands.w = w.data;
    if (packed()) return read_packed_weight();
    const std::int64_t per = per_byte(problem.w_type);
    if (operation->batched) {
      if (w.dimensions != 3 || size_of(w, 0) != problem.batch || size_of(w, 2) != problem.k)
        return refuse("w has shape {}, expected [{}, N, {}]", shape_of(w), problem.batch, problem.k);
      problem.n = size_of(w, 1);
    } else {
      if (w.dimensions != 2 || size_of(w, 1) * per != problem.k || problem.k % per != 0)
        return refuse("w has shape {}, expected [N, {}] as x has {} columns", shape_of(w), problem.k / per,
                      last_size(*given.x));
      problem.n = size_of(w, 0);
    }
    if (!is_dimension("N", problem.n)) return false;
    if (is_contiguous(w)) return true;
    const bool may_be_transposed = operation->key_switches && per == 1;
    if (!may_be_transposed || w.strides[0] != 1 || w.strides[1] != problem.n)
      return refuse_strides("w", w,
                            may_be_transposed ? "a contiguous matrix or its transpose; copy it once"
                                              : "a contiguous weight; copy it once");
    problem.w_order = GEMMTUNE_COLUMN_MAJOR;
    return true;
  }

  bool has_exact_shape(const char* name, const gemmtune_array& array, const std::int64_t* wanted,
                       std::int32_t count) {
    if (array.dimensions == count && std::equal(wanted, wanted + count, array.sizes)) return true;
    return refuse("{} has shape {}, expected {}", name, shape_of(array), list_of(wanted, count));
  }

  template <std::size_t count>
  bool is_weight(const char* name, const gemmtune_array& array,
                 const std::array<std::int64_t, count>& wanted) {
    if (!has_exact_shape(name, array, wanted.data(), static_cast<std::int32_t>(count))) return false;
    return is_contiguous(array) || refuse_strides(name, array, "a contiguous array; copy it once");
  }

  bool is_route(const char* name, const gemmtune_array& array, std::int32_t type) {
    const std::int64_t wanted[] = {problem.m, size_of(*given.topk_ids, 1)};
    if (!has_exact_shape(name, array, wanted, 2)) return false;
    if (array.type != type)
      return refuse("dtype of {} is {}, expected {}", name, type_text(array.type), type_text(type));
    if (is_contiguous(array) && is_at_multiple(array, sizeof(float))) return true;
    return ask_for_copy(name, array, "a contiguous array of whole elements");
  }

  /// Weights, experts and routes of a mixture.
  bool read_mixture() {
    const gemmtune_array& w1 = *given.w;
    const gemmtune_array& w2 = *given.w2;
    const std::int64_t per = per_byte(problem.w_type);
    if (w1.dimensions != 3 || w2.dimensions != 3)
      return refuse("w1 and w2 have shapes {} and {}, expected [E, N or 2 N, K] and [E, K, N]", shape_of(w1),
                    shape_of(w2));
    if (given.topk_ids->dimensions != 2)
      return refuse("topk_ids has shape {}, expected [{}, k]", shape_of(*given.topk_ids), problem.m);
    problem.n = size_of(w2, 2) * per;
    const std::int64_t experts = size_of(w1, 0);
    if (!is_dimension("inter_dim", problem.n) || !is_dimension("experts", experts) ||
        !is_dimension("topk", size_of(*given.topk_ids, 1)))
      return false;
    const std::int64_t rows = problem.n * (moe.gated != 0 ? 2 : 1);
    if (!is_weight("w1", w1, std::array{experts, rows, problem.k / per}) ||
        !is_weight("w2", w2, std::array{experts, problem.k, problem.n / per}))
      return false;
    if (w2.type != w1.type)
      return refuse("dtype of w2 is {}, expected that of w1, {}", type_text(w2.type), type_text(w1.type));
    if (!is_route("topk_ids", *given.topk_ids, GEMMTUNE_ARRAY_I32) ||
        !is_route("topk_weights", *given.topk_weights, GEMMTUNE_F32))
      return false;
    moe.experts = static_cast<std::int32_t>(experts);
    moe.topk =
        static_cast<std::int32_t>(std::min(size_of(*given.topk_ids, 1) + moe.shared_experts, max_dimension));
    operands.w = w1.data;
    moe_operands.w2 = w2.data;
    moe_operands.topk_ids = static_cast<const std::int32_t*>(given.topk_ids->data);
    moe_operands.topk_weights = static_cast<const float*>(given.topk_weights->data);
    return read_expert_biases(experts, rows);
  }

  bool read_expert_biases(std::int64_t experts, std::int64_t rows) {
    problem.bias = given.bias != nullptr || given.bias2 != nullptr ? 1 : 0;
    if (problem.bias == 0) return true;
    if (given.bias == nullptr || given.bias2 == nullptr)
      return refuse("{} is missing, expected bias1 and bias2 or neither",
                    given.bias == nullptr ? "bias1" : "bias2");
    if (!is_weight("bias1", *given.bias, std::array{experts, rows}) ||
        !is_weight("bias2", *given.bias2, std::array{experts, problem.k}))
      return false;
    for (const auto& [name, bias] : {std::pair("bias1", given.bias), std::pair("bias2", given.bias2)})
      if (bias->type != GEMMTUNE_F32)
        return refuse("dtype of {} is {}, expected f32", name, type_text(bias->type));
    operands.bias = given.bias->data;
    moe_operands.bias2 = static_cast<const float*>(given.bias2->data);
    return true;
  }

  bool read_bias() {
    if (given.bias == nullptr) return true;
    if (!is_weight("bias", *given.bias, std::array{problem.n})) return false;
    if (given.bias->type != static_cast<std::int32_t>(problem.y_type))
      return refuse("dtype of bias is {}, expected the result's type {}", type_text(given.bias->type),
                    type_text(problem.y_type));
    problem.bias = 1;
    operands.bias = given.bias->data;
    return true;
  }

  bool read_out() {
    operands.ldy = columns();
    if (given.out == nullptr) return true;
    const gemmtune_array& out = *given.out;
    const gemmtune_array& x = *given.x;
    const std::int32_t leading = x.dimensions - 1;
    if (out.dimensions != x.dimensions || !std::equal(x.sizes, x.sizes + leading, out.sizes) ||
        last_size(out) != columns()) {
      std::array<std::int64_t, max_dimensions> wanted{};
      std::copy(x.sizes, x.sizes + leading, wanted.begin());
      wanted[static_cast<std::size_t>(leading)] = columns();
      return refuse("out has shape {}, expected {}", shape_of(out), list_of(wanted.data(), x.dimensions));
    }
    if (out.read_only != 0) return refuse("out is read-only, expected an array to write to");
    operands.y = const_cast<void*>(out.data);
    Rows found;
    const bool right =
        operation->batched ? find_batches(out, operands.ldy, operands.y_batch_stride) : find_rows(out, found);
    if (!right) return refuse_strides("out", out, rows_expected);
    if (!operation->batched) operands.ldy = found.distance;
    return true;
  }

  struct Scale {
    const char* name;
    const gemmtune_array* array;
    const MatrixShape& matrix;
    bool or_one;
    bool of_x;
  };

  /// x_scale of x with several leading dimensions.
  bool has_shape_of_x(const gemmtune_array& array, std::int64_t columns_of_scale) const {
    std::array<std::int64_t, max_dimensions> wanted{};
    const std::int32_t last = given.x->dimensions - 1;
    std::copy(given.x->sizes, given.x->sizes + last, wanted.begin());
    wanted[static_cast<std::size_t>(last)] = columns_of_scale;
    return has_shape(array, wanted.data(), last + 1);
  }

  /// The pointer of a scale, null if there is none; *per_tensor becomes 1 if it is one for all rows.
  bool read_scale(const Scale& scale, const void*& pointer, std::int32_t* per_tensor) {
    const ScaleShape& shape = scale.matrix.scale;
    if (scale.matrix.count == 0 || shape.type == ScaleType::none) {
      if (scale.array == nullptr) return true;
      return refuse("{} is given, expected none: this operand has no scales", scale.name);
    }
    if (scale.array == nullptr) {
      status = fail(GEMMTUNE_NULL_POINTER,
                    fmt::format("{} is missing: quantized operands have scales", scale.name));
      return false;
    }
    const gemmtune_array& array = *scale.array;
    const bool of_bytes = bytes_of(shape.type) == 1;
    if (array.type != type_of(shape.type) && !(of_bytes && array.type == GEMMTUNE_U8))
      return refuse("dtype of {} is {}, expected {}", scale.name, type_text(array.type),
                    shape.type == ScaleType::e8m0 ? "e8m0 or u8"
                    : of_bytes                    ? "f8_e4m3fn or u8"
                                                  : type_text(type_of(shape.type)));
    const std::array<std::int64_t, 3> wanted{operation->batched ? problem.batch : scale.matrix.count,
                                             shape.rows, shape.columns};
    const bool one = scale.or_one && elements_of(array) == 1;
    const bool per_row_of_x = scale.of_x && shape.rows == problem.m && has_shape_of_x(array, shape.columns);
    const std::int64_t merged[] = {wanted[0] * wanted[1], wanted[2]};  // of all experts or batches
    if (!one && !per_row_of_x && !has_shape(array, wanted.data(), 3) && !has_shape(array, merged, 2)) {
      return refuse("{} has shape {}, expected {}{}", scale.name, shape_of(array),
                    scale_text(wanted, operation->batched || (operation->mixture && !scale.of_x)),
                    scale.or_one ? " or one element" : "");
    }
    if (one && per_tensor != nullptr) *per_tensor = 1;
    pointer = array.data;
    if (is_contiguous(array) && is_at_multiple(array, static_cast<std::size_t>(bytes_of(shape.type))))
      return true;
    if (scale.of_x) return ask_for_copy(scale.name, array, "a contiguous array of whole elements");
    return refuse_strides(scale.name, array, "a contiguous array of whole elements; copy it once");
  }

  /// The scale of a whole tensor, or one of each expert.
  bool read_global_scale(const char* name, const gemmtune_array* array, const MatrixShape& matrix,
                         const float*& pointer) {
    const ScaleShape& shape = matrix.scale;
    if (array == nullptr && !shape.global) return true;
    if (array == nullptr) {
      status = fail(GEMMTUNE_NULL_POINTER,
                    fmt::format("{} is missing: NVFP4 operands have a scale of the tensor", name));
      return false;
    }
    if (!shape.global) return refuse("{} is given, expected none: this operand is not NVFP4", name);
    const std::int64_t wanted[] = {matrix.count};
    if (array->type != GEMMTUNE_F32 || !has_shape(*array, wanted, 1) || !is_contiguous(*array) ||
        !is_at_multiple(*array, sizeof(float)))
      return refuse("{} has shape {} and dtype {}, expected {} of f32", name, shape_of(*array),
                    type_text(array->type), matrix.count == 1 ? "one element" : list_of(wanted, 1));
    pointer = static_cast<const float*>(array->data);
    return true;
  }

  bool read_zero_points(const char* name, const gemmtune_array* given_array, const MatrixShape& matrix,
                        const std::int8_t*& pointer) {
    const ScaleShape& shape = matrix.scale;
    if (given_array == nullptr && !shape.zero_points) return true;
    if (given_array == nullptr)
      return refuse("{} is missing, expected zero points of both weights or of neither", name);
    if (!shape.zero_points) return refuse("{} is given, expected none with {}", name, to_string(form));
    const gemmtune_array& array = *given_array;
    if (array.type != GEMMTUNE_I8)
      return refuse("dtype of {} is {}, expected i8", name, type_text(array.type));
    const std::array<std::int64_t, 3> wanted{matrix.count, shape.rows, shape.columns};
    const std::int64_t merged[] = {wanted[0] * wanted[1], wanted[2]};
    if (!has_shape(array, wanted.data(), 3) && !has_shape(array, merged, 2))
      return refuse("{} has shape {}, expected {} as the scales have", name, shape_of(array),
                    scale_text(wanted, operation->mixture));
    if (!is_contiguous(array)) return refuse_strides(name, array, "a contiguous array; copy it once");
    pointer = static_cast<const std::int8_t*>(array.data);
    return true;
  }

  /// Scales of a row of w, by its array; 0: the array is not of whole rows.
  std::int64_t row_scale_count(const gemmtune_array& scale) const {
    if (!operation->mixture) return scale.dimensions < 2 ? 1 : last_size(scale);
    const std::int64_t rows = capped_product(moe.experts, problem.n * (moe.gated != 0 ? 2 : 1));
    return rows > 0 && elements_of(scale) % rows == 0 ? elements_of(scale) / rows : 0;
  }

  /// The group of a weight that has groups: of the columns of w_scale.
  bool read_group() {
    problem.w_group = 0;
    problem.zero_points =
        has_groups() && (given.w_zero_points != nullptr || given.w2_zero_points != nullptr) ? 1 : 0;
    if (!has_groups() || given.w_scale == nullptr) return true;
    const std::int64_t columns = row_scale_count(*given.w_scale);
    if (columns < 1 || problem.k % columns != 0)
      return refuse("{} has shape {}, expected [{}, {} / group]", w_scale_name(), shape_of(*given.w_scale),
                    operation->mixture ? "E, rows of w1" : std::to_string(problem.n), problem.k);
    problem.w_group = static_cast<std::int32_t>(problem.k / columns);
    return true;
  }

  bool read_scales() {
    const bool any = given.x_scale != nullptr || given.w_scale != nullptr || given.w2_scale != nullptr ||
                     given.x_global_scale != nullptr || given.w_global_scale != nullptr ||
                     given.w_zero_points != nullptr;
    const bool wide = is_wide(problem.x_type) && !operation->mixture && !operation->own_w_type();
    if (wide && !any) return true;
    if (!read_group()) return false;
    gemmtune_problem asked = problem;
    asked.size = sizeof asked;
    moe.size = sizeof moe;
    if (asked.batch == 0) asked.batch = 1;
    if (operation->mixture) asked.moe = &moe;
    gemmtune_problem known;
    Problem checked;
    status = read_problem(&asked, known, checked);
    if (status == GEMMTUNE_OK) status = report(check_runnable(checked));
    if (status != GEMMTUNE_OK) return false;
    const OperandShapes shapes = operand_shapes(checked);
    const OperandNeeds needs(checked, shapes);
    const void* w2_scale = nullptr;
    if (!read_scale({"x_scale", given.x_scale, shapes.x, needs.x_or_one, true}, operands.x_scale,
                    &operands.x_scale_per_tensor) ||
        !read_scale({w_scale_name(), given.w_scale, shapes.w, needs.w_or_one, false}, operands.w_scale,
                    &operands.w_scale_per_tensor) ||
        !read_scale({"w2_scale", given.w2_scale, shapes.w2, false, false}, w2_scale, nullptr) ||
        !read_global_scale("x_global_scale", given.x_global_scale, shapes.x, operands.x_global_scale) ||
        !read_global_scale(w_global_scale_name(), given.w_global_scale, shapes.w, operands.w_global_scale) ||
        !read_global_scale("w2_global_scale", given.w2_global_scale, shapes.w2,
                           moe_operands.w2_global_scale) ||
        !read_zero_points(w_zero_points_name(), given.w_zero_points, shapes.w, operands.w_zero_points) ||
        !read_zero_points("w2_zero_points", given.w2_zero_points, shapes.w2, moe_operands.w2_zero_points))
      return false;
    moe_operands.w2_scale = w2_scale;
    return true;
  }

  std::int32_t common_alignment() const {
    std::uintptr_t together = 16;
    for (const void* pointer : {operands.x, operands.w, operands.bias, static_cast<const void*>(operands.y),
                                moe_operands.w2, static_cast<const void*>(moe_operands.bias2)})
      together |= reinterpret_cast<std::uintptr_t>(pointer);
    return static_cast<std::int32_t>(together & (~together + 1));
  }

  /// What the caller does not set is 0 until it is read.
  void forget_outputs() {
    given_k = problem.k;
    problem.bias = 0;
    problem.batch = 1;
    problem.x_order = problem.w_order = GEMMTUNE_ROW_MAJOR;
    problem.scale_ab = problem.e8m0_scales = problem.w_group = problem.zero_points = 0;
  }

  bool read() {
    status = read_operation(problem.operation, form);
    if (status != GEMMTUNE_OK) return false;
    operation = &traits(form.operation);
    if (packed()) form = {form.operation, true};
    problem.operation = operation_to_c(form);
    if (operation->mixture && (given.moe == nullptr || given.moe_operands == nullptr)) {
      status = fail_null("gemmtune_arrays", given.moe == nullptr ? "moe" : "moe_operands");
      return false;
    }
    if (operation->mixture) {
      status = read_struct(given.moe, moe);
      if (status == GEMMTUNE_OK) status = check_size(given.moe_operands);
      if (status != GEMMTUNE_OK) return false;
    }
    forget_outputs();
    if (!read_presence()) return false;
    read_types();
    if (!read_x() || !(operation->mixture ? read_mixture() : read_weight())) return false;
    if (!read_out() || !(operation->mixture || read_bias()) || !read_scales()) return false;
    if (problem.batch == 0) {  // for C, 0 stands for 1
      problem.batch = 1;
      problem.m = 0;
    }
    problem.alignment = common_alignment();
    return true;
  }

  gemmtune_status write(gemmtune_problem* asked, gemmtune_operands* filled) {
    if (operation->mixture) {
      given.moe->experts = moe.experts;
      given.moe->topk = moe.topk;
      if (const auto bad = write_struct(moe_operands, given.moe_operands); bad != GEMMTUNE_OK) return bad;
      operands.moe = given.moe_operands;
      problem.moe = given.moe;
    }
    if (const auto bad = write_struct(problem, asked); bad != GEMMTUNE_OK) return bad;
    return write_struct(operands, filled);
  }
};

struct SiluAndMulReader : Reader {
  gemmtune_silu_and_mul_operands operands{};

  explicit SiluAndMulReader(bool copies) : Reader(copies) {}

  bool read_rows(const char* name, const gemmtune_array& array, std::int64_t& leading, bool of_out) {
    Rows found;
    const bool right = find_rows(array, found);
    operands.rows = found.rows;
    operands.columns = found.columns;
    leading = found.distance;
    if (right) return true;
    return of_out ? refuse_strides(name, array, rows_expected) : ask_for_copy(name, array, rows_expected);
  }

  bool is_like_gate(const char* name, const gemmtune_array& array, const gemmtune_array& gate) {
    if (!is_legal(name, array)) return false;
    if (array.dimensions != gate.dimensions ||
        !std::equal(array.sizes, array.sizes + array.dimensions, gate.sizes))
      return refuse("{} has shape {}, expected gate's, {}", name, shape_of(array), shape_of(gate));
    if (array.type != gate.type)
      return refuse("dtype of {} is {}, expected gate's, {}", name, type_text(array.type),
                    type_text(gate.type));
    return true;
  }

  bool read(const gemmtune_array& gate, const gemmtune_array& up, const gemmtune_array* out) {
    if (!is_legal("gate", gate) || !has_known_type("gate", &gate)) return false;
    if (gate.dimensions == 0) return refuse("gate has no dimension, expected at least one");
    if (!is_like_gate("up", up, gate) || (out != nullptr && !is_like_gate("out", *out, gate))) return false;
    operands.type = static_cast<gemmtune_type>(gate.type);
    operands.gate = gate.data;
    operands.up = up.data;
    if (!read_rows("gate", gate, operands.ldgate, false) || !read_rows("up", up, operands.ldup, false))
      return false;
    operands.ldy = operands.columns;
    if (out == nullptr) return true;
    if (out->read_only != 0) return refuse("out is read-only, expected an array to write to");
    operands.y = const_cast<void*>(out->data);
    return read_rows("out", *out, operands.ldy, true);
  }
};

}  // namespace
}  // namespace gemmtune::c

namespace c = gemmtune::c;

extern "C" gemmtune_status gemmtune_read_silu_and_mul_arrays(const gemmtune_array* gate,
                                                             const gemmtune_array* up,
                                                             const gemmtune_array* out,
                                                             gemmtune_silu_and_mul_operands* operands,
                                                             const gemmtune_array** strided) {
  if (gate == nullptr) return c::fail_null("gemmtune_read_silu_and_mul_arrays", "gate");
  if (up == nullptr) return c::fail_null("gemmtune_read_silu_and_mul_arrays", "up");
  if (const auto status = c::check_size(operands); status != GEMMTUNE_OK) return status;
  c::SiluAndMulReader reader(strided != nullptr);
  return c::guarded([&]() -> gemmtune_status {
    const bool read = reader.read(*gate, *up, out);
    if (reader.status != GEMMTUNE_OK) return reader.status;
    if (strided != nullptr) *strided = reader.strided;
    return read ? c::write_struct(reader.operands, operands) : GEMMTUNE_OK;
  });
}

extern "C" gemmtune_status gemmtune_read_arrays(const gemmtune_arrays* arrays, gemmtune_problem* problem,
                                                gemmtune_operands* operands, const gemmtune_array** strided) {
  gemmtune_arrays known;
  if (const auto status = c::read_struct(arrays, known); status != GEMMTUNE_OK) return status;
  c::ArrayReader reader(known, strided != nullptr);
  if (const auto status = c::read_struct(problem, reader.problem); status != GEMMTUNE_OK) return status;
  if (const auto status = c::check_size(operands); status != GEMMTUNE_OK) return status;
  return c::guarded([&]() -> gemmtune_status {
    const bool read = reader.read();
    if (reader.status != GEMMTUNE_OK) return reader.status;
    if (strided != nullptr) *strided = reader.strided;
    return read ? reader.write(problem, operands) : GEMMTUNE_OK;
  });
}
