#include "base/environment.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

class EnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"GEMMTUNE_CONFIG_DIR",
                             "XDG_CONFIG_HOME",
                             "HOME",
                             "GEMMTUNE_CONFIG_A16W16",
                             "AITER_CONFIG_GEMM_BF16",
                             "GEMMTUNE_LOG_CONFIG",
                             "AITER_LOG_TUNED_CONFIG",
                             "GEMMTUNE_NUM_THREADS",
                             "GEMMTUNE_TEAM",
                             "GEMMTUNE_CPU_ISA",
                             "GEMMTUNE_CAPTURE",
                             "GEMMTUNE_ERRATA",
                             "GEMMTUNE_VERIFY_UNTUNED",
                             "GEMMTUNE_INVARIANT",
                             "AITER_TUNE_GEMM",
                             "GTUNE_MODEL",
                             "GTUNE_BATCH_SIZE",
                             "GTUNE_TP",
                             "GEMMTUNE_REBUILD",
                             "AITER_REBUILD",
                             "GEMMTUNE_SHIPPED",
                             "GTUNE_INPUT",
                             "GTUNE_TUNED"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(EnvironmentTest, VariablesOfTunedFilesThatAreSetAndNotEmpty) {
  const auto set = [](const char* name) { return read_environment().config_variables.count(name); };
  EXPECT_EQ(set("AITER_CONFIG_GEMM_BF16"), 0U);
  ::setenv("AITER_CONFIG_GEMM_BF16", "/a.csv", 1);
  ::setenv("GEMMTUNE_CONFIG_A16W16", "/b.csv:/c=d.csv", 1);
  EXPECT_EQ(read_environment().config_variables.at("AITER_CONFIG_GEMM_BF16"), "/a.csv");
  EXPECT_EQ(read_environment().config_variables.at("GEMMTUNE_CONFIG_A16W16"), "/b.csv:/c=d.csv");
  ::setenv("GEMMTUNE_CONFIG_A16W16", "", 1);
  EXPECT_EQ(set("GEMMTUNE_CONFIG_A16W16"), 0U);
}

TEST_F(EnvironmentTest, ConfigFolderInOrder) {
  ::setenv("HOME", "/h", 1);
  EXPECT_EQ(read_environment().config_folder, "/h/.config/gemmtune");
  ::setenv("XDG_CONFIG_HOME", "/x", 1);
  EXPECT_EQ(read_environment().config_folder, "/x/gemmtune");
  ::setenv("GEMMTUNE_CONFIG_DIR", "/g", 1);
  EXPECT_EQ(read_environment().config_folder, "/g");
}

TEST_F(EnvironmentTest, WithoutHomeTheSystemsEntryCounts) {
  const passwd* entry = ::getpwuid(::geteuid());
  const std::string home = entry != nullptr ? entry->pw_dir : "";
  const std::string folder = read_environment().config_folder;
  EXPECT_EQ(folder, home.empty() ? "" : home + "/.config/gemmtune");
}

TEST_F(EnvironmentTest, FoldersDoNotDependOnALaterWorkingFolder) {
  const std::string here = std::filesystem::current_path();
  ::setenv("HOME", "/h", 1);
  ::setenv("XDG_CONFIG_HOME", "x", 1);  // relative: none, by XDG's rule
  EXPECT_EQ(read_environment().config_folder, "/h/.config/gemmtune");
  ::setenv("GEMMTUNE_CONFIG_DIR", "g", 1);
  ::setenv("GEMMTUNE_CAPTURE", "c", 1);
  ::setenv("GEMMTUNE_LIBRARY_DIR", "l", 1);
  ::setenv("GEMMTUNE_POWERCAP_DIR", "p", 1);
  ::setenv("GEMMTUNE_PROGRAM", "bin/gemmtune", 1);
  EXPECT_EQ(read_environment().program, here + "/bin/gemmtune");
  ::unsetenv("GEMMTUNE_PROGRAM");
  EXPECT_EQ(read_environment().program, "");
  EXPECT_EQ(read_environment().config_folder, here + "/g");
  EXPECT_EQ(read_environment().capture_folder, here + "/c");
  EXPECT_EQ(read_environment().module_folder, here + "/l");
  EXPECT_EQ(read_environment().powercap_folder, here + "/p");
  ::unsetenv("GEMMTUNE_POWERCAP_DIR");
  ::unsetenv("GEMMTUNE_LIBRARY_DIR");
}

TEST_F(EnvironmentTest, OnednnIsLookedForInPythonsAndInTheCache) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("venv/lib/python3.11/site-packages/paddle/libs"));
  ::setenv("HOME", "/h", 1);
  for (const char* name : {"XDG_CACHE_HOME", "GEMMTUNE_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"})
    ::unsetenv(name);
  EXPECT_EQ(read_environment().onednn_folders, (std::vector<std::string>{"/h/.cache/gemmtune/onednn/lib"}));
  ::setenv("GEMMTUNE_PYTHON", "/p/bin/python3", 1);
  ::setenv("VIRTUAL_ENV", folder.file("venv").c_str(), 1);
  ::setenv("CONDA_PREFIX", "/p", 1);  // a second time
  ::setenv("XDG_CACHE_HOME", "/c", 1);
  EXPECT_EQ(read_environment().onednn_folders,
            (std::vector<std::string>{"/p/lib", folder.file("venv/lib"),
                                      folder.file("venv/lib/python3.11/site-packages/paddle/libs"),
                                      "/c/gemmtune/onednn/lib"}));
  ::setenv("GEMMTUNE_PYTHON", "python3", 1);  // of PATH: which environment's is not known
  ::setenv("VIRTUAL_ENV", "venv", 1);         // of the working folder: none
  ::unsetenv("CONDA_PREFIX");
  EXPECT_EQ(read_environment().onednn_folders, (std::vector<std::string>{"/c/gemmtune/onednn/lib"}));
  for (const char* name : {"XDG_CACHE_HOME", "GEMMTUNE_PYTHON", "VIRTUAL_ENV"}) ::unsetenv(name);
}

TEST_F(EnvironmentTest, HuggingFacesCacheInItsOrder) {
  const auto hub = [] { return read_environment().hub_folder; };
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"})
    ::unsetenv(name);
  ::setenv("HOME", "/h", 1);
  EXPECT_EQ(hub(), "/h/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/c", 1);
  EXPECT_EQ(hub(), "/c/huggingface/hub");
  ::setenv("HF_HOME", "/f", 1);
  EXPECT_EQ(hub(), "/f/hub");
  ::setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(hub(), "/old");
  ::setenv("HF_HUB_CACHE", "/hub", 1);
  EXPECT_EQ(hub(), "/hub");
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"})
    ::unsetenv(name);
}

TEST_F(EnvironmentTest, SwitchesAndNumbers) {
  EXPECT_FALSE(read_environment().log_config);
  ::setenv("AITER_LOG_TUNED_CONFIG", "2", 1);
  EXPECT_TRUE(read_environment().log_config);
  ::setenv("GEMMTUNE_LOG_CONFIG", "0", 1);
  EXPECT_FALSE(read_environment().log_config);
  ::setenv("GEMMTUNE_NUM_THREADS", "4", 1);
  ::setenv("GTUNE_TP", "8", 1);
  ::setenv("GEMMTUNE_ONLINE_SHARE", "0.1", 1);
  EXPECT_EQ(*read_environment().online_share.read_finite(0, 1), 0.1);
  ::setenv("GEMMTUNE_ONLINE_SHARE", "25%", 1);
  EXPECT_EQ(read_environment().online_share.read_finite(0, 1).message(),
            "GEMMTUNE_ONLINE_SHARE 25%: expected a number from 0 to 1");
  ::unsetenv("GEMMTUNE_ONLINE_SHARE");
  EXPECT_EQ(*read_environment().online_share.read_finite(0, 1), std::nullopt);
  EXPECT_EQ(*read_environment().threads.read(0, 64), 4);
  EXPECT_EQ(*read_environment().tensor_parallel.read(1, 64), 8);
  EXPECT_EQ(*read_environment().batch_size.read(1, 64), std::nullopt);
}

TEST_F(EnvironmentTest, AitersRebuildCompilesAgainUnlessOursSaysNo) {
  EXPECT_FALSE(read_environment().rebuild_kernels);
  for (const char* value : {"1", "2"}) {
    ::setenv("AITER_REBUILD", value, 1);
    EXPECT_TRUE(read_environment().rebuild_kernels) << value;
  }
  ::setenv("GEMMTUNE_REBUILD", "0", 1);
  EXPECT_FALSE(read_environment().rebuild_kernels);
}

TEST_F(EnvironmentTest, ErrataAndTheCheckOfUntunedPlansHaveVariables) {
  EXPECT_EQ(read_environment().errata, "");
  EXPECT_FALSE(read_environment().verify_untuned);
  ::setenv("GEMMTUNE_ERRATA", "/my/errata", 1);
  ::setenv("GEMMTUNE_VERIFY_UNTUNED", "1", 1);
  EXPECT_EQ(read_environment().errata, "/my/errata");
  EXPECT_TRUE(read_environment().verify_untuned);
  ::setenv("GEMMTUNE_VERIFY_UNTUNED", "0", 1);
  EXPECT_FALSE(read_environment().verify_untuned);
}

TEST_F(EnvironmentTest, ShippedTablesLieBesideTheProgramUnlessAFolderIsNamed) {
  const std::string installed = read_environment().shipped_folder;
  EXPECT_TRUE(installed.ends_with("/share/gemmtune/model_configs")) << installed;
  EXPECT_TRUE(std::filesystem::exists(installed + "/llama-3.2-1b_bf16_tuned_gemm.csv"))
      << "as in a build tree";
  for (const char* off : {"0", "off", "false"}) {
    ::setenv("GEMMTUNE_SHIPPED", off, 1);
    EXPECT_EQ(read_environment().shipped_folder, "") << off;
  }
  ::setenv("GEMMTUNE_SHIPPED", "1", 1);
  EXPECT_EQ(read_environment().shipped_folder, installed);
  ::setenv("GEMMTUNE_SHIPPED", "tables", 1);
  EXPECT_EQ(read_environment().shipped_folder, std::filesystem::current_path().string() + "/tables");
}

TEST_F(EnvironmentTest, CaptureIsASwitchOrAFolder) {
  EXPECT_FALSE(read_environment().capture);
  const auto expect = [](const char* name, const char* value, bool on, const char* folder) {
    ::setenv(name, value, 1);
    EXPECT_EQ(read_environment().capture, on) << name << '=' << value;
    EXPECT_EQ(read_environment().capture_folder, folder) << name << '=' << value;
  };
  expect("AITER_TUNE_GEMM", "1", true, "");
  expect("AITER_TUNE_GEMM", "2", true, "");
  expect("AITER_TUNE_GEMM", "/shapes", true, "/shapes");
  expect("GEMMTUNE_CAPTURE", "0", false, "");  // ours wins
  expect("GEMMTUNE_CAPTURE", "off", false, "");
  expect("GEMMTUNE_CAPTURE", "True", true, "");
  expect("GEMMTUNE_CAPTURE", "/folder", true, "/folder");
}

TEST(Hash, IsStable) {
  // These values may stand in users' files: they must never change.
  EXPECT_EQ(hash64(""), 0xf52a15e9a9b5e89bULL);
  EXPECT_EQ(short_hash("gemmtune").size(), 10U);
  EXPECT_NE(short_hash("a"), short_hash("b"));
}

}  // namespace
}  // namespace gemmtune
