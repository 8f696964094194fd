// What --device, --backend and a container's limits mean, and the errors of wrong ones.
#include "backends/device_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backends/cpu/machine/cache_probe.h"
#include "backends/cpu/machine/core_set.h"
#include "backends/cpu/machine/system_limits.h"

namespace gemmtune::cpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Environment with_threads(const char* text) {
  Environment environment;
  environment.threads.text = text;
  return environment;
}

TEST(DeviceRequests, OptionsWinOverTheEnvironment) {
  Environment environment = with_threads("3");
  environment.cpu_isa = "avx2";
  environment.module_folder = "/modules";
  environment.kernel_cache_folder = "/kernels";
  environment.rebuild_kernels = true;
  const auto request = device_request({.text = "cpu:0-3", .pin_threads = true}, environment);
  ASSERT_TRUE(request.ok()) << request.message();
  EXPECT_EQ(request->text, "cpu:0-3");
  EXPECT_EQ(request->threads, 3);
  EXPECT_EQ(request->isa_cap, "avx2");
  EXPECT_EQ(request->module_folder, "/modules");
  EXPECT_EQ(request->kernel_cache_folder, "/kernels");
  EXPECT_TRUE(request->rebuild_kernels);
  EXPECT_TRUE(request->pin_threads);
  EXPECT_EQ(device_request({.threads = 2}, environment)->threads, 2);
  EXPECT_EQ(device_request({.threads = 2}, with_threads("abc"))->threads, 2);
  EXPECT_EQ(device_request({}, with_threads(""))->threads, 0);
  EXPECT_EQ(device_request({}, with_threads("0"))->threads, 0);
}

TEST(DeviceRequests, RefuseNumbersThatAreNone) {
  for (const char* text : {"abc", "-1", "1.5", "4294967297", "99999999999999999999", "inf"}) {
    const auto request = device_request({}, with_threads(text));
    EXPECT_EQ(request.code(), StatusCode::invalid_argument) << text;
    EXPECT_THAT(request.message(), HasSubstr("GEMMTUNE_NUM_THREADS " + std::string(text)));
  }
  EXPECT_THAT(device_request({.threads = -1}, {}).message(), HasSubstr("threads = -1"));
  EXPECT_THAT(device_request({.threads = 4294967297}, {}).message(), HasSubstr("threads = 4294967297"));
}

TEST(DeviceRequests, AStatedCacheIsTheDevices) {
  Environment environment;
  for (const char* text : {"-1", "1.5", "5000", "32MB"}) {
    environment.last_level_cache_mib.text = text;
    EXPECT_THAT(device_request({}, environment).message(),
                HasSubstr("GEMMTUNE_LAST_LEVEL_CACHE_MIB " + std::string(text)));
  }
  environment.last_level_cache_mib.text = "3";  // less than any probe answers
  const auto device = open_device("cpu", device_request({}, environment).value());
  ASSERT_TRUE(device.ok()) << device.message();
  EXPECT_EQ((*device)->last_level_cache_bytes(), std::size_t{3} << 20);
  EXPECT_EQ((*device)->observe().at("last_level_cache_mib"), 3);
}

Environment with_team(const char* text) {
  Environment environment;
  environment.team = text;
  return environment;
}

TEST(DeviceRequests, TheTeamIsTheChoicesElseTheEnvironmentsElseTheDefault) {
  const DeviceChoice tuner{.default_team = Team::openmp_or_own};
  EXPECT_EQ(device_request({}, {})->team, Team::automatic);
  EXPECT_EQ(device_request(tuner, {})->team, Team::openmp_or_own);
  EXPECT_EQ(device_request(tuner, with_team("auto"))->team, Team::openmp_or_own);
  EXPECT_EQ(device_request(tuner, with_team("own"))->team, Team::own);
  EXPECT_EQ(device_request({.team = Team::own}, with_team("openmp"))->team, Team::own);
  EXPECT_EQ(device_request({.team = Team::callback}, with_team("openmp"))->team, Team::callback);
  EXPECT_EQ(device_request({}, with_team("openmp"))->team, Team::openmp);
}

TEST(DeviceRequests, RefuseTeamsThatAreNone) {
  for (const char* text : {"gomp", "callback", "openmp-or-own", "OWN", "1"}) {
    const auto request = device_request({}, with_team(text));
    EXPECT_EQ(request.code(), StatusCode::invalid_argument) << text;
    EXPECT_THAT(request.message(), HasSubstr(std::string("GEMMTUNE_TEAM ") + text));
  }
}

TEST(CoreList, ReadsAndPrints) {
  EXPECT_EQ(*parse_core_list("0-3,8"), (CoreList{0, 1, 2, 3, 8}));
  EXPECT_EQ(*parse_core_list("5,2"), (CoreList{5, 2}));
  for (const char* text : {"0", "0-15", "0,2", "0-1,4-6,9", "5,2"}) {
    EXPECT_EQ(print_core_list(*parse_core_list(text)), text);
  }
}

TEST(CoreList, RefusesOtherTexts) {
  for (const char* text :
       {"", ",", "0,", "x", "-1", "3-1", "0-", "1.5", "0-99999999999", "+1", "0x1", "20000"}) {
    const auto cores = parse_core_list(text);
    EXPECT_EQ(cores.code(), StatusCode::invalid_argument) << text;
  }
  EXPECT_THAT(parse_core_list("0-2,1").message(), HasSubstr("core 1 is named twice"));
}

TEST(ChooseCores, TakesWhatIsAllowed) {
  const CoreList allowed{0, 1, 4, 5};
  EXPECT_EQ(choose_cores("", 0, allowed, 0)->cores, allowed);
  EXPECT_EQ(choose_cores("cpu", 2, allowed, 0)->cores, (CoreList{0, 1}));
  EXPECT_EQ(choose_cores("cpu:4-5,0", 2, allowed, 0)->cores, (CoreList{4, 5}));
  EXPECT_TRUE(choose_cores("cpu:4", 0, allowed, 0)->named);
  EXPECT_FALSE(choose_cores("cpu", 0, allowed, 0)->named);
}

TEST(ChooseCores, KeepsWithinTheQuotaUnlessToldOtherwise) {
  const CoreList allowed{0, 1, 2, 3};
  EXPECT_EQ(choose_cores("cpu", 0, allowed, 2.5)->cores.size(), 2U);
  EXPECT_EQ(choose_cores("cpu", 0, allowed, 0.5)->cores.size(), 1U);
  EXPECT_EQ(choose_cores("cpu", 0, allowed, 64)->cores.size(), 4U);
  EXPECT_EQ(choose_cores("cpu", 3, allowed, 2)->cores.size(), 3U);
  EXPECT_EQ(choose_cores("cpu:0-3", 0, allowed, 2)->cores.size(), 4U);
}

TEST(ChooseCores, SaysWhatIsWrong) {
  const CoreList allowed{0, 1};
  const auto why = [&](std::string_view text, int threads) {
    return choose_cores(text, threads, allowed, 0).status().message();
  };
  EXPECT_THAT(why("cpu:0-15", 0),
              AllOf(HasSubstr("cpu:0-15"), HasSubstr("no core 2"), HasSubstr("cores 0-1")));
  EXPECT_THAT(why("cpu", 3), AllOf(HasSubstr("threads = 3"), HasSubstr("2 core(s): 0-1")));
  EXPECT_THAT(why("cpu", -1), HasSubstr("threads = -1"));
  EXPECT_THAT(why("gpu:0", 0), AllOf(HasSubstr("gpu:0"), HasSubstr("cpu:CORES")));
  EXPECT_THAT(why("cpu:", 0), HasSubstr("cpu:"));
  EXPECT_THAT(why("cpu0", 0), HasSubstr("cpu0"));
}

/// A small /proc and /sys.
class SystemLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/gemmtune-limits-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    root_ = pattern;
    write("/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 5 kB\nMemAvailable:     800 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << content;
  }
  std::string root_;
};

TEST_F(SystemLimits, WithoutGroups) {
  EXPECT_EQ(cpu_quota(root_), 0);
  EXPECT_EQ(free_memory_bytes(root_), 800U * 1024);
  EXPECT_EQ(cpu_model_name(root_), "unknown CPU");
}

TEST_F(SystemLimits, ReadsVersion2AndTheGroupsAbove) {
  write("/proc/self/cgroup", "0::/pod/job\n");
  write("/sys/fs/cgroup/pod/job/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  write("/sys/fs/cgroup/pod/job/memory.max", "max\n");
  write("/sys/fs/cgroup/pod/memory.max", "500000\n");
  write("/sys/fs/cgroup/pod/memory.current", "400000\n");
  write("/sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 50000\n");
  EXPECT_DOUBLE_EQ(cpu_quota(root_), 2.5);
  EXPECT_EQ(free_memory_bytes(root_), 150000U);
}

TEST_F(SystemLimits, ReadsTheLimitsOfTheProcess) {
  write("/proc/self/status", "Name: x\nVmSize:\t     300 kB\nVmData:\t      100 kB\n");
  write("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max data size             unlimited            unlimited            bytes     \n"
        "Max address space         512000               unlimited            bytes     \n");
  EXPECT_EQ(free_memory_bytes(root_), 512000U - 300 * 1024);
  write("/proc/self/limits", "Max data size             1000      1000      bytes\n");
  EXPECT_EQ(free_memory_bytes(root_), 0U);
}

TEST_F(SystemLimits, ReadsVersion1) {
  write("/proc/self/cgroup", "3:cpu,cpuacct:/\n4:memory:/box\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "300000\n");
  write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "299000\n");
  EXPECT_DOUBLE_EQ(cpu_quota(root_), 1.5);
  EXPECT_EQ(free_memory_bytes(root_), 1000U);
}

TEST_F(SystemLimits, ReadsModelAndCaches) {
  write("/proc/cpuinfo", "processor : 0\nmodel name\t: Some CPU 9000\n");
  for (int core = 0; core < 4; ++core) {
    const std::string cache = "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index";
    write(cache + "0/level", "1\n");
    write(cache + "1/level", "2\n");
    write(cache + "1/size", "1024K\n");
    write(cache + "2/level", "3\n");
    write(cache + "2/size", "32M\n");
    write(cache + "2/shared_cpu_list", core < 2 ? "0-1\n" : "2-3\n");
  }
  EXPECT_EQ(cpu_model_name(root_), "Some CPU 9000");
  const auto two = reported_caches({0, 1}, root_);
  EXPECT_EQ(two.level2_bytes, 1U << 20);
  EXPECT_EQ(two.last_bytes, 32U << 20);
  EXPECT_EQ(two.last_instances, 1);
  EXPECT_EQ(reported_caches({0, 1, 2, 3}, root_).last_instances, 2);
}

TEST(CacheProbe, FindsTheStep) {
  const std::size_t mib = 1U << 20;
  const std::vector<ReadRate> step{
      {8 * mib, 100e9}, {16 * mib, 53e9}, {32 * mib, 28e9}, {64 * mib, 27e9}, {128 * mib, 25e9}};
  EXPECT_EQ(first_uncached_bytes(step), 32 * mib);
  const std::vector<ReadRate> flat{{8 * mib, 26e9}, {16 * mib, 25e9}, {32 * mib, 25e9}};
  EXPECT_EQ(first_uncached_bytes(flat), 0U);
  EXPECT_EQ(first_uncached_bytes({}), 0U);
}

// A neighbour that filled the cache for the moment of the probe made pools too small, and weights warm.
TEST(CacheProbe, DoesNotMakeASmallReportSmaller) {
  const std::size_t mib = 1U << 20;
  EXPECT_EQ(believable_cache_bytes(32 * mib, 4 * mib), 32 * mib);
  EXPECT_EQ(believable_cache_bytes(480 * mib, 4 * mib), 64 * mib);
  EXPECT_EQ(believable_cache_bytes(480 * mib, 128 * mib), 128 * mib);
  EXPECT_EQ(believable_cache_bytes(96 * mib, 256 * mib), 96 * mib);
  EXPECT_EQ(believable_cache_bytes(96 * mib, 0), 96 * mib);
  EXPECT_EQ(believable_cache_bytes(0, 8 * mib), 64 * mib);
}

TEST(CacheProbe, AnswersTheSameWithinItsBounds) {
  const CoreList cores = thread_affinity();
  const std::size_t bytes = effective_last_level_cache(cores);
  EXPECT_GE(bytes, std::size_t{4} << 20);
  EXPECT_LE(bytes, std::size_t{512} << 20);
  EXPECT_EQ(effective_last_level_cache(cores), bytes);
}

std::string why_not_open(std::string_view backend, const std::string& device) {
  DeviceRequest request;
  request.text = device;
  const auto opened = open_device(backend, request);
  EXPECT_FALSE(opened.ok());
  return opened.message();
}

TEST(OpenDevice, SaysWhyThereIsNoGpuInOneLine) {
  if (std::filesystem::exists("/proc/driver/nvidia/version"))
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  EXPECT_THAT(why_not_open("cuda", ""),
              AllOf(HasSubstr("cuda"), HasSubstr("NVIDIA driver"), Not(HasSubstr("\n"))));
  EXPECT_THAT(why_not_open("auto", "cuda:0"), HasSubstr("NVIDIA driver"));
}

TEST(OpenDevice, SaysWhatItDoesNotKnow) {
  EXPECT_THAT(why_not_open("tpu", ""), AllOf(HasSubstr("'tpu'"), HasSubstr("auto, cuda, hip, cpu")));
  EXPECT_THAT(why_not_open("cpu", "cuda:0"), HasSubstr("backend cpu has no device cuda:0"));
  EXPECT_THAT(why_not_open("cpu", "cpu:9999"), HasSubstr("no core 9999"));
  EXPECT_THAT(why_not_open("auto", "nonsense"), HasSubstr("nonsense"));
  DeviceRequest request;
  request.isa_cap = "mmx";
  EXPECT_THAT(open_device("cpu", request).message(), AllOf(HasSubstr("mmx"), HasSubstr("avx512bf16")));
}

TEST(OpenDevice, ListsBackendsAndDevices) {
  ASSERT_EQ(all_backends().size(), 3U);
  const auto devices = all_backends().back()->devices({});
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].backend, "cpu");
  EXPECT_THAT(devices[0].name, HasSubstr("cpu:"));
  EXPECT_THAT(devices[0].gfx, HasSubstr("x86-"));
  ASSERT_EQ(devices[0].libraries.size(), 2U);
  for (const Library& library : devices[0].libraries) {
    EXPECT_NE(library.version.empty(), library.why.empty()) << library.name;
    EXPECT_EQ(library.path.empty(), library.version.empty()) << library.name;
  }
}

}  // namespace
}  // namespace gemmtune::cpu
