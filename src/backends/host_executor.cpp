#include "backends/host_executor.h"

#include <algorithm>

#include "backends/cpu/threads/executor.h"

namespace gemmtune {
namespace {

class Forwarder final : public HostExecutor, public cpu::Executor {
 public:
  explicit Forwarder(const HostParallelFor& host) : host_(host) {}

  Stream stream() override { return {static_cast<cpu::Executor*>(this)}; }
  int threads() const override { return std::max(host_.threads, 1); }
  void parallel_for(std::int64_t parts, Body body, void* context) override {
    if (parts == 1) return body(context, 0);
    host_.function(host_.context, parts, body, context);
  }

 private:
  HostParallelFor host_;
};

}  // namespace

std::unique_ptr<HostExecutor> make_host_executor(const HostParallelFor& host) {
  return std::make_unique<Forwarder>(host);
}

}  // namespace gemmtune
