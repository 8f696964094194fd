// What outputs on one set of data are judged by: a reference on the host, or where an output is large and the
// device can, one beside it in device memory. Both make the same report (verify/check_report_builder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/output_checker.h"
#include "evaluate/outcome.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune {

struct OutputVerifierOptions {
  double largest_err_ratio = 0.05;
  int threads = 1;                  // of the host's reference
  std::uint64_t sampling_seed = 0;  // added to that of the reference's samples
  /// Problems above either go to the device, if it can: 2·M·N·K of a complete reference, which takes 16
  /// cores some 10 ms where M is small, and elements of y, each check of which takes a core 1 ms. Smaller
  /// ones stay with the host's reference, which shares no code and no compiler with any kernel.
  double largest_host_flops = 5e7;
  std::int64_t largest_host_elements = 1 << 16;
};

/// Not for several threads at once. The device must outlive it.
class OutputVerifier {
 public:
  /// `device_operands`: `inputs` on the device, the weight plain; the host's way draws what is not drawn yet.
  /// A device's reference is confirmed by the host's on 8 x 8 elements. `unsupported` for problems without
  /// reference; `out_of_memory`; `internal` where device and host disagree.
  static Result<OutputVerifier> make(Device& device, const Problem& problem,
                                     const OutputVerifierOptions& options, PlannedInputs& inputs,
                                     const Operands& device_operands);

  bool on_device() const { return device_checker_ != nullptr; }

  /// Takes an output in: y [M, ldy] in `y`, which must stay as it is until the next call. The host's way
  /// copies it.
  Status look(const Buffer& y, std::int64_t ldy);
  /// The output that was looked at last.
  Outcome judge();
  /// Whether it is what was remembered, bit for bit.
  Result<bool> is_as_remembered();
  Status remember();

 private:
  OutputVerifier(Device& device, const Problem& problem, const OutputVerifierOptions& options);
  Status confirm(const PlannedInputs& inputs) const;
  Outcome judge_on_host() const;
  Outcome judge_on_device();

  Device* device_;
  Problem problem_;
  Tolerance tolerance_;
  Reference reference_;  // the host's
  std::unique_ptr<OutputChecker> device_checker_;
  const Buffer* y_ = nullptr;
  std::int64_t ldy_ = 0;
  std::vector<std::byte> output_;  // the host's copies
  std::vector<std::byte> remembered_;
  std::unique_ptr<Buffer> remembered_on_device_;
};

}  // namespace gemmtune
