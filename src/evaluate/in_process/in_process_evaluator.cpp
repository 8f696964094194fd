#include "evaluate/in_process/in_process_evaluator.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "evaluate/in_process/bit_class_finder.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "evaluate/in_process/memory_need.h"

namespace gemmtune {
namespace {

KernelVerifierOptions verifier_options(const InProcessOptions& options) {
  KernelVerifierOptions verifier{options.max_err_ratio, options.reference_threads, options.policy.seed};
  verifier.odd_strides = options.odd_strides;
  verifier.init = options.policy.init;
  verifier.routing = options.policy.routing_of(options.policy.routing);
  return verifier;
}

}  // namespace

int reference_threads(const Device& device) {
  const int threads = traits_of(device.info()).runs_on_host
                          ? device.info().cu_num
                          : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, threads);
}

InProcessOptions in_process_options(const Device& device, const Policy& policy, double max_err_ratio) {
  InProcessOptions options;
  options.policy = policy;
  options.max_err_ratio = max_err_ratio;
  options.reference_threads = reference_threads(device);
  return options;
}

InProcessEvaluator::InProcessEvaluator(Device& device, const InProcessOptions& options)
    : device_(device), options_(options) {}

InProcessEvaluator::~InProcessEvaluator() = default;

Result<ProblemBench*> InProcessEvaluator::bench_for(const Problem& problem) {
  if (bench_ && bench_->problem() == problem) return bench_.get();
  bench_.reset();
  pause();
  step(Step::preparing);
  GEMMTUNE_RETURN_IF_ERROR(check_memory(problem, true));
  GEMMTUNE_TRY(auto verifier, KernelVerifier::make(device_, problem, verifier_options(options_)));
  bench_ = std::make_unique<ProblemBench>(device_, problem, options_, std::move(verifier),
                                          earlier_[print(problem)]);
  return bench_.get();
}

void InProcessEvaluator::announce(const Problem& problem, std::span<const Candidate> candidates) {
  device_.compile_ahead(problem, candidates);
}

Result<std::vector<Outcome>> InProcessEvaluator::screen(const Problem& problem,
                                                        std::span<const Candidate> candidates, int samples,
                                                        const std::function<bool()>& stop) {
  try {
    GEMMTUNE_TRY(ProblemBench* const bench, bench_for(problem));
    std::vector<Outcome> outcomes;
    for (const Candidate& candidate : candidates) {
      if (stop && stop()) break;
      outcomes.push_back(bench->screen(candidate, samples));
    }
    return outcomes;
  } catch (const std::bad_alloc&) {
    bench_.reset();
    return Status::out_of_memory("no memory to verify {}", print(problem));
  }
}

Result<FinalsResult> InProcessEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                     std::span<const Candidate> candidates, int rounds) {
  try {
    GEMMTUNE_TRY(ProblemBench* const bench, bench_for(problem));
    return kind.energy    ? bench->energy(candidates, rounds)
           : kind.routing ? bench->finals_on(*kind.routing, candidates, rounds)
                          : bench->finals(candidates, rounds);
  } catch (const std::bad_alloc&) {
    bench_.reset();
    return Status::out_of_memory("no memory to verify {}", print(problem));
  }
}

Outcome InProcessEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                              std::int64_t m) {
  bench_.reset();
  Problem neighbour = problem;
  neighbour.m = m;
  try {
    return check_at(neighbour, candidate);
  } catch (const std::bad_alloc&) {
    return failed_outcome(OutcomeKind::launch_failed,
                          fmt::format("no memory to verify {}", print(neighbour)));
  }
}

Outcome InProcessEvaluator::check_at(const Problem& problem, const Candidate& candidate) {
  const std::string name = candidate.kernel_name();
  pause();
  step(Step::candidate, name);
  if (const Status fits = check_memory(problem, false); !fits.ok())
    return failed_outcome(OutcomeKind::refused, fits.message());
  BuiltKernel built;
  if (Outcome outcome = build_kernel(device_, problem, candidate, built); outcome.kind != OutcomeKind::ok)
    return outcome;
  pause();
  step(Step::preparing, name);
  auto verifier = KernelVerifier::make(device_, problem, verifier_options(options_));
  if (!verifier.ok()) return failed_launch(verifier.status());
  pause();
  step(Step::candidate, name);
  const KernelOfClass kernels[] = {{built.kernel.get(), device_.accuracy(candidate, problem)}};
  Outcome outcome = verifier->verify_quickly(kernels[0]);
  if (outcome.kind != OutcomeKind::ok) return outcome;
  const auto outcomes = verifier->verify_fully(kernels, [&](const Kernel* kernel) {
    pause();
    step(kernel == nullptr ? Step::preparing : Step::candidate, name);
  });
  if (!outcomes.ok()) return failed_launch(outcomes.status());
  outcome = outcomes->front();
  if (!options_.bit_classes) return outcome;
  const VerifiedCandidate verified[] = {{&candidate, &outcome}};
  find_bit_classes(device_, problem, options_.policy.seed, options_.reference_threads, verified,
                   [&](std::size_t) {
                     pause();
                     step(Step::candidate, name);
                   });
  return outcome;
}

Status InProcessEvaluator::check_memory(const Problem& problem, bool timed) const {
  const MemoryNeed need = memory_need(problem, options_.policy.cache, timed);
  return check_device_memory(device_, problem, need, options_.memory_limit_bytes);
}

InProcessEvaluator::PoolReport InProcessEvaluator::pool() const {
  if (!bench_) return {};
  const PoolShape shape = bench_->pools().largest();
  return {shape.wanted_copies, shape.copies, shape.bytes()};
}

}  // namespace gemmtune
