// A device whose families have spaces but no machine, and an evaluator that answers with the times a test
// names: what the tuning loop decides can be tested without a kernel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "evaluate/evaluator.h"

namespace gemmtune::testing {

struct PaperFamily {
  std::string name = {};
  int revision = 1;
  int tie_rank = 1;
  std::string source = {};                  // part of identity()
  std::vector<Parameter> parameters = {};   // the first values are the default config
  std::optional<WeightLayout> packed = {};  // of pre-shuffled problems; empty: takes plain ones only
  std::function<std::string(const Problem&)> refusal = {};        // empty text or function: takes the problem
  std::function<std::string(const Problem&)> build_failure = {};  // empty text or function: builds
  std::function<double(const Problem&, const Config&)> predicted = {};
  std::string order_key = {};  // sum_order() names its value; empty: no promise
  std::string fast_key = {};   // configs in which it is 1 are of the class tensor_core; fast_config() sets it
};

class PaperDevice final : public LeafDevice {
 public:
  PaperDevice();
  ~PaperDevice() override;

  void add(PaperFamily family);
  /// A real one, whose names and spaces are asked.
  void add(std::unique_ptr<KernelFamily> family);
  DeviceInfo& mutable_info() { return info_; }
  /// nullopt: there is no vendor kernel.
  std::function<std::optional<Candidate>(const Problem&)> baseline_of;
  std::function<std::optional<Candidate>(const Problem&)>
      fallback_of;  // empty: the baseline, else the first family that takes the problem

  const DeviceInfo& info() const override { return info_; }
  std::span<const KernelFamily* const> families() const override { return pointers_; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t, Placement) override;
  Status copy_in(void*, const void*, std::size_t) override;
  Status copy_out(void*, const void*, std::size_t) override;
  Status fill(void*, int, std::size_t) override;
  Status synchronize() override { return {}; }
  Status health() const override { return {}; }
  std::map<std::string, double> observe() override { return {}; }
  void compile_ahead(const Problem&, std::span<const Candidate>) override {}
  bool times_single_calls() const override { return false; }
  void quiesce(std::string_view) override {}
  void look_for_threads() override {}
  bool is_capturing(Stream) const override { return false; }
  Result<std::size_t> packed_bytes(const Problem&, WeightLayout) const override;
  Status pack_weight(const Problem&, WeightLayout, const void*, void*) override;
  Result<double> sample(const SampleRequest&) override;
  std::size_t last_level_cache_bytes() override { return 0; }
  std::size_t free_memory_bytes() override { return std::size_t{1} << 30; }
  Status counts_energy() override { return energy_status; }
  Status energy_status;  // ok: its joules are an evaluator's
  Result<Candidate> baseline(const Problem& problem) const override;
  Result<Candidate> fallback(const Problem& problem) const override;

 private:
  DeviceInfo info_;
  std::vector<std::unique_ptr<KernelFamily>> families_;
  std::vector<const KernelFamily*> pointers_;
};

/// Times with ±0.2 % of seeded noise.
class FakeEvaluator final : public Evaluator {
 public:
  /// Microseconds of a candidate; required.
  std::function<double(const Problem&, const Candidate&)> time;
  /// A failure instead of a time; ok by default.
  std::function<Outcome(const Problem&, const Candidate&)> outcome;
  /// Of full verification alone, which only finalists have; by default as `outcome`.
  std::function<Outcome(const Problem&, const Candidate&)> full_outcome;
  std::function<Outcome(const Problem&, const Candidate&, std::int64_t m)> at_m;
  /// Called before each candidate of a screening and before each call of finals; may end the process.
  std::function<void(const Problem&)> before;
  /// An error for problems that cannot be verified.
  std::function<Status(const Problem&)> status;

  /// Joules of a call; empty: energy() is an error.
  std::function<double(const Problem&, const Candidate&)> joules;
  /// Microseconds on another routing; empty: finals_on() is an error.
  std::function<double(RoutingKind, const Candidate&)> time_on;
  double same_ratio = 1;  // A against A, before noise

  std::map<std::string, int> screened;                 // kernel name: how often
  std::vector<Problem> problems;                       // in the order in which they were screened first
  std::vector<std::vector<std::string>> finals_calls;  // kernel names of each call of finals
  std::vector<int> finals_rounds;
  std::vector<std::vector<std::string>> energy_calls;
  std::vector<std::pair<RoutingKind, std::vector<std::string>>> routed_calls;

  bool compiles_ahead() const override { return false; }
  void announce(const Problem&, std::span<const Candidate>) override {}
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

 private:
  Result<FinalsResult> plain_rounds(const Problem& problem, std::span<const Candidate> candidates,
                                    int rounds);
  Result<FinalsResult> routed_rounds(RoutingKind routing, std::span<const Candidate> candidates, int rounds);
  Result<FinalsResult> energy_rounds(const Problem& problem, std::span<const Candidate> candidates,
                                     int rounds);
  double noisy(double microseconds) { return microseconds * (1 + 0.004 * (random_.uniform() - 0.5)); }

  Random random_{1};
};

/// An outcome that is a failure.
Outcome failure(OutcomeKind kind, std::string reason);

}  // namespace gemmtune::testing
