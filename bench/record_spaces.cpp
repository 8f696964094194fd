// record_spaces SHAPES.csv OUT.jsonl DEVICE [PASSES]
// record_spaces --repredict IN.jsonl OUT.jsonl DEVICE
//
// Records whole spaces of kernel families for tests of search
// strategies (tests/data/recordings). Every candidate is screened in several passes over the space, so that
// its samples are far apart and their median does not hang on one slow moment; a drift reference between
// candidates shows slow moments of the machine, which are measured again. Then the fastest and the default
// kernel meet in interleaved rounds. `gemmtune tune --search exhaustive --record` records what one run
// measures. A file that exists is gone on with: shapes whose rounds it has are left out. With --repredict,
// the times of a recording stay and today's cost models say their predictions anew.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/device_request.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/replay/recording.h"
#include "evaluate/replay/recording_evaluator.h"
#include "formats/shapes/shape_list.h"
#include "measure/statistics.h"

namespace {

using namespace gemmtune;

constexpr std::size_t finalists = 40;  // those of any search, nearly always, are among them
constexpr int rounds = 60;

// A candidate's samples count when the drift reference, sampled before and after them, was not slower than
// its own quiet level by more than this; otherwise they are taken again, a few times, and the quietest are
// kept.
constexpr double quiet_share = 0.1;
constexpr int max_tries = 2;

class SpaceRecorder {
 public:
  SpaceRecorder(Device& device, InProcessOptions options, RecordingWriter& writer, int passes)
      : device_(device),
        evaluator_(device, options),
        writer_(writer),
        samples_(options.policy.screening_samples),
        passes_(passes) {}

  Status record(const ShapeRow& shape) {
    const double begin = steady_seconds();
    problem_ = shape.problem;
    medians_.clear();
    const RecordedProblem recorded = recorded_problem(device_, problem_, shape.calls);
    const auto number = writer_.add(recorded);
    if (!number.ok()) return number.status();
    std::vector<Candidate> candidates;
    for (const RecordedSpace& space : recorded.spaces) {
      if (space.family == "reference" || space.family == "simt") continue;  // for being right
      for (const RecordedConfig& config : space.configs) {
        auto candidate = device_.resolve(config.kernel_name, problem_);
        if (candidate.ok()) candidates.push_back(std::move(*candidate));
      }
    }
    GEMMTUNE_RETURN_IF_ERROR(choose_reference());
    reference_times_.clear();
    evaluator_.announce(problem_, candidates);
    for (int i = 0; i < 30; ++i) reference_sample();
    GEMMTUNE_RETURN_IF_ERROR(record_screening(*number, candidates));
    GEMMTUNE_RETURN_IF_ERROR(record_finals(*number, candidates));
    std::fprintf(stderr, "%s: %zu candidates, %ld tries, drift reference %.1f us, quiet %.1f us, %.0f s\n",
                 print(problem_).c_str(), candidates.size(), std::exchange(tries_, 0),
                 median(reference_times_), quiet_level(), steady_seconds() - begin);
    return {};
  }

 private:
  /// The first pass is a line of its own (it builds and checks), the later ones are one line together.
  Status record_screening(std::size_t number, const std::vector<Candidate>& candidates) {
    std::map<std::string, RecordedScreening> later;
    std::map<std::string, std::vector<double>> samples_of;  // all passes
    for (int pass = 0; pass < passes_; ++pass) {
      for (const Candidate& candidate : candidates) {
        auto answer = quiet_screening(candidate);
        if (!answer.ok()) return answer.status();
        RecordedScreening& screening = *answer;
        const Outcome& outcome = screening.outcome;
        if (outcome.kind == OutcomeKind::ok) {
          auto& all = samples_of[screening.candidate];
          all.insert(all.end(), outcome.microseconds.begin(), outcome.microseconds.end());
        }
        if (pass == 0) {
          GEMMTUNE_RETURN_IF_ERROR(writer_.add(number, screening));
          if (outcome.kind == OutcomeKind::ok)
            later.emplace(screening.candidate, RecordedScreening{screening.candidate, {}, 0});
          continue;
        }
        const auto known = later.find(screening.candidate);
        if (known == later.end() || outcome.kind != OutcomeKind::ok) continue;
        auto& samples = known->second.outcome.microseconds;
        samples.insert(samples.end(), outcome.microseconds.begin(), outcome.microseconds.end());
        known->second.outcome.err_ratio = outcome.err_ratio;
        known->second.seconds += screening.seconds;
      }
    }
    for (const auto& [name, screening] : later) {
      if (screening.outcome.microseconds.empty()) continue;
      medians_.emplace_back(median(samples_of[name]), name);
      GEMMTUNE_RETURN_IF_ERROR(writer_.add(number, screening));
    }
    return {};
  }

  /// On a CPU of the thread pool that nearly all candidates have: changing pools costs a pause.
  Status choose_reference() {
    if (const KernelFamily* tiled = device_.find_family("tiled")) {
      reference_ = {std::string(tiled->name()), tiled->revision(), tiled->default_config(problem_)};
      return {};
    }
    auto fallback = device_.fallback(problem_);
    if (!fallback.ok()) return fallback.status();
    reference_ = std::move(*fallback);
    return {};
  }

  double reference_sample() {
    const auto outcome = evaluator_.screen(problem_, {&reference_, 1}, 1, {});
    if (!outcome.ok() || outcome->front().microseconds.empty()) return 0;
    reference_times_.push_back(outcome->front().microseconds.front());
    return reference_times_.back();
  }

  /// The drift reference's tenth percentile.
  double quiet_level() const {
    std::vector<double> sorted = reference_times_;
    const auto tenth = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 10);
    std::nth_element(sorted.begin(), tenth, sorted.end());
    return *tenth;
  }

  /// One candidate's samples in a quiet moment. The seconds are of the first try, which builds and checks.
  Result<RecordedScreening> quiet_screening(const Candidate& candidate) {
    RecordedScreening best{candidate.kernel_name(), {}, 0};
    double least = 0;
    const double limit = quiet_level() * (1 + quiet_share);
    for (int attempt = 0; attempt < max_tries; ++attempt) {
      const double before = reference_times_.back();
      const double begin = steady_seconds();
      auto outcomes = evaluator_.screen(problem_, {&candidate, 1}, samples_, {});
      if (!outcomes.ok()) return outcomes.status();
      if (attempt == 0) best.seconds = steady_seconds() - begin;
      const double loud = std::max(before, reference_sample());
      if (attempt == 0 || loud < least) {
        least = loud;
        best.outcome = std::move(outcomes->front());
      }
      tries_ += 1;
      if (least <= limit || best.outcome.kind != OutcomeKind::ok) break;
    }
    return best;
  }

  Status record_finals(std::size_t number, const std::vector<Candidate>& candidates) {
    std::sort(medians_.begin(), medians_.end());
    std::vector<Candidate> chosen;
    for (const auto& [time, name] : medians_) {
      if (chosen.size() == finalists) break;
      for (const Candidate& candidate : candidates)
        if (candidate.kernel_name() == name) chosen.push_back(candidate);
    }
    const auto baseline = device_.baseline(problem_);
    if (baseline.ok() && std::find(chosen.begin(), chosen.end(), *baseline) == chosen.end())
      chosen.push_back(*baseline);
    if (chosen.empty()) return {};
    RecordedFinals finals;
    for (const Candidate& candidate : chosen) finals.candidates.push_back(candidate.kernel_name());
    const double begin = steady_seconds();
    auto result = evaluator_.finals(problem_, chosen, rounds);
    if (!result.ok()) return result.status();
    finals.result = std::move(*result);
    finals.seconds = steady_seconds() - begin;
    return writer_.add(number, finals);
  }

  Device& device_;
  InProcessEvaluator evaluator_;
  RecordingWriter& writer_;
  int samples_;
  int passes_;
  Problem problem_;
  std::vector<std::pair<double, std::string>> medians_;
  Candidate reference_;
  std::vector<double> reference_times_;  // of this problem
  long tries_ = 0;
};

/// Copies a recording with the predictions of `device`'s families.
Status repredict(const std::string& from, const std::string& to, const Device& device) {
  auto recording = read_recording(from);
  if (!recording.ok()) return recording.status();
  auto writer = RecordingWriter::open(to, recording->run);
  if (!writer.ok()) return writer.status();
  for (RecordedProblem& problem : recording->problems) {
    for (RecordedSpace& space : problem.spaces) {
      for (RecordedConfig& config : space.configs) {
        const auto candidate = device.resolve(config.kernel_name, problem.problem);
        if (!candidate.ok()) return candidate.status();
        const KernelFamily* family = device.find_family(space.family);
        config.predicted = family->predicted_microseconds(problem.problem, candidate->config);
      }
    }
    const auto number = writer->add(problem);
    if (!number.ok()) return number.status();
    for (const auto& call : problem.screenings) GEMMTUNE_RETURN_IF_ERROR(writer->add(*number, call));
    for (const auto& call : problem.finals) GEMMTUNE_RETURN_IF_ERROR(writer->add(*number, call));
    for (const auto& call : problem.neighbours) GEMMTUNE_RETURN_IF_ERROR(writer->add(*number, call));
  }
  return {};
}

/// Problems that `path` has whole: their rounds are there.
Result<std::set<std::string>> recorded_problems(const std::string& path) {
  std::set<std::string> whole;
  if (!file_exists(path)) return whole;
  const auto recording = read_recording(path);
  if (!recording.ok()) return recording.status();
  for (const RecordedProblem& problem : recording->problems)
    if (!problem.finals.empty()) whole.insert(print(problem.problem));
  return whole;
}

int fail(const Status& status) {
  std::fprintf(stderr, "record_spaces: %s\n", status.message().c_str());
  return 2;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return fail(Status::invalid("expected SHAPES.csv OUT.jsonl DEVICE [PASSES]"));
  const bool predictions_only = std::string_view(words[1]) == "--repredict" && count == 5;
  const auto request =
      device_request({.text = words[predictions_only ? 4 : 3], .pin_threads = true}, read_environment());
  if (!request.ok()) return fail(request.status());
  auto device = open_device(request->text.substr(0, request->text.find(':')), *request);
  if (!device.ok()) return fail(device.status());
  if (predictions_only) {
    const Status status = repredict(words[2], words[3], **device);
    return status.ok() ? 0 : fail(status);
  }
  const auto shapes = read_shape_list(words[1], {});
  if (!shapes.ok()) return fail(shapes.status());
  InProcessOptions options;
  options.policy = default_policy((*device)->info());
  const auto whole = recorded_problems(words[2]);
  if (!whole.ok()) return fail(whole.status());
  auto writer =
      RecordingWriter::open(words[2], recorded_run(**device, options.policy, options.max_err_ratio));
  if (!writer.ok()) return fail(writer.status());
  SpaceRecorder recorder(**device, options, *writer, count > 4 ? std::max(2, std::atoi(words[4])) : 3);
  for (const ShapeRow& shape : shapes->rows) {
    if (whole->count(print(shape.problem)) > 0) continue;
    if (const Status status = recorder.record(shape); !status.ok()) return fail(status);
  }
  return 0;
}
