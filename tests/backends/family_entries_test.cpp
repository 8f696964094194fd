// What every listed family has to have, and what traits say of each backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/families/family_entry.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/traits.h"
#include "base/text.h"
#include "support/nvrtc.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names_of(FamilyInfos infos) {
  std::vector<std::string> names;
  for (const FamilyInfo* info : infos) names.emplace_back(info->name);
  return names;
}

/// Those of `names` that are among `some`, in their order: a new family changes no expectation.
std::vector<std::string> only(const std::vector<std::string>& some, std::vector<std::string> names) {
  std::erase_if(names, [&](const std::string& name) {
    return std::find(some.begin(), some.end(), name) == some.end();
  });
  return names;
}

TEST(FamilyEntries, AreListedInTheOrderOfTheirRanks) {
  const std::vector<std::string> of_cpu{"onednn", "openblas", "tiled", "skinny", "reference"};
  EXPECT_EQ(only(of_cpu, names_of(traits_of("cpu").families)), of_cpu);
  const std::vector<std::string> of_cuda{"cublaslt", "skinny", "wgmma", "mma", "simt"};
  EXPECT_EQ(only(of_cuda, names_of(traits_of("cuda").families)), of_cuda);
  for (const char* backend : {"cpu", "cuda"}) {
    int before = 0;
    for (const FamilyInfo* info : traits_of(backend).families) {
      EXPECT_GT(info->rank, before) << backend << ": " << info->name;
      before = info->rank;
    }
  }
}

TEST(FamilyEntries, HaveARoomWithAReadme) {
  const std::filesystem::path backends = std::filesystem::path(GEMMTUNE_SOURCE_DIR) / "src/backends";
  std::size_t entries = 0;
  for (const char* backend : {"cpu", "gpu", "cuda"}) {
    for (const auto& room : std::filesystem::directory_iterator(backends / backend / "families")) {
      if (!room.is_directory()) continue;
      EXPECT_TRUE(std::filesystem::exists(room.path() / "README.md")) << room.path();
      const std::string own = room.path().filename().string() + ".cpp";
      for (const auto& file : std::filesystem::directory_iterator(room)) {
        const bool defines_entry = backend == std::string_view("cpu")
                                       ? file.path().string().ends_with("_entry.cpp")
                                       : file.path().filename() == own;
        entries += defines_entry ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(entries, cpu::family_entries().size() + cuda::family_entries().size());
}

/// The order in which the backend's families run where nothing was tuned.
std::vector<std::string> fallbacks(const char* backend, int FamilyInfo::*rank) {
  std::vector<std::pair<int, std::string>> order;
  for (const FamilyInfo* info : traits_of(backend).families) {
    const int own = info->*rank != 0 ? info->*rank : info->fallback_rank;
    if (own != 0) order.emplace_back(own, info->name);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> names;
  for (const auto& [own, name] : order) names.push_back(name);
  return names;
}

TEST(FamilyEntries, OrderTheFallback) {
  const std::vector<std::string> many{"onednn",    "tiled",     "skinny",  "streaming",
                                      "skinny_w4", "quantized", "batched", "moe"};
  EXPECT_EQ(only(many, fallbacks("cpu", &FamilyInfo::fallback_rank)), many);
  const std::vector<std::string> few{"onednn",    "skinny",    "tiled",   "streaming",
                                     "skinny_w4", "quantized", "batched", "moe"};
  EXPECT_EQ(only(few, fallbacks("cpu", &FamilyInfo::few_rows_rank)), few);
  EXPECT_EQ(only({"reference", "openblas"}, fallbacks("cpu", &FamilyInfo::fallback_rank)),
            std::vector<std::string>());
  const std::vector<std::string> cuda{"cublaslt", "skinny", "wgmma", "mma", "simt"};
  EXPECT_EQ(only(cuda, fallbacks("cuda", &FamilyInfo::fallback_rank)), cuda);
  const std::vector<std::string> with_row_scales{"skinny", "wgmma", "cublaslt", "mma", "simt"};
  EXPECT_EQ(only(with_row_scales, fallbacks("cuda", &FamilyInfo::row_scales_rank)), with_row_scales);
}

std::vector<std::string> families_called(std::string_view word) {
  std::vector<std::string> names;
  for (const FamilyInfo* info : traits_of("cpu").families) {
    const auto words = split(info->aliases, ',');
    if (std::find(words.begin(), words.end(), word) != words.end()) names.emplace_back(info->name);
  }
  return names;
}

TEST(FamilyEntries, HaveAitersWords) {
  const std::vector<std::string> tunable{"tiled",     "skinny",  "skinny_w4", "quantized",
                                         "streaming", "batched", "moe"};
  EXPECT_EQ(only({"onednn", "openblas", "reference"}, families_called("triton")), std::vector<std::string>());
  for (const char* word : {"triton", "ck", "cktile", "asm"})
    EXPECT_EQ(only(tunable, families_called(word)), tunable) << word;
  EXPECT_THAT(families_called("hipblaslt"), ElementsAre("onednn"));
  EXPECT_THAT(families_called("hipblast"), ElementsAre("onednn"));
  // What a user without gemmtune gets; both libraries are needed for every type.
  EXPECT_THAT(families_called("torch"), ElementsAre("onednn", "openblas"));
}

TEST(FamilyEntries, OfTheCpuMakeFamiliesOfTheirNames) {
  const cpu::FamilyRequest request{cpu::Isa::scalar, std::nullopt, {0}, {}};
  for (const cpu::FamilyEntry* entry : cpu::family_entries()) {
    const auto made = entry->make(request);
    if (!entry->library.empty() && !made.ok()) continue;  // a library that is not installed
    ASSERT_TRUE(made.ok()) << entry->info.name;
    EXPECT_EQ(made->family->name(), entry->info.name);
    EXPECT_EQ(entry->library.empty(), !entry->info.vendor) << entry->info.name;
  }
}

TEST(FamilyEntries, OfCudaMakeFamiliesOfTheirNames) {
  NoCompiler runtime;
  cuda::CudaDriver driver{cuda::api::Driver{}};
  const std::string folder;
  int made = 0;
  for (const gpu::FamilyEntry* entry : cuda::family_entries()) {
    if (!entry->compiled) continue;
    const auto family = entry->make({runtime, driver, folder});
    // A driver without a device is of no architecture: only what serves every GPU is made.
    EXPECT_EQ(family != nullptr, entry->info.name.starts_with("simt")) << entry->info.name;
    if (family == nullptr) continue;
    ++made;
    EXPECT_EQ(family->name(), entry->info.name);
  }
  EXPECT_EQ(made, 2);
}

TEST(DeviceTraits, AreThoseOfTheBackend) {
  const DeviceTraits& cpu = traits_of("cpu");
  EXPECT_TRUE(cpu.runs_on_host);
  EXPECT_FALSE(cpu.compiles_ahead);
  EXPECT_FALSE(cpu.dependent_launches);
  EXPECT_FALSE(cpu.tensor_core_sums);
  EXPECT_EQ(cpu.confirmation_passes, 2);
  EXPECT_EQ(cpu.pass_factor, 1.2);
  EXPECT_EQ(cpu.units, "cores");
  for (const char* gpu : {"cuda", "hip", "a backend of another build"}) {
    const DeviceTraits& traits = traits_of(gpu);
    EXPECT_FALSE(traits.runs_on_host) << gpu;
    EXPECT_TRUE(traits.compiles_ahead) << gpu;
    EXPECT_EQ(traits.dependent_launches, std::string_view(gpu) != "hip") << gpu;
    EXPECT_TRUE(traits.tensor_core_sums) << gpu;
    EXPECT_EQ(traits.confirmation_passes, 1) << gpu;
    EXPECT_EQ(traits.pass_factor, 1) << gpu;
    EXPECT_EQ(traits.sample_microseconds, 500) << gpu;
  }
  for (const Backend* backend : all_backends()) EXPECT_EQ(&traits_of(backend->name()), &backend->traits());
}

}  // namespace
}  // namespace gemmtune
