#include <bit>
#include <cstring>

#include "backends/cpu/kernels/kernel_set.h"
#include "backends/cpu/kernels/own_families.h"
#include "numbers/bfloat16.h"

namespace gemmtune::cpu {
namespace {

float load(DataType type, const void* base, std::int64_t index) {
  const auto* bytes = static_cast<const char*>(base);
  if (type == DataType::f32) {
    float value = 0;
    std::memcpy(&value, bytes + index * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes + index * 2, 2);
  return type == DataType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void store(DataType type, void* base, std::int64_t index, float value) {
  auto* bytes = static_cast<char*>(base);
  if (type == DataType::f32) {
    std::memcpy(bytes + index * 4, &value, 4);
    return;
  }
  const std::uint16_t bits = type == DataType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
  std::memcpy(bytes + index * 2, &bits, 2);
}

class ReferenceKernel final : public Kernel {
 public:
  explicit ReferenceKernel(const Problem& problem) : problem_(problem), panel_(panel16_of(problem)) {}

  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return layout_of(problem_); }

  Status run(const Operands& operands, void*, Stream stream) const override {
    Executor& executor = executor_of(stream);
    const std::int64_t parts =
        std::min<std::int64_t>(worthwhile_threads(problem_, executor.threads()), problem_.n);
    run_on(executor, parts, [&](std::int64_t part) {
      for (std::int64_t n = share(problem_.n, parts, part); n < share(problem_.n, parts, part + 1); ++n)
        for (std::int64_t m = 0; m < problem_.m; ++m) compute(operands, m, n);
    });
    return {};
  }

 private:
  void compute(const Operands& operands, std::int64_t m, std::int64_t n) const {
    double sum = 0;
    for (std::int64_t k = 0; k < problem_.k; ++k)
      sum += static_cast<double>(load(problem_.x_type, operands.x, m * operands.ldx + k)) *
             static_cast<double>(load(problem_.w_type, operands.w, weight_index(n, k)));
    float result = static_cast<float>(sum);
    if (problem_.bias) result += load(problem_.y_type, operands.bias, n);
    store(problem_.y_type, operands.y, m * operands.ldy + n, result);
  }

  std::int64_t weight_index(std::int64_t n, std::int64_t k) const {
    if (layout_of(problem_) == WeightLayout::plain) return n * problem_.k + k;
    const std::int64_t panel = n / Panel16::columns * panel_.padded_k() * Panel16::columns;
    return panel + (k / panel_.pair * Panel16::columns + n % Panel16::columns) * panel_.pair +
           k % panel_.pair;
  }

  Problem problem_;
  Panel16 panel_;
};

class ReferenceFamily final : public KernelFamily {
 public:
  std::string_view name() const override { return "reference"; }
  int tie_rank() const override { return 100; }
  Status accepts(const Problem& problem) const override { return accepts_a16w16(problem); }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return WeightLayout::panel16; }

  Space space(const Problem& problem) const override {
    Space space;
    space.add(Parameter{.key = "w",
                        .values = {std::string(to_string(layout_of(problem)))},
                        .absent = "plain",
                        .meaning = "weight layout"});
    return space;
  }

  Config default_config(const Problem& problem) const override {
    Config config;
    config.set("w", std::string(to_string(layout_of(problem))));
    return config;
  }

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    GEMMTUNE_RETURN_IF_ERROR(accepts(problem));
    GEMMTUNE_RETURN_IF_ERROR(check_config(space(problem), config));
    return std::unique_ptr<Kernel>(std::make_unique<ReferenceKernel>(problem));
  }

  double predicted_microseconds(const Problem& problem, const Config&) const override {
    return flops(problem) / 1e3;
  }
};

}  // namespace

std::unique_ptr<KernelFamily> make_reference_family(Isa) { return std::make_unique<ReferenceFamily>(); }

}  // namespace gemmtune::cpu
