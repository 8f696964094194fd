// An NVIDIA GPU as a device.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/cuda_runtime.h"
#include "backends/cuda/graph_timer.h"

namespace gemmtune::cuda {

/// Threads: everything but sample may be called from any thread at once; samples serialise among themselves.
/// Kernels and buffers must not outlive the device. A fault (an illegal address …) ends the process's use of
/// the GPU: from then on every call fails and health() says why.
class CudaDevice final : public Device {
 public:
  static Result<std::unique_ptr<Device>> open(const RuntimeOptions& options);
  explicit CudaDevice(std::unique_ptr<CudaRuntime> runtime, const std::string& library_folder);

  const DeviceInfo& info() const override { return info_; }
  std::span<const KernelFamily* const> families() const override { return family_pointers_; }
  Status health() const override;
  std::map<std::string, double> observe() override;

  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status copy_within(void* to, const void* from, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override;

  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override;
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override;
  Status unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                       void* plain) const override;

  Status fill_random(void* to, const RandomFill& recipe) override;
  Result<std::unique_ptr<OutputChecker>> output_checker(const Problem& problem) override;

  void compile_ahead(const Problem& problem, std::span<const Candidate> candidates) override;

  Result<double> sample(const SampleRequest& request) override;
  std::size_t last_level_cache_bytes() override;
  std::size_t free_memory_bytes() override;

  bool is_capturing(Stream stream) const override;

  Result<Candidate> baseline(const Problem& problem) const override;
  Result<Candidate> fallback(const Problem& problem) const override;

 private:
  Status watched(Status status);
  /// What building the candidate compiles; nothing where it compiles nothing.
  std::optional<gpu::KeyedSource> source_of(const Problem& problem, const Candidate& candidate) const;

  std::unique_ptr<CudaRuntime> runtime_;
  std::vector<std::unique_ptr<KernelFamily>> families_;
  std::vector<const KernelFamily*> family_pointers_;
  DeviceInfo info_;
  std::mutex sampling_;
  GraphTimer timer_;
  // What was announced of one problem, by kernel name: a search names the same candidates again and again.
  // Guarded by announcing_.
  std::mutex announcing_;
  std::optional<Problem> announced_problem_;
  std::map<std::string, std::optional<gpu::KeyedSource>> announced_;
  mutable std::mutex faults_;
  Status fault_;  // guarded by faults_
};

/// What info() of the device with this ordinal says, without opening it.
Result<DeviceInfo> describe_device(int ordinal, const std::string& library_folder);

}  // namespace gemmtune::cuda
