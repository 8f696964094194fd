// What every C function needs, of both libraries: the error text of the thread, structures of any size, the
// exception barrier.
#pragma once

#include <gemmtune/c.h>
#include <gemmtune/tuning.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace gemmtune::c {

// Both enumerations are in the same order.
static_assert(static_cast<int>(StatusCode::ok) == GEMMTUNE_OK);
static_assert(static_cast<int>(StatusCode::invalid_argument) == GEMMTUNE_INVALID_ARGUMENT);
static_assert(static_cast<int>(StatusCode::not_found) == GEMMTUNE_NOT_FOUND);
static_assert(static_cast<int>(StatusCode::unsupported) == GEMMTUNE_UNSUPPORTED);
static_assert(static_cast<int>(StatusCode::io_error) == GEMMTUNE_IO_ERROR);
static_assert(static_cast<int>(StatusCode::out_of_memory) == GEMMTUNE_OUT_OF_MEMORY);
static_assert(static_cast<int>(StatusCode::internal) == GEMMTUNE_INTERNAL);
inline gemmtune_status code_of(StatusCode code) { return static_cast<gemmtune_status>(code); }

/// Stores the message for gemmtune_last_error() and returns the code. Does not throw.
inline gemmtune_status fail(gemmtune_status status, const char* message) noexcept {
  return gemmtune_set_last_error(status, message);
}
inline gemmtune_status fail(gemmtune_status status, const std::string& message) noexcept {
  return gemmtune_set_last_error(status, message.c_str());
}
/// The code of `status`; its message is stored if it is a failure.
inline gemmtune_status report(const Status& status) noexcept {
  return status.ok() ? GEMMTUNE_OK : fail(code_of(status.code()), status.message());
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

/// "gemmtune_plan_run: x is null".
inline gemmtune_status fail_null(const char* function, const char* argument) noexcept {
  return guarded(
      [&] { return fail(GEMMTUNE_NULL_POINTER, fmt::format("{}: {} is null", function, argument)); });
}

/// The name of a structure and its size in the first release, up to its last member of then: a program may
/// pass that size for ever. Only the sizes of structures that grow later differ from their sizeof.
template <typename Struct>
struct StructTraits;

#define GEMMTUNE_STRUCT(type, last_member)                                                             \
  template <>                                                                                          \
  struct StructTraits<type> {                                                                          \
    static constexpr const char* name = #type;                                                         \
    static constexpr std::size_t size = sizeof(type);                                                  \
    static constexpr std::size_t first_size = offsetof(type, last_member) + sizeof(type::last_member); \
  }

// NOLINTBEGIN(bugprone-sizeof-expression): last members that are pointers
GEMMTUNE_STRUCT(gemmtune_context_options, log_context);
GEMMTUNE_STRUCT(gemmtune_device_info, cu_num);
GEMMTUNE_STRUCT(gemmtune_counters, invalid_rows);
GEMMTUNE_STRUCT(gemmtune_moe, doweight_stage1);
GEMMTUNE_STRUCT(gemmtune_problem, predecessor_triggers);
GEMMTUNE_STRUCT(gemmtune_scales, w_or_one);
GEMMTUNE_STRUCT(gemmtune_moe_operands, topk_weights);
GEMMTUNE_STRUCT(gemmtune_operands, moe);
GEMMTUNE_STRUCT(gemmtune_arrays, moe_operands);
GEMMTUNE_STRUCT(gemmtune_plan_info, weight_layout);
GEMMTUNE_STRUCT(gemmtune_silu_and_mul_operands, ldy);
GEMMTUNE_STRUCT(gemmtune_miss_handler, hipblaslt_table);
GEMMTUNE_STRUCT(gemmtune_tuning_options, worker_program);
GEMMTUNE_STRUCT(gemmtune_tuning_summary, geometric_mean_speedup);
GEMMTUNE_STRUCT(gemmtune_online_options, budget_milliseconds);
// NOLINTEND(bugprone-sizeof-expression)

#undef GEMMTUNE_STRUCT

/// No structure is larger; a larger `size` is one that was never set, and what it covers is not read.
inline constexpr std::size_t max_struct_size = 4096;

template <typename Struct>
gemmtune_status check_size(const Struct* given) noexcept {
  using Traits = StructTraits<Struct>;
  if (given == nullptr) return fail_null(Traits::name, "the structure");
  if (given->size >= Traits::first_size && given->size <= max_struct_size) return GEMMTUNE_OK;
  return guarded([&] {
    return fail(GEMMTUNE_INVALID_ARGUMENT, fmt::format("{}: size is {}, expected its sizeof, {}",
                                                       Traits::name, given->size, Traits::size));
  });
}

/// Copies the caller's structure, whose `size` says how much of it the caller knows; the rest keeps its
/// default, 0. A caller newer than we are may set only what we know.
template <typename Struct>
gemmtune_status read_struct(const Struct* given, Struct& known) noexcept {
  static_assert(std::is_trivially_copyable_v<Struct>);
  if (const auto status = check_size(given); status != GEMMTUNE_OK) return status;
  const std::size_t size = given->size;
  if (size == sizeof known) {
    known = *given;
    return GEMMTUNE_OK;
  }
  std::memset(&known, 0, sizeof known);
  std::memcpy(&known, given, std::min(size, sizeof known));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return guarded([&] {
      return fail(GEMMTUNE_UNSUPPORTED,
                  fmt::format("{}: byte {} of a newer gemmtune's structure is set, this one knows {} bytes",
                              StructTraits<Struct>::name, i, sizeof known));
    });
  }
  return GEMMTUNE_OK;
}

/// Gives the caller as much of `known` as its structure has and leaves `size` as the caller set it.
template <typename Struct>
gemmtune_status write_struct(Struct known, Struct* given) noexcept {
  if (const auto status = check_size(given); status != GEMMTUNE_OK) return status;
  known.size = given->size;
  std::memcpy(given, &known, std::min(given->size, sizeof known));
  return GEMMTUNE_OK;
}

}  // namespace gemmtune::c
