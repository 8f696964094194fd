// The gate that every kernel passes before its time counts: runs it on real data between guard bands and
// judges what it wrote. docs/measuring.md, "Correctness".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "evaluate/in_process/output_verifier.h"
#include "evaluate/outcome.h"

namespace gemmtune {

struct GateOptions {
  double largest_err_ratio = 0.05;
  int reference_threads = 1;
  std::uint64_t seed = 1;
  /// Of OutputVerifierOptions: larger problems are judged on the device.
  double largest_host_flops = OutputVerifierOptions().largest_host_flops;
  std::int64_t largest_host_elements = OutputVerifierOptions().largest_host_elements;
};

/// Device memory to device memory by way of the host, in pieces: backends need no third kind of copy for it.
Status copy_on_device(Device& device, void* to, const void* from, std::size_t bytes);

/// Operands of one problem in device memory, the weight in every layout that was asked for.
class DeviceOperands {
 public:
  /// Reserves memory; `fill` gives it content.
  static Result<DeviceOperands> make(Device& device, const Problem& problem, Placement placement);

  /// May be called again: the addresses stay, packed weights are packed anew.
  Status fill(const HostOperands& host);
  /// What is to be drawn is drawn by the device, or by up to `threads` threads of the host.
  Status fill(PlannedInputs& inputs, int threads);
  Status fill(const DeviceOperands& other);
  /// All but y, the weight in `layout` (packed at the first request).
  Result<Operands> operands(WeightLayout layout);

 private:
  struct Tensor {
    std::unique_ptr<Buffer> buffer;
    void* data = nullptr;
    std::size_t bytes = 0;
  };

  /// One operand: where it is on the device, and what the host has of it.
  struct Part {
    Tensor DeviceOperands::*tensor;
    std::size_t bytes = 0;
    const void* host = nullptr;
  };

  DeviceOperands(Device& device, const Problem& problem, Placement placement)
      : device_(&device), problem_(problem), placement_(placement) {}
  /// Every operand that the problem has, with its content in `host` where there is one.
  std::vector<Part> parts(const HostOperands* host) const;
  Result<Tensor> tensor(std::size_t bytes) const;
  Status pack(WeightLayout layout, const Tensor& packed);
  Status repack();

  Device* device_;
  Problem problem_;
  Placement placement_;
  Tensor x_;
  Tensor w_;
  Tensor bias_;
  Tensor x_scale_;
  Tensor w_scale_;
  Tensor w2_;
  Tensor w2_scale_;
  Tensor topk_ids_;
  Tensor topk_weights_;
  std::map<WeightLayout, Tensor> packed_;
};

/// One problem's gate. Not for several threads at once.
class CorrectnessGate {
 public:
  /// `unsupported` for problems without reference; `out_of_memory`.
  static Result<CorrectnessGate> make(Device& device, const Problem& problem, const GateOptions& options);

  /// One seed, poisoned output, guard bands around output and workspace, every element.
  Outcome quick(const Kernel& kernel);
  /// For kernels that passed the quick one: operands that end at an unreadable page, a padded output, other
  /// data at the same addresses (a second seed), runs repeated on the same data. One outcome a kernel. A read
  /// past the end of an operand kills the process: that is its point, and the worker's parent sees it.
  /// `on_kernel` is called before a kernel's code runs, and with nullptr before the gate prepares what all
  /// kernels share.
  Result<std::vector<Outcome>> full(std::span<const Kernel* const> kernels,
                                    const std::function<void(const Kernel* kernel)>& on_kernel = {});

  /// The first seed's operands: what is timed runs on them too.
  DeviceOperands& operands() { return operands_; }
  /// Whether outputs are judged where they lie.
  bool on_device() const { return verifier_.on_device(); }

 private:
  CorrectnessGate(Device& device, const Problem& problem, const GateOptions& options, DeviceOperands operands,
                  OutputVerifier verifier)
      : device_(&device),
        problem_(problem),
        options_(options),
        operands_(std::move(operands)),
        verifier_(std::move(verifier)) {}

  struct Run;
  Status prepare(Run& run, const Kernel& kernel, DeviceOperands& operands, std::int64_t ldy);
  Outcome execute(Run& run, const Kernel& kernel, OutputVerifier& verifier);
  Outcome check_once(const Kernel& kernel, DeviceOperands& operands, std::int64_t ldy);
  Outcome check_repeated(const Kernel& kernel, DeviceOperands& operands, OutputVerifier& verifier);
  Status renew_y();

  Device* device_;
  Problem problem_;
  GateOptions options_;
  DeviceOperands operands_;
  OutputVerifier verifier_;
  std::unique_ptr<Buffer> y_;
};

}  // namespace gemmtune
