// The kernel that packs weights on a GPU, thread by thread on the host, against the host's own packing; and
// what is refused before anything is launched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "backends/gpu/pack/pack.h"
#include "backends/gpu/pack/pack_arguments.h"
#include "support/nvrtc.h"

namespace {

struct Place {
  unsigned x;
};
struct __attribute__((may_alias)) uint4 {
  unsigned x, y, z, w;
};
uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
Place blockIdx{}, threadIdx{}, gridDim{};

// The toolkit's headers, which a file beside this one may include, define them too.
#undef __device__
#undef __global__
#undef __launch_bounds__
#define __device__
#define __global__
#define __launch_bounds__(...)
namespace packing {
#define UNPACK 0
#define pack pack_kernel
#include "backends/gpu/pack/pack.cu"
#undef UNPACK
#undef pack
}  // namespace packing
namespace unpacking {
#define UNPACK 1
#define pack unpack_kernel
#include "backends/gpu/pack/pack.cu"
#undef UNPACK
#undef pack
}  // namespace unpacking

}  // namespace

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

void run(void (*kernel)(gpu::PackArguments), const Tile64& shape, unsigned char* rows, unsigned char* tiles) {
  const gpu::PackArguments values{
      rows, tiles, shape.n, shape.row_bytes(), shape.row_chunks(), shape.bytes() / Tile64::unit_bytes};
  gridDim.x = 3;  // fewer threads than units: they loop
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < 256; ++threadIdx.x) kernel(values);
}

/// `shift`: of the plain weight, in bytes.
void expect_same_as_host(const Tile64& shape, std::size_t shift) {
  SCOPED_TRACE(fmt::format("{} x {} of {} bytes, at {}", shape.n, shape.k, shape.element_bytes, shift));
  const auto bytes = static_cast<std::size_t>(shape.n * shape.row_bytes());
  std::vector<unsigned char> plain(bytes + shift);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<unsigned char>(i * 7 + i / 256 + 1);
  std::vector<unsigned char> expected(static_cast<std::size_t>(shape.bytes()));
  pack_tile64(shape, plain.data() + shift, expected.data());
  std::vector<unsigned char> tiles(expected.size(), 0xa5);
  run(packing::pack_kernel, shape, plain.data() + shift, tiles.data());
  EXPECT_TRUE(tiles == expected);
  std::vector<unsigned char> again(plain.size(), 0xa5);
  run(unpacking::unpack_kernel, shape, again.data() + shift, tiles.data());
  EXPECT_TRUE(std::equal(again.begin() + static_cast<std::ptrdiff_t>(shift), again.end(),
                         plain.begin() + static_cast<std::ptrdiff_t>(shift)));
}

TEST(GpuPack, ThreadsDoWhatTheHostDoes) {
  expect_same_as_host({.n = 130, .k = 72, .element_bytes = 2}, 0);
  expect_same_as_host({.n = 130, .k = 72, .element_bytes = 2}, 2);
  expect_same_as_host({.n = 65, .k = 77, .element_bytes = 1}, 0);
  expect_same_as_host({.n = 65, .k = 77, .element_bytes = 1}, 3);
  expect_same_as_host({.n = 1, .k = 3, .element_bytes = 2}, 0);
  expect_same_as_host({.n = 7, .k = 8, .element_bytes = 2}, 0);
  expect_same_as_host({.n = 64, .k = 256, .element_bytes = 4}, 0);
  expect_same_as_host({.n = 200, .k = 1032, .element_bytes = 2}, 0);
}

TEST(GpuPack, WrongPointersAreRefusedBeforeTheyFault) {
  NoCompiler device;
  const Tile64 shape{.n = 64, .k = 64, .element_bytes = 2};
  alignas(16) unsigned char memory[32] = {};
  EXPECT_THAT(gpu::pack_tile64(device, shape, nullptr, memory).message(), HasSubstr("null pointer"));
  EXPECT_THAT(gpu::unpack_tile64(device, shape, nullptr, memory).message(), HasSubstr("null pointer"));
  const Status odd = gpu::pack_tile64(device, shape, memory, memory + 8);
  EXPECT_EQ(odd.code(), StatusCode::invalid_argument);
  EXPECT_THAT(odd.message(), HasSubstr("not at a multiple of 16 bytes"));
  EXPECT_EQ(device.last().name, "");
  EXPECT_TRUE(gpu::pack_tile64(device, {.n = 0, .k = 64, .element_bytes = 2}, nullptr, nullptr).ok());
  const Status none = gpu::pack_tile64(device, shape, memory + 1, memory);
  EXPECT_EQ(none.code(), StatusCode::unsupported);
  EXPECT_THAT(none.message(), HasSubstr("no compiler"));
}

}  // namespace
}  // namespace gemmtune
