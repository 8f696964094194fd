// An evaluator that records the results of another one and how long each call took.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "candidates/search_space.h"
#include "evaluate/forwarding_evaluator.h"
#include "evaluate/replay/recording.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune {

/// What a device says of a problem now: spaces, predictions, default kernels; nothing measured. Spaces are the families'
/// own, and the configs that `search_space` adds to them.
RecordedProblem recorded_problem(const Device& device, const Problem& problem, std::int64_t calls,
                                 const SearchSpace& search_space = {});

/// Gives the inner evaluator one candidate at a time. Recordings hold no other routings and no joules: their rounds are not
/// written. If the file cannot be written any more, the log says so
/// once and measuring continues.
class RecordingEvaluator final : public ForwardingEvaluator {
 public:
  /// `shapes`: for the calls of each problem. `inner`, `writer` and `device` must outlive this.
  RecordingEvaluator(Evaluator& inner, RecordingWriter& writer, const Device& device,
                     const std::vector<ShapeRow>& shapes, SecondsClock clock = steady_seconds,
                     SearchSpace search_space = {});

  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

 private:
  std::size_t number_of(const Problem& problem);
  void written(const Status& status);

  RecordingWriter& writer_;
  const Device& device_;
  std::map<std::string, std::int64_t> calls_;
  SecondsClock clock_;
  SearchSpace search_space_;
  std::map<std::string, std::size_t> numbers_;  // of problems, in the file
  bool writes_ = true;
};

}  // namespace gemmtune
