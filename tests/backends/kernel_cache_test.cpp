// The cache of compiled kernels, with a compiler that counts.
#include "backends/gpu/jit/kernel_cache.h"

#include <elf.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "backends/cuda/cubin.h"
#include "backends/cuda/nvrtc_compiler.h"
#include "backends/hip/code_object.h"
#include "base/file.h"
#include "base/log.h"
#include "support/subprocess.h"

namespace gemmtune::gpu {
namespace {

class CountingCompiler final : public Compiler {
 public:
  explicit CountingCompiler(std::string version = "fake 1", std::string file = "/lib/fake 100 1.0")
      : version_(std::move(version)), identity_(version_ + " " + file) {}
  const std::string& version() const override { return version_; }
  const std::string& identity() const override { return identity_; }
  std::string flags(std::string_view architecture) const override { return "-" + std::string(architecture); }
  Result<Binary> compile(const Source& source, std::string_view) const override {
    ++compiled;
    if (source.text == "bad") return Status::invalid("bad source");
    return Binary{source.text + std::string("\0\n code", 7), "Used 3 registers\n"};
  }
  Result<Resources> resources(const Binary&) const override { return Resources{}; }
  Status check(const Binary& binary, std::string_view) const override {
    return binary.code.starts_with("other") ? Status::invalid("other code") : Status();
  }
  mutable std::atomic<int> compiled{0};

 private:
  std::string version_;
  std::string identity_;
};

/// The header of machine code as a compiler writes it.
std::string elf_header(int machine, int abi, int abi_version, unsigned flags) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_OSABI] = static_cast<unsigned char>(abi);
  header.e_ident[EI_ABIVERSION] = static_cast<unsigned char>(abi_version);
  header.e_machine = static_cast<Elf64_Half>(machine);
  header.e_flags = flags;
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

std::vector<std::string> logged;
void keep_line(LogLevel, std::string_view line, void*) { logged.emplace_back(line); }
/// The lines of the log while it lives.
struct KeptLog {
  KeptLog() {
    logged.clear();
    set_log_sink(keep_line, nullptr);
  }
  ~KeptLog() { set_log_sink(nullptr, nullptr); }
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
  EXPECT_NE(key, cache_key(CountingCompiler("fake 1", "/other/fake 100 1.0"), base, "sm_90a"));
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

TEST(KernelCache, CodeOfAnotherKindIsRemovedCompiledAgainAndSaidOnce) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const KernelCache cache(folder.path());
  ASSERT_TRUE(cache.get(compiler, cached_source("other source"), "sm_90a").ok());
  const KeptLog log;
  ASSERT_TRUE(cache.get(compiler, cached_source("other source"), "sm_90a").ok());
  EXPECT_EQ(compiler.compiled, 2);
  EXPECT_THAT(logged, ::testing::ElementsAre(::testing::HasSubstr(
                          ".kernel: holds other code; it is removed and compiled again")));
}

TEST(KernelCache, AHeaderIsThatOfTheArchitecturesCode) {
  // As NVRTC 12 and 13 and clang write them.
  EXPECT_TRUE(cuda::check_cubin(elf_header(190, 0x33, 7, 0x5a055a), "sm_90a").ok());
  EXPECT_TRUE(cuda::check_cubin(elf_header(190, 0x41, 8, 0x6005a04), "sm_90").ok());
  EXPECT_TRUE(cuda::check_cubin(elf_header(190, 0x41, 8, 0x6006402), "sm_100a").ok());
  EXPECT_EQ(cuda::check_cubin(elf_header(190, 0x41, 8, 0x6005004), "sm_90a").message(),
            "a cubin for sm_80, expected one for sm_90a");
  EXPECT_TRUE(hip::check_code_object(elf_header(224, 64, 2, 0x54c), "gfx942:sramecc+:xnack-").ok());
  EXPECT_TRUE(hip::check_code_object(elf_header(224, 64, 2, 0x530), "gfx908").ok());
  EXPECT_EQ(hip::check_code_object(elf_header(224, 64, 2, 0x53f), "gfx942").message(),
            "a code object for processor 0x3f, expected 0x4c of gfx942");
  for (const std::string& code : {std::string("extern \"C\" __global__ void k()"), std::string(),
                                  elf_header(62, 0, 0, 0), elf_header(190, 64, 0, 0).substr(0, 40)}) {
    EXPECT_EQ(cuda::check_cubin(code, "sm_90a").message(), "no cubin");
    EXPECT_EQ(hip::check_code_object(code, "gfx942").message(), "no code object");
  }
}

TEST(KernelCache, WhatNvrtcMakesIsOfItsArchitecture) {
  const auto compiler = cuda::make_nvrtc_compiler("");
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().message();
  const Source source{"empty", "extern \"C\" __global__ void empty() {}", {}, "empty"};
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const auto binary = (*compiler)->compile(source, architecture);
    ASSERT_TRUE(binary.ok()) << binary.status().message();
    EXPECT_TRUE((*compiler)->check(*binary, architecture).ok()) << architecture;
    EXPECT_FALSE((*compiler)->check(*binary, "sm_89").ok()) << architecture;
  }
  EXPECT_THAT((*compiler)->identity(), ::testing::HasSubstr("libnvrtc"));
}

TEST(KernelCache, AFolderThatOthersMayWriteIsNotUsed) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const KernelCache cache(folder.path());
  ASSERT_TRUE(cache.get(compiler, cached_source("text"), "sm_90a").ok());
  for (const auto mode : {0770, 0707}) {
    std::filesystem::permissions(folder.path(), static_cast<std::filesystem::perms>(mode));
    const KeptLog log;
    const int before = compiler.compiled;
    ASSERT_TRUE(cache.get(compiler, cached_source("text"), "sm_90a").ok());
    ASSERT_TRUE(cache.get(compiler, cached_source("text b"), "sm_90a").ok());
    EXPECT_EQ(compiler.compiled, before + 2);
    EXPECT_THAT(logged,
                ::testing::ElementsAre(::testing::HasSubstr(fmt::format("its mode is {:04o}", mode))));
    EXPECT_EQ(check_kernel_folder(folder.path()).code(), StatusCode::invalid_argument);
  }
  EXPECT_EQ(cache.list().size(), 1U) << "nothing was written";
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  EXPECT_TRUE(check_kernel_folder(folder.path()).ok());
}

TEST(KernelCache, ItsOwnFolderIsNotForOthersWhateverTheUmask) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const mode_t before = ::umask(0);
  const KernelCache cache(folder.file("deep/cache"));
  const bool compiled = cache.get(compiler, cached_source("text"), "sm_90a").ok();
  ::umask(before);
  ASSERT_TRUE(compiled);
  EXPECT_TRUE(cache.check_folder().ok());
  EXPECT_EQ(cache.list().size(), 1U);
}

TEST(KernelCache, APipeInTheFolderIsDamagedAndRemoved) {
  const test::TemporaryFolder folder;
  const CountingCompiler compiler;
  const KernelCache cache(folder.path());
  const std::string path = folder.file(cache_key(compiler, cached_source("text"), "sm_90a") + ".kernel");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ASSERT_EQ(cache.list().size(), 1U);
  EXPECT_EQ(cache.list().front().title, "damaged");
  ASSERT_TRUE(cache.get(compiler, cached_source("text"), "sm_90a").ok());
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
  ASSERT_EQ(::mkfifo(folder.file("0.kernel").c_str(), 0600), 0);
  ASSERT_TRUE(write_file_atomically(folder.file("1.kernel.0a1b2c.tmp"), "left").ok());
  EXPECT_EQ(*cache.clear(), 2);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
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
