// Who waits for whom while something is timed.
#include "measure/timing_lock.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file_lock.h"

namespace gemmtune {
namespace {

class TimingLock : public ::testing::Test {
 protected:
  TimingLock() {
    std::string pattern = ::testing::TempDir() + "gemmtune_runtime_XXXXXX";
    folder_ = std::string(mkdtemp(pattern.data())) + "/gemmtune";
  }
  ~TimingLock() override { std::filesystem::remove_all(std::filesystem::path(folder_).parent_path()); }

  std::string path(const std::string& name, const std::string& bus_id) const {
    DeviceInfo device;
    device.name = name;
    device.bus_id = bus_id;
    return timing_lock_path(folder_, device);
  }

  std::string folder_;
};

// Two GPUs of one machine took turns, so that `--mp 2` was no faster than one.
TEST_F(TimingLock, TwoGpusAreTimedAtOnce) {
  const std::string first = path("cuda:0", "0000:19:00.0");
  const std::string second = path("cuda:1", "0000:3b:00.0");
  ASSERT_NE(first, second);
  const auto one = FileLock::acquire(first);
  const auto other = FileLock::acquire(second);
  EXPECT_TRUE(one.ok() && other.ok());
}

TEST_F(TimingLock, AGpuIsTheSameUnderAnyNumber) {
  EXPECT_EQ(path("cuda:1", "0000:3b:00.0"), path("cuda:0", "0000:3b:00.0"));
}

TEST_F(TimingLock, PartitionsOfTheCpusTakeTurns) {
  EXPECT_EQ(path("cpu:0-3", ""), path("cpu:4-7", ""));
  EXPECT_NE(path("cpu:0-3", ""), path("cuda:0", "0000:19:00.0"));
}

TEST_F(TimingLock, ALinkIsNoPlaceForIt) {
  ASSERT_TRUE(std::filesystem::create_directory(folder_ + "_target"));
  std::filesystem::create_symlink(folder_ + "_target", folder_);
  EXPECT_EQ(path("cpu:0", ""), "");
}

}  // namespace
}  // namespace gemmtune
