// Device files, what a source includes of them, and that keys cover every one.
#include "backends/gpu/jit/device_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backends/cuda/families/own_families.h"
#include "backends/gpu/device/types_arguments.h"
#include "backends/gpu/families/own_families.h"
#include "backends/gpu/jit/compiled_family.h"
#include "backends/gpu/jit/config_define.h"
#include "backends/gpu/jit/kernel_cache.h"
#include "candidates/config.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"

namespace gemmtune::gpu::device_files_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr DeviceFile small_files[] = {
    {"backends/a.cu", "// a\n#include \"backends/b.cuh\"\n\n#include \"backends/c.cuh\"\nint a = b + c;\n"},
    {"backends/b.cuh", "#pragma once\n#include \"backends/c.cuh\"\nint b = c;\n"},
    {"backends/c.cuh", "#pragma once\nint c = 0;\n"},
    {"backends/d.cuh", "#pragma once\nint d;\n"},
};

/// Compiles nothing: keys alone are looked at.
class NamedCompiler final : public Compiler {
 public:
  const std::string& version() const override { return name_; }
  const std::string& identity() const override { return name_; }
  std::string flags(std::string_view) const override { return {}; }
  Result<Binary> compile(const Source&, std::string_view) const override { return Binary{}; }
  Result<Resources> resources(const Binary&) const override { return Resources{}; }
  Status check(const Binary&, std::string_view) const override { return {}; }

 private:
  std::string name_ = "compiler";
};

std::vector<std::string> paths_of(const std::vector<DeviceFile>& files) {
  std::vector<std::string> paths;
  for (const DeviceFile& file : files) paths.emplace_back(file.path);
  return paths;
}

TEST(DeviceFiles, IncludedFilesComeOnceInTheOrderInWhichACompilerReachesThem) {
  EXPECT_THAT(paths_of(included_files(include_line("backends/a.cu"), small_files)),
              ::testing::ElementsAre("backends/a.cu", "backends/b.cuh", "backends/c.cuh"));
  EXPECT_THAT(paths_of(included_files("int x;\n", small_files)), ::testing::IsEmpty());
}

TEST(DeviceFiles, AResolvedTextNeedsNoOtherFile) {
  EXPECT_EQ(resolved_text("#define X 1\n" + include_line("backends/a.cu") + "int last;", small_files),
            "#define X 1\n// a\nint c = 0;\nint b = c;\n\nint a = b + c;\nint last;");
  // What is not there stays, for the compiler's words.
  EXPECT_EQ(resolved_text("#include \"backends/none.cuh\"\n", small_files),
            "#include \"backends/none.cuh\"\n");
}

/// The table with one byte of the file changed.
struct ChangedFiles {
  explicit ChangedFiles(const std::string& path) : files(device_files().begin(), device_files().end()) {
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const DeviceFile& file) { return file.path == path; });
    if (found == files.end()) return;
    text = found->text;
    text[text.size() / 2] ^= 1;
    found->text = text.c_str();
  }
  std::string text;
  std::vector<DeviceFile> files;
};

TEST(DeviceFiles, TheKeysOfTheCacheAndOfTheJournalCoverEveryIncludedFile) {
  const NamedCompiler compiler;
  const Source source{"wgmma", include_line("backends/cuda/families/wgmma/wgmma.cu"), {}, "wgmma"};
  const std::vector<DeviceFile> included = included_files(source.text);
  EXPECT_THAT(paths_of(included),
              ::testing::IsSupersetOf({"backends/cuda/device/tma.cuh", "backends/gpu/device/numbers.cuh",
                                       "backends/cuda/families/wgmma/wgmma_arguments.h",
                                       "backends/gpu/jit/layout_arguments.h"}));
  for (const DeviceFile& file : device_files()) {
    const ChangedFiles changed(file.path);
    ASSERT_FALSE(changed.text.empty()) << file.path;
    const auto names_file = [&](const DeviceFile& other) {
      return std::string_view(other.path) == file.path;
    };
    const bool covered = std::any_of(included.begin(), included.end(), names_file);
    EXPECT_EQ(cache_key(compiler, source, "sm_90a") != cache_key(compiler, source, "sm_90a", changed.files),
              covered)
        << file.path;
    EXPECT_EQ(text_hash(source.text) != text_hash(source.text, changed.files), covered) << file.path;
  }
}

TEST(DeviceFiles, TheIdentityOfAFamilyIsTheHashOfItsDeviceCode) {
  NoCompiler runtime;
  const auto family = make_simt_family(runtime);
  EXPECT_THAT(family->identity(), HasSubstr(text_hash(include_line("backends/gpu/families/simt/simt.cu"))));
}

/// Nothing but device files is included, and each by a path that there is: a run-time compiler finds no other.
TEST(DeviceFiles, EveryIncludeNamesAFileThatThereIs) {
  std::set<std::string> reached;
  for (const DeviceFile& file : device_files()) {
    EXPECT_THAT(resolved_text(file.text), Not(HasSubstr("#include"))) << file.path;
    for (const std::string& path : paths_of(included_files(file.text))) reached.insert(path);
  }
  // A header that no source includes is dead.
  for (const DeviceFile& file : device_files()) {
    const std::string path = file.path;
    EXPECT_TRUE(path.ends_with(".cu") || reached.contains(path)) << path;
  }
}

/// resolved_text() does not evaluate conditions.
TEST(DeviceFiles, IncludesStandUnderNoCondition) {
  for (const DeviceFile& file : device_files()) {
    const std::string_view text = file.text;
    if (std::string_view(file.path).ends_with("/element_arguments.h"))
      continue;  // host or device: one in a text
    const auto last = text.rfind("#include");
    const std::string_view head = text.substr(0, last == std::string_view::npos ? 0 : last);
    EXPECT_EQ(head.find("#if"), std::string_view::npos) << file.path;
  }
}

struct SampleConfig {
  int block_m;
  bool packed;
  float unit;
  Element element;
};
GEMMTUNE_FIELDS(SampleConfig, block_m, packed, unit, element);

TEST(DeviceFiles, AConfigIsOneDefineThatNamesItsFields) {
  EXPECT_EQ(config_define(SampleConfig{64, true, 4, Element::bf16}),
            "CONFIG={/*block_m*/64,/*packed*/true,/*unit*/4.0f,/*element*/gemmtune::gpu::Element(2)}");
}

/// What differs in the launch alone is no part of it: the program is the same.
TEST(DeviceFiles, AConfigHoldsWhatTheKernelIsCompiledFor) {
  NoCompiler runtime;
  const cuda::CudaDriver no_driver{cuda::api::Driver{}};
  const auto family = cuda::make_skinny_family(runtime, no_driver);
  const auto defines_of = [&](const std::string& settings) {
    const auto candidate = parse_kernel_name("skinny_r1_" + settings, {"bm", "bk", "csk", "smem", "pdl"});
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    EXPECT_FALSE(family->build(dense(16, 4096, 4096), candidate->config).ok());
    return runtime.last().defines;
  };
  const std::vector<std::string> plain = defines_of("bm64_bk64_csk2_smem110_pdl0");
  EXPECT_THAT(plain, ::testing::Contains(
                         "CONFIG={/*block_m*/64,/*block_n*/16,/*k_atoms*/1,/*promotion*/0,/*packed*/false}"));
  EXPECT_EQ(plain, defines_of("bm64_bk64_csk4_smem110_pdl1"));
  EXPECT_NE(plain, defines_of("bm128_bk64_csk2_smem110_pdl0"));
}

}  // namespace
}  // namespace gemmtune::gpu::device_files_test
