// Which libdnnl.so.3 is opened, and what is said of those that cannot be: `devices` over folders of files that are none
// (support/fake_dnnl.c).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test::onednn_files_test {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class OnednnFiles : public ::testing::Test {
 protected:
  OnednnFiles() {
    options_.environment.insert({{"GEMMTUNE_LIBRARY_DIR", ""},
                                 {"GEMMTUNE_PYTHON", ""},
                                 {"VIRTUAL_ENV", ""},
                                 {"CONDA_PREFIX", ""},
                                 {"XDG_CACHE_HOME", program_.file("cache")}});
  }

  /// A folder that holds a libdnnl.so.3: whole, partial, sycl, or damaged. Its path.
  std::string folder_with(const std::string& kind, const std::string& name) const {
    const fs::path folder = program_.file(name);
    fs::create_directories(folder);
    if (kind == "damaged") {
      EXPECT_TRUE(write_file_atomically((folder / "libdnnl.so.3").string(), "no library").ok());
    } else {
      fs::copy_file(fs::path(GEMMTUNE_FAKE_DNNL) / kind / "libdnnl.so.3", folder / "libdnnl.so.3");
    }
    return folder.string();
  }
  /// What `devices` says of oneDNN.
  Json onednn() const {
    const auto shown = program_.run({"devices", "--backend", "cpu", "--json"}, options_);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    const Json document = parse_json(shown.out);
    for (const Json& library : document["backends"][0]["devices"][0]["libraries"])
      if (library["name"] == "oneDNN") return library;
    return {};
  }
  static std::string text(const Json& library, const char* member) {
    return library.value(member, std::string("none"));
  }
  /// Without the thread sanitizer, whose build has no module.
  bool is_left_out() const { return text(onednn(), "missing").starts_with("left out"); }

  Program program_;
  SubprocessOptions options_ = program_.options();
};

TEST_F(OnednnFiles, TheFirstThatCanBeUsedWinsAndTheOthersAreSaid) {
  if (is_left_out()) GTEST_SKIP() << "left out of this build";
  const std::string damaged = folder_with("damaged", "damaged");
  const std::string sycl = folder_with("sycl", "python/lib");
  const std::string partial = folder_with("partial", "venv/lib");
  const std::string whole = folder_with("whole", "venv/lib/python3.11/site-packages/paddle/libs");
  folder_with("damaged", "cache/gemmtune/onednn/lib");  // behind the one that is taken
  options_.environment["GEMMTUNE_LIBRARY_DIR"] = damaged;
  options_.environment["GEMMTUNE_PYTHON"] = program_.file("python/bin/python3");
  options_.environment["VIRTUAL_ENV"] = program_.file("venv");
  const Json library = onednn();
  EXPECT_EQ(text(library, "version"), "3.99.1");
  EXPECT_FALSE(library.contains("year")) << "no release of that name is known";
  EXPECT_EQ(text(library, "path"), whole + "/libdnnl.so.3");
  const std::string said = text(library, "passed_over");
  EXPECT_THAT(said, StartsWith(damaged + "/libdnnl.so.3: "));
  EXPECT_THAT(said, HasSubstr("; " + sycl + "/libdnnl.so.3: oneDNN 3.97.1 runs on SYCL, expected OpenMP"));
  EXPECT_THAT(said, EndsWith("; " + partial + "/libdnnl.so.3: it has no function dnnl_set_max_cpu_isa"));

  const auto text = program_.run({"devices", "--backend", "cpu"}, options_);
  EXPECT_THAT(text.out, HasSubstr("    oneDNN 3.99.1\n    oneDNN: passed over: " + said + "\n"));
}

TEST_F(OnednnFiles, TheCacheIsTheLastPlace) {
  if (is_left_out()) GTEST_SKIP() << "left out of this build";
  const std::string cached = folder_with("whole", "cache/gemmtune/onednn/lib");
  EXPECT_EQ(text(onednn(), "path"), cached + "/libdnnl.so.3");
  fs::create_directories(program_.file("venv/lib"));  // that has none
  options_.environment["VIRTUAL_ENV"] = program_.file("venv");
  EXPECT_EQ(text(onednn(), "path"), cached + "/libdnnl.so.3");
  const std::string named = folder_with("whole", "named");
  options_.environment["GEMMTUNE_LIBRARY_DIR"] = named;
  EXPECT_EQ(text(onednn(), "path"), named + "/libdnnl.so.3");
}

TEST_F(OnednnFiles, WithoutOneTheDistributionsIsUsed) {
  const Json plain = onednn();
  if (!text(plain, "missing").empty()) GTEST_SKIP() << text(plain, "missing");
  EXPECT_EQ(text(plain, "passed_over"), "none");
  const std::string damaged = folder_with("damaged", "damaged");
  options_.environment["GEMMTUNE_LIBRARY_DIR"] = damaged;
  const Json library = onednn();
  EXPECT_EQ(text(library, "version"), text(plain, "version"));
  EXPECT_EQ(text(library, "path"), text(plain, "path"));
  EXPECT_THAT(text(library, "passed_over"), StartsWith(damaged + "/libdnnl.so.3: "));
}

TEST_F(OnednnFiles, AFolderWithoutItAndWithoutOurModulesHasNone) {
  if (is_left_out()) GTEST_SKIP() << "left out of this build";
  options_.environment["GEMMTUNE_LIBRARY_DIR"] = program_.config_folder();
  const Json library = onednn();
  EXPECT_EQ(text(library, "version"), "");
  EXPECT_THAT(text(library, "missing"), HasSubstr(program_.config_folder() + "/libgemmtune_onednn.so"));
}

}  // namespace
}  // namespace gemmtune::test::onednn_files_test
