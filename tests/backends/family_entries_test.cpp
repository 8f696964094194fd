// What every listed family has to have, and what traits say of each backend.
#include "backends/cuda/families/family_entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/families/family_entry.h"
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

TEST(FamilyEntries, AreListedInTheOrderOfTheirRanks) {
  EXPECT_THAT(names_of(traits_of("cpu").families),
              ElementsAre("onednn", "openblas", "tiled", "skinny", "quantized", "streaming", "batched", "moe",
                          "reference"));
  EXPECT_THAT(names_of(traits_of("cuda").families),
              ElementsAre("cublaslt", "skinny", "wgmma", "mma", "simt"));
  for (const char* backend : {"cpu", "cuda"}) {
    std::set<int> ranks;
    for (const FamilyInfo* info : traits_of(backend).families) ranks.insert(info->rank);
    EXPECT_EQ(ranks.size(), traits_of(backend).families.size()) << backend;
  }
}

TEST(FamilyEntries, HaveARoomWithAReadme) {
  const std::filesystem::path backends = std::filesystem::path(GEMMTUNE_SOURCE_DIR) / "src/backends";
  std::size_t rooms = 0;
  for (const char* backend : {"cpu", "gpu", "cuda"}) {
    for (const auto& room : std::filesystem::directory_iterator(backends / backend / "families")) {
      if (!room.is_directory()) continue;
      ++rooms;
      EXPECT_TRUE(std::filesystem::exists(room.path() / "README.md")) << room.path();
    }
  }
  EXPECT_EQ(rooms, 13U);  // quantized and batched share one
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
  EXPECT_THAT(fallbacks("cpu", &FamilyInfo::fallback_rank),
              ElementsAre("onednn", "tiled", "skinny", "streaming", "quantized", "batched", "moe"));
  EXPECT_THAT(fallbacks("cpu", &FamilyInfo::few_rows_rank),
              ElementsAre("onednn", "skinny", "tiled", "streaming", "quantized", "batched", "moe"));
  EXPECT_THAT(fallbacks("cuda", &FamilyInfo::fallback_rank),
              ElementsAre("cublaslt", "skinny", "wgmma", "mma", "simt"));
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
  const std::vector<std::string> tunable{"tiled", "skinny", "quantized", "streaming", "batched", "moe"};
  for (const char* word : {"triton", "ck", "cktile", "asm"})
    EXPECT_EQ(families_called(word), tunable) << word;
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
    // A driver without a device is of no architecture.
    EXPECT_EQ(family != nullptr, entry->info.name == "simt") << entry->info.name;
    if (family == nullptr) continue;
    ++made;
    EXPECT_EQ(family->name(), entry->info.name);
  }
  EXPECT_EQ(made, 1);
}

TEST(DeviceTraits, AreThoseOfTheBackend) {
  const DeviceTraits& cpu = traits_of("cpu");
  EXPECT_TRUE(cpu.runs_on_host);
  EXPECT_FALSE(cpu.compiles_ahead);
  EXPECT_FALSE(cpu.dependent_launches);
  EXPECT_EQ(cpu.accumulator, Accumulator::float32);
  EXPECT_EQ(cpu.confirmation_passes, 2);
  EXPECT_EQ(cpu.units, "cores");
  for (const char* gpu : {"cuda", "hip", "a backend of another build"}) {
    const DeviceTraits& traits = traits_of(gpu);
    EXPECT_FALSE(traits.runs_on_host) << gpu;
    EXPECT_TRUE(traits.compiles_ahead) << gpu;
    EXPECT_TRUE(traits.dependent_launches) << gpu;
    EXPECT_EQ(traits.accumulator, Accumulator::tensor_core) << gpu;
    EXPECT_EQ(traits.confirmation_passes, 1) << gpu;
    EXPECT_EQ(traits.sample_microseconds, 500) << gpu;
  }
  for (const Backend* backend : all_backends()) EXPECT_EQ(&traits_of(backend->name()), &backend->traits());
}

}  // namespace
}  // namespace gemmtune
