// std::bad_alloc at each allocation of the C functions: out of memory, with a sentence, and the context goes on.
// Also of the files behind them: JSON documents, errata, environment notes, the journal, capture's side store.
// Without oneDNN, which ends the process where it has no memory.
// Every single one; of a whole tuning with GEMMTUNE_SOAK=1, else the first hundred and every few percent behind
// them.
#include <fmt/format.h>
#include <gemmtune/tuning.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "capi/c_status.h"
#include "capi/c_support.h"
#include "evaluate/journal/journal.h"
#include "formats/aiter/environment_json.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/json.h"
#include "resolve/errata.h"
#include "resolve/row_environment.h"
#include "support/c_problem.h"
#include "support/captures.h"
#include "support/dispatch_allocation_count.h"
#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

using test::CProblem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t n = 16;
constexpr std::int64_t k = 32;

long next_number(long number) {
  if (std::getenv("GEMMTUNE_SOAK") != nullptr || number < 100) return number + 1;
  return number + number / 25;
}

Problem plain_problem(std::int64_t m) {
  Problem problem = default_problem(Operation::a16w16);
  problem.x_type = problem.w_type = problem.y_type = DataType::f32;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

class FailingAllocations : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("GEMMTUNE_LIBRARY_DIR", "/none", 1);  // no oneDNN
    ::setenv("GEMMTUNE_SHIPPED", "0", 1);          // each allocation is a call of its own
    DeviceRequest request;
    request.text = "cpu";
    request.threads = 2;
    auto device = open_device("cpu", request);  // the vendors' libraries are loaded once in a process
    ASSERT_TRUE(known_errata().status.ok());    // and the errata are read once
    ASSERT_TRUE(device.ok()) << device.message();
    info_ = (*device)->info();
    for (auto& value : x_) value = 1;
    for (auto& value : w_) value = 2;
  }

  /// A tuned file with a row for each M from 1 on.
  std::string tuned_file(const std::vector<std::string>& kernels) {
    std::vector<TunedEntry> rows;
    for (const std::string& kernel : kernels) {
      TunedEntry row;
      row.gfx = info_.gfx;
      row.cu_num = info_.cu_num;
      row.problem = plain_problem(static_cast<std::int64_t>(rows.size()) + 1);
      row.kernel_name = kernel;
      row.libtype = family_of_kernel_name(kernel).value_or("");
      row.us = 50;
      rows.push_back(std::move(row));
    }
    return folder_.write("tuned.csv", write_tuned_csv(Operation::a16w16, rows, CsvSchema::aiter));
  }
  gemmtune_context_options options(const gemmtune_tuned_files& files) {
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.config_folder = config_.c_str();
    options.backend = "cpu";
    options.threads = 2;
    options.tuned_files = &files;
    options.tuned_file_count = 1;
    return options;
  }
  gemmtune_context* open(const gemmtune_context_options& options) {
    gemmtune_context* context = nullptr;
    EXPECT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
    return context;
  }
  gemmtune_operands operands() {
    gemmtune_operands given{};
    given.size = sizeof given;
    given.x = x_;
    given.w = w_;
    given.y = y_;
    return given;
  }
  /// A call that is right.
  void expect_usable(gemmtune_context* context, std::int64_t m) {
    const CProblem asked(plain_problem(m));
    const gemmtune_operands given = operands();
    for (auto& value : y_) value = -1;
    ASSERT_EQ(gemmtune_gemm(context, asked.get(), &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
    for (std::int64_t i = 0; i < m * n; ++i) ASSERT_EQ(y_[i], 2 * k) << i;
  }
  /// `call` while one of its allocations fails (`always`: and all behind it), for each of them: out of memory and a
  /// sentence. Then it succeeds.
  void sweep(const std::string& what, bool always, const std::function<gemmtune_status()>& call,
             const std::function<void()>& then) {
    for (long number = 1;; ++number) {
      test::fail_allocations(number, always);
      const gemmtune_status status = call();
      const long failed = test::stop_failing();
      const std::string place = fmt::format("{}, allocation {}{}", what, number, always ? " and on" : "");
      if (failed == 0 || (may_do_without_ && status == GEMMTUNE_OK)) {
        EXPECT_EQ(status, GEMMTUNE_OK) << place << ": " << gemmtune_last_error();
        if (number > 1) ++swept_;
        return;
      }
      EXPECT_EQ(status, GEMMTUNE_OUT_OF_MEMORY) << place << ": " << gemmtune_last_error();
      EXPECT_THAT(gemmtune_last_error(), HasSubstr("memory")) << place;
      then();
      if (HasFailure()) FAIL() << place;
    }
  }

  test::TemporaryFolder folder_;
  std::string config_ = folder_.file("config");
  DeviceInfo info_;
  int swept_ = 0;                // calls that allocate
  bool may_do_without_ = false;  // verification is left out where it has no memory
  alignas(64) float x_[32 * k] = {};
  alignas(64) float w_[n * k] = {};
  alignas(64) float y_[32 * n] = {};
};

TEST_F(FailingAllocations, OfAContext) {
  const std::string path = tuned_file({"tiled_r1", "reference_r1", "skinny_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  gemmtune_context_options asked = options(files);
  asked.capture = 1;
  for (const bool always : {false, true}) {
    gemmtune_context* context = nullptr;
    sweep(
        "gemmtune_context_create", always, [&] { return gemmtune_context_create(&asked, &context); },
        [&] { EXPECT_EQ(context, nullptr); });
    expect_usable(context, 2);
    gemmtune_context_destroy(context);
  }
  EXPECT_EQ(swept_, 2);
}

/// Without memory contexts still end.
TEST_F(FailingAllocations, OfTheEndOfAContext) {
  const std::string path = tuned_file({"reference_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  gemmtune_context_options asked = options(files);
  asked.capture = 1;
  for (const std::int64_t m : {1, 2, 3}) {
    gemmtune_context* const context = open(asked);
    expect_usable(context, m);
    test::fail_allocations(m, true);
    gemmtune_context_destroy(context);
    (void)test::stop_failing();
  }
}

TEST_F(FailingAllocations, OfPlansAndOneCalls) {
  const std::string path = tuned_file({"reference_r1", "tiled_r1", "skinny_r1", "nonsense_r1", "tiled_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  for (const bool verify : {false, true}) {
    may_do_without_ = verify;
    gemmtune_context_options asked = options(files);
    asked.verify_untuned = verify ? 1 : 0;
    asked.log_config = 1;
    asked.capture = 1;
    asked.log = [](void*, int, const char*) {};
    gemmtune_context* const context = open(asked);
    expect_usable(context, 1);
    for (std::int64_t m = 2; m < 18; ++m) {  // those above 5 have no row
      const CProblem problem(plain_problem(m));
      gemmtune_plan* plan = nullptr;
      const auto plan_it = [&] { return gemmtune_plan_create(context, problem.get(), &plan); };
      const auto run_it = [&] {
        const gemmtune_operands given = operands();
        return gemmtune_gemm(context, problem.get(), &given, nullptr);
      };
      const auto usable = [&] { expect_usable(context, 1); };
      if (m % 2 == 0) {
        sweep(fmt::format("gemmtune_plan_create, m = {}", m), m % 4 == 0, plan_it, [&] {
          EXPECT_EQ(plan, nullptr);
          usable();
        });
        gemmtune_plan_release(plan);
      }
      sweep(fmt::format("gemmtune_gemm, m = {}", m), m % 4 == 1, run_it, usable);
      expect_usable(context, m);
      if (HasFailure()) return;
    }
    gemmtune_counters counters{};
    counters.size = sizeof counters;
    EXPECT_EQ(gemmtune_context_counters(context, &counters), GEMMTUNE_OK);
    EXPECT_EQ(counters.plans_made, 17U) << "one a problem";
    gemmtune_context_destroy(context);
  }
  EXPECT_GT(swept_, 32);
}

/// More plans than the cache keeps: what a failure leaves in it must not add up.
TEST_F(FailingAllocations, OfAFullPlanCache) {
  const std::string path = tuned_file({"reference_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  gemmtune_context* const context = open(options(files));
  for (std::int64_t m = 1; m < 6000; ++m) {
    Problem problem = plain_problem(1);
    problem.n = m;
    const CProblem asked(problem);
    gemmtune_plan* plan = nullptr;
    const bool fails = m % 3 == 0;
    if (fails) test::fail_allocations(1 + m % 97, false);
    const gemmtune_status status = gemmtune_plan_create(context, asked.get(), &plan);
    const long failed = test::stop_failing();
    ASSERT_EQ(status, failed > 0 ? GEMMTUNE_OUT_OF_MEMORY : GEMMTUNE_OK) << m << gemmtune_last_error();
    gemmtune_plan_release(plan);
  }
  expect_usable(context, 1);
  gemmtune_context_destroy(context);
}

TEST_F(FailingAllocations, OfTheOtherCallsOfAContext) {
  const std::string path = tuned_file({"reference_r1", "tiled_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  gemmtune_context_options asked = options(files);
  asked.log = [](void*, int, const char*) {};
  Problem weight = plain_problem(1);
  weight.x_type = weight.w_type = weight.y_type = DataType::bf16;
  const CProblem problem(weight);
  const std::string online = folder_.file("online.csv");
  gemmtune_miss_handler handler{};
  handler.size = sizeof handler;
  handler.missed = [](void*, const gemmtune_miss*) { return std::int32_t{0}; };
  handler.release = [](void* count) { ++*static_cast<int*>(count); };
  handler.file = online.c_str();
  for (const bool always : {false, true}) {
    gemmtune_context* const context = open(asked);
    const auto each = [&](const std::string& what, const std::function<gemmtune_status()>& call) {
      sweep(what, always, call, [&] { expect_usable(context, 1); });
    };
    int released = 0;
    handler.handler_context = &released;
    std::size_t bytes = 0;
    gemmtune_layout layout = GEMMTUNE_LAYOUT_PLAIN;
    std::vector<char> text(10000);
    each("reload", [&] { return gemmtune_context_reload(context); });
    each("sources", [&] { return gemmtune_context_sources(context, text.data(), text.size(), nullptr); });
    each("weight_layout", [&] { return gemmtune_weight_layout(context, problem.get(), &layout); });
    gemmtune_scales scales{};
    scales.size = sizeof scales;
    each("problem_scales", [&] { return gemmtune_problem_scales(problem.get(), &scales); });
    each("set_miss_handler", [&] { return gemmtune_context_set_miss_handler(context, &handler); });
    EXPECT_EQ(released, 0) << "released although it was not taken";
    each("reload_online", [&] { return gemmtune_context_reload_online(context); });
    each("log", [&] { return gemmtune_context_log(context, 1, "a line"); });
    for (const gemmtune_layout packed : {0x1001}) {  // panel16
      each("packed_weight_bytes",
           [&] { return gemmtune_packed_weight_bytes(context, problem.get(), packed, &bytes); });
      std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64),
                                                         &std::free);
      each("pack_weight",
           [&] { return gemmtune_pack_weight(context, problem.get(), packed, w_, memory.get()); });
      each("unpack_weight",
           [&] { return gemmtune_unpack_weight(context, problem.get(), packed, memory.get(), x_); });
      for (auto& value : x_) value = 1;
    }
    gemmtune_context_destroy(context);
    EXPECT_EQ(released, 1);
    if (HasFailure()) return;
  }
}

/// The problem of a miss that could not be reported is reported by the next call.
TEST_F(FailingAllocations, OfAMiss) {
  const std::string path = tuned_file({"reference_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  gemmtune_context* const context = open(options(files));
  int misses = 0;
  gemmtune_miss_handler handler{};
  handler.size = sizeof handler;
  handler.missed = [](void* count, const gemmtune_miss*) {
    return ++*static_cast<int*>(count), std::int32_t{0};
  };
  handler.handler_context = &misses;
  ASSERT_EQ(gemmtune_context_set_miss_handler(context, &handler), GEMMTUNE_OK) << gemmtune_last_error();
  for (const bool always : {false, true}) {
    const CProblem problem(plain_problem(always ? 9 : 8));
    gemmtune_plan* plan = nullptr;
    sweep(
        "a miss", always, [&] { return gemmtune_plan_create(context, problem.get(), &plan); }, [] {});
    gemmtune_plan_release(plan);
    EXPECT_EQ(misses, always ? 2 : 1);
  }
  gemmtune_context_destroy(context);
}

TEST_F(FailingAllocations, OfOnlineTuning) {
  const std::string path = tuned_file({"reference_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  const std::string online = folder_.file("online.csv");
  gemmtune_online_options asked{};
  asked.size = sizeof asked;
  asked.file = online.c_str();
  asked.budget_milliseconds = 50;
  for (const bool always : {false, true}) {
    gemmtune_context* const context = open(options(files));
    sweep(
        "gemmtune_enable_online_tuning", always,
        [&] { return gemmtune_enable_online_tuning(context, &asked); }, [&] { expect_usable(context, 1); });
    gemmtune_context_destroy(context);
  }
  EXPECT_EQ(swept_, 2);
}

/// The threads behind a context, that of capture and that of online tuning, survive without memory; what could
/// not be written then is written afterwards.
TEST_F(FailingAllocations, OfThreadsBehindAContext) {
  const std::string path = tuned_file({"reference_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  gemmtune_context_options with_capture = options(files);
  with_capture.capture = 1;
  const std::string online = folder_.file("online.csv");
  gemmtune_online_options asked{};
  asked.size = sizeof asked;
  asked.file = online.c_str();
  asked.budget_milliseconds = 200;
  gemmtune_context* const context = open(with_capture);
  expect_usable(context, 1);
  ASSERT_EQ(gemmtune_enable_online_tuning(context, &asked), GEMMTUNE_OK) << gemmtune_last_error();
  {
    const test::NoMemoryForOtherThreads none;
    for (std::int64_t m = 2; m < 12; ++m) expect_usable(context, m);
    for (int i = 0; i < 2400 && test::NoMemoryForOtherThreads::failed() < 2; ++i) usleep(50'000);
    EXPECT_GE(test::NoMemoryForOtherThreads::failed(), 2);
  }
  expect_usable(context, 12);
  ASSERT_EQ(gemmtune_capture_flush(context), GEMMTUNE_OK) << gemmtune_last_error();
  gemmtune_context_destroy(context);
  const auto capture = read_capture(config_ + "/bf16_untuned_gemm.csv", Operation::a16w16);
  ASSERT_TRUE(capture.ok()) << capture.message();
  std::uint64_t calls = 0;
  for (const CapturedProblem& one : capture->problems) calls += one.calls;
  EXPECT_EQ(calls, 12U);
}

TEST_F(FailingAllocations, OfTheDefaultContext) {
  ::setenv("GEMMTUNE_CONFIG_DIR", config_.c_str(), 1);
  ::setenv("GEMMTUNE_NUM_THREADS", "2", 1);
  const std::filesystem::path tuned = tuned_file({"reference_r1"});
  const std::string shipped = folder_.path() + "/shipped";
  std::filesystem::create_directory(shipped);
  std::filesystem::copy_file(tuned, shipped + "/one_bf16_tuned_gemm.csv");
  ::setenv("GEMMTUNE_SHIPPED", shipped.c_str(), 1);
  gemmtune_context* context = nullptr;
  sweep(
      "gemmtune_default_context", false, [&] { return gemmtune_default_context(&context); },
      [&] { EXPECT_EQ(context, nullptr); });
  expect_usable(nullptr, 3);
  for (const char* name : {"GEMMTUNE_CONFIG_DIR", "GEMMTUNE_NUM_THREADS"}) ::unsetenv(name);
}

/// Documents of all kinds of values, made from a text, by initializer lists and by members of a null.
template <typename Document>
std::string made_and_printed(const std::string& text) {
  const Document read = Document::parse(text);
  Document made{{"list", {1, 2.5, nullptr, "a text that is too long for a small string"}},
                {"object", {{"deeper", {{"still", true}, {"and", {"one", "more"}}}}}}};
  Document from_null;
  from_null["a"]["b"]["c"] = made;
  from_null["d"].push_back(read);
  from_null["d"].push_back(std::vector<std::string>{"two texts, each of them", "longer than fifteen bytes"});
  made.update(from_null);
  for (const auto& [name, value] : read.items()) made[name + " again"] = value;
  return json_document(made);
}

TEST_F(FailingAllocations, OfJsonDocuments) {
  const std::string text =
      R"({"a": [1, [2, {"b": "a text of more than fifteen bytes", "c": [[], {}, [[["deep"]]]]}]], "d": null})";
  std::string broken = text;
  broken.pop_back();
  for (const bool always : {false, true}) {
    const auto each = [&](const char* what, const std::function<gemmtune_status()>& call) {
      sweep(
          what, always, [&] { return c::guarded(call); }, [] {});
    };
    each("parse_json", [&] { return parse_json(text).is_object() ? GEMMTUNE_OK : GEMMTUNE_INTERNAL; });
    each("parse_json, no JSON",
         [&] { return parse_json(broken).is_discarded() ? GEMMTUNE_OK : GEMMTUNE_INTERNAL; });
    each("parse_json_object", [&] { return c::report(parse_json_object("text", text).status()); });
    each("parse_json_object, no JSON",
         [&] { return parse_json_object("text", broken).ok() ? GEMMTUNE_INTERNAL : GEMMTUNE_OK; });
    each("Json", [&] { return made_and_printed<Json>(text).empty() ? GEMMTUNE_INTERNAL : GEMMTUNE_OK; });
    each("OrderedJson",
         [&] { return made_and_printed<OrderedJson>(text).empty() ? GEMMTUNE_INTERNAL : GEMMTUNE_OK; });
  }
  EXPECT_EQ(swept_, 12);
}

TEST_F(FailingAllocations, OfErrata) {
  const std::string place = folder_.path() + "/errata";
  for (int i = 0; i < 3; ++i) {
    std::string text(shipped_errata().front().text);
    const std::string_view name = "cublaslt-split-k-tail";
    ASSERT_NE(text.find(name), std::string::npos);
    text.replace(text.find(name), name.size(), fmt::format("ours-{}", i));
    (void)folder_.write(fmt::format("errata/{}.json", i), text);
  }
  for (const bool always : {false, true}) {
    sweep(
        "load_errata", always,
        [&] {
          return c::guarded([&] {
            const KnownErrata known = load_errata(place);
            if (known.status.ok() && known.errata.size() != shipped_errata().size() + 3)
              return GEMMTUNE_INTERNAL;
            return c::report(known.status);
          });
        },
        [] {});
  }
  EXPECT_EQ(swept_, 2);
}

/// Each failure leaves the file as it was, or with all that was merged.
TEST_F(FailingAllocations, OfEnvironmentNotes) {
  const std::string tuned = tuned_file({"reference_r1"});
  const EnvironmentObjects first{{"aaaa", R"({"device":"one","libraries":{"onednn":"3.5","mkl":"2024.1"}})"}};
  for (const bool always : {false, true}) {
    std::filesystem::remove(environment_path(tuned));
    ASSERT_TRUE(merge_environment_json(tuned, first).ok());
    const EnvironmentObjects more{{"aaaa", R"({"observations":{"sm_clock_mhz":1980}})"},
                                  {"bbbb", R"({"device":"two","families":["tiled","reference"]})"}};
    sweep(
        "merge_environment_json", always,
        [&] { return c::guarded([&] { return c::report(merge_environment_json(tuned, more)); }); },
        [&] {
          const auto file = read_environment_json(tuned);
          ASSERT_TRUE(file.ok()) << file.message();
          EXPECT_THAT(file->objects.at("aaaa"), HasSubstr("onednn"));
          EXPECT_FALSE(std::filesystem::exists(environment_path(tuned) + ".damaged"));
        });
    sweep(
        "read_environment_json", always,
        [&] { return c::guarded([&] { return c::report(EnvironmentNotes::read(tuned).status()); }); }, [] {});
    const auto file = read_environment_json(tuned);
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_EQ(file->objects.size(), 2U);
    EXPECT_THAT(file->objects.at("aaaa"), AllOf(HasSubstr("onednn"), HasSubstr("1980")));
  }
  EXPECT_EQ(swept_, 4);
}

/// What a call that failed had not written is written by the next; nothing is there twice, nothing by half.
TEST_F(FailingAllocations, OfTheJournal) {
  const RunText run_text{"request", "gemmtune tune -m 3", "policy", "env", "cpu 2 model"};
  const Problem problem = plain_problem(3);
  JournaledOutcome outcome;
  outcome.candidate = "tiled_r1_mr8_nr32";
  outcome.source = "a source that is longer than fifteen bytes";
  outcome.outcome.microseconds = {1.5, 2.5, 3.5};
  outcome.outcome.err_ratio = 0;
  JournaledOutcome failure = outcome;
  failure.stage = JournalStage::finals;
  failure.outcome =
      failed_outcome(OutcomeKind::crashed, "it crashed with signal 11, and this is a long text");
  JournaledFinals finals{{outcome.candidate, failure.candidate}, 2, {}};
  finals.result.outcomes = {outcome.outcome, failure.outcome};
  for (const bool always : {false, true}) {
    const std::string path = folder_.file(always ? "always.journal" : "once.journal");
    std::optional<Journal> journal;
    std::int64_t run = 0;
    std::int64_t id = 0;
    std::size_t written = 0;  // rows of `outcomes`
    const auto each = [&](const char* what, const std::function<Status()>& call) {
      sweep(
          what, always, [&] { return c::guarded([&] { return c::report(call()); }); },
          [&] {
            if (id == 0) return;
            const auto rows = journal->outcomes(id);
            const auto calls = journal->finals(id);
            ASSERT_TRUE(rows.ok()) << rows.message();
            ASSERT_TRUE(calls.ok()) << calls.message();
            EXPECT_EQ(rows->size(), written) << "a failed call left a row";
          });
    };
    each("open", [&] {
      auto opened = Journal::open(path);
      if (opened.ok()) journal = std::move(*opened);
      return opened.status();
    });
    ASSERT_TRUE(journal.has_value());
    each("begin_run", [&] {
      const auto begun = journal->begin_run(run_text, true);
      if (begun.ok()) run = begun->id;
      return begun.status();
    });
    std::int64_t made = 0;
    each("add_problem", [&] {
      const auto added = journal->add_problem(run, problem, "reference_r1");
      if (added.ok()) made = *added;
      return added.status();
    });
    id = made;
    each("add an outcome", [&] { return journal->add(id, outcome); });
    written = 1;
    each("add finals", [&] { return journal->add(id, finals, {failure}); });
    written = 2;
    each("outcomes", [&] { return journal->outcomes(id).status(); });
    each("finals", [&] { return journal->finals(id).status(); });
    each("undecided", [&] { return journal->undecided(run, problem).status(); });
    each("hints", [&] { return journal->hints("cpu 2 model", problem, 3).status(); });
    each("set_reference", [&] { return journal->set_reference(id, 2.5); });
    each("add a decision", [&] {
      return journal->add(run, problem, {"tuned", "", "tiled_r1", 1.5, 2, "faster"});
    });
    each("end_run", [&] { return journal->end_run(run, true); });
    const auto all = journal->outcomes(id);
    ASSERT_TRUE(all.ok()) << all.message();
    ASSERT_EQ(all->size(), 2U);
    EXPECT_EQ(all->front().outcome.microseconds, outcome.outcome.microseconds);
    EXPECT_EQ(journal->finals(id)->size(), 1U);
  }
  EXPECT_GE(swept_, 20);
}

/// Every call is counted once, whatever failed while the counts were written.
TEST_F(FailingAllocations, OfCaptureFlush) {
  const std::string path = tuned_file({"reference_r1"});
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  gemmtune_context_options asked = options(files);
  asked.capture = 1;
  std::uint64_t called = 0;
  const auto call = [&](gemmtune_context* context, std::int64_t m) {
    expect_usable(context, m);
    ++called;
  };
  for (const bool always : {false, true}) {
    gemmtune_context* const context = open(asked);
    for (std::int64_t m = 1; m < 8; ++m) call(context, m);
    int calls = 0;
    sweep(
        "gemmtune_capture_flush", always, [&] { return gemmtune_capture_flush(context); },
        [&] { call(context, 1 + calls++ % 20); });
    ASSERT_EQ(gemmtune_capture_flush(context), GEMMTUNE_OK) << gemmtune_last_error();
    gemmtune_context_destroy(context);
    const auto capture = read_capture(config_ + "/bf16_untuned_gemm.csv", Operation::a16w16);
    ASSERT_TRUE(capture.ok()) << capture.message();
    std::uint64_t counted = 0;
    for (const CapturedProblem& one : capture->problems) counted += one.calls;
    EXPECT_EQ(counted, called);
  }
  EXPECT_EQ(swept_, 2);
}

/// Out of memory ends a tuning with a status, or costs a candidate; rows that were there stay.
TEST_F(FailingAllocations, OfATuning) {
  const std::string output = tuned_file({"reference_r1", "reference_r1"});
  const CProblem problem(plain_problem(4));
  gemmtune_tuning_options asked{};
  asked.size = sizeof asked;
  asked.problems = problem.get();
  asked.problem_count = 1;
  asked.output = output.c_str();
  asked.backend = "cpu";
  asked.threads = 1;
  asked.all = 1;
  asked.libtypes = "reference";
  asked.confirmations = 1;
  gemmtune_tuning_summary summary{};
  const auto tune = [&] {
    summary = {};
    summary.size = sizeof summary;
    return gemmtune_tune(&asked, &summary);
  };
  ASSERT_EQ(tune(), GEMMTUNE_OK) << gemmtune_last_error();  // what is known once is known
  const long before = test::allocations();
  ASSERT_EQ(tune(), GEMMTUNE_OK) << gemmtune_last_error();
  const long count = test::allocations() - before;
  EXPECT_EQ(summary.failed, 0);
  ASSERT_GT(count, 500);
  int ended = 0;
  for (const bool always : {false, true}) {
    for (long number = 1; number < count && !HasFailure(); number = next_number(number)) {
      const std::string place = fmt::format("allocation {}{}", number, always ? " and on" : "");
      test::fail_allocations(number, always);
      const gemmtune_status status = tune();
      const long failed = test::stop_failing();
      if (status != GEMMTUNE_OK) {
        ++ended;
        EXPECT_EQ(status, GEMMTUNE_OUT_OF_MEMORY) << place << ": " << gemmtune_last_error();
        EXPECT_THAT(gemmtune_last_error(), HasSubstr("memory")) << place;
      }
      EXPECT_TRUE(status == GEMMTUNE_OK || failed > 0) << place;
      const auto rows = read_tuned_csv(output);
      ASSERT_TRUE(rows.ok()) << place << rows.message();
      EXPECT_EQ(rows->entries.size(), 3U) << place;
      EXPECT_TRUE(read_environment_json(output).ok()) << place;
      for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
        EXPECT_THAT(file.path().string(), Not(AnyOf(HasSubstr(".tmp"), HasSubstr(".damaged")))) << place;
      }
    }
  }
  EXPECT_GT(ended, 100);
  EXPECT_EQ(tune(), GEMMTUNE_OK) << gemmtune_last_error();
}

}  // namespace
}  // namespace gemmtune
