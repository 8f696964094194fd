#include "interpose/service.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "interpose/decisions.h"
#include "interpose/driver.h"
#include "interpose/library.h"
#include "interpose/vendor.h"
#include "interpose/workspaces.h"

namespace gemmtune::interpose {
namespace {

/// gemmtune's context of each of the driver's. Never destroyed: calls may come while the process exits.
struct Contexts {
  std::mutex mutex;                                 // also of deciding: one decision is made at a time
  std::map<const void*, gemmtune_context*> opened;  // null: it cannot be
};
Contexts& contexts() {
  static Contexts& made = *new Contexts;
  return made;
}

/// What capture has not written yet. Runs before gemmtune's own end, because it is registered after its start.
void flush_captures() {
  const std::lock_guard lock(contexts().mutex);
  for (const auto& [place, context] : contexts().opened) {
    if (context != nullptr && library()->capture_flush(context) != GEMMTUNE_OK) say(library()->last_error());
  }
}

gemmtune_context* open_context(const Library& gemmtune, const void* place) {
  gemmtune_context_options options{};
  options.size = sizeof options;
  std::string device;
  if (has_driver()) {
    const int ordinal = primary_device(place);
    if (ordinal < 0) {
      say("calls in a context that is not its device's primary one are the library's own");
      return nullptr;
    }
    device = "cuda:" + std::to_string(ordinal);
    options.backend = "cuda";
    options.device = device.c_str();
  } else {
    options.backend = "cpu";
  }
  gemmtune_context* context = nullptr;
  if (gemmtune.context_create(&options, &context) != GEMMTUNE_OK) {
    say((std::string("every call is the library's own: ") + gemmtune.last_error()).c_str());
    return nullptr;
  }
  return context;
}

/// Requires contexts().mutex.
gemmtune_context* context_of(const Library& gemmtune, const void* place) {
  auto& opened = contexts().opened;
  if (const auto found = opened.find(place); found != opened.end()) return found->second;
  gemmtune_context* const context = open_context(gemmtune, place);
  if (opened.empty()) std::atexit(flush_captures);
  opened.emplace(place, context);
  return context;
}

/// The kernelName of the algorithm that the caller chose, in family cublaslt.
std::string kernel_name_of(const api::LtAlgorithm& algorithm) {
  std::string name = "cublaslt_r1";
  for (const api::AlgorithmAttribute& attribute : api::algorithm_attributes) {
    std::uint32_t value = 0;
    std::size_t written = 0;
    AttributeFunction* const get = cublas_lt().algorithm_get;
    if (get == nullptr || get(&algorithm, attribute.id, &value, attribute.bytes, &written) != 0) value = 0;
    name += std::string("_") + attribute.key + std::to_string(value);
  }
  return name;
}

struct PlanRelease {
  decltype(&gemmtune_plan_release) release;
  void operator()(gemmtune_plan* plan) const { release(plan); }
};
using PlanHandle = std::unique_ptr<gemmtune_plan, PlanRelease>;

PlanHandle plan_of(const Library& gemmtune, gemmtune_context* context, const gemmtune_problem& problem) {
  gemmtune_plan* plan = nullptr;
  (void)gemmtune.plan_create(context, &problem, &plan);  // null if it cannot be: the library's call then
  return {plan, PlanRelease{gemmtune.plan_release}};
}

gemmtune_plan_info info_of(const Library& gemmtune, const gemmtune_plan& plan) {
  gemmtune_plan_info info{};
  info.size = sizeof info;
  (void)gemmtune.plan_get_info(&plan, &info);  // fails for null and a wrong size
  return info;
}

/// True if what would run without us is known to be wrong: the algorithm that the caller chose, or what the library
/// chooses for gemmtune.
bool strikes_erratum(const Library& gemmtune, gemmtune_context* context, const gemmtune_problem& problem,
                     const gemmtune_plan_info& info, const api::LtAlgorithm* algorithm) {
  if (algorithm == nullptr) return info.fallback_erratum != 0;
  std::int32_t erratum = 0;
  return gemmtune.kernel_erratum(context, &problem, kernel_name_of(*algorithm).c_str(), &erratum) ==
             GEMMTUNE_OK &&
         erratum != 0;
}

/// May compile a kernel. Not while the call's stream is captured. Null: no more decisions are kept.
const Decision* decide(const DecisionKey& key, const gemmtune_problem& problem,
                       const api::LtAlgorithm* algorithm) {
  const Library* const gemmtune = library();
  const std::lock_guard lock(contexts().mutex);
  if (const Decision* const known = find_decision(key)) return known;  // another thread made it meanwhile
  const RelaxedCapture relaxed;
  auto decision = std::make_unique<Decision>();
  decision->key = key;
  gemmtune_context* const context = gemmtune == nullptr ? nullptr : context_of(*gemmtune, key.context);
  if (context == nullptr) {
    decision->untuned = Outcome::device;
  } else if (const PlanHandle plan = plan_of(*gemmtune, context, problem)) {
    const gemmtune_plan_info info = info_of(*gemmtune, *plan);
    decision->gemmtune = context;
    if (info.match == GEMMTUNE_MATCH_UNTUNED && strikes_erratum(*gemmtune, context, problem, info, algorithm))
      decision->untuned = Outcome::replaced;
  }
  return keep_decision(std::move(decision));
}

/// `invariant`: the caller asks for bits that do not depend on the batch, which rows of a bit class alone promise.
Outcome outcome_of(const Decision& decision, const gemmtune_plan_info& info, bool invariant) {
  if (invariant && (info.bits == nullptr || *info.bits == '\0')) return Outcome::setting;
  return info.match != GEMMTUNE_MATCH_UNTUNED ? Outcome::served : decision.untuned;
}

bool can_use(const CallPlace& place, std::size_t bytes) {
  return place.workspace != nullptr && place.workspace_bytes >= bytes &&
         reinterpret_cast<std::uintptr_t>(place.workspace) % 64 == 0;
}

/// Runs the plan of a decision; makes `asked` that plan if there is none yet.
Outcome run(const Decision& decision, PlanHandle asked, const Posed& posed, bool invariant,
            const CallPlace& place) {
  const Library& gemmtune = *library();
  gemmtune_plan* plan = decision.plan.load(std::memory_order_acquire);
  if (plan == nullptr) {
    const Outcome outcome = outcome_of(decision, info_of(gemmtune, *asked), invariant);
    if (!is_done(outcome)) return outcome;
    if (decision.plan.compare_exchange_strong(plan, asked.get())) plan = asked.release();
  }
  const gemmtune_plan_info info = info_of(gemmtune, *plan);
  const Outcome outcome = outcome_of(decision, info, invariant);
  if (!is_done(outcome)) return outcome;
  void* workspace = nullptr;
  if (info.workspace_bytes > 0) {
    workspace = can_use(place, info.workspace_bytes)
                    ? place.workspace
                    : workspace_of(decision.key.context, place.stream, info.workspace_bytes);
    if (workspace == nullptr) return Outcome::workspace;
  }
  void* const stream = has_driver() ? place.stream : nullptr;
  const auto status = gemmtune.plan_run(plan, &posed.operands, workspace, stream);
  return status == GEMMTUNE_OK ? outcome : Outcome::refused;
}

/// Whether the user promises that no kernel of the program writes op(a) of a call that is served, but for batches.
bool weights_are_constant() {
  static const bool constant = [] {
    const char* const value = std::getenv("GEMMTUNE_CUBLAS_CONSTANT_WEIGHTS");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return constant;
}

Outcome serve_or_throw(const Call& call, const CallPlace& place) {
  Posed posed = pose(call);
  if (weights_are_constant() && call.batch == 1)
    posed.problem.constant_weights = posed.problem.predecessor_triggers = 1;
  if (posed.outcome != Outcome::served) return posed.outcome;
  const Place where = current_place();
  if (!where.known) return Outcome::device;
  const DecisionKey key = key_of(where.context, posed.problem, place.algorithm);
  const Decision* decision = find_decision(key);
  if (decision == nullptr) {
    if (capture_of(place.stream).active) return Outcome::capturing;
    decision = decide(key, posed.problem, place.algorithm);
    if (decision == nullptr) return Outcome::no_row;
  }
  if (decision->gemmtune == nullptr) return decision->untuned;
  // From the plan cache, for a call that is passed through too: GEMMTUNE_CAPTURE counts it, and online tuning may
  // have a row by now.
  PlanHandle asked = plan_of(*library(), decision->gemmtune, posed.problem);
  return asked == nullptr ? Outcome::no_row : run(*decision, std::move(asked), posed, call.invariant, place);
}

}  // namespace

Outcome serve(const Call& call, const CallPlace& place) {
  try {
    return serve_or_throw(call, place);
  } catch (...) {  // no memory; the program is C
    return Outcome::refused;
  }
}

}  // namespace gemmtune::interpose
