#include "dispatch/c_support.h"

#include <algorithm>
#include <array>

namespace gemmtune::c {
namespace {

/// A thread's last error. A fixed buffer: a failure must not fail for want of memory.
std::array<char, 2048>& error_text() {
  static thread_local std::array<char, 2048> text{};
  return text;
}

bool read_type(gemmtune_type given, DataType absent, DataType& type) {
  switch (given) {
    case GEMMTUNE_TYPE_UNSET:
      type = absent;
      return true;
    case GEMMTUNE_BF16:
      type = DataType::bf16;
      return true;
    case GEMMTUNE_F16:
      type = DataType::f16;
      return true;
    case GEMMTUNE_F32:
      type = DataType::f32;
      return true;
    case GEMMTUNE_F8_E4M3FN:
      type = DataType::f8_e4m3fn;
      return true;
    case GEMMTUNE_F8_E4M3FNUZ:
      type = DataType::f8_e4m3fnuz;
      return true;
    case GEMMTUNE_I8:
      type = DataType::i8;
      return true;
  }
  return false;
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
  }
  return fail(GEMMTUNE_INVALID_ARGUMENT, "a weight layout is none of enum gemmtune_layout");
}

gemmtune_layout layout_to_c(WeightLayout layout) {
  if (layout == WeightLayout::panel16) return GEMMTUNE_LAYOUT_PANEL16;
  if (layout == WeightLayout::onednn) return GEMMTUNE_LAYOUT_ONEDNN;
  return GEMMTUNE_LAYOUT_PLAIN;
}

gemmtune_status read_problem(const gemmtune_problem* given, Problem& problem) noexcept {
  gemmtune_problem known;
  const auto status =
      read_struct(given, known, "gemmtune_problem", offsetof(gemmtune_problem, k) + sizeof known.k);
  if (status != GEMMTUNE_OK) return status;
  if (known.operation != GEMMTUNE_A16W16) {
    return fail(GEMMTUNE_UNSUPPORTED, "operation: this version runs GEMMTUNE_A16W16");
  }
  if (known.x_type == GEMMTUNE_TYPE_UNSET || !read_type(known.x_type, DataType::bf16, problem.x_type) ||
      !read_type(known.w_type, problem.x_type, problem.w_type) ||
      !read_type(known.y_type, problem.x_type, problem.y_type)) {
    return fail(GEMMTUNE_INVALID_ARGUMENT, "a type is none of enum gemmtune_type (x_type must be set)");
  }
  problem.m = known.m;
  problem.n = known.n;
  problem.k = known.k;
  problem.bias = known.bias != 0;
  problem.scale_ab = known.scale_ab != 0;
  if (known.alignment != 0) problem.alignment = known.alignment;
  const auto layout_status = read_layout(known.weight_layout, problem.weight_layout);
  problem.bpreshuffle = problem.weight_layout != WeightLayout::plain;
  return layout_status;
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
