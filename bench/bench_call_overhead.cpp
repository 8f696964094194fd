// What the C functions cost: 16×16×16 in bf16 on one thread.
// The calls of a program: a held plan is run (plan_run), a plan comes from the cache (plan_from_cache), both
// in one call (one_call), a plan of a problem that the cache does not have (plan_after_miss: look-up in a
// table of 1,000 rows, and the kernel is made). Overhead of plan_run and one_call is their time minus that of
// direct_kernel.
#include <benchmark/benchmark.h>
#include <gemmtune/c.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "capi/c_support.h"
#include "dispatch/plan_cache.h"
#include "formats/aiter/tuned_csv.h"

namespace gemmtune {
namespace {

constexpr std::int64_t size = 16;

/// A tuned file of 1,000 rows for one thread of this machine, 100 of them of the weight 16×16.
class TableFile {
 public:
  TableFile() {
    if (::mkdtemp(folder_.data()) == nullptr) std::abort();
    DeviceRequest request;
    request.threads = 1;
    const auto device = open_device("cpu", request);
    if (!device.ok()) std::abort();
    std::vector<TunedEntry> rows;
    for (std::int64_t i = 0; i < 1000; ++i) {
      TunedEntry row;
      row.gfx = (*device)->info().gfx;
      row.cu_num = (*device)->info().cu_num;
      row.problem.m = 128 * (1 + i % 100);
      row.problem.n = row.problem.k = size * (1 + i / 100);
      row.us = 1;
      const auto kernel = (*device)->fallback(row.problem);
      if (!kernel.ok()) std::abort();
      row.libtype = kernel->family;
      row.kernel_name = kernel->kernel_name();
      rows.push_back(std::move(row));
    }
    if (!write_file_atomically(path(), write_tuned_csv(Operation::a16w16, rows, CsvSchema::aiter)).ok())
      std::abort();
  }
  ~TableFile() { std::filesystem::remove_all(folder_); }
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;
  std::string path() const { return folder_ + "/bf16_tuned_gemm.csv"; }

 private:
  std::string folder_ = (std::filesystem::temp_directory_path() / "gemmtune_bench_XXXXXX").string();
};

/// A context on one thread, a plan of the problem and its operands.
class Call {
 public:
  explicit Call(const std::string& tuned_file = "/dev/null/none.csv") {  // no tuned file: the fallback
    gemmtune_context_options options{};
    options.size = sizeof options;
    const gemmtune_tuned_files files{GEMMTUNE_A16W16, tuned_file.c_str()};
    options.tuned_files = &files;
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
  /// Makes and releases the plan of M rows.
  gemmtune_status make_plan(std::int64_t m) {
    gemmtune_problem problem = problem_;
    problem.m = m;
    gemmtune_plan* plan = nullptr;
    const gemmtune_status status = gemmtune_plan_create(context_, &problem, &plan);
    gemmtune_plan_release(plan);
    return status;
  }
  std::int64_t plans_made() const {
    gemmtune_counters counters{};
    counters.size = sizeof counters;
    require(gemmtune_context_counters(context_, &counters));
    return static_cast<std::int64_t>(counters.plans_made);
  }
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

void plan_run(benchmark::State& state) {
  Call call;
  for (auto _ : state) benchmark::DoNotOptimize(call.run_plan());
}
BENCHMARK(plan_run);

void plan_from_cache(benchmark::State& state) {
  Call call;
  for (auto _ : state) benchmark::DoNotOptimize(call.make_plan(size));
}
BENCHMARK(plan_from_cache);

void one_call(benchmark::State& state) {
  Call call;
  for (auto _ : state) benchmark::DoNotOptimize(call.run_one_call());
}
BENCHMARK(one_call);

/// More M in a circle than the cache holds plans, so that each call finds its plan dropped.
void plan_after_miss(benchmark::State& state) {
  const TableFile table;
  Call call(table.path());
  constexpr std::int64_t circle = static_cast<std::int64_t>(2 * PlanCache::default_capacity);
  std::int64_t m = 0;
  for (auto _ : state) {
    m = m % circle + 1;
    benchmark::DoNotOptimize(call.make_plan(m));
  }
  if (call.plans_made() < state.iterations()) state.SkipWithError("plans came from the cache");
}
BENCHMARK(plan_after_miss);

}  // namespace
}  // namespace gemmtune
