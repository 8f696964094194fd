// `merge --confirm`: the kernels of a table measured again on this machine, before the table goes to others.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"
#include "cli/shared/device_options.h"
#include "formats/aiter/environment_json.h"
#include "formats/aiter/tuned_csv.h"
#include "tuning/operator_bench.h"

namespace gemmtune::cli {

struct ConfirmationOptions {
  DeviceOptions device;
  int rounds = 30;
  bool keeps_rows = false;  // rows that do not hold stay as they are
  bool quiet = false;
};

/// A row that does not hold here.
struct RefutedRow {
  TunedEntry row;
  std::string why;
  std::optional<double> speedup;  // here, as the row has it: default / kernel
  std::string becomes;            // the default's kernel, "no row", or the row's own kernel where it stays
};

struct ConfirmationReport {
  std::string text;  // the table, changed
  DeviceInfo device;
  std::size_t measured = 0;      // rows with a kernel that is not the default's
  std::size_t removed = 0;       // of them, because the default cannot take their place
  std::size_t other_device = 0;  // rows that cannot run here
  std::vector<RefutedRow> refuted;
  EnvironmentObjects notes;  // for <table>.env.json, by env hash
  bool interrupted = false;
};

/// Times each row of this device whose kernel is not the default beside the default, in paired rounds, in a worker
/// process. A row holds if its result is right, it is not slower here, and the mean of its speed-up and of the one
/// measured here still beats the default, as the confirmation pass of a run decides. One that does not becomes the
/// default's row, `undecided` (where the default is wrong or unknown: no row); a row of a packed weight, whose layout
/// the other M share, goes only if it is wrong.
Result<ConfirmationReport> confirm_rows(const TunedFile& table, const Environment& environment,
                                        const ConfirmationOptions& options);

std::string confirmation_text(const ConfirmationReport& report);

}  // namespace gemmtune::cli
