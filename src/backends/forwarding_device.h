// What decorators of devices derive from: every function asks the device behind it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "backends/backend.h"
#include "backends/output_checker.h"

namespace gemmtune {

class ForwardingDevice : public Device {
 public:
  /// `inner` must outlive this.
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  const DeviceInfo& info() const override { return inner_.info(); }
  std::span<const KernelFamily* const> families() const override { return inner_.families(); }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override {
    return inner_.allocate(bytes, placement);
  }
  Status copy_in(void* device, const void* host, std::size_t bytes) override {
    return inner_.copy_in(device, host, bytes);
  }
  Status copy_out(void* host, const void* device, std::size_t bytes) override {
    return inner_.copy_out(host, device, bytes);
  }
  Status copy_within(void* to, const void* from, std::size_t bytes) override {
    return inner_.copy_within(to, from, bytes);
  }
  Status fill(void* device, int byte, std::size_t bytes) override { return inner_.fill(device, byte, bytes); }
  Status synchronize() override { return inner_.synchronize(); }
  Status health() const override { return inner_.health(); }
  std::map<std::string, double> observe() override { return inner_.observe(); }
  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override {
    return inner_.packed_bytes(problem, layout);
  }
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override {
    return inner_.pack_weight(problem, layout, plain, packed);
  }
  Status unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                       void* plain) const override {
    return inner_.unpack_weight(problem, layout, packed, plain);
  }
  Status fill_random(void* to, const RandomFill& recipe) override { return inner_.fill_random(to, recipe); }
  Status silu_and_mul(const SiluAndMul& call, Stream stream) override {
    return inner_.silu_and_mul(call, stream);
  }
  Result<std::unique_ptr<OutputChecker>> output_checker(const Problem& problem) override {
    return inner_.output_checker(problem);
  }
  void compile_ahead(const Problem& problem, std::span<const Candidate> candidates) override {
    inner_.compile_ahead(problem, candidates);
  }
  Result<double> sample(const SampleRequest& request) override { return inner_.sample(request); }
  Status counts_energy() override { return inner_.counts_energy(); }
  Result<EnergySample> sample_energy(const SampleRequest& request, double seconds) override {
    return inner_.sample_energy(request, seconds);
  }
  bool times_single_calls() const override { return inner_.times_single_calls(); }
  void begin_processor_waits() override { inner_.begin_processor_waits(); }
  double processor_waits() override { return inner_.processor_waits(); }
  bool gather_threads() override { return inner_.gather_threads(); }
  std::unique_ptr<Kernel> reading_kernel(std::size_t bytes) const override {
    return inner_.reading_kernel(bytes);
  }
  std::size_t last_level_cache_bytes() override { return inner_.last_level_cache_bytes(); }
  std::size_t free_memory_bytes() override { return inner_.free_memory_bytes(); }
  void quiesce(std::string_view thread_pool) override { inner_.quiesce(thread_pool); }
  void look_for_threads() override { inner_.look_for_threads(); }
  bool is_capturing(Stream stream) const override { return inner_.is_capturing(stream); }
  Problem probe_problem() const override { return inner_.probe_problem(); }
  Result<Candidate> baseline(const Problem& problem) const override { return inner_.baseline(problem); }
  Result<Candidate> fallback(const Problem& problem) const override { return inner_.fallback(problem); }

 private:
  Device& inner_;
};

}  // namespace gemmtune
