// A layer with int8 operands (a8w8): per-token scales of x, per-channel scales of w, and its weight packed
// once.
//
//   03_quantized [TUNED_FILE]      without a file: the config folder's tuned files
#include <gemmtune/gemmtune.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t m = 4;    // tokens
constexpr std::int64_t n = 256;  // output features
constexpr std::int64_t k = 512;  // input features

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// One row in int8 with the scale that undoes it: value ≈ element · scale.
float quantize(const float* row, std::int8_t* out) {
  float largest = 0;
  for (std::int64_t i = 0; i < k; ++i) largest = std::fmax(largest, std::fabs(row[i]));
  const float scale = largest > 0 ? largest / 127 : 1;
  for (std::int64_t i = 0; i < k; ++i) out[i] = static_cast<std::int8_t>(std::nearbyint(row[i] / scale));
  return scale;
}

struct Quantized {
  std::vector<std::int8_t> elements;
  std::vector<float> scales;

  explicit Quantized(std::int64_t rows) : elements(static_cast<std::size_t>(rows * k)) {
    std::vector<float> row(k);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < k; ++i)
        row[static_cast<std::size_t>(i)] =
            static_cast<float>(std::sin(0.37 * static_cast<double>(i + 3 * r)));
      scales.push_back(quantize(row.data(), elements.data() + r * k));
    }
  }
};

int fail(const gemmtune::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  gemmtune::Options options;
  if (argc > 1) options.tuned_files = {{gemmtune::Operation::a8w8_bpreshuffle, argv[1]}};
  auto context = gemmtune::Context::open(options);
  if (!context) return fail(context.status());

  const Quantized x(m);
  const Quantized w(n);
  gemmtune::Problem problem{.m = m, .n = n, .k = k, .x_type = gemmtune::Type::i8, .alignment = 1};
  problem.operation = gemmtune::Operation::a8w8_bpreshuffle;

  // The layout that the tuned file was made for; without one, what the fallback reads.
  const auto layout = context->weight_layout(problem);
  if (!layout) return fail(layout.status());
  problem.weight_layout = *layout;
  const auto bytes = context->packed_weight_bytes(problem, *layout);
  if (!bytes) return fail(bytes.status());
  const std::unique_ptr<void, decltype(&std::free)> packed(std::aligned_alloc(64, (*bytes + 63) / 64 * 64),
                                                           &std::free);
  const auto done = context->pack_weight(problem, *layout, w.elements.data(), packed.get());
  if (!done) return fail(done);
  std::printf("weight layout: %s, %zu bytes\n", std::string(to_string(*layout)).c_str(), *bytes);

  std::vector<std::uint16_t> y(m * n);
  gemmtune::Operands operands;
  operands.x = x.elements.data();
  operands.w = packed.get();
  operands.x_scale = x.scales.data();
  operands.w_scale = w.scales.data();
  operands.y = y.data();
  const auto status = gemmtune::gemm(problem, operands, &*context);
  if (!status.ok()) return fail(status);

  int wrong = 0;
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i)
        sum += x.elements[static_cast<std::size_t>(row * k + i)] *
               w.elements[static_cast<std::size_t>(column * k + i)];
      sum *= static_cast<double>(x.scales[static_cast<std::size_t>(row)]) *
             static_cast<double>(w.scales[static_cast<std::size_t>(column)]);
      const double got = static_cast<double>(from_bf16(y[static_cast<std::size_t>(row * n + column)]));
      wrong += !(std::fabs(got - sum) <= 0.01 + 0.01 * std::fabs(sum));
    }
  std::printf("%d of %d elements are wrong\n", wrong, static_cast<int>(m * n));
  auto plan = context->plan(problem);
  if (!plan) return fail(plan.status());
  std::printf("kernel: %s\nrule: %s\n", std::string(plan->info().kernel_name).c_str(),
              std::string(plan->info().rule).c_str());
  return wrong == 0 ? 0 : 1;
}
