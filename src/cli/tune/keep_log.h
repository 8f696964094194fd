// The log that `tune --keep` leaves: a line a candidate, and one a shape.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/status.h"
#include "cli/tune/tune_options.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// Makes the folder of --keep beside the output and names it and its profile in `outputs`.
Status make_keep_folder(const TuneOptions& options, Outputs& outputs);

class KeepLog final : public RunObserver {
 public:
  /// Appends to FOLDER/run.log; the command line's words are the first line of each run.
  static Result<std::unique_ptr<KeepLog>> open(const std::string& folder, const std::string& first_line);

  void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) override;
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override;
  void problem_done(std::size_t index, const ItemReport& report) override;
  void problem_revised(std::size_t index, const ItemReport& report) override;
  void range_done(std::size_t item, std::size_t items, const ItemReport& report) override;

 private:
  explicit KeepLog(LineFile file) : file_(std::move(file)) {}
  void write(const std::string& line);

  std::optional<LineFile> file_;  // until a line could not be written
};

}  // namespace gemmtune::cli
