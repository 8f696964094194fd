// Every operation's definition, written down once more element by element, against its reference; and that
// the verdict sees kernels that are broken in ways that only scales, batches and experts allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "numbers/bfloat16.h"
#include "numbers/minifloat.h"
#include "problem/operands.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune::operations_test {
namespace {

enum class Fault {
  none,
  swapped_scales,   // x's and w's of the same place
  neighbour_scale,  // of the next block, row or column
  first_scale,      // one scale for all
  short_k,          // without the last 32 of K
  wrong_batch,      // weights of the first batch for all
  wrong_expert,     // the next expert for one route
  no_activation,    // the gate as it is
  no_up,            // the up half forgotten
  swapped_halves,   // act(up) · gate
  no_routing_weight,
  short_hidden,  // without the last 32 of inter_dim
  no_clamp,      // swiglu without limits
  quantized_hidden,
  rounded_weights,  // elements times their scales in bf16
  coarse_weights,   // with five bits
  no_bias1,
  no_bias2,
  no_global_scale,
  first_global_scale,  // the first expert's for all
  no_zero_point,
  first_bias,  // of the first expert for all
  late_bias,   // bias2 is added after the routing weight
};

double element(DataType type, const std::vector<std::byte>& bytes, std::int64_t index) {
  const auto byte = [&](std::int64_t at) {
    return std::to_integer<std::uint8_t>(bytes[static_cast<std::size_t>(at)]);
  };
  switch (type) {
    case DataType::f4_e2m1:
      return static_cast<double>(e2m1_to_f32(
          static_cast<std::uint8_t>(index % 2 == 0 ? byte(index / 2) & 15 : byte(index / 2) >> 4)));
    case DataType::i8:
      return static_cast<std::int8_t>(byte(index));
    case DataType::i4: {
      const int code = index % 2 == 0 ? byte(index / 2) & 15 : byte(index / 2) >> 4;
      return code < 8 ? code : code - 16;
    }
    case DataType::f8_e4m3fn:
      return static_cast<double>(f8_e4m3fn_to_f32(byte(index)));
    case DataType::f8_e4m3fnuz:
      return static_cast<double>(f8_e4m3fnuz_to_f32(byte(index)));
    default:
      break;
  }
  const auto word = static_cast<std::uint16_t>(byte(2 * index) | byte(2 * index + 1) << 8);
  return static_cast<double>(type == DataType::bf16 ? bf16_to_f32(word) : f16_to_f32(word));
}

/// Of float32 biases [experts, columns].
double bias_at(const std::vector<std::byte>& bytes, const MatrixShape& shape, std::int64_t expert,
               std::int64_t column) {
  if (bytes.empty()) return 0;
  float value = 0;
  std::memcpy(&value, bytes.data() + 4 * (expert * shape.columns + column), 4);
  return static_cast<double>(value);
}

double scale(const ScaleShape& shape, const std::vector<std::byte>& bytes, std::int64_t index) {
  if (shape.type == ScaleType::e8m0)
    return std::ldexp(1.0, std::to_integer<int>(bytes[static_cast<std::size_t>(index)]) - 127);
  if (shape.type == ScaleType::e4m3) return element(DataType::f8_e4m3fn, bytes, index);
  if (shape.type == ScaleType::bf16) return element(DataType::bf16, bytes, index);
  if (shape.type == ScaleType::f16) return element(DataType::f16, bytes, index);
  float value = 0;
  std::memcpy(&value, bytes.data() + 4 * index, 4);
  return static_cast<double>(value);
}

struct Tensor {
  const MatrixShape& shape;
  const std::vector<std::byte>& elements;
  const std::vector<std::byte>& scales;
  const std::vector<std::byte>* global = nullptr;
  const std::vector<std::byte>* zero_points = nullptr;

  double at(std::int64_t matrix, std::int64_t row, std::int64_t k, Fault fault = Fault::none) const {
    const double code = element(shape.type, elements, (matrix * shape.rows + row) * shape.columns + k);
    if (!shape.scale.zero_points || fault == Fault::no_zero_point) return code;
    return code -
           element(DataType::i8, *zero_points, matrix * shape.scale.elements() + shape.scale.index(row, k));
  }
  double global_scale(std::int64_t matrix, Fault fault) const {
    if (!shape.scale.global || fault == Fault::no_global_scale) return 1;
    float value = 0;
    std::memcpy(&value, global->data() + (fault == Fault::first_global_scale ? 0 : 4 * matrix), 4);
    return static_cast<double>(value);
  }
  double scale_at(std::int64_t matrix, std::int64_t row, std::int64_t k, Fault fault) const {
    if (shape.scale.type == ScaleType::none) return 1;
    std::int64_t index = matrix * shape.scale.elements() + shape.scale.index(row, k);
    const std::int64_t all = shape.count * shape.scale.elements();
    if (fault == Fault::neighbour_scale) index = (index + 1) % all;
    if (fault == Fault::first_scale) index = 0;
    return scale(shape.scale, scales, index);
  }
};

/// `value` with that many significant bits.
double rounded_to(int bits, double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

/// A tensor and its elements times their scales, [matrix, row, k]; where scales are swapped, its elements alone.
struct Decoded {
  Decoded(const Tensor& of, Fault fault) : tensor(of) {
    const MatrixShape& shape = tensor.shape;
    for (std::int64_t matrix = 0; matrix < shape.count; ++matrix)
      for (std::int64_t row = 0; row < shape.rows; ++row)
        for (std::int64_t k = 0; k < shape.columns; ++k) {
          const double code = tensor.at(matrix, row, k, fault);
          double value =
              fault == Fault::swapped_scales ? code : code * tensor.scale_at(matrix, row, k, fault);
          if (fault == Fault::rounded_weights) value = rounded_to(8, value);
          if (fault == Fault::coarse_weights) value = rounded_to(5, value);
          values.push_back(value);
        }
  }
  const double* row(std::int64_t matrix, std::int64_t index) const {
    return values.data() + (matrix * tensor.shape.rows + index) * tensor.shape.columns;
  }

  const Tensor& tensor;
  std::vector<double> values;
};

/// The fault that x has of one that is the weight's.
Fault of_x(Fault fault) {
  return fault == Fault::first_scale || fault == Fault::swapped_scales ? fault : Fault::none;
}

/// Σ over k of x[row] · w[column].
double dot(const Decoded& x, std::int64_t x_matrix, std::int64_t row, const Decoded& w, std::int64_t w_matrix,
           std::int64_t column, Fault fault) {
  double sum = 0;
  const double* const of_row = x.row(x_matrix, row);
  const double* const of_column = w.row(w_matrix, column);
  const std::int64_t depth = x.tensor.shape.columns - (fault == Fault::short_k ? 32 : 0);
  const ScaleShape& x_scales = x.tensor.shape.scale;
  const ScaleShape& w_scales = w.tensor.shape.scale;
  for (std::int64_t k = 0; k < depth; ++k) {
    double scales = 1;
    if (fault == Fault::swapped_scales) {
      // x's scale read as w's and the other way round, where the tensors have them.
      const std::int64_t x_index = x_scales.index(row, k) % (w_scales.elements() * w.tensor.shape.count);
      const std::int64_t w_index = w_scales.index(column, k) % (x_scales.elements() * x.tensor.shape.count);
      scales = scale(w_scales, w.tensor.scales, x_index) * scale(x_scales, x.tensor.scales, w_index);
    }
    sum += of_row[k] * of_column[k] * scales;
  }
  return sum * x.tensor.global_scale(x_matrix, Fault::none) * w.tensor.global_scale(w_matrix, fault);
}

void put(DataType type, std::vector<std::byte>& y, std::int64_t index, double value) {
  const auto single = static_cast<float>(value);
  const std::uint16_t bits = type == DataType::bf16 ? f32_to_bf16(single) : f32_to_f16(single);
  std::memcpy(y.data() + 2 * index, &bits, 2);
}

double activate(Activation activation, double v) {
  if (activation == Activation::silu) return v / (1 + std::exp(-v));
  return activation == Activation::gelu ? v / 2 * std::erfc(-v / std::sqrt(2.0)) : v;
}

/// gpt-oss's, whose halves are not multiplied alone.
double swiglu(double gate, double up, Fault fault) {
  const double limit = fault == Fault::no_clamp ? 1e9 : 7;
  const double clamped = std::min(gate, limit);
  return (std::max(-limit, std::min(up, limit)) + 1) * clamped / (1 + std::exp(-1.702 * clamped));
}

/// A row as it is after fp8 with one scale for each 128 elements, or after int8 with one scale.
void quantize(DataType type, std::span<double> row) {
  const std::size_t elements = type == DataType::i8 ? row.size() : 128;
  for (std::size_t first = 0; first < row.size(); first += elements) {
    const auto group = row.subspan(first, std::min<std::size_t>(elements, row.size() - first));
    double most = 1e-30;
    for (const double value : group) most = std::max(most, std::abs(value));
    for (double& value : group) {
      if (type == DataType::i8) {
        value = std::nearbyint(value / most * 127) * most / 127;
        continue;
      }
      const std::uint8_t bits = f32_to_f8_e4m3fn(static_cast<float>(value / most * 448));
      value = static_cast<double>(f8_e4m3fn_to_f32(bits)) * most / 448;
    }
  }
}

std::vector<std::byte> dense(const Problem& p, const HostOperands& host, Fault fault) {
  const OperandShapes shapes = operand_shapes(p);
  const Tensor x{shapes.x, host.x, host.x_scale, &host.x_global_scale};
  const Tensor w{shapes.w, host.w, host.w_scale, &host.w_global_scale, &host.w_zero_points};
  const Decoded rows(x, of_x(fault));
  const Decoded weights(w, fault);
  std::vector<std::byte> y(static_cast<std::size_t>(shapes.y.bytes()));
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t m = 0; m < p.m; ++m)
      for (std::int64_t n = 0; n < p.n; ++n) {
        double sum = dot(rows, b, m, weights, fault == Fault::wrong_batch ? 0 : b, n, fault);
        if (p.bias) sum += element(p.y_type, host.bias, n);
        put(p.y_type, y, (b * p.m + m) * p.n + n, sum);
      }
  return y;
}

std::vector<std::byte> mixture(const Problem& p, const HostOperands& host, Fault fault) {
  const OperandShapes shapes = operand_shapes(p);
  const Tensor x{shapes.x, host.x, host.x_scale};
  const Tensor w1{shapes.w, host.w, host.w_scale, &host.w_global_scale, &host.w_zero_points};
  const Tensor w2{shapes.w2, host.w2, host.w2_scale, &host.w2_global_scale, &host.w2_zero_points};
  MatrixShape hidden_shape{DataType::bf16, 1, 1, p.n, {}};
  const bool of_both = fault == Fault::rounded_weights || fault == Fault::coarse_weights;
  const Fault of_w2 = fault == Fault::short_hidden ? Fault::short_k : of_both ? fault : Fault::none;
  const Decoded rows(x, of_x(fault));
  const Decoded first_weights(w1, fault);
  const Decoded second_weights(w2, of_w2);
  std::vector<std::byte> y(static_cast<std::size_t>(shapes.y.bytes()));
  for (std::int64_t t = 0; t < p.m; ++t) {
    std::vector<double> sums(static_cast<std::size_t>(p.k));
    for (std::int64_t slot = 0; slot < p.moe.topk; ++slot) {
      const auto at = static_cast<std::size_t>(t * p.moe.topk + slot);
      std::int64_t expert = host.topk_ids[at];
      if (fault == Fault::wrong_expert && at == 3) expert = (expert + 1) % p.moe.experts;
      double r = static_cast<double>(host.topk_weights[at]);
      if (fault == Fault::no_routing_weight) r = 1;
      const double before = p.moe.doweight_stage1 ? r : 1;
      std::vector<std::byte> hidden(static_cast<std::size_t>(2 * p.n));
      std::vector<double> row(static_cast<std::size_t>(p.n));
      for (std::int64_t i = 0; i < p.n; ++i) {
        const auto sum = [&](std::int64_t feature) {
          const std::int64_t of = fault == Fault::first_bias ? 0 : expert;
          return before * (dot(rows, 0, t, first_weights, expert, feature, fault) +
                           (fault == Fault::no_bias1 ? 0 : bias_at(host.bias, shapes.bias, of, feature)));
        };
        double gate = sum(i);
        double up = p.moe.gated ? sum(p.n + i) : 1;
        if (fault == Fault::swapped_halves) std::swap(gate, up);
        if (fault == Fault::no_up) up = 1;
        double h = (fault == Fault::no_activation ? gate : activate(p.moe.activation, gate)) * up;
        if (p.moe.activation == Activation::swiglu && fault != Fault::no_activation)
          h = swiglu(gate, up, fault);
        row[static_cast<std::size_t>(i)] = h;
      }
      if (fault == Fault::quantized_hidden) quantize(p.w_type, row);
      for (std::int64_t i = 0; i < p.n; ++i)
        put(DataType::bf16, hidden, i, row[static_cast<std::size_t>(i)]);  // as a kernel may
      const std::vector<std::byte> none;
      const Tensor of_hidden{hidden_shape, hidden, none};
      const Decoded h(of_hidden, Fault::none);
      for (std::int64_t j = 0; j < p.k; ++j) {
        const double bias = fault == Fault::no_bias2 ? 0
                                                     : bias_at(host.bias2, shapes.bias2,
                                                               fault == Fault::first_bias ? 0 : expert, j);
        const double late = p.moe.doweight_stage1 ? 1 : r;
        sums[static_cast<std::size_t>(j)] += late * dot(h, 0, 0, second_weights, expert, j, of_w2) +
                                             (fault == Fault::late_bias ? 1 : late) * bias;
      }
    }
    for (std::int64_t j = 0; j < p.k; ++j) put(p.y_type, y, t * p.k + j, sums[static_cast<std::size_t>(j)]);
  }
  return y;
}

struct Case {
  std::string name;
  Problem problem;
  std::vector<Fault> faults;
};

Problem dense_problem(OperationForm operation, DataType type) {
  Problem p = default_problem(operation);
  p.m = 9;
  p.n = 260;
  p.k = 320;
  set_types(p, type);
  if (operation == Operation::batched_bf16 || operation == Operation::batched_a8w8) p.batch = 3;
  if (is_packed(p)) p.weight_layout = WeightLayout::panel16;
  return p;
}

Problem moe_problem(DataType x, DataType w, QuantType quant) {
  Problem p = default_problem(Operation::fused_moe);
  p.m = 7;
  p.n = 96;
  p.k = 160;
  p.x_type = x;
  p.w_type = w;
  p.moe = {.experts = 5, .topk = 2, .activation = Activation::silu, .quant_type = quant, .gated = true};
  return p;
}

std::vector<Case> cases() {
  const std::vector<Fault> rows{Fault::swapped_scales, Fault::neighbour_scale, Fault::first_scale,
                                Fault::short_k};
  std::vector<Case> all;
  for (const DataType type : {DataType::i8, DataType::f8_e4m3fn, DataType::f8_e4m3fnuz})
    all.push_back({"a8w8_" + std::string(to_string(type)), dense_problem(Operation::a8w8, type), rows});
  all.push_back(
      {"a8w8_bpreshuffle", dense_problem(OperationForm(Operation::a8w8, true), DataType::i8), rows});
  all.push_back({"a8w8_blockscale", dense_problem(Operation::a8w8_blockscale, DataType::f8_e4m3fn), rows});
  all.push_back({"a8w8_blockscale_bpreshuffle",
                 dense_problem(OperationForm(Operation::a8w8_blockscale, true), DataType::f8_e4m3fnuz),
                 rows});
  all.push_back({"a4w4_blockscale", dense_problem(Operation::a4w4_blockscale, DataType::f4_e2m1), rows});
  all.push_back({"batched_bf16",
                 dense_problem(Operation::batched_bf16, DataType::bf16),
                 {Fault::short_k, Fault::wrong_batch}});
  all.push_back({"batched_a8w8",
                 dense_problem(Operation::batched_a8w8, DataType::i8),
                 {Fault::wrong_batch, Fault::neighbour_scale, Fault::short_k}});
  all[0].problem.bias = all[7].problem.bias = true;
  all[1].problem.y_type = DataType::f16;
  std::vector<Fault> nvfp4{Fault::neighbour_scale, Fault::first_scale, Fault::short_k,
                           Fault::no_global_scale};
  all.push_back({"a16w4_nvfp4", dense_problem(Operation::a16w4_nvfp4, DataType::bf16), nvfp4});
  all.push_back({"a8w4_nvfp4", dense_problem(Operation::a8w4_nvfp4, DataType::f8_e4m3fn), nvfp4});
  nvfp4.push_back(Fault::swapped_scales);
  all.push_back({"a4w4_nvfp4", dense_problem(Operation::a4w4_nvfp4, DataType::f4_e2m1), nvfp4});
  std::vector<Fault> int4{Fault::neighbour_scale, Fault::first_scale, Fault::short_k};
  all.push_back({"a16w4_int4", dense_problem(Operation::a16w4_int4, DataType::f16), int4});
  all.back().problem.y_type = DataType::f16;
  all.back().problem.w_group = 64;
  int4.push_back(Fault::no_zero_point);
  for (const std::int32_t group : {32, 320}) {
    all.push_back(
        {"a8w4_int4_" + std::to_string(group), dense_problem(Operation::a8w4_int4, DataType::i8), int4});
    all.back().problem.w_group = group;
    all.back().problem.zero_points = true;
  }
  const std::vector<Fault> moe{Fault::wrong_expert, Fault::no_activation,  Fault::no_up,
                               Fault::short_k,      Fault::swapped_halves, Fault::no_routing_weight,
                               Fault::short_hidden};
  std::vector<Fault> scaled = moe;
  scaled.push_back(Fault::neighbour_scale);
  all.push_back({"moe_bf16", moe_problem(DataType::bf16, DataType::bf16, QuantType::none), moe});
  all.push_back({"moe_per_tensor", moe_problem(DataType::i8, DataType::i8, QuantType::per_tensor), scaled});
  all.push_back({"moe_per_token",
                 moe_problem(DataType::f8_e4m3fnuz, DataType::f8_e4m3fnuz, QuantType::per_token), scaled});
  all.push_back(
      {"moe_1x128", moe_problem(DataType::f8_e4m3fn, DataType::f8_e4m3fn, QuantType::per_1x128), scaled});
  all.push_back({"moe_1x32", moe_problem(DataType::f4_e2m1, DataType::f4_e2m1, QuantType::per_1x32), scaled});
  all.push_back(
      {"moe_weight_only", moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32), scaled});
  all.back().problem.moe.doweight_stage1 = true;
  all.push_back(
      {"moe_plain", moe_problem(DataType::f16, DataType::f16, QuantType::none), {Fault::wrong_expert}});
  all.back().problem.moe.gated = false;
  all.back().problem.moe.activation = Activation::gelu;
  all.back().problem.y_type = DataType::f16;
  all.push_back({"moe_int4", moe_problem(DataType::bf16, DataType::i4, QuantType::per_token), scaled});
  all.push_back(
      {"moe_fp8_mxfp4", moe_problem(DataType::f8_e4m3fn, DataType::f4_e2m1, QuantType::per_token), scaled});
  std::vector<Fault> biased{Fault::no_bias1, Fault::no_bias2, Fault::first_bias, Fault::late_bias,
                            Fault::wrong_expert};
  for (const std::size_t plain : {all.size() - 9, all.size() - 3}) {
    all.push_back({all[plain].name + "_biased", all[plain].problem, biased});
    all.back().problem.bias = true;
  }
  all.push_back(
      {"moe_swiglu_biased", moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32), biased});
  all.back().problem.moe.activation = Activation::swiglu;
  all.back().problem.bias = true;
  biased.erase(biased.begin() + 3);  // bias2 has no weight there
  all.push_back({"moe_early_biased", moe_problem(DataType::i8, DataType::i8, QuantType::per_tensor), biased});
  all.back().problem.moe.doweight_stage1 = true;
  all.back().problem.bias = true;
  std::vector<Fault> nvfp4_experts = scaled;
  nvfp4_experts.insert(nvfp4_experts.end(), {Fault::no_global_scale, Fault::first_global_scale});
  all.push_back(
      {"moe_nvfp4", moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x16), nvfp4_experts});
  std::vector<Fault> int4_experts = scaled;
  int4_experts.push_back(Fault::no_zero_point);
  for (const std::int32_t group : {32, 160}) {
    all.push_back({"moe_int4_groups_" + std::to_string(group),
                   moe_problem(DataType::bf16, DataType::i4, QuantType::per_group), int4_experts});
    all.back().problem.w_group = group;
    all.back().problem.zero_points = true;
  }
  return all;
}

class Operations : public ::testing::TestWithParam<Case> {
 protected:
  CheckReport check(std::uint64_t seed, Fault fault, const ReferenceOptions& options = {}) {
    const Problem& p = GetParam().problem;
    EXPECT_TRUE(gemmtune::check(p).ok()) << gemmtune::check(p).message();
    const auto host = make_inputs(p, seed);
    EXPECT_TRUE(host.ok()) << host.message();
    const auto reference = compute_reference(p, *host, options);
    EXPECT_TRUE(reference.ok()) << reference.message();
    const auto y = p.operation == Operation::fused_moe ? mixture(p, *host, fault) : dense(p, *host, fault);
    return check_output(p, *reference, y, output_columns(p), tolerance_for(p, 0.05));
  }
};

TEST_P(Operations, TheDefinitionIsRight) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const CheckReport report = check(seed, Fault::none);
    EXPECT_TRUE(report.right) << report.reason;
    EXPECT_LE(report.err_ratio, 0.0001);
  }
}

TEST_P(Operations, TheDefinitionIsRightBySamples) {
  const ReferenceOptions options{.max_complete_flops = 1, .sampled_rows = 3, .sampled_columns = 5};
  const CheckReport report = check(1, Fault::none, options);
  EXPECT_TRUE(report.right) << report.reason;
}

TEST_P(Operations, BrokenKernelsAreWrong) {
  for (const Fault fault : GetParam().faults) {
    const CheckReport report = check(1, fault);
    EXPECT_FALSE(report.right) << "fault " << static_cast<int>(fault);
    EXPECT_FALSE(report.reason.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Operations, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

/// bf16 of a power of two, `count` times.
std::vector<std::byte> powers(int exponent, std::size_t count) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(std::byte{static_cast<unsigned char>((exponent + 127) << 7 & 0xff)});
    bytes.push_back(std::byte{static_cast<unsigned char>((exponent + 127) >> 1)});
  }
  return bytes;
}

/// Kernels hold the hidden layer in float32, where less than 2^-126 may be flushed; the scales of the second GEMM make any size of it.
TEST(Mixtures, HiddenLayersBelowFloat32MayBeLost) {
  Problem p = moe_problem(DataType::bf16, DataType::bf16, QuantType::none);
  p.moe.gated = false;
  p.moe.activation = Activation::none;
  for (const int first_token : {-68, -30}) {  // the others are 1
    auto host = make_inputs(p, 1);
    ASSERT_TRUE(host.ok()) << host.message();
    host->x = powers(0, host->x.size() / 2);
    const std::vector<std::byte> token = powers(first_token, static_cast<std::size_t>(p.k));
    std::copy(token.begin(), token.end(), host->x.begin());
    host->w = powers(-68, host->w.size() / 2);
    host->w2 = powers(112, host->w2.size() / 2);
    const auto reference = compute_reference(p, *host, {});
    ASSERT_TRUE(reference.ok()) << reference.message();
    EXPECT_GT(std::fabs(reference->values[0]), 0x1p-14);
    std::vector<std::byte> y = mixture(p, *host, Fault::none);
    std::fill_n(y.begin(), output_columns(p) * 2, std::byte{0});
    const CheckReport report = check_output(p, *reference, y, output_columns(p), tolerance_for(p, 0.05));
    EXPECT_EQ(report.right, first_token == -68) << report.reason;
  }
}

/// A row of few columns may be near zero, where the rounding of the hidden layer is not.
TEST(Mixtures, RightOnesOfFewColumnsAreRight) {
  for (const std::int64_t columns : {1, 2, 3, 4, 6, 10}) {
    for (const std::int64_t inter_dim : {1, 4, 32, 160}) {
      for (const std::uint64_t seed : {1, 2, 3}) {
        Problem p = moe_problem(DataType::bf16, DataType::bf16, QuantType::none);
        p.m = 300;
        p.n = inter_dim;
        p.k = columns;
        p.moe.topk = seed == 3 ? 1 : 2;
        p.y_type = seed == 2 ? DataType::f16 : DataType::bf16;
        const std::string name = print(p);
        const auto host = make_inputs(p, seed);
        ASSERT_TRUE(host.ok()) << name << host.message();
        const auto reference = compute_reference(p, *host, {});
        ASSERT_TRUE(reference.ok()) << name << reference.message();
        const auto report_of = [&](Fault fault) {
          return check_output(p, *reference, mixture(p, *host, fault), columns, tolerance_for(p, 0.05));
        };
        const CheckReport right = report_of(Fault::none);
        EXPECT_TRUE(right.right) << name << ": " << right.reason;
        for (const Fault fault : {Fault::no_up, Fault::no_activation, Fault::wrong_expert}) {
          EXPECT_FALSE(report_of(fault).right) << name << ", fault " << static_cast<int>(fault);
        }
      }
    }
  }
}

TEST(Mixtures, SwigluClampsBothHalves) {
  Problem p = moe_problem(DataType::bf16, DataType::bf16, QuantType::none);
  p.moe.activation = Activation::swiglu;
  auto host = make_inputs(p, 1);
  ASSERT_TRUE(host.ok());
  // Eight times as large: many of both halves are outside of the limits.
  for (std::size_t i = 0; i < host->x.size(); i += 2) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, host->x.data() + i, 2);
    if ((bits & 0x7f80) != 0) bits = static_cast<std::uint16_t>(bits + (3 << 7));
    std::memcpy(host->x.data() + i, &bits, 2);
  }
  const auto reference = compute_reference(p, *host, {});
  ASSERT_TRUE(reference.ok()) << reference.message();
  for (const Fault fault : {Fault::none, Fault::no_clamp, Fault::no_up, Fault::swapped_halves}) {
    const CheckReport report =
        check_output(p, *reference, mixture(p, *host, fault), p.k, tolerance_for(p, 0.05));
    EXPECT_EQ(report.right, fault == Fault::none) << static_cast<int>(fault) << " " << report.reason;
  }
}

/// A quantized hidden layer is for the lower class alone, in which other errors are still seen.
TEST(Mixtures, AQuantizedHiddenLayerIsOfTheLowerClass) {
  Problem fp8 = moe_problem(DataType::f8_e4m3fn, DataType::f8_e4m3fn, QuantType::per_1x128);
  fp8.m = 40;
  fp8.n = 256;
  Problem int8 = moe_problem(DataType::i8, DataType::i8, QuantType::per_token);
  int8.m = 40;
  int8.n = 256;
  for (const Problem& p : {fp8, int8}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const auto host = make_inputs(p, seed);
      const auto reference = compute_reference(p, *host, {});
      ASSERT_TRUE(host.ok() && reference.ok());
      const auto right = [&](Fault fault, Accuracy accuracy) {
        const Tolerance tolerance = tolerance_for(p, 0.05, {accuracy, true, Signs::both});
        return check_output(p, *reference, mixture(p, *host, fault), p.k, tolerance).right;
      };
      EXPECT_TRUE(right(Fault::quantized_hidden, Accuracy::tensor_core));
      EXPECT_FALSE(right(Fault::quantized_hidden, Accuracy::fp32));
      for (const Fault fault : {Fault::wrong_expert, Fault::no_up, Fault::no_activation, Fault::short_hidden,
                                Fault::no_routing_weight})
        EXPECT_FALSE(right(fault, Accuracy::tensor_core)) << static_cast<int>(fault);
    }
  }
}

/// So are int4 weights whose products with scales are bf16, of both GEMMs.
TEST(Mixtures, ScaledInt4WeightsInBf16AreOfTheLowerClass) {
  for (const auto& [n, k, group, zero_points] :
       {std::tuple{256, 512, 32, false}, {64, 64, 32, true}, {512, 128, 128, false}}) {
    Problem p = moe_problem(DataType::bf16, DataType::i4, QuantType::per_group);
    p.m = 24;
    p.n = n;
    p.k = k;
    p.w_group = group;
    p.zero_points = zero_points;
    for (const std::uint64_t seed : {1, 2}) {
      const auto host = make_inputs(p, seed);
      const auto reference = compute_reference(p, *host, {});
      ASSERT_TRUE(host.ok() && reference.ok());
      const auto report = [&](Fault fault, Accuracy accuracy) {
        const Tolerance tolerance = tolerance_for(p, 0.05, {accuracy, true, Signs::both});
        return check_output(p, *reference, mixture(p, *host, fault), p.k, tolerance);
      };
      const CheckReport rounded = report(Fault::rounded_weights, Accuracy::tensor_core);
      EXPECT_TRUE(rounded.right) << rounded.reason;
      // Less than 0.43 · 2⁻⁸ of y, of the hidden layer and of three weights each.
      EXPECT_LT(rounded.frobenius, 0x1p-8) << print(p);
      for (const Fault fault :
           {Fault::coarse_weights, Fault::wrong_expert, Fault::no_up, Fault::short_hidden})
        EXPECT_FALSE(report(fault, Accuracy::tensor_core).right)
            << static_cast<int>(fault) << " " << print(p);
    }
  }
}

/// Zero points give a group's weights a common part. A row whose x cancels in both groups keeps the roundings of it: of gate, of up and of w2.
TEST(Mixtures, RowsThatZeroPointsCancelStayWithinTheBounds) {
  Problem p = moe_problem(DataType::bf16, DataType::i4, QuantType::per_group);
  p.m = 23;
  p.n = p.k = 256;
  p.w_group = 128;
  p.zero_points = true;
  p.moe.activation = Activation::none;
  p.moe.experts = 7;
  p.moe.topk = 3;
  for (const std::uint64_t seed : {4, 7}) {  // rows of 2.4 and 2.9 · 2⁻⁸
    const auto host = make_inputs(p, seed);
    const auto reference = compute_reference(p, *host, {});
    ASSERT_TRUE(host.ok() && reference.ok());
    const auto report = [&](Fault fault, Accuracy accuracy) {
      return check_output(p, *reference, mixture(p, *host, fault), p.k,
                          tolerance_for(p, 0.05, {accuracy, true, Signs::both}));
    };
    const CheckReport rounded = report(Fault::rounded_weights, Accuracy::tensor_core);
    EXPECT_TRUE(rounded.right) << seed << ": " << rounded.reason;
    for (const Fault fault : {Fault::coarse_weights, Fault::wrong_expert, Fault::no_up, Fault::short_hidden})
      EXPECT_FALSE(report(fault, Accuracy::tensor_core).right) << seed << " " << static_cast<int>(fault);
  }
}

TEST(OperandShapes, AreThoseOfTheOperations) {
  Problem p = dense_problem(Operation::a8w8_blockscale, DataType::f8_e4m3fn);
  EXPECT_EQ(operand_shapes(p).x.scale.bytes(), 9 * 3 * 4);
  EXPECT_EQ(operand_shapes(p).w.scale.bytes(), 3 * 3 * 4);
  p = dense_problem(Operation::a4w4_blockscale, DataType::f4_e2m1);
  EXPECT_EQ(operand_shapes(p).x.bytes(), 9 * 160);
  EXPECT_EQ(operand_shapes(p).w.scale.bytes(), 260 * 10);
  p = dense_problem(Operation::batched_a8w8, DataType::i8);
  EXPECT_EQ(operand_shapes(p).w.scale_bytes(), 3 * 260 * 4);
  p = moe_problem(DataType::bf16, DataType::f8_e4m3fn, QuantType::per_1x128);
  EXPECT_EQ(operand_shapes(p).x.scale_bytes(), 0);
  EXPECT_EQ(operand_shapes(p).w.rows, 192);
  EXPECT_EQ(operand_shapes(p).w.scale_bytes(), 5 * 2 * 2 * 4);
  EXPECT_EQ(operand_shapes(p).w2.scale_bytes(), 5 * 2 * 1 * 4);
  EXPECT_EQ(output_columns(p), 160);
  EXPECT_EQ(routed_pairs(p), 14);
  p.w_type = DataType::f4_e2m1;
  p.n = 40;
  EXPECT_EQ(check(p).code(), StatusCode::invalid_argument);
}

TEST(Inputs, RoutesNameEachExpertOnceAndWeighOne) {
  Problem p = moe_problem(DataType::bf16, DataType::bf16, QuantType::none);
  p.m = 64;
  p.moe.topk = 5;
  const auto host = make_inputs(p, 4);
  ASSERT_TRUE(host.ok());
  for (std::size_t token = 0; token < 64; ++token) {
    std::vector<bool> seen(5);
    double sum = 0;
    for (std::size_t slot = 0; slot < 5; ++slot) {
      seen[static_cast<std::size_t>(host->topk_ids[token * 5 + slot])] = true;
      sum += static_cast<double>(host->topk_weights[token * 5 + slot]);
    }
    EXPECT_EQ(seen, std::vector<bool>(5, true));
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

}  // namespace
}  // namespace gemmtune::operations_test
