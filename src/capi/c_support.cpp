#include "capi/c_support.h"

#include <algorithm>
#include <array>

namespace gemmtune::c {
namespace {

/// A thread's last error. A fixed buffer: a failure must not fail for want of memory.
std::array<char, 2048>& error_text() {
  static thread_local std::array<char, 2048> text{};
  return text;
}

static_assert(static_cast<int>(DataType::f32) + 1 == GEMMTUNE_F32);
static_assert(static_cast<int>(DataType::bf16) + 1 == GEMMTUNE_BF16);
static_assert(static_cast<int>(DataType::i4) + 1 == GEMMTUNE_I4);

bool read_type(gemmtune_type given, DataType absent, DataType& type) {
  const auto number = static_cast<std::int64_t>(given) - 1;
  if (number >= static_cast<std::int64_t>(all_data_types().size())) return false;
  type = number < 0 ? absent : static_cast<DataType>(number);
  return number >= -1;
}

static_assert(static_cast<int>(Operation::fused_moe) == GEMMTUNE_FUSED_MOE);
static_assert(static_cast<int>(QuantType::per_128x128) == GEMMTUNE_QUANT_PER_128X128);
static_assert(static_cast<int>(Activation::situv2) == GEMMTUNE_ACTIVATION_SITUV2);

/// Takes one of the enumerations whose values are ours; false where it is none of them.
template <typename Given, typename Value>
bool read_word(Given given, Value last, Value& value) {
  const auto number = static_cast<std::int64_t>(given);
  if (number < 0 || number > static_cast<std::int64_t>(last)) return false;
  value = static_cast<Value>(number);
  return true;
}

gemmtune_status read_types(const gemmtune_problem& known, Problem& problem) noexcept {
  if (known.x_type != GEMMTUNE_TYPE_UNSET && read_type(known.x_type, DataType::bf16, problem.x_type) &&
      read_type(known.w_type, problem.x_type, problem.w_type) &&
      read_type(known.y_type, default_y_type(problem.operation, problem.x_type), problem.y_type)) {
    return GEMMTUNE_OK;
  }
  return fail(GEMMTUNE_INVALID_ARGUMENT, "a type is none of enum gemmtune_type (x_type must be set)");
}

gemmtune_status read_moe(const gemmtune_problem& known, MoeShape& moe) noexcept {
  moe.experts = known.experts;
  moe.topk = known.topk;
  moe.gated = known.gated != 0;
  moe.doweight_stage1 = known.doweight_stage1 != 0;
  if (!read_word(known.activation, Activation::situv2, moe.activation)) {
    return fail(GEMMTUNE_INVALID_ARGUMENT, "activation is none of enum gemmtune_activation");
  }
  if (!read_word(known.quant_type, QuantType::per_128x128, moe.quant_type)) {
    return fail(GEMMTUNE_INVALID_ARGUMENT, "quant_type is none of enum gemmtune_quant_type");
  }
  return GEMMTUNE_OK;
}

}  // namespace

gemmtune_status code_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return GEMMTUNE_OK;
    case StatusCode::invalid_argument:
      return GEMMTUNE_INVALID_ARGUMENT;
    case StatusCode::not_found:
      return GEMMTUNE_NOT_FOUND;
    case StatusCode::unsupported:
      return GEMMTUNE_UNSUPPORTED;
    case StatusCode::io_error:
      return GEMMTUNE_IO_ERROR;
    case StatusCode::out_of_memory:
      return GEMMTUNE_OUT_OF_MEMORY;
    case StatusCode::internal:
      break;
  }
  return GEMMTUNE_INTERNAL;
}

gemmtune_status fail(gemmtune_status status, std::string_view sentence) noexcept {
  auto& text = error_text();
  const std::size_t length = std::min(sentence.size(), text.size() - 1);
  std::memcpy(text.data(), sentence.data(), length);
  text[length] = '\0';
  return status;
}

gemmtune_status fail(const Status& status) noexcept { return fail(code_of(status.code()), status.message()); }

gemmtune_status fail_null(const char* function, const char* argument) noexcept {
  return guarded(
      [&] { return fail(GEMMTUNE_NULL_POINTER, fmt::format("{}: {} is null", function, argument)); });
}

gemmtune_status read_layout(gemmtune_layout given, WeightLayout& layout) noexcept {
  switch (given) {
    case GEMMTUNE_LAYOUT_PLAIN:
      layout = WeightLayout::plain;
      return GEMMTUNE_OK;
    case GEMMTUNE_LAYOUT_PANEL16:
      layout = WeightLayout::panel16;
      return GEMMTUNE_OK;
    case GEMMTUNE_LAYOUT_ONEDNN:
      layout = WeightLayout::onednn;
      return GEMMTUNE_OK;
    case GEMMTUNE_LAYOUT_AITER16X16:
      layout = WeightLayout::aiter16x16;
      return GEMMTUNE_OK;
    case GEMMTUNE_LAYOUT_TILE64X128:
      layout = WeightLayout::tile64x128;
      return GEMMTUNE_OK;
  }
  return fail(GEMMTUNE_INVALID_ARGUMENT, "a weight layout is none of enum gemmtune_layout");
}

gemmtune_layout layout_to_c(WeightLayout layout) {
  if (layout == WeightLayout::panel16) return GEMMTUNE_LAYOUT_PANEL16;
  if (layout == WeightLayout::onednn) return GEMMTUNE_LAYOUT_ONEDNN;
  if (layout == WeightLayout::aiter16x16) return GEMMTUNE_LAYOUT_AITER16X16;
  if (layout == WeightLayout::tile64x128) return GEMMTUNE_LAYOUT_TILE64X128;
  return GEMMTUNE_LAYOUT_PLAIN;
}

gemmtune_status read_problem(const gemmtune_problem* given, Problem& problem,
                             LaunchPromises& promises) noexcept {
  gemmtune_problem known;
  const auto status =
      read_struct(given, known, "gemmtune_problem", offsetof(gemmtune_problem, k) + sizeof known.k);
  if (status != GEMMTUNE_OK) return status;
  if (!read_word(known.operation, all_operations().back(), problem.operation)) {
    return fail(GEMMTUNE_INVALID_ARGUMENT, "operation is none of enum gemmtune_operation");
  }
  if (const auto bad = read_types(known, problem); bad != GEMMTUNE_OK) return bad;
  if (const auto bad = read_moe(known, problem.moe); bad != GEMMTUNE_OK) return bad;
  problem.m = known.m;
  problem.n = known.n;
  problem.k = known.k;
  if (known.batch != 0) problem.batch = known.batch;
  problem.bias = known.bias != 0;
  problem.scale_ab = known.scale_ab != 0;
  promises = {known.constant_weights != 0, known.predecessor_triggers != 0};
  if (known.alignment != 0) problem.alignment = known.alignment;
  const auto layout_status = read_layout(known.weight_layout, problem.weight_layout);
  const bool always_packed = traits(problem.operation).packing == Packing::always;
  if (always_packed && problem.weight_layout == WeightLayout::plain)
    problem.weight_layout = WeightLayout::any;
  problem.bpreshuffle = problem.weight_layout != WeightLayout::plain;
  return layout_status;
}

gemmtune_status read_problem(const gemmtune_problem* given, Problem& problem) noexcept {
  LaunchPromises unused;
  return read_problem(given, problem, unused);
}

}  // namespace gemmtune::c

extern "C" {

const char* gemmtune_status_text(gemmtune_status status) {
  switch (status) {
    case GEMMTUNE_OK:
      return "ok";
    case GEMMTUNE_INVALID_ARGUMENT:
      return "invalid argument";
    case GEMMTUNE_NOT_FOUND:
      return "not found";
    case GEMMTUNE_UNSUPPORTED:
      return "unsupported";
    case GEMMTUNE_IO_ERROR:
      return "input or output error";
    case GEMMTUNE_OUT_OF_MEMORY:
      return "out of memory";
    case GEMMTUNE_INTERNAL:
      return "internal error";
    case GEMMTUNE_NULL_POINTER:
      return "null pointer";
    case GEMMTUNE_MISALIGNED:
      return "misaligned";
  }
  return "unknown status";
}

const char* gemmtune_last_error(void) { return gemmtune::c::error_text().data(); }

const char* gemmtune_version(void) { return GEMMTUNE_VERSION; }

}  // extern "C"
