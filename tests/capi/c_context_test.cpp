// The C functions over the fake device: what a context says of its tables, errata, threads and log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/c_interface_fixture.h"

namespace gemmtune {
namespace {

using test::CInterface;
using test::row;
using test::small_problem;
using ::testing::Each;
using ::testing::HasSubstr;

TEST_F(CInterface, KernelErratumRefusesWhatItCannotAnswer) {
  const gemmtune_problem asked = problem(3);
  std::int32_t erratum = 7;
  EXPECT_EQ(gemmtune_kernel_erratum(nullptr, &asked, "alpha_r1_a1", &erratum), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_kernel_erratum(&handle_, nullptr, "alpha_r1_a1", &erratum), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_kernel_erratum(&handle_, &asked, nullptr, &erratum), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_kernel_erratum(&handle_, &asked, "alpha_r1_a1", nullptr), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_kernel_erratum(&handle_, &asked, "vendor_r1_a1", &erratum), GEMMTUNE_NOT_FOUND);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("vendor"));
  EXPECT_EQ(erratum, 7);
  EXPECT_EQ(gemmtune_kernel_erratum(&handle_, &asked, "alpha_r1_a1", &erratum), GEMMTUNE_OK);
  EXPECT_EQ(erratum, 0);
}

/// Errata are read once in a process: a process of its own.
TEST_F(CInterface, KernelErratumKnowsTheUsersErrata) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ask = [&] {
    const std::string file =
        folder_.write("erratum.json", R"({"name": "two", "family": "alpha", "parameters": ["a"],
        "condition": "a == 2", "effect": "wrong", "what": "a is two", "found": "here", "repro": "-"})");
    ::setenv("GEMMTUNE_ERRATA", file.c_str(), 1);
    const gemmtune_problem asked = problem(3);
    std::int32_t two = 0;
    std::int32_t one = 7;
    const bool answered = gemmtune_kernel_erratum(&handle_, &asked, "alpha_r1_a2", &two) == GEMMTUNE_OK &&
                          gemmtune_kernel_erratum(&handle_, &asked, "alpha_r1_a1", &one) == GEMMTUNE_OK;
    std::exit(answered && two != 0 && one == 0 ? 0 : 1);
  };
  EXPECT_EXIT(ask(), ::testing::ExitedWithCode(0), "");
}

TEST_F(CInterface, SourcesAreGivenAsData) {
  TunedEntry other = row(f32(5), "alpha_r1_a1");
  other.gfx = "gfx950";
  other.cu_num = 256;
  TunedEntry fewer = row(f32(6), "alpha_r1_a1");
  fewer.cu_num = 1;
  ContextOptions options;
  options.tuned_files[Operation::a16w16] =
      test::write_rows(folder_, "u.csv", {row(f32(3), "alpha_r1_a1"), other, other, fewer}) + ":" +
      folder_.file("none.csv");
  handle_.context = std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>());
  std::vector<std::string> seen;
  const gemmtune_source_visitor visit = [](void* to, const gemmtune_source* source) {
    if (source->named == 0) return;
    static_cast<std::vector<std::string>*>(to)->push_back(fmt::format(
        "{} {} {} {} {} {} '{}' '{}'", source->operation, source->path, source->rows, source->own_rows,
        source->fewer_threads_rows, source->other_environment_rows, source->devices, source->unused));
  };
  ASSERT_EQ(gemmtune_context_visit_sources(&handle_, visit, &seen), GEMMTUNE_OK) << gemmtune_last_error();
  const std::string none = folder_.file("none.csv");
  EXPECT_THAT(seen, ::testing::ElementsAre(
                        "0 " + folder_.file("u.csv") + " 4 1 1 0 'gfx950/256:2,x86-fake/1:1,x86-fake/2:1' ''",
                        "0 " + none + " 0 0 0 0 '' '" + none + ": no such file'"));
  EXPECT_EQ(gemmtune_context_visit_sources(nullptr, visit, &seen), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_context_visit_sources(&handle_, nullptr, &seen), GEMMTUNE_NULL_POINTER);
}

TEST_F(CInterface, ShippedTablesAreAmongTheSources) {
  TunedEntry here = row(f32(3), "alpha_r1_a1");
  here.env = "here";
  Environment environment;
  environment.shipped_folder = folder_.file("shipped");
  folder_.write("shipped/a_bf16_tuned_gemm.csv",
                write_tuned_csv(Operation::a16w16, {here, row(f32(5), "alpha_r1_a1")}, CsvSchema::aiter));
  folder_.write("shipped/a_bf16_tuned_gemm.csv.env.json", R"({"here": {"device": "Fake 1"}})");
  for (const char* name : {"b", "c"}) {
    folder_.write(fmt::format("shipped/{}_bf16_tuned_gemm.csv", name),
                  write_tuned_csv(Operation::a16w16, {here, row(f32(5), "alpha_r1_a1")}, CsvSchema::aiter));
    folder_.write(fmt::format("shipped/{}_bf16_tuned_gemm.csv.env.json", name),
                  R"({"here": {"device": "Fake 2"}})");
  }
  handle_.context =
      std::make_unique<Context>(ContextOptions(), environment, std::make_unique<test::FakeDevice>());
  std::vector<std::string> seen;
  const gemmtune_source_visitor visit = [](void* to, const gemmtune_source* source) {
    if (source->shipped == 0) return;
    static_cast<std::vector<std::string>*>(to)->push_back(fmt::format(
        "{} {} {} {} '{}'", source->operation, source->path, source->rows, source->own_rows, source->unused));
  };
  ASSERT_EQ(gemmtune_context_visit_sources(&handle_, visit, &seen), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_THAT(seen, ::testing::ElementsAre(
                        "0 " + folder_.file("shipped/a_bf16_tuned_gemm.csv") + " 1 1 ''",
                        "0 " + folder_.file("shipped") + " 0 0 '" + folder_.file("shipped") +
                            ": shipped tables for other devices are not used (files: 2, rows: 4)'"));
  char text[4096];
  ASSERT_EQ(gemmtune_context_sources(&handle_, text, sizeof text, nullptr), GEMMTUNE_OK);
  EXPECT_THAT(std::string(text), ::testing::EndsWith(folder_.file("shipped") +
                                                     ": 1 row in 3 shipped tables, 5 of other devices"));
}

TEST_F(CInterface, FewerThreadsHaveACounterAndASwitch) {
  TunedEntry fewer = row(f32(5), "alpha_r1_a1");
  fewer.cu_num = 1;
  ContextOptions options;
  options.tuned_files[Operation::a16w16] = test::write_rows(folder_, "u.csv", {fewer});
  options.log = [](LogLevel, std::string_view, void*) {};
  const auto counters = [&] {
    handle_.context = std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>());
    make(problem(5));
    gemmtune_counters values{};
    values.size = sizeof values;
    EXPECT_EQ(gemmtune_context_counters(&handle_, &values), GEMMTUNE_OK);
    return std::pair(values.fewer_threads, values.untuned);
  };
  EXPECT_EQ(counters(), std::pair(std::uint64_t{1}, std::uint64_t{0}));
  options.own_threads_only = true;
  EXPECT_EQ(counters(), std::pair(std::uint64_t{0}, std::uint64_t{1}));
}

TEST_F(CInterface, TheProcessesLogIsTheHosts) {
  std::vector<std::string> lines;
  gemmtune_set_log(
      [](void* to, int level, const char* line) {
        static_cast<std::vector<std::string>*>(to)->push_back(std::to_string(level) + line);
      },
      &lines);
  EXPECT_EQ(gemmtune_log_line(2, "of the process"), GEMMTUNE_OK);
  EXPECT_EQ(gemmtune_context_log(&handle_, 1, "of a context"), GEMMTUNE_OK);
  gemmtune_set_log(nullptr, nullptr);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(gemmtune_log_line(2, "to stderr"), GEMMTUNE_OK);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "gemmtune: warning: to stderr\n");
  EXPECT_THAT(lines, ::testing::ElementsAre("2of the process", "1of a context"));
  EXPECT_EQ(gemmtune_log_line(4, "x"), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(gemmtune_log_line(1, nullptr), GEMMTUNE_NULL_POINTER);
}

}  // namespace
}  // namespace gemmtune
