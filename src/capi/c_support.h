// What every C function needs: error text of the thread, structures of any size, the exception barrier.
#pragma once

#include <gemmtune/c.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "dispatch/context.h"

/// The C handle of a context, with the host's log callback.
struct gemmtune_context {
  gemmtune_log log = nullptr;
  void* log_context = nullptr;
  std::unique_ptr<gemmtune::Context> context;  // last: logs until it is gone
};

namespace gemmtune::c {

gemmtune_status code_of(StatusCode code);
/// Keeps the sentence for gemmtune_last_error() and returns the code. Does not throw.
gemmtune_status fail(gemmtune_status status, std::string_view sentence) noexcept;
gemmtune_status fail(const Status& status) noexcept;
/// "gemmtune_plan_run: x is null".
gemmtune_status fail_null(const char* function, const char* argument) noexcept;

/// Copies the caller's structure, whose `size` says how much of it the caller knows; the rest keeps its
/// default, 0. A caller newer than we are may set only what we know.
template <typename Struct>
gemmtune_status read_struct(const Struct* given, Struct& known, const char* name,
                            std::size_t least) noexcept {
  static_assert(std::is_trivially_copyable_v<Struct>);
  if (given == nullptr) return fail_null(name, "the structure");
  const std::size_t size = given->size;
  if (size < least) return fail(GEMMTUNE_INVALID_ARGUMENT, "a structure's `size` is not set to its sizeof");
  std::memset(&known, 0, sizeof known);
  std::memcpy(&known, given, size < sizeof known ? size : sizeof known);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return fail(GEMMTUNE_UNSUPPORTED,
                "a structure of a newer gemmtune sets a member that this one does not know");
  }
  return GEMMTUNE_OK;
}

/// Gives the caller as much of `known` as its structure holds and leaves `size` as the caller set it.
template <typename Struct>
gemmtune_status write_struct(Struct known, Struct* given, const char* name) noexcept {
  if (given == nullptr) return fail_null(name, "the structure");
  if (given->size < sizeof(std::size_t)) {
    return fail(GEMMTUNE_INVALID_ARGUMENT, "a structure's `size` is not set to its sizeof");
  }
  known.size = given->size;
  std::memcpy(given, &known, given->size < sizeof known ? given->size : sizeof known);
  return GEMMTUNE_OK;
}

/// Runs `body`; an exception becomes a status.
template <typename Body>
gemmtune_status guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return fail(GEMMTUNE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(GEMMTUNE_INTERNAL, error.what());
  } catch (...) {
    return fail(GEMMTUNE_INTERNAL, "an exception of unknown type");
  }
}

/// Where the environment switches online tuning on: lets libgemmtune_tuning (linked, or beside this library)
/// take the context's misses, or says in the log that it is missing.
void attach_online_tuning(gemmtune_context* context) noexcept;

/// The problem of a descriptor; its sizes are not checked yet.
gemmtune_status read_problem(const gemmtune_problem* given, Problem& problem) noexcept;
/// The same, with what the descriptor promises of launches.
gemmtune_status read_problem(const gemmtune_problem* given, Problem& problem,
                             LaunchPromises& promises) noexcept;
gemmtune_status read_layout(gemmtune_layout given, WeightLayout& layout) noexcept;
gemmtune_layout layout_to_c(WeightLayout layout);

inline gemmtune_plan* plan_to_c(const Plan* plan) {
  return reinterpret_cast<gemmtune_plan*>(const_cast<Plan*>(plan));
}
inline const Plan* plan_of_c(const gemmtune_plan* plan) { return reinterpret_cast<const Plan*>(plan); }

gemmtune_status read_operands(const gemmtune_operands* given, gemmtune_operands& known) noexcept;

/// Checks the operands and runs the plan (gemmtune_plan_run's contract).
gemmtune_status run_plan(const Plan& plan, const gemmtune_operands& operands, void* workspace,
                         void* stream) noexcept;

}  // namespace gemmtune::c
