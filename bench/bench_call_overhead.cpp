// What the C functions add to the kernel they run: 16×16×16 in bf16 on one thread. Overhead is the time of a
// C call minus the time of direct_kernel.
#include <benchmark/benchmark.h>
#include <gemmtune/c.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "capi/c_support.h"

namespace gemmtune {
namespace {

constexpr std::int64_t size = 16;

/// A context on one thread, a plan of the problem and its operands.
class Call {
 public:
  Call() {
    gemmtune_context_options options{};
    options.size = sizeof options;
    const gemmtune_tuned_files none{GEMMTUNE_A16W16, "/dev/null/none.csv"};  // no tuned file: the fallback
    options.tuned_files = &none;
    options.tuned_file_count = 1;
    options.threads = 1;
    require(gemmtune_context_create(&options, &context_));
    problem_.size = sizeof problem_;
    problem_.x_type = GEMMTUNE_BF16;
    problem_.m = problem_.n = problem_.k = size;
    require(gemmtune_plan_create(context_, &problem_, &plan_));
    workspace_.reset(std::aligned_alloc(64, (native().workspace_bytes() / 64 + 1) * 64));
    operands_.size = sizeof operands_;
    operands_.x = x_.data();
    operands_.w = w_.data();
    operands_.y = y_.data();
  }
  ~Call() {
    gemmtune_plan_release(plan_);
    gemmtune_context_destroy(context_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const Plan& native() const { return *c::plan_of_c(plan_); }
  Operands native_operands() {
    Operands operands;
    operands.x = x_.data();
    operands.w = w_.data();
    operands.y = y_.data();
    operands.ldx = operands.ldy = size;
    return operands;
  }
  gemmtune_status run_plan() { return gemmtune_plan_run(plan_, &operands_, workspace_.get(), nullptr); }
  gemmtune_status run_one_call() { return gemmtune_gemm(context_, &problem_, &operands_, nullptr); }
  void* workspace() { return workspace_.get(); }

 private:
  static void require(gemmtune_status status) {
    if (status == GEMMTUNE_OK) return;
    std::fprintf(stderr, "%s\n", gemmtune_last_error());
    std::exit(1);
  }

  gemmtune_context* context_ = nullptr;
  gemmtune_plan* plan_ = nullptr;
  gemmtune_problem problem_{};
  gemmtune_operands operands_{};
  std::unique_ptr<void, decltype(&std::free)> workspace_{nullptr, &std::free};
  alignas(64) std::array<std::uint16_t, size * size> x_{};
  alignas(64) std::array<std::uint16_t, size * size> w_{};
  alignas(64) std::array<std::uint16_t, size * size> y_{};
};

void direct_kernel(benchmark::State& state) {
  Call call;
  const Operands operands = call.native_operands();
  const Kernel* kernel = call.native().kernel();
  for (auto _ : state) benchmark::DoNotOptimize(kernel->run(operands, call.workspace(), {}).ok());
  state.SetLabel(call.native().account().kernel_name);
}
BENCHMARK(direct_kernel);

void c_plan_run(benchmark::State& state) {
  Call call;
  for (auto _ : state) benchmark::DoNotOptimize(call.run_plan());
}
BENCHMARK(c_plan_run);

void c_one_call(benchmark::State& state) {
  Call call;
  for (auto _ : state) benchmark::DoNotOptimize(call.run_one_call());
}
BENCHMARK(c_one_call);

}  // namespace
}  // namespace gemmtune
