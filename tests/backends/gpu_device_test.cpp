// All of backends/gpu over a driver of host memory: what is called, in which order, and what faults do.
#include "backends/gpu/gpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/gpu/activation/silu_and_mul_arguments.h"
#include "backends/gpu/device_memory.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/jit/compiled_family.h"
#include "backends/gpu/opened_library.h"
#include "backends/output_checker.h"
#include "base/clock.h"
#include "numbers/weight_layout.h"
#include "support/dense_problem.h"
#include "support/fake_driver.h"
#include "verify/random_fill.h"

namespace gemmtune::gpu {

const FamilyEntry& simt_entry();

namespace {

using gemmtune::testing::FakeCompiler;
using gemmtune::testing::FakeGpu;
using gemmtune::testing::make_fake_driver;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Calls = std::vector<std::string>;

/// A library's family: no compiler, refuses fp32.
class VendorFamily final : public LeafFamily {
 public:
  std::string_view name() const override { return "vendor"; }
  int tie_rank() const override { return 0; }
  Status accepts(const Problem& problem) const override {
    return problem.x_type == DataType::f32 ? Status::unsupported("vendor: data types: f32") : Status();
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }
  Space space(const Problem&) const override { return {}; }
  Config default_config(const Problem&) const override { return {}; }
  Result<std::unique_ptr<Kernel>> build(const Problem&, const Config&) const override {
    return Status::unsupported("never built");
  }
};

const FamilyEntry vendor_entry{.info = {.name = "vendor", .rank = 10, .vendor = true, .fallback_rank = 10},
                               .compiled = false,
                               .make = [](const FamilyContext&) -> std::unique_ptr<KernelFamily> {
                                 return std::make_unique<VendorFamily>();
                               }};
const FamilyEntry absent_entry{
    .info = {.name = "absent", .rank = 5, .vendor = true, .fallback_rank = 5},
    .compiled = false,
    .make = [](const FamilyContext&) -> std::unique_ptr<KernelFamily> { return nullptr; }};

class GpuDeviceTest : public ::testing::Test {
 protected:
  GpuDeviceTest() { open(); }
  ~GpuDeviceTest() override {
    device_.reset();
    EXPECT_TRUE(gpu_.is_clean());
    EXPECT_FALSE(gpu_.open);
    EXPECT_EQ(gpu_.calls_outside, 0);
  }

  void open(Status no_compiler = {}) {
    device_.reset();
    Result<std::unique_ptr<Compiler>> compiler = no_compiler;
    if (no_compiler.ok()) compiler = std::unique_ptr<Compiler>(std::make_unique<FakeCompiler>(compiled_));
    auto runtime = std::make_unique<GpuRuntime>(make_fake_driver(gpu_), std::move(compiler), KernelCache({}));
    runtime_ = runtime.get();
    DeviceInfo info;
    info.backend = "fake";
    info.name = "fake:0";
    const FamilyEntry* const entries[] = {&absent_entry, &vendor_entry, &simt_entry()};
    device_ = std::make_unique<GpuDevice>(std::move(runtime), info, entries, "");
    gpu_.take_calls();
  }

  std::unique_ptr<Kernel> simt_kernel(const Problem& problem) {
    const KernelFamily* family = device_->find_family("simt");
    auto kernel = family->build(problem, family->default_config(problem));
    EXPECT_TRUE(kernel.ok()) << kernel.message();
    gpu_.take_calls();
    return kernel.ok() ? std::move(*kernel) : nullptr;
  }

  FakeGpu gpu_;
  std::vector<std::string> compiled_;
  GpuRuntime* runtime_ = nullptr;
  std::unique_ptr<GpuDevice> device_;
};

// ---- memory

TEST_F(GpuDeviceTest, PlainMemoryIsAllocatedAndFreed) {
  {
    const auto buffer = device_->allocate(100, Placement::plain);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ((*buffer)->bytes(), 100U);
    EXPECT_EQ(gpu_.blocks.at((*buffer)->data()), 100U);
    EXPECT_TRUE((*buffer)->guards_intact().ok());
    const auto empty = device_->allocate(0, Placement::pool);
    ASSERT_TRUE(empty.ok());
    EXPECT_EQ(gpu_.blocks.at((*empty)->data()), 1U);
  }
  EXPECT_EQ(gpu_.take_calls(), (Calls{"allocate", "allocate", "free", "free"}));
}

TEST_F(GpuDeviceTest, GuardsReportWhatWasOverwritten) {
  const auto buffer = device_->allocate(100, Placement::guarded);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(gpu_.take_calls(), (Calls{"allocate", "copy_in", "copy_in"}));
  EXPECT_TRUE((*buffer)->guards_intact().ok());
  auto* data = static_cast<char*>((*buffer)->data());
  std::memset(data, 0, 103);
  EXPECT_THAT((*buffer)->guards_intact().message(),
              HasSubstr("3 byte(s) were overwritten after the end of a buffer of 100 bytes, the nearest at a "
                        "distance of 1"));
  data[-7] = 0;
  EXPECT_THAT(
      (*buffer)->guards_intact().message(),
      HasSubstr("1 byte(s) were overwritten before the beginning of a buffer of 100 bytes, the nearest "
                "at a distance of 7"));
}

TEST_F(GpuDeviceTest, ABufferWhoseGuardsCannotBeWrittenIsFreed) {
  gpu_.fail_next("copy_in", Status::internal("copy failed"));
  EXPECT_THAT(device_->allocate(100, Placement::guarded).message(), HasSubstr("copy failed"));
  EXPECT_THAT(gpu_.blocks, IsEmpty());
}

TEST_F(GpuDeviceTest, APageEndBufferEndsBeforeUnmappedAddresses) {
  const auto buffer = device_->allocate(5000, Placement::page_end);
  ASSERT_TRUE(buffer.ok());
  auto* end = static_cast<char*>((*buffer)->data()) + 5000;
  end[-1] = 1;
  EXPECT_DEATH({ *const_cast<volatile char*>(end) = 1; }, "");
  gpu_.fail_next("map_page_end", Status::out_of_memory("no addresses"));
  EXPECT_EQ(device_->allocate(1, Placement::page_end).code(), StatusCode::out_of_memory);
}

TEST_F(GpuDeviceTest, MemoryThatIsNotThereIsNoFault) {
  EXPECT_EQ(device_->allocate(std::size_t{1} << 40, Placement::plain).code(), StatusCode::out_of_memory);
  EXPECT_EQ(device_->allocate(~std::size_t{0}, Placement::guarded).code(), StatusCode::out_of_memory);
  EXPECT_TRUE(device_->health().ok());
  EXPECT_EQ(device_->free_memory_bytes(), gpu_.free_bytes);
}

// ---- copies and faults

TEST_F(GpuDeviceTest, CopiesWaitForTheDevice) {
  const auto first = device_->allocate(8, Placement::plain);
  const auto second = device_->allocate(8, Placement::plain);
  ASSERT_TRUE(first.ok() && second.ok());
  gpu_.take_calls();
  const char text[8] = "7 bytes";
  char back[8] = {};
  ASSERT_TRUE(device_->copy_in((*first)->data(), text, 8).ok());
  ASSERT_TRUE(device_->copy_within((*second)->data(), (*first)->data(), 8).ok());
  ASSERT_TRUE(device_->fill((*second)->data(), 'x', 1).ok());
  ASSERT_TRUE(device_->copy_out(back, (*second)->data(), 8).ok());
  EXPECT_STREQ(back, "x bytes");
  EXPECT_EQ(gpu_.take_calls(), (Calls{"copy_in", "synchronize", "copy_within", "synchronize", "fill",
                                      "synchronize", "copy_out"}));
}

TEST_F(GpuDeviceTest, NullPointersAreRefusedBeforeTheDriverSeesThem) {
  char byte = 0;
  EXPECT_EQ(device_->copy_in(nullptr, &byte, 1).code(), StatusCode::invalid_argument);
  EXPECT_EQ(device_->copy_in(&byte, nullptr, 1).code(), StatusCode::invalid_argument);
  EXPECT_EQ(device_->copy_out(nullptr, &byte, 1).code(), StatusCode::invalid_argument);
  EXPECT_EQ(device_->fill(nullptr, 0, 1).code(), StatusCode::invalid_argument);
  EXPECT_TRUE(device_->copy_in(nullptr, nullptr, 0).ok());
  EXPECT_THAT(gpu_.take_calls(), IsEmpty());
}

TEST_F(GpuDeviceTest, AnErrorThatPassesIsNoFault) {
  char byte = 0;
  gpu_.fail_next("fill", Status::internal("busy"));
  EXPECT_THAT(device_->fill(&byte, 0, 1).message(), HasSubstr("busy"));
  EXPECT_EQ(gpu_.take_calls(), (Calls{"fill", "synchronize"}));
  EXPECT_TRUE(device_->health().ok());
  EXPECT_TRUE(device_->fill(&byte, 0, 1).ok());
}

TEST_F(GpuDeviceTest, TheFirstFaultStaysTheDevicesHealth) {
  char byte = 0;
  gpu_.lose(Status::internal("the device: illegal address"));
  EXPECT_THAT(device_->synchronize().message(), HasSubstr("illegal address"));
  EXPECT_THAT(device_->health().message(), HasSubstr("illegal address"));
  gpu_.lose(Status::internal("something later"));
  EXPECT_FALSE(device_->fill(&byte, 0, 1).ok());
  EXPECT_FALSE(device_->copy_out(&byte, &byte, 1).ok());
  EXPECT_THAT(device_->health().message(), HasSubstr("illegal address"));
}

TEST_F(GpuDeviceTest, AFaultWhileUnpackingTurnsTheHealth) {
  alignas(16) char bytes[64 * 512] = {};
  const Problem problem = dense(1, 64, 128);
  ASSERT_TRUE(device_->unpack_weight(problem, WeightLayout::tile64x128, bytes, bytes).ok());
  gpu_.run["pack"] = [&](const LaunchShape&, void**) { gpu_.lose(Status::internal("illegal address")); };
  EXPECT_FALSE(device_->unpack_weight(problem, WeightLayout::tile64x128, bytes, bytes).ok());
  EXPECT_THAT(device_->health().message(), HasSubstr("illegal address"));
}

// ---- samples

class LaunchingKernel final : public Kernel {
 public:
  explicit LaunchingKernel(std::function<Status(const Operands&, Stream)> launch)
      : launch_(std::move(launch)) {}
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands& operands, void*, Stream stream) const override {
    return launch_(operands, stream);
  }

 private:
  std::function<Status(const Operands&, Stream)> launch_;
};

TEST_F(GpuDeviceTest, ASampleIsOneGraphBetweenTwoEvents) {
  const auto kernel = simt_kernel(dense(16, 64, 32));
  const Operands rotation[] = {Operands{}, Operands{}};
  gpu_.milliseconds = 0.006;
  const auto time = device_->sample({kernel.get(), rotation, 1, 3, nullptr});
  ASSERT_TRUE(time.ok()) << time.message();
  EXPECT_DOUBLE_EQ(*time, 2);
  EXPECT_EQ(gpu_.take_calls(), (Calls{"create_event", "create_event", "begin_capture", "record", "launch",
                                      "launch", "launch", "record", "end_capture", "launch_graph", "wait",
                                      "milliseconds_between", "destroy_graph"}));
  ASSERT_EQ(gpu_.launches.size(), 3U);
  for (const auto& launch : gpu_.launches) {
    EXPECT_TRUE(launch.captured);
    EXPECT_EQ(launch.stream.handle, runtime_->driver().own_stream().handle);
    EXPECT_EQ(launch.shape.extension, nullptr);
  }
  // The events are kept.
  ASSERT_TRUE(device_->sample({kernel.get(), rotation, 0, 1, nullptr}).ok());
  EXPECT_EQ(gpu_.take_calls(), (Calls{"begin_capture", "record", "launch", "record", "end_capture",
                                      "launch_graph", "wait", "milliseconds_between", "destroy_graph"}));
}

TEST_F(GpuDeviceTest, AnEnergyBatchIsOneGraphThatRunsAgainAndAgain) {
  const auto kernel = simt_kernel(dense(16, 64, 32));
  const Operands rotation[] = {Operands{}, Operands{}};
  const SampleRequest request{kernel.get(), rotation, 1, 4, nullptr};
  EXPECT_EQ(device_->counts_energy().code(), StatusCode::unsupported);
  // 200 W, updated every 20 ms.
  const double begin = steady_seconds();
  gpu_.joules = [begin] { return 4.0 * std::floor((steady_seconds() - begin) / 0.02); };
  EXPECT_TRUE(device_->counts_energy().ok());
  gpu_.milliseconds = 50;
  gpu_.graph_seconds = 0.05;
  const auto energy = device_->sample_energy(request, 0.2);
  ASSERT_TRUE(energy.ok()) << energy.message();
  EXPECT_NEAR(energy->joules / (energy->microseconds * 1e-6), 200, 40);
  const Calls calls = gpu_.take_calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "begin_capture"), 1);
  // Two to know its time, then what fills 0.9 s with runs of 50 ms.
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "launch_graph"), 2 + 18);
  EXPECT_DOUBLE_EQ(energy->microseconds, 50e3 / 18 / 4);
  gpu_.joules = [] { return 7.0; };
  gpu_.graph_seconds = 0.005;
  EXPECT_THAT(device_->sample_energy(request, 0.1).message(), HasSubstr("updated too seldom"));
  gpu_.joules = [] { return Status::unsupported("the monitor is gone"); };
  EXPECT_THAT(device_->sample_energy(request, 0.1).message(), HasSubstr("the monitor is gone"));
  EXPECT_TRUE(device_->health().ok());
}

TEST_F(GpuDeviceTest, AnEagerSampleHasNoGraph) {
  const auto kernel = simt_kernel(dense(16, 64, 32));
  const Operands rotation[] = {Operands{}, Operands{}};
  gpu_.milliseconds = 0.006;
  SampleRequest request{kernel.get(), rotation, 1, 3, nullptr};
  request.eager = true;
  const auto time = device_->sample(request);
  ASSERT_TRUE(time.ok()) << time.message();
  EXPECT_DOUBLE_EQ(*time, 2);
  EXPECT_EQ(gpu_.take_calls(), (Calls{"create_event", "create_event", "record", "launch", "launch", "launch",
                                      "record", "wait", "milliseconds_between"}));
  for (const auto& launch : gpu_.launches) EXPECT_FALSE(launch.captured);
  gpu_.fail_next("launch", Status::internal("launch fails"));
  EXPECT_THAT(device_->sample(request).message(), HasSubstr("launch fails"));
  EXPECT_EQ(gpu_.take_calls(), (Calls{"record", "launch", "wait", "synchronize"}))
      << "what was enqueued reads the operands";
}

TEST_F(GpuDeviceTest, ASampleGoesThroughTheRotationFromItsFirst) {
  std::vector<std::int64_t> seen;
  const LaunchingKernel noting([&](const Operands& operands, Stream) {
    seen.push_back(operands.ldx);
    return Status();
  });
  std::vector<Operands> rotation(3);
  for (std::size_t i = 0; i < rotation.size(); ++i) rotation[i].ldx = static_cast<std::int64_t>(i);
  ASSERT_TRUE(device_->sample({&noting, rotation, 5, 4, nullptr}).ok());
  EXPECT_THAT(seen, ElementsAre(2, 0, 1, 2));
}

TEST_F(GpuDeviceTest, ARefusedLaunchEndsTheCapture) {
  const LaunchingKernel refusing(
      [](const Operands&, Stream) { return Status::unsupported("not with these strides"); });
  const Operands rotation[] = {Operands{}};
  EXPECT_EQ(device_->sample({&refusing, rotation, 0, 2, nullptr}).code(), StatusCode::unsupported);
  EXPECT_FALSE(gpu_.capturing);
  EXPECT_EQ(gpu_.take_calls(), (Calls{"create_event", "create_event", "begin_capture", "record",
                                      "abandon_capture", "synchronize"}));
  EXPECT_TRUE(device_->health().ok());
  const auto kernel = simt_kernel(dense(16, 64, 32));
  EXPECT_TRUE(device_->sample({kernel.get(), rotation, 0, 1, nullptr}).ok());
}

TEST_F(GpuDeviceTest, NoStepOfASampleLeavesAGraphOrACaptureBehind) {
  const auto kernel = simt_kernel(dense(16, 64, 32));
  const Operands rotation[] = {Operands{}};
  for (const char* call : {"create_event", "begin_capture", "record", "launch", "end_capture", "launch_graph",
                           "wait", "milliseconds_between"}) {
    gpu_.fail_next(call, Status::internal("{} fails", call));
    EXPECT_THAT(device_->sample({kernel.get(), rotation, 0, 1, nullptr}).message(), HasSubstr(call));
    EXPECT_EQ(gpu_.graphs, 0) << call;
    EXPECT_FALSE(gpu_.capturing) << call;
    EXPECT_TRUE(device_->health().ok()) << call;
  }
  EXPECT_TRUE(device_->sample({kernel.get(), rotation, 0, 1, nullptr}).ok());
}

TEST_F(GpuDeviceTest, AFaultOfASampledKernelTurnsTheHealth) {
  const LaunchingKernel faulting([&](const Operands&, Stream) {
    gpu_.lose(Status::internal("illegal address"));
    return Status();
  });
  const Operands rotation[] = {Operands{}};
  EXPECT_FALSE(device_->sample({&faulting, rotation, 0, 1, nullptr}).ok());
  EXPECT_THAT(device_->health().message(), HasSubstr("illegal address"));
}

TEST_F(GpuDeviceTest, ACaptureIsSeenFromTheStream) {
  bool seen = false;
  const LaunchingKernel looking([&](const Operands&, Stream stream) {
    seen = device_->is_capturing(stream);
    return Status();
  });
  const Operands rotation[] = {Operands{}};
  EXPECT_FALSE(device_->is_capturing({}));
  EXPECT_TRUE(device_->sample({&looking, rotation, 0, 1, nullptr}).ok());
  EXPECT_TRUE(seen);
  EXPECT_FALSE(device_->is_capturing({}));
}

TEST_F(GpuDeviceTest, PoolsAreTwoAndAHalfTimesTheStatedCache) {
  EXPECT_EQ(device_->last_level_cache_bytes(), gpu_.properties.limits.cache_bytes * 5 / 2);
  EXPECT_EQ(device_->observe().at("sm_clock_mhz"), 1980);
}

TEST_F(GpuDeviceTest, EachThreadEntersTheDeviceBeforeItCallsTheDriver) {
  alignas(16) char bytes[64 * 512] = {};
  const Problem problem = dense(1, 64, 128);
  const auto kernel = simt_kernel(problem);
  const auto program = runtime_->load({"a", "text", {}, "a"});
  ASSERT_TRUE(program.ok());
  const Operands rotation[] = {Operands{}};
  const std::function<void()> functions[] = {
      [&] { (void)device_->free_memory_bytes(); },
      [&] { (void)device_->copy_in(bytes, bytes + 8, 8); },
      [&] { (void)device_->copy_out(bytes, bytes + 8, 8); },
      [&] { (void)device_->copy_within(bytes, bytes + 8, 8); },
      [&] { (void)device_->fill(bytes, 0, 8); },
      [&] { (void)device_->synchronize(); },
      [&] { (void)device_->is_capturing({}); },
      [&] { (void)device_->unpack_weight(problem, WeightLayout::plain, bytes, bytes + 16384); },
      [&] {
        (void)device_->sample({kernel.get(), rotation, 0, 1, nullptr});
      },
      [&] { (void)(*program)->launch({}, nullptr, {}); },
      [&] { (void)(*program)->reserve_shared(100000); },
      [&] {
        (void)runtime_->load({"b", "text", {}, "b"});
      },
  };
  const auto run_in_thread = [&](const std::function<void()>& function) {
    gpu_.entered.clear();
    std::thread(function).join();
  };
  for (std::size_t i = 0; i < std::size(functions); ++i) {
    run_in_thread(functions[i]);
    EXPECT_EQ(gpu_.calls_outside, 0) << i;
  }
  for (const Placement placement : {Placement::plain, Placement::guarded, Placement::page_end}) {
    std::unique_ptr<Buffer> buffer;
    run_in_thread([&] { buffer = device_->allocate(8, placement).value(); });
    run_in_thread([&] { (void)buffer->guards_intact(); });
    run_in_thread([&] { buffer.reset(); });
    EXPECT_EQ(gpu_.calls_outside, 0) << static_cast<int>(placement);
  }
}

// ---- programs

Source source_named(const std::string& name, const std::string& text = "text") {
  return {name, text, {}, "kernel_" + name};
}

TEST_F(GpuDeviceTest, ASourceIsCompiledAndLoadedOnce) {
  const auto one = runtime_->load(source_named("a"));
  const auto other = runtime_->load(source_named("a"));
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(*one, *other);
  EXPECT_THAT(compiled_, ElementsAre("a"));
  EXPECT_EQ(gpu_.take_calls(), Calls{"load"});
  EXPECT_EQ((*one)->resources().registers, 32);
}

TEST_F(GpuDeviceTest, WhatCannotBeLoadedIsNamed) {
  EXPECT_THAT(runtime_->load(source_named("a", "bad")).message(), HasSubstr("a: bad source"));
  EXPECT_THAT(runtime_->load(source_named("a", "spills")).message(),
              HasSubstr("a: the compiler keeps 16 bytes"));
  EXPECT_THAT(gpu_.take_calls(), IsEmpty());
  gpu_.fail_next("load", Status::out_of_memory("no room"));
  const auto full = runtime_->load(source_named("a"));
  EXPECT_EQ(full.code(), StatusCode::out_of_memory);
  EXPECT_EQ(full.message(), "a: no room");
  EXPECT_EQ(gpu_.modules, 0);
  EXPECT_TRUE(runtime_->load(source_named("a")).ok());
}

TEST_F(GpuDeviceTest, SharedMemoryIsReservedOnceAndOnlyAboveWhatLaunchesHave) {
  const auto program = runtime_->load(source_named("a"));
  ASSERT_TRUE(program.ok());
  gpu_.take_calls();
  EXPECT_TRUE((*program)->reserve_shared(48 << 10).ok());
  EXPECT_THAT(gpu_.take_calls(), IsEmpty());
  EXPECT_TRUE((*program)->reserve_shared(100000).ok());
  EXPECT_TRUE((*program)->reserve_shared(90000).ok());
  EXPECT_EQ(gpu_.take_calls(), Calls{"reserve_shared"});
  EXPECT_FALSE((*program)->reserve_shared(300000).ok());
  EXPECT_TRUE((*program)->reserve_shared(100001).ok());
  EXPECT_EQ(gpu_.take_calls(), (Calls{"reserve_shared", "reserve_shared"}));
}

// A stream of MXFP4 weights with 46,192 bytes and a block that sorts was refused by the driver.
TEST_F(GpuDeviceTest, StaticSharedMemoryCountsInWhatLaunchesHave) {
  const auto program = runtime_->load(source_named("a", "static"));
  ASSERT_TRUE(program.ok());
  gpu_.take_calls();
  EXPECT_TRUE((*program)->reserve_shared(44 << 10).ok());
  EXPECT_THAT(gpu_.take_calls(), IsEmpty());
  EXPECT_TRUE((*program)->reserve_shared((44 << 10) + 1).ok());
  EXPECT_EQ(gpu_.take_calls(), Calls{"reserve_shared"});
}

TEST_F(GpuDeviceTest, ALaunchPassesItsShapeStreamAndExtension) {
  const auto program = runtime_->load(source_named("a"));
  ASSERT_TRUE(program.ok());
  const LaunchExtension extension;
  LaunchShape shape;
  shape.grid = {3, 2, 1};
  shape.threads = 64;
  shape.shared_bytes = 10;
  shape.extension = &extension;
  int stream = 0;
  ASSERT_TRUE((*program)->launch(shape, nullptr, {&stream}).ok());
  ASSERT_EQ(gpu_.launches.size(), 1U);
  EXPECT_EQ(gpu_.launches[0].kernel, "kernel_a");
  EXPECT_EQ(gpu_.launches[0].shape.grid, shape.grid);
  EXPECT_EQ(gpu_.launches[0].shape.extension, &extension);
  EXPECT_EQ(gpu_.launches[0].stream.handle, &stream);
  EXPECT_EQ(describe(shape), "launch of 3x2x1 blocks of 64 threads, 10 bytes of shared memory");
}

// ---- families

TEST_F(GpuDeviceTest, FamiliesThatAreMissingAreLeftOut) {
  ASSERT_EQ(device_->families().size(), 2U);
  EXPECT_EQ(device_->families()[0]->name(), "vendor");
  EXPECT_EQ(device_->families()[1]->name(), "simt");
  open(Status::not_found("NVRTC: not installed"));
  ASSERT_EQ(device_->families().size(), 1U);
  EXPECT_EQ(device_->families()[0]->name(), "vendor");
  EXPECT_THAT(runtime_->load(source_named("a")).message(), HasSubstr("not installed"));
  // Without a compiler there is nothing ahead to compile.
  const Candidate candidate{"simt", 1, {}};
  device_->compile_ahead(dense(1, 64, 64), std::span(&candidate, 1));
}

TEST_F(GpuDeviceTest, DefaultsFollowTheEntriesRanks) {
  const Problem half = dense(4, 64, 64);
  const Problem single = dense(4, 64, 64, DataType::f32, DataType::f32);
  EXPECT_EQ(device_->baseline(half)->family, "vendor");
  EXPECT_EQ(device_->fallback(half)->family, "vendor");
  EXPECT_EQ(device_->fallback(single)->family, "simt");
  EXPECT_EQ(device_->baseline(single).code(), StatusCode::not_found);
  EXPECT_THAT(device_->baseline(single).message(),
              AllOf(HasSubstr("'absent' is no kernel family"), HasSubstr("vendor: data types: f32")));
}

TEST_F(GpuDeviceTest, CandidatesAreCompiledAheadAndLoadedFromThere) {
  const Problem problem = dense(64, 64, 64);
  std::vector<Candidate> candidates;
  for (const char* rows : {"16", "64"}) {
    Config config;
    config.set("bm", std::string(rows));
    candidates.push_back({"simt", 1, config});
  }
  candidates.push_back({"vendor", 1, {}});
  candidates.push_back({"simt", 2, {}});  // another revision
  device_->compile_ahead(problem, candidates);
  device_->compile_ahead(problem, candidates);
  for (const std::size_t i : {0, 1}) {
    const auto kernel = device_->build(candidates[i], problem);
    ASSERT_TRUE(kernel.ok()) << kernel.message();
  }
  EXPECT_THAT(compiled_, ElementsAre("simt", "simt"));
  // Loaded ones are not compiled again.
  device_->compile_ahead(problem, candidates);
  EXPECT_TRUE(device_->build(candidates[0], problem).ok());
  EXPECT_EQ(compiled_.size(), 2U);
}

// ---- weights, random operands, checks

/// What the kernel's argument struct begins with.
template <typename Values>
Values values_of(void** arguments) {
  Values values;
  std::memcpy(&values, arguments[0], sizeof(values));
  return values;
}

TEST_F(GpuDeviceTest, WeightsArePackedByAKernelOnTheDevice) {
  const Problem problem = dense(1, 70, 136);
  const Tile64 shape = tiles_of(problem);
  struct Values {
    unsigned char* rows;
    unsigned char* tiles;
  };
  gpu_.run["pack"] = [&](const LaunchShape& launch, void** arguments) {
    const auto values = values_of<Values>(arguments);
    EXPECT_EQ(launch.grid[0], (shape.bytes() / Tile64::unit_bytes + 255) / 256);
    pack_tile64(shape, values.rows, values.tiles);
  };
  std::vector<unsigned char> plain(70 * 136 * 2);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<unsigned char>(i * 7);
  const auto bytes = device_->packed_bytes(problem, WeightLayout::tile64x128);
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ(*bytes, static_cast<std::size_t>(shape.bytes()));
  auto packed = device_->allocate(*bytes, Placement::plain);
  ASSERT_TRUE(packed.ok());
  gpu_.take_calls();
  ASSERT_TRUE(device_->pack_weight(problem, WeightLayout::tile64x128, plain.data(), (*packed)->data()).ok());
  EXPECT_EQ(gpu_.take_calls(), (Calls{"load", "launch", "synchronize"}));
  std::vector<unsigned char> expected(*bytes);
  pack_tile64(shape, plain.data(), expected.data());
  EXPECT_EQ(std::memcmp((*packed)->data(), expected.data(), *bytes), 0);

  EXPECT_EQ(device_->packed_bytes(problem, WeightLayout::panel16).code(), StatusCode::unsupported);
  EXPECT_EQ(device_->pack_weight(problem, WeightLayout::tile64x128, nullptr, (*packed)->data()).code(),
            StatusCode::invalid_argument);
  std::vector<unsigned char> copy(plain.size());
  ASSERT_TRUE(device_->pack_weight(problem, WeightLayout::plain, plain.data(), copy.data()).ok());
  EXPECT_EQ(copy, plain);
}

TEST_F(GpuDeviceTest, RandomOperandsComeFromTheRecipesTable) {
  const RandomFill recipe = random_fill(DataType::bf16, 1000, 0.3, Random(11));
  struct Values {
    std::byte* to;
    const std::byte* table;
    unsigned long long state;
    long long count;
  };
  gpu_.run["fill_random"] = [&](const LaunchShape& shape, void** arguments) {
    const auto values = values_of<Values>(arguments);
    EXPECT_EQ(shape.grid[0], 1U);
    EXPECT_EQ(std::memcmp(values.table, recipe.table.data(), recipe.table.size()), 0);
    EXPECT_EQ(values.state, recipe.random.state());
    fill_random(recipe, 0, {values.to, static_cast<std::size_t>(values.count) * 2});
  };
  std::vector<std::byte> seen(recipe.bytes());
  ASSERT_TRUE(device_->fill_random(seen.data(), recipe).ok());
  std::vector<std::byte> expected(recipe.bytes());
  fill_random(recipe, 0, expected);
  EXPECT_EQ(seen, expected);
  EXPECT_THAT(gpu_.blocks, IsEmpty());
  EXPECT_TRUE(device_->fill_random(nullptr, random_fill(DataType::bf16, 0, 1, Random(1))).ok());

  open(Status::not_found("no compiler"));
  EXPECT_EQ(device_->fill_random(seen.data(), recipe).code(), StatusCode::unsupported);
}

TEST_F(GpuDeviceTest, SiluAndMulIsCompiledOnceAndNotInACapture) {
  SiluAndMul call;
  call.rows = 3;
  call.columns = call.ldgate = call.ldup = call.ldy = 2056;
  alignas(16) static char memory[3 * 2056 * 2];
  call.gate = call.up = call.y = memory;
  gpu_.capturing = true;
  const Status early = device_->silu_and_mul(call, {});
  EXPECT_EQ(early.code(), StatusCode::not_found);
  EXPECT_EQ(early.message(), "silu_and_mul of bf16 has not run on fake:0 yet");
  gpu_.capturing = false;
  EXPECT_THAT(compiled_, IsEmpty());
  std::vector<int> vectors;
  gpu_.run["silu_and_mul"] = [&](const LaunchShape& launch, void** arguments) {
    EXPECT_EQ(launch.grid, (std::array<unsigned, 3>{3, 3, 1}));
    vectors.push_back(values_of<SiluAndMulArguments>(arguments).vectors);
  };
  ASSERT_TRUE(device_->silu_and_mul(call, {}).ok());
  call.gate = memory + 2;
  ASSERT_TRUE(device_->silu_and_mul(call, {}).ok());
  call.gate = memory;
  call.ldup = 2060;
  ASSERT_TRUE(device_->silu_and_mul(call, {}).ok());
  EXPECT_THAT(vectors, ElementsAre(1, 0, 0));
  EXPECT_THAT(compiled_, ElementsAre("silu_and_mul"));
  gpu_.capturing = true;
  EXPECT_TRUE(device_->silu_and_mul(call, {}).ok());
  gpu_.capturing = false;
  call.rows = 0;
  EXPECT_TRUE(device_->silu_and_mul(call, {}).ok());
  EXPECT_EQ(gpu_.launches.size(), 4U);

  open(Status::not_found("no compiler"));
  call.rows = 1;
  EXPECT_EQ(device_->silu_and_mul(call, {}).code(), StatusCode::unsupported);
}

TEST_F(GpuDeviceTest, TheOutputCheckerLaunchesComparesAndFreesItsMemory) {
  const Problem problem = dense(130, 70, 64);
  struct Same {
    const void* one;
    const void* other;
    unsigned* differences;
    long long bytes;
  };
  gpu_.run["same"] = [](const LaunchShape&, void** arguments) {
    const auto values = values_of<Same>(arguments);
    *values.differences =
        std::memcmp(values.one, values.other, static_cast<std::size_t>(values.bytes)) == 0 ? 0 : 1;
  };
  const auto checker = device_->output_checker(problem);
  ASSERT_TRUE(checker.ok()) << checker.message();
  EXPECT_THAT(compiled_, ElementsAre("reference", "compare", "same"));
  char one[8] = "abcdefg";
  char other[8] = "abcdefg";
  EXPECT_TRUE(*(*checker)->same(one, other, 8));
  other[7] = 'x';
  EXPECT_FALSE(*(*checker)->same(one, other, 8));

  gpu_.launches.clear();
  ASSERT_TRUE((*checker)->compute_reference(Operands{}).ok());
  const auto rows = (*checker)->compare(one, 70, Tolerance{});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->size(), 130U);
  ASSERT_EQ(gpu_.launches.size(), 2U);
  EXPECT_EQ(gpu_.launches[0].kernel, "reference");
  EXPECT_EQ(gpu_.launches[1].kernel, "compare");
  EXPECT_EQ(gpu_.launches[1].shape.grid[0], 130U);

  gpu_.fail_next("launch", Status::internal("launch failed"));
  EXPECT_THAT((*checker)->same(one, other, 8).message(), HasSubstr("launch failed"));
  EXPECT_FALSE((*checker)->same(one, other, 8).value());
}

TEST_F(GpuDeviceTest, TheOutputCheckerLeavesMostOfTheMemoryFree) {
  gpu_.free_bytes = 130 * 70 * 12 * 4 - 1;
  EXPECT_EQ(device_->output_checker(dense(130, 70, 64)).code(), StatusCode::out_of_memory);
  gpu_.free_bytes = 130 * 70 * 12 * 4;
  EXPECT_TRUE(device_->output_checker(dense(130, 70, 64)).ok());
}

// ---- libraries

struct MathFunctions {
  double (*cosine)(double);
  double (*newer)(double);
};

TEST(OpenedLibrary, AMissingLibraryOrFunctionIsNamedWithAdvice) {
  const auto bind_old = [](SymbolFinder& find, MathFunctions& f) { find(f.cosine, "cos"); };
  const auto bind_new = [](SymbolFinder& find, MathFunctions& f) {
    find(f.cosine, "cos")(f.newer, "cosine_of_a_later_version");
  };
  const auto found = open_library<MathFunctions>("math", {"libm.so.6"}, "install it", bind_old);
  ASSERT_TRUE(found.ok()) << found.found.message();
  EXPECT_DOUBLE_EQ(found.functions.cosine(0), 1);
  EXPECT_THAT(found.description.path, HasSubstr("libm"));

  const auto old = open_library<MathFunctions>("math", {"libm.so.6"}, "install it", bind_new);
  EXPECT_EQ(old.found.code(), StatusCode::not_found);
  EXPECT_EQ(old.description.why, "it has no cosine_of_a_later_version: too old; install it");

  const auto missing = open_library<MathFunctions>("math", {"libnone.so.9"}, "install it", bind_old);
  EXPECT_EQ(missing.found.code(), StatusCode::not_found);
  EXPECT_THAT(missing.description.why, AllOf(HasSubstr("libnone.so.9"), HasSubstr("; install it")));
}

}  // namespace
}  // namespace gemmtune::gpu
