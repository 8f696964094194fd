// Where libgemmtune looks for its modules if its own path is relative and the working folder is another one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "support/subprocess.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

/// The library and its modules as installed, once beside where the program begins, once where it goes.
TEST(ModuleFolder, ARelativeLibraryPathAndAChdirLoadNothingOfTheNewFolder) {
  const fs::path built = fs::path(GEMMTUNE_LIBRARY).parent_path();
  const std::string module = "gemmtune/libgemmtune_onednn.so";
  const bool has_module = fs::exists(built / module);
  const test::TemporaryFolder folder;
  for (const char* name : {"begin", "new"}) {
    const fs::path lib = fs::path(folder.path()) / name / "lib";
    fs::create_directories(lib / "gemmtune");
    for (const std::string& file : {std::string("libgemmtune.so.0"), std::string("libgemmtune_tuning.so.0")})
      fs::copy_file(built / file, lib / file);
    if (has_module) fs::copy_file(built / module, lib / module);
  }
  test::SubprocessOptions options;
  options.working_folder = folder.file("begin");
  options.environment = {{"LD_LIBRARY_PATH", "lib"},
                         {"GEMMTUNE_CONFIG_DIR", folder.file("config")},
                         {"GEMMTUNE_ONLINE_TUNING", "1"},
                         {"GEMMTUNE_LIBRARY_DIR", ""}};
  const auto result = test::run_program({GEMMTUNE_MOVED_FOLDER, folder.file("new")}, options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("/begin/lib/libgemmtune.so.0"));
  EXPECT_THAT(result.out, HasSubstr("/begin/lib/libgemmtune_tuning.so.0"));
  if (has_module) {
    EXPECT_THAT(result.out, HasSubstr("/begin/lib/" + module));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("/new/")));
}

}  // namespace
}  // namespace gemmtune
