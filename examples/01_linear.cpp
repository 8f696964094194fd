// A linear layer, y = x · wᵀ + bias in bf16, with the kernel that a tuned file names.
//
//   01_linear [TUNED_FILE]      without a file: the config folder's tuned files
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

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// 64-byte aligned memory of the caller's own: gemmtune allocates nothing while it runs a plan.
template <typename T>
using Aligned = std::unique_ptr<T[], decltype(&std::free)>;
template <typename T>
Aligned<T> aligned(std::size_t count) {
  const std::size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
  return {static_cast<T*>(std::aligned_alloc(64, bytes > 0 ? bytes : 64)), &std::free};
}

struct Layer {
  std::int64_t m = 4;    // tokens
  std::int64_t n = 256;  // output features
  std::int64_t k = 512;  // input features
  Aligned<std::uint16_t> x = aligned<std::uint16_t>(static_cast<std::size_t>(m * k));
  Aligned<std::uint16_t> w = aligned<std::uint16_t>(static_cast<std::size_t>(n * k));
  Aligned<std::uint16_t> bias = aligned<std::uint16_t>(static_cast<std::size_t>(n));
  Aligned<std::uint16_t> y = aligned<std::uint16_t>(static_cast<std::size_t>(m * n));

  Layer() {
    for (std::int64_t i = 0; i < m * k; ++i) x[i] = to_bf16(static_cast<float>(i % 13 - 6) / 8);
    for (std::int64_t i = 0; i < n * k; ++i) w[i] = to_bf16(static_cast<float>(i % 11 - 5) / 16);
    for (std::int64_t i = 0; i < n; ++i) bias[i] = to_bf16(static_cast<float>(i % 3));
  }

  /// Elements of y that differ from a plain loop by more than bf16's rounding; clears y for the next try.
  int wrong() {
    int count = 0;
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = from_bf16(bias[column]);
        for (std::int64_t step = 0; step < k; ++step) {
          sum += static_cast<double>(from_bf16(x[row * k + step])) * from_bf16(w[column * k + step]);
        }
        const double difference = std::fabs(from_bf16(y[row * n + column]) - sum);
        count += !(difference <= 0.01 + 0.01 * std::fabs(sum));
        y[row * n + column] = 0;
      }
    }
    return count;
  }
};

int fail(const gemmtune::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  gemmtune::Options options;
  if (argc > 1) options.tuned_files = {{gemmtune::Operation::a16w16, argv[1]}};
  auto context = gemmtune::Context::open(options);
  if (!context) return fail(context.status());
  std::printf("tuned files:\n%s\n", context->sources().c_str());

  Layer layer;
  const gemmtune::Problem problem{.m = layer.m, .n = layer.n, .k = layer.k, .bias = true};
  auto plan = context->plan(problem);
  if (!plan) return fail(plan.status());
  const auto info = plan->info();
  std::printf("kernel: %s\nmatch: %s\nrule: %s\n", std::string(info.kernel_name).c_str(),
              std::string(to_string(info.match)).c_str(), std::string(info.rule).c_str());

  const auto workspace = aligned<unsigned char>(info.workspace_bytes);
  const auto ran =
      plan->run({.x = layer.x.get(), .w = layer.w.get(), .bias = layer.bias.get(), .y = layer.y.get()},
                workspace.get());
  if (!ran) return fail(ran);
  const int wrong_by_plan = layer.wrong();

  // The same in one call. Without `.context` it takes the process's own, created from the environment.
  const auto called = gemmtune::gemm(gemmtune::bf16(layer.x.get()), gemmtune::bf16(layer.w.get()),
                                     gemmtune::bf16(layer.y.get()), layer.m, layer.n, layer.k,
                                     {.bias = layer.bias.get(), .context = &*context});
  if (!called) return fail(called);
  const int wrong_by_call = layer.wrong();
  std::printf("wrong elements: %d by the plan, %d by the one call\n", wrong_by_plan, wrong_by_call);
  return wrong_by_plan + wrong_by_call == 0 ? 0 : 1;
}
