// No look-up changes through audit --fix, merge of one file, or a conversion that says "nothing left out": of every table and
// Triton config of the fixtures and of tests/data, and of ones that were changed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>

#include "base/file.h"
#include "formats/aiter/merge_tables.h"
#include "formats/aiter/table_audit.h"
#include "formats/all_formats.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/bucket_sets.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_lookup.h"
#include "mutated_files.h"
#include "support/fixtures.h"
#include "support/thoroughness.h"
#include "tuned/checks.h"
#include "tuned/groups.h"
#include "tuned/range_rows.h"
#include "tuned/table.h"

namespace gemmtune::lookups_kept_test {
namespace {

using test::Generator;

constexpr std::size_t wanted_files = 300;

struct Source {
  std::string path;
  std::string text;
};

/// The files of the folder and of its folders that `is_wanted` takes by their names, in one order everywhere.
void add_sources(const std::string& folder, bool (*is_wanted)(const std::string&),
                 std::vector<Source>& sources) {
  std::set<std::string> paths;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (file.is_regular_file() && is_wanted(file.path().filename().string()))
      paths.insert(file.path().string());
  }
  for (const std::string& path : paths) {
    auto content = read_file(path);
    ASSERT_TRUE(content.ok()) << content.message();
    sources.push_back({path, std::move(*content)});
  }
}

bool is_table(const std::string& name) {
  return name.ends_with(".csv") && name.find("tuned") != std::string::npos &&
         name.find("untuned") == std::string::npos;
}

bool is_config(const std::string& name) { return name.ends_with(".json"); }

/// Of the fixtures, where they are, and of this repository.
std::vector<Source> sources_of(bool (*is_wanted)(const std::string&),
                               std::initializer_list<const char*> own_folders) {
  std::vector<Source> sources;
  if (const std::string fixtures = fixture_folder(); !fixtures.empty())
    add_sources(fixtures, is_wanted, sources);
  for (const char* own : own_folders)
    add_sources(std::string(GEMMTUNE_TEST_DATA "/") + own, is_wanted, sources);
  return sources;
}

/// Calls `once` with each source as it is, then with changed ones until it was true for wanted_files of them; with GEMMTUNE_SOAK=1
/// for ten minutes. The seed of a failure is in its message; GEMMTUNE_SEED begins with another. The number of files taken.
std::size_t for_many_files(const std::vector<Source>& sources,
                           const std::function<bool(Generator&, const Source&, bool)>& once) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(600);
  const char* given = std::getenv("GEMMTUNE_SEED");
  std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  std::size_t taken = 0;
  Generator whole(seed);
  for (const Source& source : sources) {
    SCOPED_TRACE(source.path);
    taken += once(whole, source, false) ? 1 : 0;
    if (::testing::Test::HasFailure()) return taken;
  }
  for (; test::is_soak() ? std::chrono::steady_clock::now() < end : taken < wanted_files; ++seed) {
    Generator generator(seed);
    const Source& source = generator.pick(sources);
    SCOPED_TRACE(fmt::format("GEMMTUNE_SEED={} {}", seed, source.path));
    taken += once(generator, source, true) ? 1 : 0;
    if (::testing::Test::HasFailure()) return taken;
  }
  return taken;
}

/// The devices that a row may answer. `every_amd`: of a row without gfx also those that its cu_num does not stand for.
std::vector<std::string> devices_of(const TunedEntry& row, bool every_amd) {
  const std::string own(row.gfx.empty() ? gfx_of_cu_num(row.cu_num) : std::string_view(row.gfx));
  std::vector<std::string> devices{own.empty() ? std::string("gfx942") : own};
  if (every_amd && row.gfx.empty()) devices.insert(devices.end(), {"gfx1250", "gfx950"});
  return devices;
}

/// Every look-up whose answer a row of the table may be: each key of the table at the M where its answers change and at each
/// row's neighbours; of a mixture also those of an activation that no row has.
std::vector<LookupKey> look_ups_of(const std::vector<TunedEntry>& entries, bool every_amd) {
  std::vector<LookupKey> asked;
  const Rows rows = rows_of(entries);
  for (const Rows& group : rows_by_group(rows)) {
    const TunedEntry& row = *group.front();
    std::set<std::int64_t> tokens;
    for (const std::int64_t change : answer_changes(group)) tokens.insert({change - 1, change});
    for (const TunedEntry* one : group) {
      const std::int64_t m = one->problem.m;
      tokens.insert({m - 1, m, m + 1, m / 2 + 1, 2 * m});
    }
    if (is_mixture(row.problem)) tokens.insert({32767, 32768, 40000, 131071, 131072, 200000});
    for (const std::string& device : devices_of(row, every_amd)) {
      // Devices are asked for without features, and those of no compute units not at all.
      if (device.find(':') != std::string::npos || row.cu_num < 1) continue;
      LookupKey key{device, row.cu_num, row.problem, row.unknown_types};
      for (const std::int64_t m : tokens) {
        key.problem.m = m;
        key.problem.moe.activation = row.problem.moe.activation;
        if (m < 1 || m > max_dimension || !check_asked(key.problem).ok()) continue;
        asked.push_back(key);
        if (!is_mixture(row.problem)) continue;
        key.problem.moe.activation = Activation::situv2;
        asked.push_back(key);
      }
    }
  }
  return asked;
}

std::string text_of(const LookupHits& hits) {
  std::string text;
  for (const LookupHit& hit : hits) {
    text += fmt::format("{} M={} {} {} {} µs (line {}); ", to_string(hit.match), hit.hit_m,
                        hit.entry->libtype, hit.entry->kernel_name, hit.entry->us, hit.entry->line);
  }
  return text.empty() ? "no row" : text;
}

/// All hits: dispatch takes the second where it cannot run the first.
bool same_hits(const LookupHits& a, const LookupHits& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const LookupHit& one, const LookupHit& other) {
    return one.match == other.match && one.hit_m == other.hit_m && same_winner(*one.entry, *other.entry);
  });
}

struct Answers {
  explicit Answers(const std::vector<TunedEntry>& entries)
      : table(entries), asked(look_ups_of(entries, true)), asked_by_cu_num(look_ups_of(entries, false)) {}
  TunedTable table;
  std::vector<LookupKey> asked;
  std::vector<LookupKey> asked_by_cu_num;

  void expect_kept_by(const std::vector<LookupKey>& keys, std::vector<TunedEntry> entries) const {
    const TunedTable after(std::move(entries));
    for (const LookupKey& key : keys) {
      const LookupHits expected = table.lookup(key);
      const LookupHits answered = after.lookup(key);
      ASSERT_TRUE(same_hits(expected, answered))
          << print(key.problem) << " of " << key.gfx << " cu_num " << key.cu_num
          << "\nbefore: " << text_of(expected) << "\nafter: " << text_of(answered);
    }
  }
};

TunedFile parsed(const std::string& path, const std::string& text, OperationForm operation) {
  auto file = parse_tuned_csv(path, text, {.operation = operation});
  EXPECT_TRUE(file.ok()) << file.message() << "\n" << text;
  return file.ok() ? std::move(*file) : TunedFile();
}

void expect_fix_keeps_answers(const Answers& answers, std::vector<TunedFile>& files) {
  const auto findings = audit_tables(files, {});
  const FixedTable fixed = fix_table(files[0], 0, findings, {});
  SCOPED_TRACE("audit --fix:\n" + fixed.text.substr(0, 20000));
  answers.expect_kept_by(answers.asked,
                         parsed(files[0].path, fixed.text, files[0].schema().operation).entries);
}

void expect_merge_keeps_answers(const Answers& answers, std::vector<TunedFile>& files) {
  const auto merged = merge_tables(files, {});
  ASSERT_TRUE(merged.ok()) << merged.message();
  if (!merged->left_out.empty()) return;  // rows of another packed layout, by name
  SCOPED_TRACE("merge:\n" + merged->text.substr(0, 20000));
  answers.expect_kept_by(answers.asked,
                         parsed(files[0].path, merged->text, files[0].schema().operation).entries);
}

/// The conversions that said "nothing left out". A row without gfx becomes one of the device that AITER takes its cu_num for.
std::size_t expect_conversions_keep_answers(const Answers& answers, const TunedFile& file,
                                            const std::string& text) {
  std::size_t whole = 0;
  ConversionOptions options;
  options.operation = file.schema().operation;
  for (const Format& format : all_formats()) {
    if (format.read == nullptr || format.write == nullptr || format.holds.sizes_only) continue;
    auto rows = read_aiter_rows(file.path, text, options);
    EXPECT_TRUE(rows.ok()) << rows.message();
    if (!rows.ok()) return whole;
    const auto written = write_rows(format, *rows, options);
    if (!written.ok() || !rows->left_out.empty()) continue;
    SCOPED_TRACE(fmt::format("convert --to {}:\n{}", format.name, written->substr(0, 20000)));
    const auto back = format.read(file.path, *written, options);
    EXPECT_TRUE(back.ok()) << back.message();
    if (!back.ok()) return whole;
    answers.expect_kept_by(answers.asked_by_cu_num, back->entries);
    if (::testing::Test::HasFailure()) return whole;
    ++whole;
  }
  return whole;
}

TEST(LookupsKept, ByFixMergeAndConversionsOfTables) {
  const auto sources = sources_of(is_table, {"tables", "lost", "audit", "tuned"});
  ASSERT_FALSE(sources.empty());
  std::size_t whole = 0;
  std::size_t look_ups = 0;
  const std::size_t taken =
      for_many_files(sources, [&](Generator& generator, const Source& source, bool mutate) {
        // The name of a changed file may be that of another table; the source's says whose it is.
        const auto original = parse_tuned_csv(source.path, source.text, {});
        if (!original.ok() || !original->schema().dispatched) return false;
        const OperationForm operation = original->schema().operation;
        const std::string text = mutate ? test::mutated_table(generator, source.text) : source.text;
        auto file = parse_tuned_csv(source.path, text, {.operation = operation});
        if (!file.ok() || !file->schema().dispatched || file->entries.empty()) return false;
        SCOPED_TRACE(mutate ? text : std::string("unchanged"));
        const Answers answers(file->entries);
        look_ups += answers.asked.size();
        std::vector<TunedFile> files;
        files.push_back(std::move(*file));
        expect_merge_keeps_answers(answers, files);
        whole += expect_conversions_keep_answers(answers, files[0], text);
        expect_fix_keeps_answers(answers, files);
        return true;
      });
  EXPECT_GE(taken, wanted_files);
  EXPECT_GT(whole, taken / 4) << "conversions that leave nothing out";
  EXPECT_GT(look_ups, 10 * taken);
  RecordProperty("tables", static_cast<int>(taken));
  RecordProperty("look_ups", static_cast<int>(look_ups));
  RecordProperty("conversions", static_cast<int>(whole));
}

/// What a config answers at an M: "none", "null", or its parameters.
std::string answer_at(const TritonFile& file, std::int64_t m) {
  const auto match = find_bucket(file, m, triton_bounds(file.name.family));
  if (!match) return "none";
  return match->bucket->is_null ? "null" : triton_config_text(match->bucket->config);
}

void add_changes(const TritonFile& file, std::set<std::int64_t>& tokens) {
  for (const BucketSpan& span : bucket_spans(file))
    tokens.insert({span.m_from - 1, span.m_from, span.m, std::min(span.m + 1, max_dimension)});
}

void expect_same_answers(const TritonFile& before, const TritonFile& after) {
  std::set<std::int64_t> tokens{2, 5, 100, 1000, 3000, 100000};
  add_changes(before, tokens);
  add_changes(after, tokens);
  for (const std::int64_t m : tokens) {
    if (m < 1) continue;
    ASSERT_EQ(answer_at(before, m), answer_at(after, m)) << "M = " << m;
  }
}

/// The conversions of a config that said "nothing left out".
std::size_t expect_conversions_keep_answers(const TritonFile& before, const std::string& text) {
  std::size_t whole = 0;
  for (const char* to : {"triton_json", "vllm_json"}) {
    for (const std::optional<bool> thirds :
         {std::optional<bool>(), std::optional(false), std::optional(true)}) {
      ConversionOptions options;
      options.thirds = thirds;
      auto rows = read_triton_rows(before.path, text, options);
      EXPECT_TRUE(rows.ok()) << rows.message();
      if (!rows.ok()) return whole;
      const auto written = write_rows(**find_format(to), *rows, options);
      if (!written.ok() || !rows->left_out.empty()) continue;
      SCOPED_TRACE(fmt::format("convert --to {}:\n{}", to, *written));
      const auto after = parse_triton_json(before.path, *written);
      EXPECT_TRUE(after.ok()) << after.message();
      if (!after.ok()) return whole;
      expect_same_answers(before, *after);
      if (::testing::Test::HasFailure()) return whole;
      ++whole;
    }
  }
  return whole;
}

TEST(LookupsKept, ByMergeAndConversionsOfConfigs) {
  const auto sources = sources_of(is_config, {"triton", "nearest", "lost"});
  ASSERT_FALSE(sources.empty());
  std::size_t whole = 0;
  const std::size_t taken = for_many_files(sources, [&](Generator& generator, const Source& source,
                                                        bool mutate) {
    auto original = parse_triton_json(source.path, source.text);
    if (!original.ok()) return false;
    test::MutatedConfig config{source.path, source.text};
    if (mutate) config = test::mutated_config(generator, std::move(*original));
    const auto before = parse_triton_json(config.path, config.text);
    if (!before.ok()) return false;
    SCOPED_TRACE(config.path + "\n" + config.text);
    const MergedConfigs merged = merge_triton_files(std::vector<TritonFile>{*before});
    expect_same_answers(*before, *parse_triton_json(config.path, write_triton_json(merged.files.front())));
    whole += expect_conversions_keep_answers(*before, config.text);
    return true;
  });
  EXPECT_GE(taken, wanted_files);
  EXPECT_GT(whole, taken / 4) << "conversions that leave nothing out";
  RecordProperty("configs", static_cast<int>(taken));
  RecordProperty("conversions", static_cast<int>(whole));
}

}  // namespace
}  // namespace gemmtune::lookups_kept_test
