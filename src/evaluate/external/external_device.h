// The device behind an external evaluator: memory, kernels and times are in the evaluator's process. Everything else
// is as on every device: candidates, search, verification against gemmtune's reference, rounds and statistics.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "evaluate/external/evaluator_hello.h"
#include "evaluate/external/evaluator_process.h"

namespace gemmtune {

/// DeviceInfo::backend of such a device; its name is the evaluator's command.
inline constexpr std::string_view external_backend = "external";

/// What an evaluator may take to say what it is: an interpreter loads its modules first.
inline constexpr double hello_seconds = 120;

/// That backend's device; of external_backend the evaluator whose command is the request's text. It, or the request's opponent,
/// must say what it is within `seconds`.
Result<std::unique_ptr<Device>> open_device_of(const std::string& backend, const DeviceRequest& request,
                                               double seconds = hello_seconds);

class ExternalDevice final : public LeafDevice {
 public:
  /// Starts the command and asks what it is. Errors hold the command and the end of what it wrote to its standard
  /// error. The device must be used by one thread at a time and ends with the thread that opened it.
  static Result<std::unique_ptr<Device>> open(const std::string& command, double seconds = hello_seconds);
  ~ExternalDevice() override;

  const DeviceInfo& info() const override { return hello_.device; }
  std::span<const KernelFamily* const> families() const override { return families_; }
  Status health() const override { return process_->fault(); }
  std::map<std::string, double> observe() override { return {}; }

  /// page_end is as plain: the evaluator's memory has no such place.
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status copy_within(void* to, const void* from, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override { return health(); }
  /// Plain weights only.
  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override;
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override;
  void compile_ahead(const Problem& problem, std::span<const Candidate> candidates) override;
  Result<double> sample(const SampleRequest& request) override;
  Status counts_energy() override;
  Result<EnergySample> sample_energy(const SampleRequest& request, double seconds) override;
  std::size_t last_level_cache_bytes() override { return hello_.cache_bytes; }
  std::size_t free_memory_bytes() override;
  bool times_single_calls() const override { return false; }
  void quiesce(std::string_view) override {}
  void look_for_threads() override {}
  bool is_capturing(Stream) const override { return false; }
  Problem probe_problem() const override;
  Result<Candidate> baseline(const Problem& problem) const override { return fallback(problem); }
  Result<Candidate> fallback(const Problem& problem) const override;

 private:
  class Family;
  class Memory;
  class RemoteBuffer;
  class RemoteKernel;

  ExternalDevice(std::unique_ptr<EvaluatorProcess> process, EvaluatorHello hello);
  /// The launches of a request in a message that `what` says what to do with; sends the rotation first where the evaluator has
  /// another one. The reply.
  Result<Json> ask_launches(std::string_view what, const SampleRequest& request, double seconds);
  Status move_bytes(std::string_view direction, const void* device, std::size_t bytes, const void* from,
                    void* to);

  std::unique_ptr<EvaluatorProcess> process_;
  EvaluatorHello hello_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Family> family_;
  std::vector<const KernelFamily*> families_;
  std::vector<Operands> rotation_;  // that the evaluator has
  std::size_t rotations_ = 0;       // how many it was sent; the latest one's number
};

}  // namespace gemmtune
