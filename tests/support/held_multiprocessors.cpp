#include "support/held_multiprocessors.h"

#include <cstdint>
#include <utility>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/libraries.h"

namespace gemmtune {
namespace {

constexpr const char* hold_text = R"(.version 7.8
.target sm_90
.address_size 64
.visible .entry hold(.param .u64 nanoseconds)
{
  .reg .u64 begin, now, most;
  .reg .pred left;
  ld.param.u64 most, [nanoseconds];
  mov.u64 begin, %globaltimer;
again:
  mov.u64 now, %globaltimer;
  sub.u64 now, now, begin;
  setp.lt.u64 left, now, most;
  @left bra again;
  ret;
}
)";

class Held final : public HeldMultiprocessors {
 public:
  Held(std::unique_ptr<cuda::CudaDriver> driver, const gpu::LoadedKernel& kernel)
      : driver_(std::move(driver)), kernel_(kernel) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() override { driver_->unload(kernel_); }

  Status hold(int every, std::chrono::nanoseconds time) override {
    const gpu::Limits& limits = driver_->properties().limits;
    gpu::LaunchShape shape;
    shape.grid[0] = static_cast<unsigned>(limits.multiprocessors / every);
    shape.threads = 32;
    shape.shared_bytes = limits.shared_bytes_per_block;
    auto nanoseconds = static_cast<std::uint64_t>(time.count());
    void* arguments[] = {&nanoseconds};
    return driver_->launch(kernel_, shape, arguments, {});
  }

 private:
  std::unique_ptr<cuda::CudaDriver> driver_;
  gpu::LoadedKernel kernel_;
};

}  // namespace

Result<std::unique_ptr<HeldMultiprocessors>> HeldMultiprocessors::make() {
  GEMMTUNE_RETURN_IF_ERROR(cuda::driver().found);
  auto opened = cuda::CudaDriver::open(cuda::driver().functions, 0);
  if (!opened.ok()) return opened.status();
  const auto kernel = (*opened)->load(hold_text, "hold");
  if (!kernel.ok()) return kernel.status();
  GEMMTUNE_RETURN_IF_ERROR(
      (*opened)->reserve_shared(*kernel, (*opened)->properties().limits.shared_bytes_per_block));
  auto held = std::make_unique<Held>(std::move(*opened), *kernel);
  return std::unique_ptr<HeldMultiprocessors>(std::move(held));
}

}  // namespace gemmtune
