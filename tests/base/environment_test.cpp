#include "base/environment.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>

#include "base/hash.h"

namespace gemmtune {
namespace {

class EnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"GEMMTUNE_CONFIG_DIR", "XDG_CONFIG_HOME", "HOME", "GEMMTUNE_CONFIG_A16W16",
                             "AITER_CONFIG_GEMM_BF16", "GEMMTUNE_LOG_CONFIG", "AITER_LOG_TUNED_CONFIG",
                             "GEMMTUNE_NUM_THREADS", "GEMMTUNE_CPU_ISA", "GEMMTUNE_CAPTURE",
                             "GEMMTUNE_ERRATA", "GEMMTUNE_VERIFY_UNTUNED", "AITER_TUNE_GEMM", "GTUNE_MODEL",
                             "GTUNE_BATCH_SIZE", "GTUNE_TP", "GEMMTUNE_REBUILD", "AITER_REBUILD"}) {
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
  EXPECT_EQ(read_environment().config_folder, here + "/g");
  EXPECT_EQ(read_environment().capture_folder, here + "/c");
  EXPECT_EQ(read_environment().module_folder, here + "/l");
  EXPECT_EQ(read_environment().powercap_folder, here + "/p");
  ::unsetenv("GEMMTUNE_POWERCAP_DIR");
  ::unsetenv("GEMMTUNE_LIBRARY_DIR");
}

TEST_F(EnvironmentTest, SwitchesAndNumbers) {
  EXPECT_FALSE(read_environment().log_config);
  ::setenv("AITER_LOG_TUNED_CONFIG", "2", 1);
  EXPECT_TRUE(read_environment().log_config);
  ::setenv("GEMMTUNE_LOG_CONFIG", "0", 1);
  EXPECT_FALSE(read_environment().log_config);
  ::setenv("GEMMTUNE_NUM_THREADS", "4", 1);
  ::setenv("GTUNE_TP", "8", 1);
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
