// Real tables of AITER's, where they are: the oracle's answers, the rates, the identity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/text.h"
#include "formats/aiter/lookup_requests.h"
#include "formats/aiter/rates.h"
#include "formats/aiter/tuned_csv.h"
#include "support/fixtures.h"
#include "tuned/choice.h"
#include "tuned/key.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

using ::testing::IsEmpty;

/// The row of the oracle's answer.
const TunedEntry* row_of(const TunedTable& table, const LookupKey& key, std::int64_t m, std::int64_t solidx) {
  for (const TunedEntry& row : table.entries()) {
    const bool same = table_gfx(row) == key.gfx && row.cu_num == key.cu_num && row.problem.m == m &&
                      row.solidx == solidx && group_of(row.problem) == group_of(key.problem);
    if (same) return &row;
  }
  return nullptr;
}

TEST(TableFixtures, EveryLookUpOfTheOracle) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  const auto requests = read_table_requests(folder + "/oracle_lookup.csv");
  ASSERT_TRUE(requests.ok()) << requests.message();
  const auto lines = split(*read_file(folder + "/oracle_lookup.csv"), '\n');
  std::map<std::string, TunedTable> tables;
  ASSERT_EQ(requests->rows.size(), 53U);
  std::size_t never_chosen = 0;
  const std::string content = *read_file(folder + "/oracle_lookup.csv");
  const auto oracle = split(content, '\n');
  for (const TableRequest& request : requests->rows) {
    auto table = tables.find(request.file);
    if (table == tables.end()) {
      auto file = read_tuned_csv(folder + "/" + request.file, {.operation = form_of(request.key.problem)});
      ASSERT_TRUE(file.ok()) << file.message();
      table = tables.emplace(request.file, TunedTable(std::move(file->entries))).first;
    }
    const auto expected = split(trim(oracle[request.line - 1]), ',');
    const auto hits = table->second.lookup(request.key);
    if (expected[3] == "miss") {
      EXPECT_THAT(hits, IsEmpty()) << request.line;
      continue;
    }
    const TunedEntry* row = row_of(table->second, request.key, parse_integer(expected[4]).value_or(0),
                                   parse_integer(expected[6]).value_or(0));
    if (row != nullptr && !may_be_chosen(*row)) {  // AITER chooses rows with any error
      ++never_chosen;
      EXPECT_THAT(hits, IsEmpty()) << request.line;
      continue;
    }
    ASSERT_FALSE(hits.empty()) << request.line;
    const Match match = expected[3] == "exact" ? Match::exact
                        : expected[3] == "gl0" ? Match::fine
                                               : Match::coarse;
    EXPECT_EQ(hits[0].match, match) << request.line;
    EXPECT_EQ(hits[0].hit_m, parse_integer(expected[4])) << request.line;
    EXPECT_EQ(hits[0].entry->libtype, expected[5]) << request.line;
    EXPECT_EQ(hits[0].entry->solidx, parse_integer(expected[6])) << request.line;
    EXPECT_EQ(hits[0].entry->split_k, parse_integer(expected[7])) << request.line;
    EXPECT_EQ(hits[0].entry->kernel_name, expected[8]) << request.line;
  }
  EXPECT_EQ(never_chosen, 4U);
}

struct Agreement {
  int rows = 0;
  int agree = 0;
};

/// How many rows of a file hold the rates that the family's formula gives.
Agreement count_rates(const std::string& path) {
  Agreement count;
  const auto file = read_tuned_csv(path);
  EXPECT_TRUE(file.ok()) << file.message();
  if (!file.ok()) return count;
  CsvCells cells;
  for (const TunedEntry& entry : file->entries) {
    cells.split(file->document.lines[entry.line - 1].text);
    const auto tflops = parse_number(file->columns.cell(cells, Column::tflops));
    const auto bw = parse_number(file->columns.cell(cells, Column::bw));
    ++count.rows;
    if (tflops == tflops_column(entry.problem, entry.us) && bw == bandwidth_column(entry.problem, entry.us)) {
      ++count.agree;
    }
  }
  return count;
}

TEST(TableFixtures, RatesAreTheTablesOwn) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  const struct {
    const char* name;
    int rows;
    int agree;  // the rest is dirt that is known: zeros, ten times too much
  } cases[] = {
      {"bf16_tuned_gemm.csv", 232, 232},
      {"model_configs/dsv3_bf16_tuned_gemm.csv", 176, 176},
      {"a8w8_tuned_gemm.csv", 579, 579},
      {"a8w8_blockscale_tuned_gemm.csv", 6630, 6630},
      {"a4w4_blockscale_tuned_gemm.csv", 1470, 1470},
      {"bf16_tuned_batched_gemm.csv", 26, 26},
      {"a8w8_tuned_batched_gemm.csv", 26, 0},  // made with two bytes an element
      {"model_configs/dsv3_a8w8_bpreshuffle_tuned_gemm.csv", 1520, 1520 - 275 - 477},
  };
  for (const auto& one : cases) {
    const Agreement count = count_rates(folder + "/aiter/configs/" + one.name);
    EXPECT_EQ(count.rows, one.rows) << one.name;
    EXPECT_EQ(count.agree, one.agree) << one.name;
  }
}

TEST(TableFixtures, EveryTableIsReadAndWrittenAgain) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  std::size_t tables = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (file.path().extension() != ".csv" || name.find("untuned") != std::string::npos) continue;
    if (name.find("tuned") == std::string::npos) continue;
    ++tables;
    const auto read = read_tuned_csv(file.path().string());
    ASSERT_TRUE(read.ok()) << read.message();
    if (!read->schema().dispatched) continue;
    const OperationForm operation = read->schema().operation;
    const std::string text = write_tuned_csv(operation, read->entries, CsvSchema::aiter);
    const auto again = parse_tuned_csv("again.csv", text, {.operation = operation});
    ASSERT_TRUE(again.ok()) << again.message();
    // Cells that mean nothing stand as they were read, so they are said again.
    EXPECT_THAT(again->diagnostics, ::testing::SizeIs(read->diagnostics.size())) << name;
    EXPECT_EQ(write_tuned_csv(operation, again->entries, CsvSchema::aiter), text) << name;
  }
  EXPECT_EQ(tables, 23U);
}

TEST(TableFixtures, TheOnlyDiagnosticsAreOfShortRows) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  const struct {
    const char* name;
    std::size_t rows;
    std::size_t diagnostics;
  } cases[] = {{"tuned_fmoe.csv", 617, 0},
               {"model_configs/dsv4_fp8fp4_tuned_fmoe.csv", 168, 8},
               {"model_configs/glm5_fp4_tuned_fmoe.csv", 64, 0},
               {"model_configs/gptoss_fp4_tuned_fmoe.csv", 24, 0},
               {"model_configs/minimax_m3_mxfp8_tuned_fmoe.csv", 32, 0},
               {"model_configs/gptoss_bf16_tuned_gemm.csv", 260, 0}};
  for (const auto& one : cases) {
    const auto file = read_tuned_csv(folder + "/aiter/configs/" + one.name);
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_EQ(file->entries.size(), one.rows) << one.name;
    EXPECT_EQ(file->diagnostics.size(), one.diagnostics) << one.name;
  }
}

}  // namespace
}  // namespace gemmtune
