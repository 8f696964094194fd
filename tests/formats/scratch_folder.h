// A folder of its own for each test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace gemmtune {

class ScratchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "gemmtune_formats_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const {
    EXPECT_TRUE(write_file_atomically(path(name), content).ok());
    return path(name);
  }
  std::string content(const std::string& name) const {
    const auto text = read_file(path(name));
    EXPECT_TRUE(text.ok()) << text.message();
    return text.ok() ? *text : std::string();
  }
  std::size_t files() const {
    const std::filesystem::directory_iterator all(folder_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  std::filesystem::path folder_;
};

}  // namespace gemmtune
