// Compiling ahead: order, how many at once, what is given up, whose failure is whose. The compiler is a fake
// that waits for the test.
#include "backends/gpu/jit/compile_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>

#include "support/nvrtc.h"

namespace gemmtune::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

KeyedSource source_of(const std::string& text) { return {text, {text, text, {}, "kernel"}}; }

std::vector<KeyedSource> sources_of(const std::vector<std::string>& texts) {
  std::vector<KeyedSource> sources;
  for (const std::string& text : texts) sources.push_back(source_of(text));
  return sources;
}

/// Notes what it is given; holds everything until it is let go.
class GatedCompiler {
 public:
  Result<Binary> operator()(const Source& source) {
    std::unique_lock held(lock_);
    begun_.push_back(source.text);
    max_at_once_ = std::max(max_at_once_, ++running_);
    changed_.notify_all();
    changed_.wait(held, [&] { return open_; });
    --running_;
    if (source.text.starts_with("bad")) return Status::invalid("{} does not compile", source.text);
    return Binary{"code of " + source.text, ""};
  }
  void open() {
    const std::lock_guard held(lock_);
    open_ = true;
    changed_.notify_all();
  }
  /// Waits until so many were begun; false after ten seconds.
  bool wait_for(std::size_t begun) {
    std::unique_lock held(lock_);
    return changed_.wait_for(held, std::chrono::seconds(10), [&] { return begun_.size() >= begun; });
  }
  std::vector<std::string> begun() {
    const std::lock_guard held(lock_);
    return begun_;
  }
  int max_at_once() {
    const std::lock_guard held(lock_);
    return max_at_once_;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<std::string> begun_;
  int running_ = 0;
  int max_at_once_ = 0;
  bool open_ = false;
};

std::function<Result<Binary>(const Source&)> through(GatedCompiler& compiler) {
  return [&compiler](const Source& source) { return compiler(source); };
}

TEST(CompileQueue, CompilesInOrderAndNoMoreAtOnceThanItMay) {
  GatedCompiler compiler;
  CompileQueue queue(through(compiler), 3);
  queue.order(sources_of({"a", "b", "c", "d", "e"}));
  ASSERT_TRUE(compiler.wait_for(3));
  EXPECT_THAT(compiler.begun(), ::testing::UnorderedElementsAre("a", "b", "c"));
  compiler.open();
  for (const char* text : {"a", "b", "c", "d", "e"}) {
    const auto binary = queue.take(source_of(text));
    ASSERT_TRUE(binary.ok()) << binary.message();
    EXPECT_EQ(binary->code, std::string("code of ") + text);
  }
  // The three of the queue, and the thread that takes.
  EXPECT_LE(compiler.max_at_once(), 4);
  EXPECT_EQ(compiler.begun().size(), 5U);
}

TEST(CompileQueue, WhatHasNotBegunIsCompiledByWhoNeedsIt) {
  GatedCompiler compiler;
  CompileQueue queue(through(compiler), 1);
  queue.order(sources_of({"a", "b", "c"}));
  ASSERT_TRUE(compiler.wait_for(1));
  std::thread taker([&] { EXPECT_TRUE(queue.take(source_of("c")).ok()); });
  ASSERT_TRUE(compiler.wait_for(2));
  EXPECT_THAT(compiler.begun(), ElementsAre("a", "c"));
  compiler.open();
  taker.join();
  ASSERT_TRUE(queue.take(source_of("b")).ok());
  EXPECT_EQ(compiler.begun().size(), 3U);
}

TEST(CompileQueue, AnotherOrderGivesUpWhatHasNotBegun) {
  GatedCompiler compiler;
  {
    CompileQueue queue(through(compiler), 1);
    queue.order(sources_of({"a", "b", "c"}));
    ASSERT_TRUE(compiler.wait_for(1));
    queue.order(sources_of({"d"}));
    compiler.open();
    EXPECT_TRUE(queue.take(source_of("d")).ok());
    queue.order({});
  }
  EXPECT_THAT(compiler.begun(), ElementsAre("a", "d"));
}

TEST(CompileQueue, AFailureIsThatOfItsSource) {
  GatedCompiler compiler;
  compiler.open();
  CompileQueue queue(through(compiler), 2);
  queue.order(sources_of({"a", "bad one", "c", "bad two"}));
  EXPECT_TRUE(queue.take(source_of("a")).ok());
  EXPECT_THAT(queue.take(source_of("bad one")).message(), HasSubstr("bad one does not"));
  EXPECT_TRUE(queue.take(source_of("c")).ok());
  EXPECT_THAT(queue.take(source_of("bad two")).message(), HasSubstr("bad two does not"));
}

TEST(CompileQueue, EndsWithOrdersLeft) {
  GatedCompiler compiler;
  {
    CompileQueue queue(through(compiler), 2);
    queue.order(sources_of({"a", "b", "c", "d"}));
    ASSERT_TRUE(compiler.wait_for(2));
    compiler.open();
  }
  EXPECT_LE(compiler.begun().size(), 4U);
}

TEST(CompileQueue, ManyTakersAndOrders) {
  std::atomic<int> compiled{0};
  CompileQueue queue(
      [&](const Source& source) -> Result<Binary> {
        ++compiled;
        return Binary{source.text, ""};
      },
      3);
  std::vector<std::thread> takers;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    takers.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string text = std::to_string((i * (t + 1)) % 23);
        if (i % 7 == t) queue.order(sources_of({text, std::to_string(i % 23), "x"}));
        const auto binary = queue.take(source_of(text));
        if (binary.ok() && binary->code == text) ++right;
      }
    });
  }
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(right, 800);
  EXPECT_GE(compiled, 23);
}

// NVRTC from several threads gives what it gives from one.
TEST(CompileQueue, WithNvrtc) {
  GEMMTUNE_NEEDS_NVRTC(compiler);
  const auto source = [](int number) {
    const std::string text = "extern \"C\" __global__ void f(int* p) { *p = NUMBER; }\n";
    return Source{"number", text, {"NUMBER=" + std::to_string(number)}, "f"};
  };
  CompileQueue queue([&](const Source& each) { return compiler.compile(each, "sm_90a"); }, 3);
  std::vector<KeyedSource> sources;
  for (int i = 0; i < 12; ++i) sources.push_back({std::to_string(i), source(i)});
  queue.order(sources);
  std::set<std::string> codes;
  for (const KeyedSource& each : sources) {
    const auto binary = queue.take(each);
    ASSERT_TRUE(binary.ok()) << binary.message();
    codes.insert(binary->code);
  }
  EXPECT_EQ(codes.size(), 12U);
  const auto again = compiler.compile(source(11), "sm_90a");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(codes.count(again->code), 1U);
}

}  // namespace
}  // namespace gemmtune::gpu
