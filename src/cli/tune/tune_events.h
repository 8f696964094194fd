// What a run does, told to other programs while it does it: JSON, one object a line.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/status.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// Passes everything on to `inner` and writes an event for it:
///   run_started {shapes, waiting}; problem_started {index, problem}; candidate {index, kernelName, outcome,
///   us, reason}; problem_done {index, and what --json has of the shape}; problem_revised {the same,
///   after its confirmation pass}.
/// Each line is in the operating system's hands when the call returns.
class TuneEvents final : public TuneObserver {
 public:
  /// Appends to `path`, which is made where it is not there; an empty path: no events. `inner` must outlive
  /// this.
  static Result<std::unique_ptr<TuneEvents>> open(const std::string& path, TuneObserver& inner);

  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override;
  void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) override;
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override;
  void problem_done(std::size_t index, const ProblemReport& report) override;
  void confirmation_started(std::size_t index, std::size_t done, std::size_t count) override;
  void problem_revised(std::size_t index, const ProblemReport& report) override;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TuneEvents(std::FILE* file, std::string path, TuneObserver& inner)
      : file_(file), path_(std::move(path)), inner_(inner) {}
  /// Says a full disk once and goes on without events.
  void write(const std::string& line);

  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
  TuneObserver& inner_;
};

}  // namespace gemmtune::cli
