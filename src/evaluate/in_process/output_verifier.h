// Compares outputs on one set of data with a reference on the host, or, if an output is large and the device
// has an output checker, with a reference in device memory. Both make the same report
// (verify/check_report_builder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backends/output_checker.h"
#include "base/random.h"
#include "evaluate/outcome.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune {

struct OutputVerifierOptions {
  double max_err_ratio = 0.05;
  int threads = 1;                  // of the host's reference
  std::uint64_t sampling_seed = 0;  // added to the seed of the reference's samples
  Signs signs = Signs::both;        // of x and w
  /// Problems above one of these limits are verified on the device, if it has an output checker: 2·M·N·K of a
  /// complete reference, which takes 16 cores some 10 ms if M is small, elements of y, each check of
  /// which takes a core 1 ms, and bytes of operands, which the host would have to fill. Smaller ones use the host's
  /// reference, which shares no code and no compiler with any kernel.
  double max_host_flops = 5e7;
  std::int64_t max_host_elements = 1 << 16;
  double max_host_bytes = 1.5e8;
};

/// Not for several threads at once. The device must outlive it.
class OutputVerifier {
 public:
  /// `device_operands`: `inputs` on the device, the weight plain. A reference on the host fills the inputs
  /// that are not filled yet; a reference on the device is compared with the host's on 8 x 8 elements, of a mixture on
  /// rows of tokens.
  /// `unsupported` for problems without reference; `out_of_memory`; `internal` if device and host disagree.
  static Result<OutputVerifier> make(Device& device, const Problem& problem,
                                     const OutputVerifierOptions& options, PlannedInputs& inputs,
                                     const Operands& device_operands);

  bool on_device() const { return device_checker_ != nullptr; }

  /// Sets the output to verify: y [M, ldy], which must not change until the next call. Copies it to the host
  /// unless outputs are verified on the device.
  Status read(const Buffer& y, std::int64_t ldy);
  /// Compares the output that was read last with the reference, by the bounds of a class: `ok` or `wrong`, with
  /// the share of elements outside tolerance and the measured error; `launch_failed` if the device fails.
  Outcome verify(Accuracy accuracy);
  /// True if the output that was read last equals the kept one bit for bit.
  Result<bool> equals_kept();
  /// Keeps the output that was read last.
  Status keep();

 private:
  OutputVerifier(Device& device, const Problem& problem, const OutputVerifierOptions& options);
  Status confirm(const PlannedInputs& inputs) const;
  Status confirm_batch(const PlannedInputs& inputs, std::int64_t batch, Random& random) const;
  Status confirm_mixture(const PlannedInputs& inputs, int threads) const;
  /// A value and its magnitude, of either reference.
  Status differs(std::int64_t row, std::int64_t column, std::pair<double, double> device,
                 std::pair<double, double> host) const;
  Tolerance tolerance(Accuracy accuracy) const;
  Outcome outcome_of(const CheckReport& report) const;
  Outcome verify_on_host(const Tolerance& tolerance) const;
  Outcome verify_on_device(const Tolerance& tolerance);

  Device* device_;
  Problem problem_;
  double max_err_ratio_;
  Signs signs_;
  Reference reference_;  // the host's
  std::unique_ptr<OutputChecker> device_checker_;
  const Buffer* y_ = nullptr;
  std::int64_t ldy_ = 0;
  std::vector<std::byte> output_;  // the host's copies
  std::vector<std::byte> kept_;
  std::unique_ptr<Buffer> kept_on_device_;
};

}  // namespace gemmtune
