// Verifies a kernel before its times count: runs it on real data between guard bands and compares its output
// with a reference. docs/correctness.md, "Correctness".
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
#include "verify/random_fill.h"
#include "verify/routing.h"

namespace gemmtune {

struct KernelVerifierOptions {
  double max_err_ratio = 0.05;
  int reference_threads = 1;
  std::uint64_t seed = 1;
  InitType init = InitType::randn;  // of the first seed's operands; further ones are random in any case
  Routing routing = {};  // of the first seed's; those of the second seed are of another kind, and padded
  /// Of OutputVerifierOptions: larger problems are verified on the device.
  double max_host_flops = OutputVerifierOptions().max_host_flops;
  std::int64_t max_host_elements = OutputVerifierOptions().max_host_elements;
  double max_host_bytes = OutputVerifierOptions().max_host_bytes;
  bool odd_strides = false;  // InProcessOptions::odd_strides
};

/// Operands of one problem in device memory, the weight in every layout that was requested.
class DeviceOperands {
 public:
  /// Allocates; `fill` sets the content.
  static Result<DeviceOperands> make(Device& device, const Problem& problem, Placement placement);

  /// May be called again: the addresses stay, packed weights are packed anew.
  Status fill(const HostOperands& host);
  /// Random operands are filled by the device, or by up to `threads` threads of the host.
  Status fill(PlannedInputs& inputs, int threads);
  Status fill(const DeviceOperands& other);
  /// Rows of x (columns, if it is column-major) begin `ldx` elements apart from now on, with poison between them. No fill() may follow.
  Status spread_x(std::int64_t ldx);
  /// All operands but y, the weight in `layout` (packed at the first request).
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
      : device_(&device),
        problem_(problem),
        placement_(placement),
        ldx_(operand_shapes(problem).x.line_elements()) {}
  /// Every operand that the problem has, with its content in `host` where there is one.
  std::vector<Part> parts(const HostOperands* host) const;
  Result<Tensor> tensor(std::size_t bytes) const;
  Status pack(WeightLayout layout, const Tensor& packed);
  Status repack();

  Device* device_;
  Problem problem_;
  Placement placement_;
  std::int64_t ldx_;
  Tensor x_;
  Tensor w_;
  Tensor bias_;
  Tensor x_scale_;
  Tensor w_scale_;
  Tensor x_global_scale_;
  Tensor w_global_scale_;
  Tensor w_zero_points_;
  Tensor w2_;
  Tensor w2_scale_;
  Tensor w2_global_scale_;
  Tensor w2_zero_points_;
  Tensor bias2_;
  Tensor topk_ids_;
  Tensor topk_weights_;
  std::map<WeightLayout, Tensor> packed_;
};

/// A kernel, and the class of its sums by whose bounds it is verified.
struct KernelOfClass {
  const Kernel* kernel = nullptr;
  Accuracy accuracy = Accuracy::fp32;
};

/// Verifies kernels of one problem. Not for several threads at once.
class KernelVerifier {
 public:
  /// `unsupported` for problems without reference; `out_of_memory`.
  static Result<KernelVerifier> make(Device& device, const Problem& problem,
                                     const KernelVerifierOptions& options);

  /// One seed, poisoned output, guard bands around output and workspace, every element compared.
  Outcome verify_quickly(const KernelOfClass& kernel);
  /// For kernels that verify_quickly passed: operands that end at an unreadable page, a padded output, other
  /// data at the same addresses (a second seed; e8m0 scales of the whole range, mixtures with empty slots), runs repeated on the same data; where the device has classes of
  /// accuracy for the problem, operands of one sign. One outcome per kernel. A read past the end of an operand kills the process, which the worker's parent reports as the kernel's
  /// failure. `on_kernel` is called before a kernel's code runs, and with nullptr before what all kernels
  /// share is prepared.
  Result<std::vector<Outcome>> verify_fully(std::span<const KernelOfClass> kernels,
                                            const std::function<void(const Kernel* kernel)>& on_kernel = {});

  /// The first seed's operands, which timed runs use too.
  DeviceOperands& operands() { return operands_; }
  /// True if outputs are verified in device memory.
  bool on_device() const { return verifier_.on_device(); }

 private:
  KernelVerifier(Device& device, const Problem& problem, const KernelVerifierOptions& options,
                 DeviceOperands operands, OutputVerifier verifier)
      : device_(&device),
        problem_(problem),
        options_(options),
        operands_(std::move(operands)),
        verifier_(std::move(verifier)) {}

  struct Run;
  Status prepare(Run& run, const Kernel& kernel, DeviceOperands& operands, std::int64_t ldy);
  Outcome execute(Run& run, const Kernel& kernel, OutputVerifier& verifier);
  Outcome verify_once(const KernelOfClass& kernel, DeviceOperands& operands, OutputVerifier& verifier,
                      std::int64_t ldy);
  /// Fills the operands anew and makes a verifier for them.
  Result<OutputVerifier> refill(DeviceOperands& operands, std::uint64_t seed_offset, Signs signs);
  /// With odd strides; ok if the kernel refuses them.
  Outcome verify_odd_strides(const KernelOfClass& kernel);
  Outcome verify_repeated(const KernelOfClass& kernel, DeviceOperands& operands, OutputVerifier& verifier);
  Status renew_y();

  Device* device_;
  Problem problem_;
  KernelVerifierOptions options_;
  DeviceOperands operands_;
  OutputVerifier verifier_;
  std::unique_ptr<Buffer> y_;
};

}  // namespace gemmtune
