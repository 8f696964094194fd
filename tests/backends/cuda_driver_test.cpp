// The CUDA driver over a table of functions that note their calls: which of libcuda's functions are called,
// in which order, and with which attributes. No GPU.
#include "backends/cuda/cuda_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gemmtune::cuda {
namespace {

using ::testing::HasSubstr;
using Calls = std::vector<std::string>;

/// What the table's functions see and answer; one test at a time.
struct Cuda {
  Calls calls;
  std::string failing;  // this call fails
  int version = 12040;
  int cooperative = 1;
  int bus_bits = 6016;      // of the memory
  unsigned affinity = 132;  // multiprocessors of the context
  int major = 9;
  std::vector<int> attributes;  // of the last launch
  unsigned cluster = 0;         // of the last launch that has one
  unsigned grid = 0;
  bool capturing = false;
  unsigned record_flags = 99;  // of the last event that was recorded
  int capture_mode = 0;        // of the thread; 0: global
  Calls ending_captures;       // calls that end a capture in global mode

  api::Result note(const char* name) {
    calls.emplace_back(name);
    if (capture_mode != api::capture_mode_relaxed) ending_captures.emplace_back(name);
    return failing == name ? 1 : api::success;
  }
  void note(const api::LaunchConfig& config) {
    attributes.clear();
    grid = config.grid[0];
    for (unsigned i = 0; i < config.attribute_count; ++i) {
      attributes.push_back(config.attributes[i].id);
      if (config.attributes[i].id == api::launch_attribute_cluster)
        cluster = config.attributes[i].value.cluster[0];
    }
  }
  Calls take() { return std::exchange(calls, {}); }
};
Cuda cuda_state;

template <typename Handle>
Handle handle_of(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

void add_context(api::Driver& f) {
  f.device_get = [](api::Device*, int) { return cuda_state.note("device_get"); };
  f.driver_version = [](int* version) {
    *version = cuda_state.version;
    return cuda_state.note("driver_version");
  };
  f.device_attribute = [](int* value, int attribute, api::Device) {
    *value = attribute == api::attribute_major                ? cuda_state.major
             : attribute == api::attribute_minor              ? 0
             : attribute == api::attribute_cooperative_launch ? cuda_state.cooperative
             : attribute == api::attribute_clock_khz          ? 1980000
             : attribute == api::attribute_memory_clock_khz   ? 3201000
             : attribute == api::attribute_memory_bus_bits    ? cuda_state.bus_bits
                                                              : 132;
    return cuda_state.note("device_attribute");
  };
  f.context_retain = [](api::Context* context, api::Device) {
    *context = handle_of<api::Context>(1);
    return cuda_state.note("context_retain");
  };
  f.exec_affinity = [](api::ExecAffinity* affinity, int) {
    affinity->multiprocessors = cuda_state.affinity;
    return cuda_state.note("exec_affinity");
  };
  f.context_set = [](api::Context) { return cuda_state.note("context_set"); };
  f.context_release = [](api::Device) { return cuda_state.note("context_release"); };
  f.stream_create = [](api::CudaStream* stream, unsigned) {
    *stream = handle_of<api::CudaStream>(2);
    return cuda_state.note("stream_create");
  };
  f.stream_destroy = [](api::CudaStream) { return cuda_state.note("stream_destroy"); };
}

void add_programs(api::Driver& f) {
  f.module_load = [](api::Module* module, const void*) {
    *module = handle_of<api::Module>(3);
    return cuda_state.note("module_load");
  };
  f.module_unload = [](api::Module) { return cuda_state.note("module_unload"); };
  f.module_function = [](api::Function*, api::Module, const char*) {
    return cuda_state.note("module_function");
  };
  f.function_set = [](api::Function, int, int) { return cuda_state.note("function_set"); };
  f.launch = [](const api::LaunchConfig* config, api::Function, void**, void**) {
    cuda_state.note(*config);
    return cuda_state.note("launch");
  };
  f.max_active_clusters = [](int* clusters, api::Function, const api::LaunchConfig* config) {
    cuda_state.note(*config);
    *clusters = 132 / static_cast<int>(cuda_state.cluster);
    return cuda_state.note("max_active_clusters");
  };
}

void add_graphs(api::Driver& f) {
  f.capture_begin = [](api::CudaStream, int) {
    cuda_state.capturing = true;
    return cuda_state.note("capture_begin");
  };
  f.capture_status = [](api::CudaStream, int* status) {
    *status = cuda_state.capturing ? 1 : api::capture_none;
    return api::Result{api::success};
  };
  f.exchange_capture_mode = [](int* mode) {
    std::swap(*mode, cuda_state.capture_mode);
    return api::Result{api::success};
  };
  f.event_record = [](api::Event, api::CudaStream, unsigned flags) {
    cuda_state.record_flags = flags;
    return api::Result{api::success};
  };
  f.capture_end = [](api::CudaStream, api::Graph* graph) {
    *graph = handle_of<api::Graph>(4);
    return cuda_state.note("capture_end");
  };
  f.graph_instantiate = [](api::GraphExec* graph, api::Graph, unsigned long long) {
    *graph = handle_of<api::GraphExec>(5);
    return cuda_state.note("graph_instantiate");
  };
  f.graph_destroy = [](api::Graph) { return cuda_state.note("graph_destroy"); };
  f.graph_upload = [](api::GraphExec, api::CudaStream) { return cuda_state.note("graph_upload"); };
  f.graph_exec_destroy = [](api::GraphExec) { return cuda_state.note("graph_exec_destroy"); };
}

void add_memory(api::Driver& f) {
  f.memory_granularity = [](std::size_t* page, const api::MemoryProperties*, int) {
    *page = 4096;
    return cuda_state.note("memory_granularity");
  };
  f.address_reserve = [](api::DevicePointer* address, std::size_t, std::size_t, api::DevicePointer,
                         unsigned long long) {
    *address = 0x10000;
    return cuda_state.note("address_reserve");
  };
  f.memory_create = [](api::MemoryHandle* handle, std::size_t, const api::MemoryProperties*,
                       unsigned long long) {
    const api::Result result = cuda_state.note("memory_create");
    if (result == api::success) *handle = 6;
    return result;
  };
  f.memory_map = [](api::DevicePointer, std::size_t, std::size_t, api::MemoryHandle, unsigned long long) {
    return cuda_state.note("memory_map");
  };
  f.memory_access = [](api::DevicePointer, std::size_t, const api::MemoryAccess*, std::size_t) {
    return cuda_state.note("memory_access");
  };
  f.memory_unmap = [](api::DevicePointer, std::size_t) { return cuda_state.note("memory_unmap"); };
  f.memory_release = [](api::MemoryHandle) { return cuda_state.note("memory_release"); };
  f.address_free = [](api::DevicePointer, std::size_t) { return cuda_state.note("address_free"); };
}

class CudaDriverTest : public ::testing::Test {
 protected:
  CudaDriverTest() {
    cuda_state = {};
    add_context(table_);
    add_programs(table_);
    add_graphs(table_);
    add_memory(table_);
  }
  std::unique_ptr<CudaDriver> open() {
    auto driver = CudaDriver::open(table_, 0);
    EXPECT_TRUE(driver.ok()) << driver.message();
    cuda_state.take();
    return driver.ok() ? std::move(*driver) : nullptr;
  }
  api::Driver table_{};
};

TEST_F(CudaDriverTest, OpensAndClosesInOrder) {
  cuda_state.major = 8;
  auto driver = CudaDriver::open(table_, 0);
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ(cuda_state.take(),
            (Calls{"device_get", "device_attribute", "device_attribute", "device_attribute",
                   "device_attribute", "device_attribute", "device_attribute", "device_attribute",
                   "driver_version", "device_attribute", "device_attribute", "device_attribute",
                   "context_retain", "context_set", "exec_affinity", "stream_create"}));
  EXPECT_EQ((*driver)->properties().architecture, "sm_80");
  EXPECT_EQ((*driver)->properties().limits.multiprocessors, 132);
  EXPECT_DOUBLE_EQ((*driver)->properties().limits.cycles_per_microsecond, 1980);
  EXPECT_DOUBLE_EQ((*driver)->properties().limits.memory_bytes_per_microsecond, 2 * 3201 * 752.0);
  driver->reset();
  EXPECT_EQ(cuda_state.take(), (Calls{"context_set", "stream_destroy", "context_release"}));
}

TEST_F(CudaDriverTest, AFailedStartReleasesWhatItHas) {
  cuda_state.failing = "stream_create";
  EXPECT_THAT(CudaDriver::open(table_, 0).message(), HasSubstr("cuStreamCreate"));
  EXPECT_EQ(cuda_state.calls.back(), "context_release");
  cuda_state = {};
  cuda_state.failing = "context_retain";
  EXPECT_FALSE(CudaDriver::open(table_, 0).ok());
}

TEST_F(CudaDriverTest, CountsClustersFromSm90On) {
  const auto driver = open();
  ASSERT_NE(driver, nullptr);
  EXPECT_EQ(driver->properties().architecture, "sm_90a");
  EXPECT_EQ(driver->clusters(), (ClusterCounts{0, 132, 66, 44, 33, 26, 22, 18, 16}));
  cuda_state.failing = "module_load";
  EXPECT_EQ(open()->clusters(), ClusterCounts{});
  cuda_state.failing.clear();
  table_.max_active_clusters = nullptr;
  EXPECT_EQ(open()->clusters()[2], 0);
  const HopperLimits limits(driver->properties().limits);
  EXPECT_EQ(limits.clusters_at_once(2), 66);
  EXPECT_EQ(limits.clusters_at_once(3), 40);
}

// Reported: --launch eager failed with CUDA_ERROR_ILLEGAL_STATE, which CUDA answers to that flag outside of a capture.
TEST_F(CudaDriverTest, EventsAreExternalNodesOnlyWithinACapture) {
  const auto driver = open();
  ASSERT_TRUE(driver->record(nullptr, driver->own_stream()).ok());
  EXPECT_EQ(cuda_state.record_flags, api::event_record_default);
  ASSERT_TRUE(driver->begin_capture(driver->own_stream()).ok());
  ASSERT_TRUE(driver->record(nullptr, driver->own_stream()).ok());
  EXPECT_EQ(cuda_state.record_flags, api::event_record_external);
}

TEST_F(CudaDriverTest, TheExtensionOfALaunchBecomesAttributes) {
  const auto driver = open();
  HopperLaunch hopper;
  gpu::LaunchShape shape;
  shape.grid[0] = 12;
  ASSERT_TRUE(driver->launch({}, shape, nullptr, {}).ok());
  EXPECT_TRUE(cuda_state.attributes.empty());
  shape.extension = &hopper;
  ASSERT_TRUE(driver->launch({}, shape, nullptr, {}).ok());
  EXPECT_TRUE(cuda_state.attributes.empty());
  hopper.cluster = 3;
  hopper.dependent = true;
  ASSERT_TRUE(driver->launch({}, shape, nullptr, {}).ok());
  EXPECT_EQ(cuda_state.attributes,
            (std::vector{api::launch_attribute_cluster, api::launch_attribute_programmatic}));
  EXPECT_EQ(cuda_state.cluster, 3U);
  EXPECT_EQ(driver->clusters_at_once({}, shape), 44);
  EXPECT_EQ(cuda_state.grid, 3U);
  cuda_state.version = 12020;
  ASSERT_TRUE(open()->launch({}, shape, nullptr, {}).ok());
  EXPECT_EQ(cuda_state.attributes, std::vector{api::launch_attribute_cluster});
  hopper.cluster = 1;
  hopper.cooperative = true;
  ASSERT_TRUE(driver->launch({}, shape, nullptr, {}).ok());
  EXPECT_EQ(cuda_state.attributes,
            (std::vector{api::launch_attribute_programmatic, api::launch_attribute_cooperative}));
}

// Under MPS a context may have fewer multiprocessors than the device says, which older drivers do not tell.
TEST_F(CudaDriverTest, CooperativeLaunchesNeedTheWholeDevice) {
  EXPECT_TRUE(open()->properties().limits.cooperative_launches);
  cuda_state.affinity = 66;
  EXPECT_FALSE(open()->properties().limits.cooperative_launches);
  cuda_state.failing = "exec_affinity";
  EXPECT_TRUE(open()->properties().limits.cooperative_launches);
  table_.exec_affinity = nullptr;
  EXPECT_TRUE(open()->properties().limits.cooperative_launches);
  cuda_state.cooperative = 0;
  EXPECT_FALSE(open()->properties().limits.cooperative_launches);
}

TEST_F(CudaDriverTest, AFailedLaunchIsDescribed) {
  const auto driver = open();
  cuda_state.failing = "launch";
  EXPECT_THAT(driver->launch({}, {}, nullptr, {}).message(),
              HasSubstr("launch of 1x1x1 blocks of 1 threads, 0 bytes of shared memory: "));
}

TEST_F(CudaDriverTest, ACaptureOfTheCallerGoesOnWhileADeviceIsOpened) {
  auto driver = open();
  ASSERT_TRUE(driver->load("code", "kernel").ok());
  const auto mapping = driver->map_page_end(100);
  ASSERT_TRUE(mapping.ok());
  driver->unmap(*mapping);
  driver.reset();
  const Calls& ending = cuda_state.ending_captures;
  for (const char* call : {"context_retain", "stream_create", "module_load", "module_unload", "memory_create",
                           "memory_map", "memory_unmap", "stream_destroy", "context_release"})
    EXPECT_EQ(std::count(ending.begin(), ending.end(), call), 0) << call;
  EXPECT_EQ(cuda_state.capture_mode, 0);
}

TEST_F(CudaDriverTest, AModuleWithoutTheKernelIsUnloaded) {
  const auto driver = open();
  cuda_state.failing = "module_function";
  EXPECT_THAT(driver->load("code", "kernel").message(), HasSubstr("cuModuleGetFunction kernel"));
  EXPECT_EQ(cuda_state.take(), (Calls{"module_load", "module_function", "module_unload"}));
}

TEST_F(CudaDriverTest, ACapturedGraphIsBroughtToTheDevice) {
  const auto driver = open();
  ASSERT_TRUE(driver->begin_capture({}).ok());
  ASSERT_TRUE(driver->end_capture({}).ok());
  EXPECT_EQ(cuda_state.take(),
            (Calls{"capture_begin", "capture_end", "graph_instantiate", "graph_destroy", "graph_upload"}));
  cuda_state.failing = "graph_upload";
  EXPECT_FALSE(driver->end_capture({}).ok());
  EXPECT_EQ(cuda_state.take().back(), "graph_exec_destroy");
  cuda_state.failing = "graph_instantiate";
  EXPECT_FALSE(driver->end_capture({}).ok());
  EXPECT_EQ(cuda_state.take().back(), "graph_destroy");
  driver->abandon_capture({});
  EXPECT_EQ(cuda_state.take(), (Calls{"capture_end", "graph_destroy"}));
}

TEST_F(CudaDriverTest, MappingsAreUndoneAsFarAsTheyCame) {
  const auto driver = open();
  const auto mapping = driver->map_page_end(5000);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(mapping->mapped_bytes, 8192U);
  EXPECT_EQ(mapping->reserved_bytes, 12288U);
  EXPECT_EQ(cuda_state.take(),
            (Calls{"memory_granularity", "address_reserve", "memory_create", "memory_map", "memory_access"}));
  driver->unmap(*mapping);
  const Calls all{"memory_unmap", "memory_release", "address_free"};
  EXPECT_EQ(cuda_state.take(), all);
  cuda_state.failing = "memory_access";
  EXPECT_FALSE(driver->map_page_end(1).ok());
  EXPECT_EQ(Calls(cuda_state.calls.end() - 3, cuda_state.calls.end()), all);
  cuda_state.take();
  cuda_state.failing = "memory_map";
  EXPECT_FALSE(driver->map_page_end(1).ok());
  EXPECT_EQ(Calls(cuda_state.calls.end() - 3, cuda_state.calls.end()),
            (Calls{"memory_map", "memory_release", "address_free"}));
  cuda_state.take();
  cuda_state.failing = "memory_create";
  EXPECT_FALSE(driver->map_page_end(1).ok());
  EXPECT_EQ(cuda_state.take(),
            (Calls{"memory_granularity", "address_reserve", "memory_create", "address_free"}));
}

}  // namespace
}  // namespace gemmtune::cuda
