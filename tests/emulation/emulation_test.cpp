// The emulation runs right kernels and finds what is wrong with others.
#include "support/emulation/emulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gemmtune::emulation {
namespace {

using ::testing::HasSubstr;

template <typename T>
class Registered {
 public:
  explicit Registered(std::size_t count, std::string name) : values(count) {
    register_buffer(values.data(), count * sizeof(T), std::move(name));
  }
  ~Registered() { unregister_buffer(values.data()); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  std::vector<T> values;
};

/// Compiles and launches `kernel(const int* in, int* out, int count)` with blocks of `threads`.
std::string run(const std::string& source, std::vector<int>& out, unsigned threads, unsigned shared_bytes = 0,
                Statistics* statistics = nullptr) {
  std::string log;
  const auto module = Module::compile(source, {"--offload-arch=gfx942"}, &log);
  if (!module) return "does not compile: " + log;
  Registered<int> in(out.size(), "in");
  Registered<int> to(out.size(), "out");
  for (std::size_t i = 0; i < out.size(); ++i) in.values[i] = static_cast<int>(i) + 100;
  const int* in_pointer = in.values.data();
  int* out_pointer = to.values.data();
  int count = static_cast<int>(out.size());
  void* arguments[] = {&in_pointer, &out_pointer, &count};
  Launch launch;
  launch.grid[0] = (static_cast<unsigned>(count) + threads - 1) / threads;
  launch.block[0] = threads;
  launch.shared_bytes = shared_bytes;
  launch.arguments = arguments;
  const std::string wrong = module->launch("kernel", launch, statistics);
  out = to.values;
  return wrong;
}

std::string kernel(const std::string& body, const std::string& before = "") {
  return before +
         "extern \"C\" __global__ void __launch_bounds__(256, 1) kernel(const int* in, int* out, int count) "
         "{\n"
         "const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);\n" +
         body + "}\n";
}

TEST(Emulation, RunsAKernelThroughSharedMemoryAndBarriers) {
  std::vector<int> out(512);
  const std::string reverse = R"(
    __shared__ int tile[256];
    tile[threadIdx.x] = in[i];
    __syncthreads();
    out[i] = tile[255 - threadIdx.x];
  )";
  EXPECT_EQ(run(kernel(reverse), out, 256), "");
  EXPECT_EQ(out[0], 355);
  EXPECT_EQ(out[511], 100 + 256);
}

TEST(Emulation, DynamicSharedMemoryHasTheSizeOfTheLaunch) {
  const std::string source = kernel(R"(
    extern __shared__ __align__(16) unsigned char memory[];
    int* tile = (int*)memory;
    tile[threadIdx.x] = in[i];
    __syncthreads();
    out[i] = tile[threadIdx.x ^ 1];
  )");
  std::vector<int> out(64);
  EXPECT_EQ(run(source, out, 64, 256), "");
  EXPECT_EQ(out[0], 101);
  EXPECT_THAT(run(source, out, 64, 252),
              HasSubstr("thread 63 of block 0,0,0: a write of 4 bytes at 252 of shared"));
  EXPECT_THAT(run(source, out, 64, 65 * 1024), HasSubstr("bytes of shared memory, a block has 65536"));
}

TEST(Emulation, FindsAMissingBarrier) {
  std::vector<int> out(256);
  const std::string source = kernel(R"(
    __shared__ int tile[256];
    tile[threadIdx.x] = in[i];
    out[i] = tile[255 - threadIdx.x];
  )");
  EXPECT_THAT(run(source, out, 256), HasSubstr("race in shared memory"));
  // One that a schedule of waves one after another would not show: the second write comes after all reads.
  const std::string late = kernel(R"(
    __shared__ int tile[256];
    for (int round = 0; round < 2; ++round) {
      tile[threadIdx.x] = in[i] + round;
      __syncthreads();
      out[i] = tile[255 - threadIdx.x];
    }
  )");
  EXPECT_THAT(run(late, out, 256), HasSubstr("race in shared memory"));
}

TEST(Emulation, FindsAccessesPastTheEnd) {
  std::vector<int> out(250);
  const std::string read = kernel("if (i <= count) out[i < count ? i : 0] = in[i];");
  EXPECT_THAT(run(read, out, 64), HasSubstr("thread 58 of block 3,0,0: reads 4 bytes"));
  EXPECT_THAT(run(read, out, 64), HasSubstr("4 bytes past the end of in (1000 bytes)"));
  EXPECT_THAT(run(kernel("if (i <= count) out[i] = 1;"), out, 64),
              HasSubstr("past the end of out (1000 bytes)"));
  EXPECT_EQ(run(kernel("if (i < count) out[i] = in[i];"), out, 64), "");
}

TEST(Emulation, LanesThatPartAtABarrierAreAnError) {
  std::vector<int> out(128);
  EXPECT_THAT(run(kernel("if (threadIdx.x != 70) __syncthreads(); out[i] = 1;"), out, 128),
              HasSubstr("lanes of wave 1 part: thread 64 is at s_barrier, thread 70 has ended"));
  EXPECT_THAT(run(kernel("if (threadIdx.x < 64) __syncthreads(); out[i] = 1;"), out, 128),
              HasSubstr("1 of 2 waves have ended"));
}

TEST(Emulation, LanesReadEachOther) {
  std::vector<int> out(64);
  const std::string source =
      kernel("out[i] = __builtin_amdgcn_ds_bpermute((int)(threadIdx.x ^ 5) * 4, in[i]);");
  EXPECT_EQ(run(source, out, 64), "");
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], 100 + (i ^ 5));
  const std::string wrong = kernel("if (i < 32) out[i] = __builtin_amdgcn_ds_bpermute(0, in[i]);");
  EXPECT_THAT(run(wrong, out, 64), HasSubstr("lanes of wave 0 part"));
}

/// What arrives late is not there before the wait.
TEST(Emulation, DirectToLdsLoadsArriveAtTheWait) {
  const std::string source = kernel(R"(
    __shared__ int tile[64];
    gemmtune_load_to_lds(in + i, gemmtune_lds_offset(tile));
#if WAITS
    __builtin_amdgcn_s_waitcnt(0x0f70);
#endif
    __syncthreads();
    out[i] = tile[threadIdx.x ^ 1];
  )");
  std::vector<int> out(64);
  EXPECT_EQ(run("#define WAITS 1\n" + source, out, 64), "");
  EXPECT_EQ(out[2], 103);
  EXPECT_EQ(run("#define WAITS 0\n" + source, out, 64), "");
  EXPECT_EQ(out[2], -1);
}

TEST(Emulation, CountsBankConflicts) {
  Statistics statistics;
  std::vector<int> out(64);
  const auto conflicts = [&](const std::string& stride) {
    statistics = {};
    const std::string source =
        kernel("__shared__ int tile[64 * 33];\n tile[threadIdx.x * " + stride +
               "] = in[i]; __syncthreads(); out[i] = tile[threadIdx.x * " + stride + "];");
    EXPECT_EQ(run(source, out, 64, 0, &statistics), "");
    EXPECT_EQ(statistics.lds_reads, 1U);
    EXPECT_EQ(statistics.lds_writes, 1U);
    EXPECT_EQ(statistics.lds_cycles, 4U);
    return statistics.lds_conflict_cycles;
  };
  EXPECT_EQ(conflicts("1"), 0U);
  EXPECT_EQ(conflicts("2"), 4U);
  EXPECT_EQ(conflicts("32"), 124U);
  EXPECT_EQ(conflicts("33"), 0U);
  EXPECT_EQ(statistics.collectives["s_barrier"], 1U);
}

TEST(Emulation, ARefusedSourceLeavesTheCompilersMessage) {
  std::string log;
  EXPECT_EQ(Module::compile("extern \"C\" __global__ void kernel() { undeclared(); }", {}, &log), nullptr);
  EXPECT_THAT(log, HasSubstr("undeclared"));
}

}  // namespace
}  // namespace gemmtune::emulation
