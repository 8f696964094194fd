// RAPL over a folder of the test: which counters count, where they begin anew, and what an energy batch makes of them.
#include "backends/cpu/machine/energy_counter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "backends/cpu/cpu_backend.h"
#include "backends/gpu/counter_slope.h"
#include "support/temporary_folder.h"

namespace gemmtune::cpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t range = 262143328850;

class EnergyCounterTest : public ::testing::Test {
 protected:
  void zone(const std::string& name, const std::string& kind, std::int64_t microjoules) {
    folder_.write(name + "/name", kind + "\n");
    folder_.write(name + "/max_energy_range_uj", std::to_string(range) + "\n");
    count(name, microjoules);
  }
  void count(const std::string& name, std::int64_t microjoules) {
    folder_.write(name + "/energy_uj", std::to_string(microjoules) + "\n");
  }

  test::TemporaryFolder folder_;
};

TEST_F(EnergyCounterTest, PackagesAreAddedUpAndNothingElseIs) {
  zone("intel-rapl:0", "package-0", 1000000);
  zone("intel-rapl:1", "package-1", 5000000);
  zone("intel-rapl:2", "psys", 70);
  zone("intel-rapl:0:0", "core", 70);
  zone("intel-rapl-mmio:0", "package-0", 70);
  const auto counter = EnergyCounter::open(folder_.path());
  ASSERT_TRUE(counter.ok()) << counter.message();
  const auto before = counter->read();
  ASSERT_TRUE(before.ok());
  for (const char* name : {"intel-rapl:2", "intel-rapl:0:0", "intel-rapl-mmio:0"}) count(name, 99000000);
  count("intel-rapl:0", 3500000);
  count("intel-rapl:1", 5250000);
  EXPECT_DOUBLE_EQ(counter->joules(*before, *counter->read()), 2.75);
}

TEST_F(EnergyCounterTest, ACounterThatBeganAnewCountsOn) {
  zone("intel-rapl:0", "package-0", range - 1000000);
  zone("intel-rapl:1", "package-1", 4000000);
  const auto counter = EnergyCounter::open(folder_.path());
  ASSERT_TRUE(counter.ok()) << counter.message();
  const auto before = counter->read();
  count("intel-rapl:0", 500000);
  count("intel-rapl:1", 4250000);
  EXPECT_DOUBLE_EQ(counter->joules(*before, *counter->read()), 1.75);
}

TEST_F(EnergyCounterTest, ErrorsNameWhatWasLookedFor) {
  const auto none = EnergyCounter::open(folder_.file("none"));
  EXPECT_EQ(none.code(), StatusCode::unsupported);
  EXPECT_THAT(none.message(), AllOf(HasSubstr(folder_.file("none")), HasSubstr("intel-rapl:<number>")));
  zone("intel-rapl:0", "package-0", 7);
  std::filesystem::remove(folder_.file("intel-rapl:0/energy_uj"));
  std::filesystem::create_directory(folder_.file("intel-rapl:0/energy_uj"));  // root reads every file
  const auto unreadable = EnergyCounter::open(folder_.path());
  EXPECT_EQ(unreadable.code(), StatusCode::unsupported);
  EXPECT_THAT(unreadable.message(),
              AllOf(HasSubstr(folder_.file("intel-rapl:0/energy_uj")), HasSubstr("root")));
  std::filesystem::remove(folder_.file("intel-rapl:0/energy_uj"));
  folder_.write("intel-rapl:0/energy_uj", "much\n");
  EXPECT_THAT(EnergyCounter::open(folder_.path()).message(), HasSubstr("'much', expected microjoules"));
}

constexpr std::int64_t short_range = 25 * 250000;

/// Each call takes 2 ms and a quarter of a joule. The counter begins anew at every 25th.
class CountingKernel final : public Kernel {
 public:
  explicit CountingKernel(std::string path) : path_(std::move(path)) {}
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands&, void*, Stream) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (path_.empty()) return {};
    value_ = (value_ + 250000) % short_range;
    std::ofstream(path_) << value_;
    return {};
  }

 private:
  std::string path_;
  mutable std::int64_t value_ = 0;
};

TEST_F(EnergyCounterTest, ABatchIsWhatItsCallsCounted) {
  zone("intel-rapl:0", "package-0", 0);
  folder_.write("intel-rapl:0/max_energy_range_uj", std::to_string(short_range));
  DeviceRequest request;
  request.threads = 1;
  request.powercap_folder = folder_.path();
  const auto device = cpu_backend().open(request);
  ASSERT_TRUE(device.ok()) << device.message();
  EXPECT_TRUE((*device)->counts_energy().ok());
  const CountingKernel kernel(folder_.file("intel-rapl:0/energy_uj"));
  const Operands operands[1];
  SampleRequest sample{&kernel, operands};
  sample.launches = 3;
  for (int batch = 0; batch < 6; ++batch) {  // of 3 to 18 calls, wherever the counter is
    const auto energy = (*device)->sample_energy(sample, 0.03);
    ASSERT_TRUE(energy.ok()) << energy.message();
    EXPECT_DOUBLE_EQ(energy->joules, 0.25);
    EXPECT_GE(energy->microseconds, 2000);
  }
  const CountingKernel idle{std::string()};
  sample.kernel = &idle;
  EXPECT_THAT((*device)->sample_energy(sample, 0.01).message(), HasSubstr("did not move"));
}

TEST(CounterSlope, ReadingsBetweenUpdatesDoNotCount) {
  gpu::CounterSlope slope;
  EXPECT_FALSE(slope.watts());
  // 400 W, updated at 0.1, 0.2 …; read every 30 ms.
  for (int i = 0; i <= 40; ++i) {
    const double seconds = 0.03 * i;
    slope.add(seconds, 40.0 * static_cast<int>(seconds * 10 + 1e-9));
  }
  ASSERT_TRUE(slope.watts());
  EXPECT_NEAR(*slope.watts(), 400, 400 * 0.03);
  EXPECT_GT(slope.seconds(), 1);
  gpu::CounterSlope still;
  for (int i = 0; i < 10; ++i) still.add(i, 5);
  EXPECT_FALSE(still.watts());
}

}  // namespace
}  // namespace gemmtune::cpu
