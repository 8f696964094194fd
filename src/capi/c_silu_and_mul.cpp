// The C function of silu_and_mul.
#include <array>

#include "backends/silu_and_mul.h"
#include "capi/c_problem.h"
#include "capi/c_support.h"
#include "problem/overlap.h"

namespace gemmtune::c {
namespace {

gemmtune_status read_call(const gemmtune_silu_and_mul_operands* given, SiluAndMul& call) noexcept {
  gemmtune_silu_and_mul_operands known;
  if (const auto bad = read_struct(given, known); bad != GEMMTUNE_OK) return bad;
  if (const auto bad = read_type("type", known.type, call.type); bad != GEMMTUNE_OK) return bad;
  call.rows = known.rows;
  call.columns = known.columns;
  call.gate = known.gate;
  call.up = known.up;
  call.y = known.y;
  call.ldgate = known.ldgate != 0 ? known.ldgate : known.columns;
  call.ldup = known.ldup != 0 ? known.ldup : known.columns;
  call.ldy = known.ldy != 0 ? known.ldy : known.columns;
  return GEMMTUNE_OK;
}

gemmtune_status check_pointers(const SiluAndMul& call) noexcept {
  struct Operand {
    const char* name;
    const void* pointer;
  };
  for (const auto& [name, pointer] :
       std::array<Operand, 3>{{{"gate", call.gate}, {"up", call.up}, {"y", call.y}}}) {
    if (pointer == nullptr) return fail_null("gemmtune_silu_and_mul_operands", name);
    const auto status = check_alignment(name, pointer, bytes_of(call.type, 1));
    if (status != GEMMTUNE_OK) return status;
  }
  return GEMMTUNE_OK;
}

MemoryLines lines_of(const SiluAndMul& call, const void* pointer, std::int64_t leading) {
  const std::int64_t bytes = bytes_of(call.type, 1);
  return {reinterpret_cast<std::uintptr_t>(pointer), call.columns * bytes, call.rows, leading * bytes};
}

/// y may be an input itself: its elements are read before they are written.
gemmtune_status check_overlap(const SiluAndMul& call) noexcept {
  struct Input {
    const char* name;
    const void* pointer;
    std::int64_t leading;
  };
  for (const auto& [name, pointer, leading] :
       std::array<Input, 2>{{{"gate", call.gate, call.ldgate}, {"up", call.up, call.ldup}}}) {
    if (pointer == call.y && (leading == call.ldy || call.rows == 1)) continue;
    if (!share_a_byte(lines_of(call, pointer, leading), lines_of(call, call.y, call.ldy))) continue;
    return guarded([&, named = name] {
      return fail(GEMMTUNE_INVALID_ARGUMENT,
                  fmt::format("y overlaps {} in memory, expected {} itself or an output apart from it", named,
                              named));
    });
  }
  return GEMMTUNE_OK;
}

}  // namespace
}  // namespace gemmtune::c

namespace c = gemmtune::c;

extern "C" gemmtune_status gemmtune_silu_and_mul(gemmtune_context* context,
                                                 const gemmtune_silu_and_mul_operands* operands,
                                                 void* stream) {
  gemmtune::SiluAndMul call;
  if (const auto status = c::read_call(operands, call); status != GEMMTUNE_OK) return status;
  if (context == nullptr) {
    if (const auto status = gemmtune_default_context(&context); status != GEMMTUNE_OK) return status;
  }
  return c::guarded([&]() -> gemmtune_status {
    if (const auto legal = gemmtune::check(call); !legal.ok()) return c::report(legal);
    if (call.is_empty()) return GEMMTUNE_OK;
    if (const auto status = c::check_pointers(call); status != GEMMTUNE_OK) return status;
    if (const auto status = c::check_overlap(call); status != GEMMTUNE_OK) return status;
    return c::report(context->context->silu_and_mul(call, gemmtune::Stream{stream}));
  });
}
