#include "support/paper_device.h"

#include <limits>

namespace gemmtune::testing {
namespace {

/// A kernel that can be bound and does not run.
class PaperKernel final : public Kernel {
 public:
  explicit PaperKernel(WeightLayout layout) : layout_(layout) {}
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return layout_; }
  Status run(const Operands&, void*, Stream) const override {
    return Status::unsupported("a kernel on paper");
  }

 private:
  WeightLayout layout_;
};

class Family final : public LeafFamily {
 public:
  explicit Family(PaperFamily options) : options_(std::move(options)) {}

  std::string_view name() const override { return options_.name; }
  int revision() const override { return options_.revision; }
  std::string identity() const override { return options_.name + " " + options_.source; }
  int tie_rank() const override { return options_.tie_rank; }
  Status accepts(const Problem& problem) const override {
    if (options_.refusal) {
      if (const std::string reason = options_.refusal(problem); !reason.empty()) {
        return Status::unsupported("{}", reason);
      }
    }
    const bool fits = problem.weight_layout == WeightLayout::any || problem.weight_layout == options_.packed;
    if (is_packed(problem) && !(options_.packed && fits)) return Status::unsupported("packed weights");
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return options_.packed; }
  Space space(const Problem&) const override {
    Space space;
    for (const Parameter& parameter : options_.parameters) space.add(parameter);
    return space;
  }
  Config default_config(const Problem&) const override {
    Config config;
    for (const Parameter& parameter : options_.parameters)
      config.set(parameter.key, parameter.values.front());
    return config;
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config&) const override {
    if (options_.build_failure) {
      if (const std::string reason = options_.build_failure(problem); !reason.empty()) {
        return Status::unsupported("{}", reason);
      }
    }
    const auto layout = is_packed(problem) ? *options_.packed : WeightLayout::plain;
    return std::unique_ptr<Kernel>(std::make_unique<PaperKernel>(layout));
  }
  Config fast_config(const Problem& problem) const override {
    Config config = default_config(problem);
    if (!options_.fast_key.empty()) config.set(options_.fast_key, std::int64_t{1});
    return config;
  }
  Accuracy accuracy(const Problem&, const Config& config) const override {
    return config.number(options_.fast_key, 0) != 0 ? Accuracy::tensor_core : Accuracy::fp32;
  }
  std::string sum_order(const Problem&, const Config& config) const override {
    return options_.order_key + std::string(config.word(options_.order_key));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return options_.predicted ? options_.predicted(problem, config) : 0;
  }

 private:
  PaperFamily options_;
};

Status no_memory() { return Status::unsupported("a device on paper has no memory"); }

}  // namespace

PaperDevice::PaperDevice() {
  info_.backend = "paper";
  info_.name = "paper:0";
  info_.model = "Paper 9000";
  info_.gfx = "x86-avx2";
  info_.cu_num = 2;
  Library found;
  found.name = "vendorlib";
  found.version = "1.2.3";
  Library missing;
  missing.name = "otherlib";
  missing.why = "not installed";
  info_.libraries = {found, missing};
}

PaperDevice::~PaperDevice() = default;

void PaperDevice::add(PaperFamily family) { add(std::make_unique<Family>(std::move(family))); }

void PaperDevice::add(std::unique_ptr<KernelFamily> family) {
  families_.push_back(std::move(family));
  pointers_.push_back(families_.back().get());
}

Result<std::unique_ptr<Buffer>> PaperDevice::allocate(std::size_t, Placement) { return no_memory(); }
Status PaperDevice::copy_in(void*, const void*, std::size_t) { return no_memory(); }
Status PaperDevice::copy_out(void*, const void*, std::size_t) { return no_memory(); }
Status PaperDevice::fill(void*, int, std::size_t) { return no_memory(); }
Result<std::size_t> PaperDevice::packed_bytes(const Problem&, WeightLayout) const { return no_memory(); }
Status PaperDevice::pack_weight(const Problem&, WeightLayout, const void*, void*) { return no_memory(); }
Result<double> PaperDevice::sample(const SampleRequest&) { return no_memory(); }

Result<Candidate> PaperDevice::baseline(const Problem& problem) const {
  if (baseline_of) {
    if (auto candidate = baseline_of(problem)) return *candidate;
  }
  return Status::not_found("no vendor kernel");
}

Result<Candidate> PaperDevice::fallback(const Problem& problem) const {
  if (fallback_of) {
    if (auto candidate = fallback_of(problem)) return *candidate;
    return Status::unsupported("nothing runs untuned");
  }
  if (auto library = baseline(problem); library.ok()) return library;
  for (const KernelFamily* family : pointers_) {
    if (family->name() == "reference" || !family->accepts(problem).ok()) continue;
    return Candidate{std::string(family->name()), family->revision(), family->default_config(problem)};
  }
  return Status::unsupported("no family takes it");
}

Outcome failure(OutcomeKind kind, std::string reason) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.reason = std::move(reason);
  return outcome;
}

Result<std::vector<Outcome>> FakeEvaluator::screen(const Problem& problem,
                                                   std::span<const Candidate> candidates, int samples,
                                                   const std::function<bool()>& stop) {
  if (status) {
    if (const Status state = status(problem); !state.ok()) return state;
  }
  if (problems.empty() || !(problems.back() == problem)) problems.push_back(problem);
  std::vector<Outcome> outcomes;
  for (const Candidate& candidate : candidates) {
    if (stop && stop()) break;
    if (before) before(problem);
    ++screened[candidate.kernel_name()];
    Outcome result = outcome ? outcome(problem, candidate) : Outcome{};
    if (result.kind == OutcomeKind::ok) {
      result.err_ratio = 0.00123456;
      for (int i = 0; i < samples; ++i) result.microseconds.push_back(noisy(time(problem, candidate)));
    }
    outcomes.push_back(std::move(result));
  }
  return outcomes;
}

Result<FinalsResult> FakeEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                std::span<const Candidate> candidates, int rounds) {
  if (before) before(problem);
  return kind.energy    ? energy_rounds(problem, candidates, rounds)
         : kind.routing ? routed_rounds(*kind.routing, candidates, rounds)
                        : plain_rounds(problem, candidates, rounds);
}

Result<FinalsResult> FakeEvaluator::plain_rounds(const Problem& problem,
                                                 std::span<const Candidate> candidates, int rounds) {
  finals_calls.emplace_back();
  finals_rounds.push_back(rounds);
  FinalsResult result;
  for (const Candidate& candidate : candidates) {
    finals_calls.back().push_back(candidate.kernel_name());
    const auto& verification = full_outcome ? full_outcome : outcome;
    Outcome verified = verification ? verification(problem, candidate) : Outcome{};
    if (verified.kind == OutcomeKind::ok) verified.err_ratio = 0.00123456;
    result.outcomes.push_back(std::move(verified));
  }
  for (int round = 0; round < rounds; ++round) {
    auto& times = result.times.emplace_back();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const bool right = result.outcomes[i].kind == OutcomeKind::ok;
      times.push_back(right ? noisy(time(problem, candidates[i])) : std::numeric_limits<double>::quiet_NaN());
    }
    result.same_ratios.push_back(noisy(same_ratio));
  }
  return result;
}

Result<FinalsResult> FakeEvaluator::routed_rounds(RoutingKind routing, std::span<const Candidate> candidates,
                                                  int rounds) {
  if (!time_on) return Status::unsupported("an evaluator on paper without rounds on {}", to_string(routing));
  FinalsResult result;
  result.routing = routing;
  routed_calls.push_back({routing, {}});
  for (const Candidate& candidate : candidates) {
    routed_calls.back().second.push_back(candidate.kernel_name());
    result.outcomes.emplace_back();
  }
  for (int round = 0; round < rounds; ++round) {
    auto& times = result.times.emplace_back();
    for (const Candidate& candidate : candidates) times.push_back(noisy(time_on(routing, candidate)));
  }
  return result;
}

Result<FinalsResult> FakeEvaluator::energy_rounds(const Problem& problem,
                                                  std::span<const Candidate> candidates, int rounds) {
  if (!joules) return Status::unsupported("an evaluator on paper without joules");
  FinalsResult result;
  energy_calls.emplace_back();
  for (const Candidate& candidate : candidates) {
    energy_calls.back().push_back(candidate.kernel_name());
    result.outcomes.emplace_back();
  }
  for (int round = 0; round < rounds; ++round) {
    result.times.emplace_back();
    result.joules.emplace_back();
    for (const Candidate& candidate : candidates) {
      result.times.back().push_back(noisy(time(problem, candidate)));
      result.joules.back().push_back(noisy(joules(problem, candidate)));
    }
  }
  return result;
}

Outcome FakeEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) {
  Outcome result = at_m ? at_m(problem, candidate, m) : Outcome{};
  if (result.kind == OutcomeKind::ok) result.err_ratio = 0.00123456;
  return result;
}

}  // namespace gemmtune::testing
