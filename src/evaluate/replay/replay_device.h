// The device of a recording: families and their spaces as recorded, without a machine.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "evaluate/replay/recording.h"

namespace gemmtune {

/// Serves the tuner's requests to a device for the problems of the recording; every family refuses other
/// problems. Memory, kernels and times are `unsupported`.
class ReplayDevice final : public LeafDevice {
 public:
  /// The recording must outlive this.
  explicit ReplayDevice(const Recording& recording);
  ~ReplayDevice() override;

  const DeviceInfo& info() const override { return recording_.run.device; }
  std::span<const KernelFamily* const> families() const override { return pointers_; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override { return {}; }
  Status health() const override { return {}; }
  std::map<std::string, double> observe() override { return {}; }
  void compile_ahead(const Problem&, std::span<const Candidate>) override {}
  bool times_single_calls() const override { return false; }
  void quiesce(std::string_view) override {}
  void look_for_threads() override {}
  bool is_capturing(Stream) const override { return false; }
  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override;
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override;
  Result<double> sample(const SampleRequest& request) override;
  std::size_t last_level_cache_bytes() override { return 0; }
  std::size_t free_memory_bytes() override { return 0; }
  Result<Candidate> baseline(const Problem& problem) const override;
  Result<Candidate> fallback(const Problem& problem) const override;

 private:
  const RecordedProblem* find(const Problem& problem) const;
  Result<Candidate> candidate_of(const std::string& kernel_name, const Problem& problem) const;

  const Recording& recording_;
  std::map<std::string, const RecordedProblem*> problems_;
  std::vector<std::unique_ptr<KernelFamily>> families_;
  std::vector<const KernelFamily*> pointers_;
};

}  // namespace gemmtune
