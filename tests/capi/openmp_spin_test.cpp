// Dispatch bounds libgomp's spin while it loads it, and nothing else is changed by that. This program starts itself:
// libgomp reads its settings once, and prints them with OMP_DISPLAY_ENV.
#include <gemmtune/c.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "backends/backend.h"
#include "support/subprocess.h"

namespace gemmtune {
namespace {

constexpr int changed_environment = 3;

/// Whether oneDNN is loaded by a context, or by a device as a tuner opens it.
int load(const std::string& role) {
  if (role == "dispatch") {
    gemmtune_context* context = nullptr;
    if (gemmtune_default_context(&context) != GEMMTUNE_OK) return 1;
  } else if (!open_device("cpu", {}).ok()) {
    return 1;
  }
  const char* given = std::getenv("GIVEN_SPINCOUNT");
  const char* now = std::getenv("GOMP_SPINCOUNT");
  const bool same = given == nullptr ? now == nullptr : now != nullptr && std::string(now) == given;
  return same ? 0 : changed_environment;
}

/// GOMP_SPINCOUNT as libgomp has it; empty where no libgomp was loaded.
std::string spin_count(const std::string& role, std::map<std::string, std::string> environment = {}) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  environment["OMP_DISPLAY_ENV"] = "VERBOSE";
  test::SubprocessOptions options;
  options.environment = std::move(environment);
  const auto result = test::run_program({program, role}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string name = "GOMP_SPINCOUNT = '";
  const auto begin = result.err.find(name);
  if (begin == std::string::npos) return {};
  const auto from = begin + name.size();
  return result.err.substr(from, result.err.find('\'', from) - from);
}

class OpenmpSpin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (spin_count("tuner").empty()) GTEST_SKIP() << "no libgomp that prints its settings";
  }
};

TEST_F(OpenmpSpin, IsBoundedForDispatchAlone) {
  const double own = std::stod(spin_count("tuner"));
  EXPECT_GT(own, 10000) << "libgomp's default";
  EXPECT_LT(std::stod(spin_count("dispatch")), own / 10);
}

TEST_F(OpenmpSpin, TheUsersWordCounts) {
  EXPECT_EQ(spin_count("dispatch", {{"GOMP_SPINCOUNT", "123456"}, {"GIVEN_SPINCOUNT", "123456"}}), "123456");
  EXPECT_EQ(spin_count("dispatch", {{"OMP_WAIT_POLICY", "passive"}}),
            spin_count("tuner", {{"OMP_WAIT_POLICY", "passive"}}));
}

}  // namespace
}  // namespace gemmtune

int main(int count, char** words) {
  if (count > 1 && words[1][0] != '-') return gemmtune::load(words[1]);
  ::testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
