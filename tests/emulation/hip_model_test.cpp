// What the performance model of mfma counts, against what the emulation counted while the kernel ran.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "backends/hip/families/mfma/mfma_launch_config.h"
#include "backends/hip/families/own_families.h"
#include "support/dense_problem.h"
#include "support/emulation/emulated_runtime.h"
#include "support/thoroughness.h"

namespace gemmtune::emulation {
namespace {

Config changed(Config config, const std::string& settings) {
  std::istringstream words(settings);
  for (std::string word; words >> word;)
    config.set(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  return config;
}

/// One block and whole tiles: the kernel's counts are the model's.
class CountsOn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(HipModel, CountsOn, ::testing::Values("gfx942", "gfx950"));

TEST_P(CountsOn, WhatTheEmulationCounts) {
  EmulatedRuntime runtime(GetParam());
  const auto family = hip::make_mfma_family(runtime);
  for (const char* settings :
       {"bm=32 bn=64 bk=64 mi=16 kp=2 nw=4", "bm=32 bn=64 bk=128 mi=16 kp=2 nw=4",
        "bm=32 bn=64 bk=256 mi=16 kp=2 nw=2", "bm=32 bn=64 bk=128 mi=16 kp=1 nw=4",
        "bm=64 bn=64 bk=128 mi=32 kp=2 nw=4 nb=2", "bm=64 bn=64 bk=64 mi=32 kp=1 nw=4 nb=2 dl=1",
        "bm=32 bn=64 bk=128 mi=16 kp=2 nw=4 pad=16", "bm=64 bn=64 bk=64 mi=32 kp=2 nw=2 pad=16",
        "bm=32 bn=64 bk=64 mi=16 kp=1 nw=4 pad=16"}) {
    const Config of_tile = changed(Config(), settings);
    const Problem problem = dense(of_tile.number("bm"), of_tile.number("bn"), 256);
    const Config config = changed(family->default_config(problem), settings);
    const hip::MfmaLaunchConfig launch = hip::mfma_launch_config(problem, config, GetParam());
    Statistics counted;
    runtime.statistics = &counted;
    EXPECT_EQ(check_kernel(*family, problem, config), "") << settings;
    runtime.statistics = nullptr;
    const auto waves = static_cast<std::uint64_t>(launch.waves * launch.k_tiles);
    std::uint64_t matrix = 0;
    for (const auto& [name, count] : counted.collectives)
      if (name.starts_with("v_mfma")) matrix += count;
    EXPECT_EQ(matrix, waves * static_cast<std::uint64_t>(launch.mfma_instructions())) << settings;
    EXPECT_EQ(counted.lds_reads, waves * static_cast<std::uint64_t>(launch.lds_reads())) << settings;
    // Of reads alone: writes are the staging's, which has none.
    const double read_cycles = static_cast<double>(launch.lds_reads()) * static_cast<double>(waves) *
                               static_cast<double>(64 * 8 * launch.kpack) /
                               static_cast<double>(launch.lds_bytes_per_clock());
    const double conflicts = read_cycles * (hip::lds_read_conflicts(launch) - 1);
    EXPECT_EQ(static_cast<double>(counted.lds_read_conflict_cycles), conflicts) << settings;
    const std::uint64_t units =
        static_cast<std::uint64_t>((launch.block_m + launch.block_n) * launch.block_k / 16 / 64);
    EXPECT_EQ(counted.lds_writes, launch.direct ? 0 : units * static_cast<std::uint64_t>(launch.k_tiles))
        << settings;
    EXPECT_EQ(counted.direct_to_lds,
              launch.direct ? 4 * units * static_cast<std::uint64_t>(launch.k_tiles) : 0)
        << settings;
  }
}

/// The same of column-major operands, whose writes may have conflicts too.
TEST_P(CountsOn, ThoseOfColumnMajorOperands) {
  EmulatedRuntime runtime(GetParam());
  const auto family = hip::make_mfma_family(runtime);
  int turn = 0;
  for (const char* settings :
       {"bm=32 bn=64 bk=64 mi=16 kp=2 nw=2", "bm=32 bn=64 bk=128 mi=16 kp=2 nw=2",
        "bm=64 bn=32 bk=256 mi=16 kp=2 nw=4", "bm=32 bn=64 bk=128 mi=16 kp=1 nw=2",
        "bm=64 bn=64 bk=128 mi=32 kp=2 nw=4 nb=2", "bm=64 bn=64 bk=64 mi=32 kp=1 nw=4 nb=2",
        "bm=256 bn=64 bk=64 mi=32 kp=2 nw=4"})
    for (const DataType type :
         {DataType::bf16, std::string(GetParam()) == "gfx942" ? DataType::f8_e4m3fnuz : DataType::f8_e4m3fn})
      for (const int orders : {1, 2, 3}) {
        if (turn++ % 5 != 0 && !test::is_thorough()) continue;
        const Config of_tile = changed(Config(), settings);
        Problem problem = dense(of_tile.number("bm"), of_tile.number("bn"), 512, type);
        problem.scale_ab = traits(type).fp8;
        if ((orders & 1) != 0) problem.w_order = Order::column_major;
        if ((orders & 2) != 0) problem.x_order = Order::column_major;
        const std::string what = std::string(settings) + " " + print(problem);
        const Config config = changed(family->default_config(problem), settings);
        const hip::MfmaLaunchConfig launch = hip::mfma_launch_config(problem, config, GetParam());
        Statistics counted;
        runtime.statistics = &counted;
        EXPECT_EQ(check_kernel(*family, problem, config), "") << what;
        runtime.statistics = nullptr;
        const auto waves = static_cast<std::uint64_t>(launch.waves * launch.k_tiles);
        EXPECT_EQ(counted.lds_reads, waves * static_cast<std::uint64_t>(launch.lds_reads())) << what;
        const double per_clock = static_cast<double>(launch.lds_bytes_per_clock());
        const double read_cycles = static_cast<double>(launch.lds_reads()) * static_cast<double>(waves) *
                                   static_cast<double>(64 * 8 * launch.kpack) / per_clock;
        EXPECT_DOUBLE_EQ(static_cast<double>(counted.lds_read_conflict_cycles),
                         read_cycles * (hip::lds_read_conflicts(launch) - 1))
            << what;
        const auto tile_bytes = static_cast<double>((launch.block_m + launch.block_n) * launch.block_k);
        const double write_cycles = tile_bytes * static_cast<double>(launch.k_tiles) / per_clock;
        EXPECT_DOUBLE_EQ(static_cast<double>(counted.lds_conflict_cycles - counted.lds_read_conflict_cycles),
                         write_cycles * (hip::lds_write_conflicts(launch) - 1))
            << what;
      }
}

/// The same of fp4 operands, decoded and as they are.
TEST(HipModel, CountsThoseOfFp4) {
  for (const char* architecture : {"gfx942", "gfx950"}) {
    EmulatedRuntime runtime(architecture);
    const auto family = hip::make_mfma_family(runtime);
    for (const bool shuffled : {false, true}) {
      for (const char* settings : {"bm=32 bn=64 bk=256 mi=16 nw=4", "bm=64 bn=64 bk=256 mi=32 nw=4 nb=2"}) {
        const Config of_tile = changed(Config(), settings);
        Problem problem =
            of_fp4(Operation::a4w4_blockscale, of_tile.number("bm"), of_tile.number("bn"), 1024);
        if (shuffled) problem.weight_layout = WeightLayout::aiter16x16;
        const Config config = changed(family->default_config(problem), settings);
        const hip::MfmaLaunchConfig launch = hip::mfma_launch_config(problem, config, architecture);
        Statistics counted;
        runtime.statistics = &counted;
        EXPECT_EQ(check_kernel(*family, problem, config), "") << settings;
        runtime.statistics = nullptr;
        const auto waves = static_cast<std::uint64_t>(launch.waves * launch.k_tiles);
        std::uint64_t matrix = 0;
        for (const auto& [name, count] : counted.collectives)
          if (name.starts_with("v_mfma")) matrix += count;
        EXPECT_EQ(matrix, waves * static_cast<std::uint64_t>(launch.mfma_instructions())) << settings;
        EXPECT_EQ(counted.lds_reads, waves * static_cast<std::uint64_t>(launch.lds_reads())) << settings;
        EXPECT_EQ(counted.lds_read_conflict_cycles, 0U) << architecture << " " << settings << shuffled;
        EXPECT_EQ(hip::lds_read_conflicts(launch), 1) << architecture << " " << settings << shuffled;
      }
    }
  }
}

TEST(HipModel, SwizzledRowsHaveNoBankConflicts) {
  for (const char* architecture : {"gfx942", "gfx950"})
    for (const char* settings : {"bk=64 mi=16 kp=2", "bk=128 mi=16 kp=2", "bk=256 mi=16 kp=2",
                                 "bk=64 mi=32 kp=2", "bk=128 mi=32 kp=2", "bk=256 mi=32 kp=2"}) {
      const hip::MfmaLaunchConfig launch = hip::mfma_launch_config(
          dense(64, 64, 512), changed(Config(), std::string("bm=64 bn=64 ") + settings), architecture);
      EXPECT_EQ(hip::lds_read_conflicts(launch), 1) << architecture << " " << settings;
    }
}

/// Column-major operands are read without conflicts too, where lanes read 16 bytes. Rows of a word's place, 2 or 4 apart, are written at
/// the rate of the banks that such rows have.
TEST(HipModel, SwizzledColumnsHaveFewBankConflicts) {
  for (const std::string architecture : {"gfx942", "gfx950"})
    for (const DataType type : {DataType::bf16, DataType::f8_e4m3fnuz})
      for (const std::string tile :
           {"bk=64 mi=16", "bk=128 mi=16", "bk=256 mi=16", "bk=64 mi=32", "bk=128 mi=32", "bk=256 mi=32"}) {
        Problem problem = dense(64, 64, 512, type);
        problem.x_order = problem.w_order = Order::column_major;
        const hip::MfmaLaunchConfig launch =
            hip::mfma_launch_config(problem, changed(Config(), "bm=64 bn=64 kp=2 " + tile), architecture);
        const std::string what = architecture + " " + tile + " " + print(problem);
        EXPECT_EQ(hip::lds_read_conflicts(launch), 1) << what;
        const std::int64_t rows_in_banks = launch.lds_bytes_per_clock() / launch.block_k;
        const std::int64_t least = std::clamp<std::int64_t>(rows_in_banks, 1, launch.word_rows());
        EXPECT_EQ(hip::lds_write_conflicts(launch), static_cast<double>(least)) << what;
      }
}

/// A bound says which unit a kernel waits for: large tiles MFMA, few rows the memory.
TEST(HipModel, NamesTheUnitThatBounds) {
  gpu::Limits limits;
  limits.multiprocessors = 304;
  const hip::ComputeUnit unit = hip::compute_unit("gfx942", limits);
  const auto bound = [&](const Problem& problem, const std::string& settings) {
    const Config config = changed(Config(), settings);
    return hip::model_of(problem, hip::mfma_launch_config(problem, config, "gfx942"), unit);
  };
  EXPECT_EQ(bound(dense(8192, 8192, 8192), "bm=128 bn=128 bk=128").bound(), "MFMA");
  EXPECT_EQ(bound(dense(8192, 8192, 8192), "bm=32 bn=32 bk=128 nw=4").bound(), "LDS");
  EXPECT_EQ(bound(dense(16, 8192, 8192), "bm=16 bn=64 bk=128").bound(), "memory");
  limits.multiprocessors = 256;
  limits.shared_bytes_per_multiprocessor = 163840;
  const hip::ComputeUnit mi350 = hip::compute_unit("gfx950", limits);
  const Problem a4w4 = of_fp4(Operation::a4w4_blockscale, 8192, 8192, 8192);
  const auto scaled =
      hip::mfma_launch_config(a4w4, changed(Config(), "bm=256 bn=256 bk=256 nw=8 mi=32 nb=2"), "gfx950");
  // 16 rows by a weight that one wave decodes wait for that.
  const Problem a16w4 = of_fp4(Operation::a16w4, 4096, 8192, 8192);
  EXPECT_EQ(bound(a16w4, "bm=16 bn=256 bk=128 nw=4").bound(), "decoding");
  EXPECT_EQ(bound(a16w4, "bm=128 bn=128 bk=128 nw=4").bound(), "MFMA");
  // No faster than the data sheet: 9.2 PFLOP/s; and faster than bf16 can be.
  EXPECT_GT(hip::model_of(a4w4, scaled, mi350).mfma, 2.0 * 8192 * 8192 * 8192 / 9.3e9);
  EXPECT_LT(hip::model_of(a4w4, scaled, mi350).mfma, 2.0 * 8192 * 8192 * 8192 / 4.6e9);
  // No faster than the data sheet: 1307 TFLOP/s, 5.3 TB/s.
  EXPECT_GT(bound(dense(8192, 8192, 8192), "bm=128 bn=128").microseconds(),
            2.0 * 8192 * 8192 * 8192 / 1307e6);
  EXPECT_GT(bound(dense(16, 8192, 8192), "bm=16 bn=64").microseconds(), 8192.0 * 8192 * 2 / 5.3e6);
}

}  // namespace
}  // namespace gemmtune::emulation
