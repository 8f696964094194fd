// What a look-up costs in a table of 54,000 rows, and what reading such a file costs.
//
// A clock read alone is about 19 ns, so batches of 64 look-ups over 200 problems are timed; `per_lookup` is
// the time of one: all rows that may answer, as planning does it after a miss of the plan cache
// (bench_call_overhead times the whole call).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "formats/aiter/tuned_csv.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

constexpr std::size_t groups = 540;
constexpr std::size_t rows_per_group = 100;
constexpr std::size_t batch = 64;
constexpr std::size_t problems = 200;

constexpr const char* gfx = "x86-avx2";

/// 540 weights × 100 M: small M dense, then the steps of padding, as shipped tables have them.
std::vector<TunedEntry> synthetic_rows() {
  Random random(1);
  std::vector<TunedEntry> rows;
  for (std::size_t group = 0; group < groups; ++group) {
    Problem problem;
    problem.n = static_cast<std::int64_t>(64 * (1 + group));
    problem.k = static_cast<std::int64_t>(128 * (1 + random.below(200)));
    for (std::size_t i = 0; i < rows_per_group; ++i) {
      problem.m = static_cast<std::int64_t>(i < 32 ? i + 1 : 32 + (i - 31) * 32);
      TunedEntry row;
      row.gfx = gfx;
      row.cu_num = 2;
      row.problem = problem;
      row.libtype = "tiled";
      row.kernel_name = "tiled_r1_mr8_nr32_kc512_mc128_t2";
      row.us = 10 + random.uniform();
      rows.push_back(row);
    }
  }
  return rows;
}

/// The same rows, a third each of bf16, a8w8 and block-scaled a8w8: one table holds every operation.
std::vector<TunedEntry> mixed_rows() {
  static constexpr std::array<OperationForm, 3> operations{Operation::a16w16, Operation::a8w8,
                                                           Operation::a8w8_blockscale};
  std::vector<TunedEntry> rows = synthetic_rows();
  for (std::size_t index = 0; index < rows.size(); ++index) {
    Problem problem = default_problem(operations[index / rows_per_group % operations.size()]);
    problem.m = rows[index].problem.m;
    problem.n = rows[index].problem.n;
    problem.k = rows[index].problem.k;
    rows[index].problem = problem;
  }
  return rows;
}

struct Workload {
  TunedTable table{mixed_rows()};
  std::array<LookupKey, problems> keys;

  Workload() {
    Random random(2);
    for (std::size_t i = 0; i < problems; ++i) {
      const TunedEntry& row = table.entries()[random.below(table.entries().size())];
      keys[i] = {gfx, 2, row.problem};
      keys[i].problem.m = static_cast<std::int64_t>(1 + random.below(3000));
    }
  }
};

const Workload& workload() {
  static const Workload one;
  return one;
}

void set_per_lookup(benchmark::State& state) {
  state.counters["per_lookup"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * batch,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void table_lookup(benchmark::State& state) {
  const Workload& work = workload();
  std::size_t at = static_cast<std::size_t>(state.thread_index()) * 37;
  for (auto _ : state) {
    for (std::size_t i = 0; i < batch; ++i) {
      at = at + 1 < problems ? at + 1 : 0;
      benchmark::DoNotOptimize(work.table.lookup(work.keys[at]).data());
    }
  }
  set_per_lookup(state);
}
BENCHMARK(table_lookup)->Threads(1)->Threads(2)->UseRealTime();

/// From the file in the page cache to a table that answers.
void load_54000_rows(benchmark::State& state) {
  std::string folder = (std::filesystem::temp_directory_path() / "gemmtune_bench_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) std::abort();
  const std::string path = folder + "/bf16_tuned_gemm.csv";
  if (!write_file_atomically(path, write_tuned_csv(Operation::a16w16, synthetic_rows(), CsvSchema::aiter))
           .ok())
    std::abort();
  for (auto _ : state) {
    auto file = read_tuned_csv(path);
    if (!file.ok() || file->entries.size() != groups * rows_per_group) {
      state.SkipWithError("the file was not read");
      break;
    }
    const TunedTable table(std::move(file->entries));
    benchmark::DoNotOptimize(table.entries().data());
  }
  std::filesystem::remove_all(folder);
}
BENCHMARK(load_54000_rows)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gemmtune
