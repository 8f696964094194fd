#include "formats/models/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "formats/models/model_config.h"
#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const ModelFolders of_the_repository{.shipped = std::string(GEMMTUNE_SOURCE_DIR) + "/models", .hub = {}};

class ModelFolder : public ::testing::Test {
 protected:
  std::string snapshot(const std::string& revision) const {
    const std::string name = "models--org--Some-Model/snapshots/" + revision + "/config.json";
    return fs::path(folder_.write(name, "{}")).parent_path().string();
  }

  test::TemporaryFolder folder_;
  ModelFolders folders_{.shipped = of_the_repository.shipped, .hub = folder_.path()};
};

TEST_F(ModelFolder, AFolderComesFirst) {
  fs::create_directories(folder_.file("org/Some-Model"));
  snapshot("1");
  EXPECT_EQ(*find_model_folder(folder_.file("org/Some-Model"), folders_), folder_.file("org/Some-Model"));
}

TEST_F(ModelFolder, AShippedModelInAnyCase) {
  const std::string expected = of_the_repository.shipped + "/llama-3.2-1b";
  EXPECT_EQ(*find_model_folder("llama-3.2-1b", folders_), expected);
  EXPECT_EQ(*find_model_folder("Llama-3.2-1B", folders_), expected);
  EXPECT_EQ(find_model_folder("llama-3.2-1b", {}).code(), StatusCode::not_found);
}

TEST_F(ModelFolder, ASnapshotOfTheCache) {
  const std::string older = snapshot("aaaa");
  const std::string newer = snapshot("bbbb");
  fs::last_write_time(older + "/config.json", fs::file_time_type::clock::now() - std::chrono::hours(1));
  fs::create_directories(folder_.file("models--org--Some-Model/snapshots/cccc"));  // weights without a config
  EXPECT_EQ(*find_model_folder("org/Some-Model", folders_), newer);
  folder_.write("models--org--Some-Model/refs/main", "aaaa\n");
  EXPECT_EQ(*find_model_folder("org/Some-Model", folders_), older);
  folder_.write("models--org--Some-Model/refs/main", "cccc");
  EXPECT_EQ(*find_model_folder("org/Some-Model", folders_), newer);
  folder_.write("models--org--Some-Model/refs/main", "../../outside");
  folder_.write("outside/config.json", "{}");
  EXPECT_EQ(*find_model_folder("org/Some-Model", folders_), newer);
}

TEST_F(ModelFolder, WhatIsMissingNamesEveryPlace) {
  const auto missing = find_model_folder("org/Absent", folders_);
  EXPECT_EQ(missing.code(), StatusCode::not_found);
  for (const std::string& part :
       {std::string("org/Absent: no folder"), folder_.path(), std::string("qwen3-8b"),
        std::string("hf download org/Absent config.json")}) {
    EXPECT_THAT(missing.message(), HasSubstr(part));
  }
  EXPECT_THAT(find_model_folder("../x", folders_).message(), HasSubstr("hf download ORG/NAME"));
  EXPECT_THAT(find_model_folder("org/..", folders_).message(), HasSubstr("hf download ORG/NAME"));
  EXPECT_THAT(find_model_folder("x", {}).message(), HasSubstr("set HF_HUB_CACHE"));
}

TEST(ShippedModels, EachHasShapesAndASource) {
  const auto names = shipped_models(of_the_repository);
  EXPECT_EQ(names.size(), 15U);
  const auto sources = read_file(of_the_repository.shipped + "/README.md");
  ASSERT_TRUE(sources.ok());
  ModelShapeOptions options;
  options.tokens = {16};
  for (const std::string& name : names) {
    const auto list = model_shapes(*find_model_folder(name, of_the_repository), options);
    ASSERT_TRUE(list.ok()) << list.message();
    EXPECT_GE(list->rows.size(), 4U) << name;
    EXPECT_THAT(*sources, HasSubstr("`" + name + "`"));
  }
}

/// Layer, N, K of one rank, of models whose sizes AITER's tables do not give.
TEST(ShippedModels, SizesOfLayers) {
  struct Size {
    const char* model;
    const char* layer;
    std::int64_t n;
    std::int64_t k;
  };
  ModelShapeOptions options;
  options.tokens = {1};
  options.layer_names = true;
  for (const Size& size :
       {Size{"llama-3.1-8b", "qkv_proj", 6144, 4096}, Size{"llama-3.1-8b", "down_proj", 4096, 14336},
        Size{"qwen3-8b", "gate_up_proj", 24576, 4096}, Size{"qwen3-235b-a22b", "qkv_proj", 9216, 4096},
        Size{"glm-4.5-air", "qkv_proj", 14336, 4096}, Size{"glm-4.5-air", "gate_up_proj", 21888, 4096},
        Size{"kimi-k2", "q_b_proj", 12288, 1536}, Size{"minimax-m2", "o_proj", 3072, 6144},
        Size{"llama-4-scout", "shared_gate_up_proj", 16384, 5120},
        Size{"gpt-oss-120b", "router", 128, 2880}}) {
    const auto list = model_shapes(*find_model_folder(size.model, of_the_repository), options);
    ASSERT_TRUE(list.ok()) << list.message();
    EXPECT_TRUE(std::any_of(list->rows.begin(), list->rows.end(),
                            [&](const ShapeRow& row) {
                              return row.layer == size.layer && row.problem.n == size.n &&
                                     row.problem.k == size.k;
                            }))
        << size.model << " " << size.layer;
  }
}

}  // namespace
}  // namespace gemmtune
