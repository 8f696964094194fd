// What holds for every file: reading, writing and reading again is equal; a conversion there and back is
// equal or named; merge, --fix and --compress change no answer of a look-up that they did not announce.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <unordered_set>

#include "base/file.h"
#include "base/text.h"
#include "formats/aiter/merge_tables.h"
#include "formats/aiter/table_audit.h"
#include "formats/aiter/tuned_row.h"
#include "formats/all_formats.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/bucket_sets.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_lookup.h"
#include "generated_tables.h"
#include "support/fixtures.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

using test::Generator;

bool soak() { return std::getenv("GEMMTUNE_SOAK") != nullptr; }

/// Runs `once` with one generator after the other: 300 of them, so that every run tests the same tables; with
/// GEMMTUNE_SOAK=1 for ten minutes. The seed of a failure is in its message; GEMMTUNE_SEED begins with another.
void for_many_seeds(const std::function<void(Generator&)>& once) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(600);
  const char* given = std::getenv("GEMMTUNE_SEED");
  const std::uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  for (std::uint64_t seed = first; soak() ? std::chrono::steady_clock::now() < end : seed < first + 300;
       ++seed) {
    SCOPED_TRACE(fmt::format("GEMMTUNE_SEED={}", seed));
    Generator generator(seed);
    once(generator);
    if (::testing::Test::HasFailure()) return;
  }
}

const std::vector<OperationForm> operations{Operation::a16w16,
                                            Operation::a8w8,
                                            OperationForm(Operation::a8w8, true),
                                            Operation::a8w8_blockscale,
                                            Operation::a4w4_blockscale,
                                            Operation::batched_bf16,
                                            Operation::batched_a8w8,
                                            Operation::fused_moe,
                                            Operation::a16w4,
                                            Operation::a8w4,
                                            Operation::a4w4_nvfp4,
                                            Operation::a16w4_int4};

bool equal_carried(const TunedEntry& a, const TunedEntry& b) {
  static const CarriedCells none;
  const CarriedCells& cells = a.carried != nullptr ? *a.carried : none;
  const CarriedCells& others = b.carried != nullptr ? *b.carried : none;
  return std::is_permutation(cells.begin(), cells.end(), others.begin(), others.end());
}

void expect_equal_rows(const std::vector<TunedEntry>& before, const std::vector<TunedEntry>& after,
                       const Schema& schema) {
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t index = 0; index < before.size(); ++index) {
    const TunedEntry& a = before[index];
    const TunedEntry& b = after[index];
    EXPECT_EQ(row_key(a, schema, true), row_key(b, schema, true)) << "line " << a.line;
    EXPECT_TRUE(same_row(a, b)) << "line " << a.line;
    EXPECT_TRUE(equal_carried(a, b)) << "line " << a.line;
  }
}

/// Reads `text`, writes it, reads that.
void expect_read_write_read(const std::string& text, OperationForm operation) {
  const auto file = parse_tuned_csv("x.csv", text, {.operation = operation});
  if (!file.ok() || !file->schema().dispatched) return;
  const std::string written = write_tuned_csv(operation, file->entries, CsvSchema::aiter);
  const auto again = parse_tuned_csv("x.csv", written, {.operation = operation});
  ASSERT_TRUE(again.ok()) << again.message() << "\n" << text;
  expect_equal_rows(file->entries, again->entries, file->schema());
  if (::testing::Test::HasFailure()) ADD_FAILURE() << text << "\n" << written;
}

TEST(Properties, TunedTablesReadWriteRead) {
  for_many_seeds([](Generator& generator) {
    const OperationForm operation = generator.pick(operations);
    const std::string text = generator.tuned_table(operation);
    expect_read_write_read(text, operation);
    expect_read_write_read(generator.damaged(text), operation);
  });
}

bool says_nothing(const std::string& cell) {
  return cell.empty() || cell == "0" || cell == "0.0" || cell == "False";
}

bool names_column(const ConversionRows& rows, std::string_view column) {
  for (const LeftOut& item : rows.left_out) {
    if (item.kind == LeftOutKind::column && item.name == column) return true;
  }
  return false;
}

/// The row of `back` for each row that was written, each once; null for those that are gone. A format may lack
/// columns that tell rows apart (these are named), and may write its rows in another order.
std::vector<const TunedEntry*> paired(const ConversionRows& there, const std::vector<TunedEntry>& back) {
  std::vector<const TunedEntry*> pairs(there.entries.size());
  std::vector<bool> used(back.size());
  for (const bool exact : {true, false}) {
    for (std::size_t index = 0; index < pairs.size(); ++index) {
      const TunedEntry& before = there.entries[index];
      for (std::size_t at = 0; at < back.size() && pairs[index] == nullptr; ++at) {
        const TunedEntry& after = back[at];
        const bool same_sizes = after.problem.m == before.problem.m && after.problem.n == before.problem.n &&
                                after.problem.k == before.problem.k &&
                                after.kernel_name == before.kernel_name && after.libtype == before.libtype;
        if (there.is_gone(index) || used[at] || !same_sizes || (exact && after.problem != before.problem))
          continue;
        used[at] = true;
        pairs[index] = &after;
      }
    }
  }
  return pairs;
}

/// Every cell that differs after the way there and back must have been named.
void expect_equal_or_named(const ConversionRows& there, const std::vector<TunedEntry>& back) {
  const Schema& schema = schema_of(there.operation);
  const auto pairs = paired(there, back);
  for (std::size_t index = 0; index < there.entries.size(); ++index) {
    if (there.is_gone(index)) continue;
    const TunedEntry& before = there.entries[index];
    const TunedEntry* same = pairs[index];
    ASSERT_NE(same, nullptr) << "line " << before.line << ": neither written nor named";
    for (const SchemaColumn& column : schema.columns) {
      if (column.column == Column::tflops || column.column == Column::bw || column.column == Column::us ||
          column.column == Column::split_k || column.column == Column::err_ratio) {
        continue;
      }
      const std::string old_cell = cell_text(before, column.column).value_or("");
      // cu_num and the caller's options say the architecture again.
      if (column.column == Column::gfx) continue;
      if (says_nothing(old_cell) || old_cell == cell_text(*same, column.column).value_or("")) continue;
      EXPECT_TRUE(names_column(there, column.name)) << column.name << " of line " << before.line;
    }
    if (valid_time(before.us) && !valid_time(same->us)) {
      EXPECT_TRUE(names_column(there, "us")) << "line " << before.line;
    }
    if (before.carried == nullptr) continue;
    for (const CarriedCell& cell : *before.carried) {
      if (schema.column_of(cell.column) || find_carried(*same, cell.column) != nullptr) continue;
      EXPECT_TRUE(names_column(there, cell.column)) << cell.column << " of line " << before.line;
    }
  }
}

TEST(Properties, AConversionThereAndBackIsEqualOrNamed) {
  for_many_seeds([](Generator& generator) {
    const std::string text = generator.convertible_table();
    ConversionOptions options;
    options.gfx = "gfx942";
    options.cu_num = 304;
    options.x_type = DataType::f16;
    options.n = 512;
    options.k = 1024;
    options.operation = OperationForm(Operation::a16w16);
    for (const Format& format : all_formats()) {
      if (format.read == nullptr || format.write == nullptr) continue;
      SCOPED_TRACE(std::string(format.name) + "\n" + text);
      auto there = read_aiter_rows("bf16_tuned_gemm.csv", text, options);
      ASSERT_TRUE(there.ok()) << there.message();
      const auto written = write_rows(format, *there, options);
      if (!written.ok()) continue;  // refused by name
      if (format.holds.sizes_only) continue;
      auto back = format.read("x" + std::string(format.file_names.substr(1)), *written, options);
      ASSERT_TRUE(back.ok()) << back.message() << "\n" << *written;
      EXPECT_TRUE(back->left_out.empty()) << describe("x", back->left_out.front()) << "\n" << *written;
      expect_equal_or_named(*there, back->entries);
    }
  });
}

/// A file of a format is written in it and read again: the same rows and parts, or they were named.
void expect_own_format_kept(const Format& format, const std::string& text, const ConversionOptions& options) {
  SCOPED_TRACE(text);
  auto rows = format.read("x", text, options);
  if (!rows.ok()) return;
  const auto written = write_rows(format, *rows, options);
  if (!written.ok()) return;
  // Under other keys their answers are compared: AConfigAnswersAsBeforeWhereNothingIsLeftOut.
  const bool has_other_keys = rows->config != nullptr && (rows->config->scheme == TritonScheme::named ||
                                                          rows->config->scheme == TritonScheme::nearest);
  if (has_other_keys) return;
  const auto again = format.read("x", *written, options);
  ASSERT_TRUE(again.ok()) << again.message() << "\n" << *written;
  std::size_t kept = 0;
  for (std::size_t index = 0; index < rows->entries.size(); ++index) kept += rows->is_gone(index) ? 0 : 1;
  std::size_t parts = 0;
  for (const CarriedPart& part : rows->parts) parts += part.taken ? 1 : 0;
  EXPECT_EQ(again->entries.size(), kept) << *written;
  EXPECT_EQ(again->parts.size(), parts) << *written;
}

struct OtherFormat {
  const char* name;
  std::string (Generator::*text)();
  bool says_types;
};

/// One test a format, so that each has its ten minutes.
class OtherFormats : public ::testing::TestWithParam<OtherFormat> {};

TEST_P(OtherFormats, AreWrittenAsTheyWereRead) {
  const OtherFormat& other = GetParam();
  const Format& format = **find_format(other.name);
  ConversionOptions options;
  if (!other.says_types) options.x_type = DataType::f16;
  for_many_seeds([&](Generator& generator) {
    const std::string text = (generator.*other.text)();
    expect_own_format_kept(format, text, options);
    expect_own_format_kept(format, generator.damaged(text), options);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Each, OtherFormats,
    ::testing::Values(OtherFormat{"triton_json", &Generator::triton_config, false},
                      OtherFormat{"tune_gemm_yaml", &Generator::tune_gemm_results, false},
                      OtherFormat{"hipblaslt_csv", &Generator::hipblaslt_table, false},
                      OtherFormat{"tunableop", &Generator::tunableop_results, true},
                      OtherFormat{"untuned", &Generator::shape_list, true}),
    [](const ::testing::TestParamInfo<OtherFormat>& info) { return std::string(info.param.name); });

/// Answers of two tables compared at every tuned M, its neighbours and 1,000 random requests.
using Change = std::function<bool(const LookupKey&, const LookupHit*, const LookupHit*)>;  // announced?

void expect_same_answers(const std::vector<TunedEntry>& old_rows, std::vector<TunedEntry> new_rows,
                         Generator& generator, const Change& announced) {
  const TunedTable before(old_rows);
  const TunedTable after(std::move(new_rows));
  const auto ask = [&](const TunedEntry& row, std::int64_t m) {
    if (m < 1 || m > max_dimension) return;
    const std::string gfx(row.gfx.empty() ? gfx_of_cu_num(row.cu_num) : std::string_view(row.gfx));
    LookupKey key{gfx, row.cu_num, row.problem, row.unknown_types};
    key.problem.m = m;
    const auto expected = before.lookup(key);
    const auto answered = after.lookup(key);
    if (expected.empty() && answered.empty()) return;
    const bool same = !expected.empty() && !answered.empty() &&
                      same_winner(*expected.front().entry, *answered.front().entry);
    if (same) return;
    EXPECT_TRUE(announced(key, expected.empty() ? nullptr : &expected.front(),
                          answered.empty() ? nullptr : &answered.front()))
        << print(key.problem) << " of " << gfx << ": "
        << (expected.empty() ? "no row" : expected.front().entry->kernel_name) << " before, "
        << (answered.empty() ? "no row" : answered.front().entry->kernel_name) << " after";
  };
  for (const TunedEntry& row : old_rows) {
    for (const std::int64_t m : {row.problem.m - 1, row.problem.m, row.problem.m + 1}) ask(row, m);
  }
  for (int request = 0; request < 1000 && !old_rows.empty(); ++request) {
    const TunedEntry& row = generator.pick(old_rows);
    ask(row, 1 + static_cast<std::int64_t>(generator.below(std::uint64_t{1} << generator.below(20))));
  }
}

bool never(const LookupKey&, const LookupHit*, const LookupHit*) { return false; }

TunedFile parsed_tuned(const std::string& source, const std::string& text, OperationForm operation) {
  auto file = parse_tuned_csv(source, text, {.operation = operation});
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TunedFile();
}

void expect_merge_keeps_answers(std::vector<TunedFile> files, Generator& generator) {
  SCOPED_TRACE("merge");
  std::vector<TunedEntry> all;
  for (const TunedFile& file : files) all.insert(all.end(), file.entries.begin(), file.entries.end());
  const auto merged = merge_tables(files, {});
  ASSERT_TRUE(merged.ok()) << merged.message();
  const bool layouts = std::any_of(merged->notes.begin(), merged->notes.end(), [](const std::string& note) {
    return note.find("keeps the weight") != std::string::npos;
  });
  if (layouts) return;  // announced
  const TunedFile table = parsed_tuned("m.csv", merged->text, files.front().schema().operation);
  expect_same_answers(all, table.entries, generator, never);
}

void expect_compress_keeps_answers(TunedFile file, Generator& generator) {
  SCOPED_TRACE("compress");
  const OperationForm operation = file.schema().operation;
  std::vector<TunedFile> files;
  files.push_back(std::move(file));
  const auto merged = merge_tables(files, {});
  ASSERT_TRUE(merged.ok());
  const TunedFile table = parsed_tuned("m.csv", merged->text, operation);
  const auto ranges = compress_table(table);
  ASSERT_TRUE(ranges.ok()) << ranges.message() << "\n" << merged->text;
  const TunedFile compressed = parsed_tuned("c.csv", ranges->text, operation);
  // merge --compress says one thing: between merged rows, which have the range's winner, the range answers what
  // padding or no row answered.
  expect_same_answers(
      table.entries, compressed.entries, generator,
      [&](const LookupKey& key, const LookupHit* before, const LookupHit* after) {
        const bool tuned = before != nullptr && before->match <= Match::range;
        if (tuned || after == nullptr || after->match != Match::range) return false;
        return std::any_of(table.entries.begin(), table.entries.end(), [&](const TunedEntry& row) {
          return row.cu_num == key.cu_num && group_of(row.problem) == group_of(key.problem) &&
                 row.problem.m < key.problem.m && row.problem.m >= *after->entry->m_from &&
                 same_winner(row, *after->entry);
        });
      });
}

void expect_fix_keeps_answers(TunedFile file, Generator& generator) {
  SCOPED_TRACE("fix");
  const OperationForm operation = file.schema().operation;
  std::vector<TunedFile> files;
  files.push_back(std::move(file));
  const auto findings = audit_tables(files, {});
  std::unordered_set<std::size_t> announced;
  for (const Finding& finding : findings) {
    const bool dropped =
        finding.kind != FindingKind::duplicate_key && kinds_fixed_by_default().has(finding.kind);
    if (dropped) announced.insert(finding.line);
  }
  const FixedTable clean = fix_table(files[0], 0, findings, {});
  expect_same_answers(files[0].entries, parsed_tuned("f.csv", clean.text, operation).entries, generator,
                      [&](const LookupKey&, const LookupHit* before, const LookupHit*) {
                        return before != nullptr && announced.count(before->entry->line) != 0;
                      });
  FixOptions redundant;
  redundant.kinds = {FindingKind::redundant};
  SCOPED_TRACE("redundant only");
  const FixedTable fewer = fix_table(files[0], 0, findings, redundant);
  expect_same_answers(files[0].entries, parsed_tuned("r.csv", fewer.text, operation).entries, generator,
                      never);
}

TEST(Properties, MergeFixAndCompressAnnounceEveryChange) {
  for_many_seeds([](Generator& generator) {
    const OperationForm operation = generator.pick(operations);
    const std::string a = generator.tuned_table(operation);
    const std::string b = generator.tuned_table(operation);
    SCOPED_TRACE(a + "\n" + b);
    std::vector<TunedFile> files;
    files.push_back(parsed_tuned("a.csv", a, operation));
    files.push_back(parsed_tuned("b.csv", b, operation));
    expect_fix_keeps_answers(parsed_tuned("a.csv", a, operation), generator);
    expect_compress_keeps_answers(parsed_tuned("a.csv", a, operation), generator);
    expect_merge_keeps_answers(std::move(files), generator);
  });
}

TEST(Properties, HoldForTheFixtures) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  Generator generator(1);
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    const bool tuned = name.find("tuned") != std::string::npos && name.find("untuned") == std::string::npos;
    if (tuned && file.path().extension() == ".csv") paths.push_back(file.path().string());
  }
  ASSERT_FALSE(paths.empty());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(soak() ? 600 : 8);
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    if (std::chrono::steady_clock::now() > end) break;
    auto file = read_tuned_csv(path);
    ASSERT_TRUE(file.ok()) << file.message();
    if (!file->schema().dispatched || (!soak() && file->entries.size() > 700)) continue;
    const OperationForm operation = file->schema().operation;
    const std::string text = *file->document.content;
    expect_read_write_read(text, operation);
    expect_fix_keeps_answers(parsed_tuned(path, text, operation), generator);
    expect_compress_keeps_answers(parsed_tuned(path, text, operation), generator);
  }
}

/// A config of vLLM's or SGLang's, with gaps, ties, doubled keys and null buckets.
std::string nearest_config(Generator& generator) {
  std::string text;
  const std::vector<std::string> keys{"1", "2", "8", "16", "17", "24", "64", "128", "4096", "01", " 3", "-4"};
  const std::uint64_t count = 1 + generator.below(8);
  for (std::uint64_t index = 0; index < count; ++index) {
    text += fmt::format("{}\"{}\": ", index == 0 ? "{" : ", ", generator.pick(keys));
    text += generator.one_in(8) ? "null" : fmt::format("{{\"BLOCK_SIZE_M\": {}}}", 16 << generator.below(3));
  }
  return text + "}";
}

/// What a config answers at an M: "none", "null", or its parameters.
std::string config_at(const TritonFile& file, std::int64_t m) {
  const auto match = find_bucket(file, m, triton_bounds(file.name.family));
  if (!match) return "none";
  return match->bucket->is_null ? "null" : triton_config_text(match->bucket->config);
}

void expect_same_answers(const TritonFile& before, const TritonFile& after) {
  for (const std::int64_t middle :
       {1, 4, 8, 16, 17, 31, 32, 64, 128, 255, 256, 320, 512, 1023, 1024, 2048, 2112, 4096, 8192, 100000}) {
    for (std::int64_t m = std::max<std::int64_t>(1, middle - 4); m <= middle + 4; ++m)
      ASSERT_EQ(config_at(before, m), config_at(after, m)) << "M = " << m;
  }
}

TEST(Properties, AConfigAnswersAsBeforeWhereNothingIsLeftOut) {
  std::size_t whole = 0;
  for_many_seeds([&](Generator& generator) {
    const bool nearest = generator.one_in(2);
    std::string text = nearest ? nearest_config(generator) : generator.triton_config();
    if (generator.one_in(3)) text = generator.damaged(text);
    const std::string name = nearest               ? "E=8,N=64,device_name=X.json"
                             : generator.one_in(3) ? "gfx950-MOE-FP8_W8A8.json"
                                                   : "gfx950-GEMM-AFP4WFP4_PRESHUFFLED-N=64-K=128.json";
    const auto before = parse_triton_json(name, text);
    if (!before.ok()) return;
    SCOPED_TRACE(text);
    const MergedConfigs merged = merge_triton_files(std::vector<TritonFile>{*before});
    expect_same_answers(*before, *parse_triton_json(name, write_triton_json(merged.files.front())));
    for (const char* to : {"triton_json", "vllm_json"}) {
      for (const std::optional<bool> thirds :
           {std::optional<bool>(), std::optional(false), std::optional(true)}) {
        ConversionOptions options;
        options.thirds = thirds;
        auto rows = read_triton_rows(name, text, options);
        ASSERT_TRUE(rows.ok()) << rows.message();
        const auto written = write_rows(**find_format(to), *rows, options);
        if (!written.ok()) continue;
        const auto after = parse_triton_json(name, *written);
        ASSERT_TRUE(after.ok()) << after.message() << *written;
        if (!rows->left_out.empty()) continue;
        ++whole;
        SCOPED_TRACE(*written);
        expect_same_answers(*before, *after);
      }
    }
  });
  if (!soak()) {
    EXPECT_GT(whole, 300U) << "conversions that leave nothing out";
  }
}

}  // namespace
}  // namespace gemmtune
