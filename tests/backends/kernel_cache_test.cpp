// The cache of compiled kernels, with a compiler that counts.
#include "backends/gpu/jit/kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "support/subprocess.h"

namespace gemmtune::gpu {
namespace {

class CountingCompiler final : public Compiler {
 public:
  explicit CountingCompiler(std::string version = "fake 1") : version_(std::move(version)) {}
  const std::string& version() const override { return version_; }
  std::string flags(std::string_view architecture) const override { return "-" + std::string(architecture); }
  Result<Binary> compile(const Source& source, std::string_view) const override {
    ++compiled;
    if (source.text == "bad") return Status::invalid("bad source");
    return Binary{source.text + std::string("\0\n code", 7), "Used 3 registers\n"};
  }
  Result<Resources> resources(const Binary&) const override { return Resources{}; }
  mutable std::atomic<int> compiled{0};

 private:
  std::string version_;
};

Source cached_source(std::string text) { return {"name", std::move(text), {"A=1"}, "kernel"}; }

std::string only_file(const std::string& folder) {
  std::string path;
  for (const auto& file : std::filesystem::directory_iterator(folder)) path = file.path().string();
  return path;
}

TEST(KernelCache, ASecondProcessFindsWhatTheFirstCompiled) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const auto first = KernelCache(folder.path()).get(compiler, cached_source("text"), "sm_90a");
  const auto second = KernelCache(folder.path()).get(compiler, cached_source("text"), "sm_90a");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(compiler.compiled, 1);
  EXPECT_EQ(first->code, second->code);
  EXPECT_EQ(second->log, "Used 3 registers\n");
}

TEST(KernelCache, TheKeyCoversEverythingThatMakesTheCode) {
  const CountingCompiler compiler;
  const Source base = cached_source("text");
  const std::string key = cache_key(compiler, base, "sm_90a");
  EXPECT_EQ(key.size(), 32U);
  EXPECT_EQ(key, cache_key(compiler, base, "sm_90a"));
  EXPECT_NE(key, cache_key(compiler, base, "sm_80"));
  EXPECT_NE(key, cache_key(CountingCompiler("fake 2"), base, "sm_90a"));
  Source other = base;
  other.text = "text2";
  EXPECT_NE(key, cache_key(compiler, other, "sm_90a"));
  other = base;
  other.defines = {"A=2"};
  EXPECT_NE(key, cache_key(compiler, other, "sm_90a"));
  other = base;
  other.kernel = "kernel2";
  EXPECT_NE(key, cache_key(compiler, other, "sm_90a"));
  // The same letters in another division.
  Source joined = base;
  joined.defines = {"A=1", "B"};
  other.defines = {"A=1B"};
  other.kernel = base.kernel;
  EXPECT_NE(cache_key(compiler, joined, "sm_90a"), cache_key(compiler, other, "sm_90a"));
}

TEST(KernelCache, ADamagedFileIsCompiledAgainAndReplaced) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const KernelCache cache(folder.path());
  ASSERT_TRUE(cache.get(compiler, cached_source("text"), "sm_90a").ok());
  const std::string path = only_file(folder.path());
  const std::string whole = *read_file(path);
  std::string flipped = whole;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  int expected = 1;
  for (const std::string& damaged : {whole.substr(0, whole.size() - 1), flipped, std::string(),
                                     std::string("\n\n\n"), std::string("gemmtune-kernel-1\nx\n-1 9 0\n")}) {
    ASSERT_TRUE(write_file_atomically(path, damaged).ok());
    ASSERT_TRUE(cache.get(compiler, cached_source("text"), "sm_90a").ok());
    EXPECT_EQ(compiler.compiled, ++expected);
    EXPECT_EQ(*read_file(path), whole);
  }
}

TEST(KernelCache, RebuildCompilesAlthoughItIsThere) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  ASSERT_TRUE(KernelCache(folder.path()).get(compiler, cached_source("text"), "sm_90a").ok());
  ASSERT_TRUE(KernelCache(folder.path(), true).get(compiler, cached_source("text"), "sm_90a").ok());
  EXPECT_EQ(compiler.compiled, 2);
}

TEST(KernelCache, SourcesAreLeftWhereAskedForAlsoOnAHit) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const std::string sources = folder.path() + "/sources";
  Source source = cached_source("int text;");
  source.defines = {"ROWS=64", "FAST"};
  ASSERT_TRUE(KernelCache(folder.path()).get(compiler, source, "sm_90a").ok());
  EXPECT_FALSE(std::filesystem::exists(sources)) << "nobody asked";
  ASSERT_TRUE(KernelCache(folder.path(), false, sources).get(compiler, source, "sm_90a").ok());
  EXPECT_EQ(compiler.compiled, 1) << "the kernel itself was in the cache";
  const std::string path = only_file(sources);
  EXPECT_THAT(path, ::testing::HasSubstr("/name_"));
  EXPECT_EQ(*read_file(path), "// kernel, for sm_90a\n#define ROWS 64\n#define FAST 1\nint text;");
}

TEST(KernelCache, AFailureIsNotKeptAndAFolderThatCannotBeWrittenCostsNoKernel) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const auto bad = KernelCache(folder.path()).get(compiler, cached_source("bad"), "sm_90a");
  EXPECT_FALSE(bad.ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(KernelCache("/proc/nowhere").get(compiler, cached_source("text"), "sm_90a").ok());
  EXPECT_TRUE(KernelCache("").get(compiler, cached_source("text"), "sm_90a").ok());
}

TEST(KernelCache, ThreadsThatCompileTheSameAllGetIt) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto binary = KernelCache(folder.path()).get(compiler, cached_source("text"), "sm_90a");
      if (binary.ok() && binary->code == std::string("text\0\n code", 11)) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(KernelCache(folder.path()).list().size(), 1U);
}

TEST(KernelCache, ListAndClear) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const KernelCache cache(folder.path());
  ASSERT_TRUE(cache.get(compiler, cached_source("a"), "sm_90a").ok());
  ASSERT_TRUE(cache.get(compiler, cached_source("b"), "sm_80").ok());
  ASSERT_TRUE(write_file_atomically(folder.path() + "/notes.txt", "mine").ok());
  const auto entries = cache.list();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_THAT(entries[0].title, ::testing::HasSubstr("name sm_"));
  EXPECT_THAT(entries[0].title, ::testing::HasSubstr("fake 1 A=1"));
  const auto removed = cache.clear();
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, 2);
  EXPECT_TRUE(cache.list().empty());
  EXPECT_TRUE(file_exists(folder.path() + "/notes.txt"));
}

}  // namespace
}  // namespace gemmtune::gpu
