// A device over host memory whose families are lambdas and whose clock is simulated: verification is real,
// times are what a test says they are, and the same in every run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/refusal.h"
#include "base/random.h"

namespace gemmtune::testing {

/// What a kernel does with its operands, on the calling thread.
using FakeRun = std::function<void(const Problem& problem, const Operands& operands, void* workspace)>;
/// Microseconds of one launch; the device's generator is there for noise, its clock (microseconds) for drift.
using FakeCost = std::function<double(const Problem& problem, Random& noise, double now_microseconds)>;

/// One family with one kernel and no parameters; tests that need different kernels add families.
struct FakeFamilyOptions {
  std::string name = {};
  FakeRun run = {};    // empty: writes the right result (float32 sums)
  FakeCost cost = {};  // empty: 100 µs
  double watts = 100;
  std::size_t workspace_bytes = 0;
  WeightLayout layout = WeightLayout::plain;
  int tie_rank = 1;
  std::int64_t resources = 0;
  double predicted_us = 0;
  std::string thread_pool = "own";
  Accuracy accuracy = Accuracy::fp32;
  std::string sum_order = {};                          // empty: no promise
  std::function<Status(const Problem&)> accepts = {};  // empty: all in these orders
  refusal::Orders orders = refusal::Orders::row_major;
  std::function<void()> on_build = {};  // called by build
  Status build_status = {};             // not ok: build answers it
  Status run_status = {};               // not ok: run answers it
};

/// y = x · wᵀ (+ bias) for every type combination: float32, one chain of additions over k. `layout` plain
/// only.
void right_gemm(const Problem& problem, const Operands& operands, void* workspace);

class FakeDevice final : public LeafDevice {
 public:
  FakeDevice();
  ~FakeDevice() override;

  /// Returns the candidate of the new family.
  Candidate add(FakeFamilyOptions options);
  void set_baseline(Candidate candidate) { baseline_ = std::move(candidate); }

  DeviceInfo& change_info() { return info_; }

  const DeviceInfo& info() const override { return info_; }
  std::span<const KernelFamily* const> families() const override { return family_pointers_; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override { return fault_; }
  /// From now on it answers as a device does after a fault.
  void lose(const Status& fault) { fault_ = fault; }
  Status health() const override { return fault_; }
  /// panel16 only.
  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override;
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override;
  void compile_ahead(const Problem&, std::span<const Candidate> candidates) override {
    ahead.emplace_back(candidates.begin(), candidates.end());
  }
  Result<double> sample(const SampleRequest& request) override;
  Status counts_energy() override { return energy_status; }
  Result<EnergySample> sample_energy(const SampleRequest& request, double seconds) override;
  bool times_single_calls() const override { return single_calls; }
  void begin_processor_waits() override { waits = 0; }
  double processor_waits() override {
    ++wait_readings;
    return std::exchange(waits, 0);
  }
  bool gather_threads() override {
    ++gathered;
    waits = 0;
    return threads_come_together;
  }
  std::unique_ptr<Kernel> reading_kernel(std::size_t bytes) const override;
  std::size_t last_level_cache_bytes() override { return cache_bytes; }
  std::size_t free_memory_bytes() override { return free_bytes; }
  std::map<std::string, double> observe() override { return {}; }
  void look_for_threads() override {}
  bool is_capturing(Stream) const override { return false; }
  void quiesce(std::string_view thread_pool) override { quiesced.emplace_back(thread_pool); }
  Result<Candidate> baseline(const Problem& problem) const override;
  Result<Candidate> fallback(const Problem& problem) const override;

  std::size_t cache_bytes = 1 << 16;
  std::size_t free_bytes = std::size_t{1} << 30;
  double now_microseconds = 0;
  bool single_calls = false;  // what times_single_calls answers
  double waits = 0;           // that the next processor_waits() answers; it begins anew then
  int wait_readings = 0;
  std::int64_t gathered = 0;                // calls of gather_threads()
  bool threads_come_together = true;        // what it answers
  double reading_microseconds = 0;          // of reading_kernel; 0: the device has none
  Status energy_status;                     // what counts_energy answers
  std::vector<std::string> energy_batches;  // families, in their order
  Random noise{1};
  std::vector<std::string> quiesced;             // thread pools, in the order of the calls
  std::vector<const void*> sampled_weights;      // w of the first launch of each sample
  std::map<std::string, std::int64_t> launches;  // of samples, by family
  std::vector<std::vector<Candidate>> ahead;     // what compile_ahead was given
  std::int64_t parallel_passes = 0;              // launches of samples with one
  std::int64_t processor_times = 0;              // launches of samples that ask for them
  int builds = 0;
  std::size_t live_bytes = 0;
  std::size_t max_live_bytes = 0;

 private:
  Status fault_;
  DeviceInfo info_;
  std::vector<std::unique_ptr<KernelFamily>> families_;
  std::vector<const KernelFamily*> family_pointers_;
  Candidate baseline_;
};

}  // namespace gemmtune::testing
