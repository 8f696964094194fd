#include "capi/c_problem.h"

#include <algorithm>
#include <iterator>

namespace gemmtune::c {
namespace {

/// Opaque ids begin here; they are never given to another layout.
constexpr gemmtune_layout first_opaque = 0x1000;

struct LayoutId {
  gemmtune_layout id;
  WeightLayout layout;
};
constexpr LayoutId layout_ids[] = {{GEMMTUNE_LAYOUT_PLAIN, WeightLayout::plain},
                                   {GEMMTUNE_LAYOUT_ANY, WeightLayout::any},
                                   {GEMMTUNE_LAYOUT_AITER16X16, WeightLayout::aiter16x16},
                                   {first_opaque + 1, WeightLayout::panel16},
                                   {first_opaque + 2, WeightLayout::onednn},
                                   {first_opaque + 3, WeightLayout::tile64x128},
                                   {first_opaque + 4, WeightLayout::fragment64}};
static_assert(std::size(layout_ids) == static_cast<std::size_t>(WeightLayout::fragment64) + 1);

const LayoutId* find_layout(gemmtune_layout id) {
  const auto* const found = std::find_if(std::begin(layout_ids), std::end(layout_ids),
                                         [&](const LayoutId& one) { return one.id == id; });
  return found == std::end(layout_ids) ? nullptr : found;
}

// Enumerations whose values are ours; a value that is added comes last on both sides.
static_assert(static_cast<int>(QuantType::per_group) == GEMMTUNE_QUANT_PER_GROUP);
static_assert(static_cast<int>(Activation::situv2) == GEMMTUNE_ACTIVATION_SITUV2);
static_assert(static_cast<int>(Order::column_major) == GEMMTUNE_COLUMN_MAJOR);
constexpr std::size_t order_count = static_cast<std::size_t>(Order::column_major) + 1;
static_assert(static_cast<int>(DataType::f32) + 1 == GEMMTUNE_F32);
static_assert(static_cast<int>(DataType::i8) + 1 == GEMMTUNE_I8);
static_assert(static_cast<int>(DataType::i4) + 1 == GEMMTUNE_I4);

/// `number` as one of the first `count` enumerators; false if it is none.
template <typename Value>
bool read_enumerator(std::int64_t number, std::size_t count, Value& value) {
  if (number < 0 || number >= static_cast<std::int64_t>(count)) return false;
  value = static_cast<Value>(number);
  return true;
}

gemmtune_status fail_enumerator(const char* field, std::int64_t value, const char* enumeration) noexcept {
  return guarded([&] {
    return fail(GEMMTUNE_INVALID_ARGUMENT, fmt::format("{} is {}, none of {}", field, value, enumeration));
  });
}

/// An unset type is `absent`.
gemmtune_status read_type_or(const char* field, gemmtune_type given, DataType absent,
                             DataType& type) noexcept {
  if (given != GEMMTUNE_TYPE_UNSET) return read_type(field, given, type);
  type = absent;
  return GEMMTUNE_OK;
}

gemmtune_status read_types(const gemmtune_problem& known, Problem& problem) noexcept {
  if (const auto bad = read_type("x_type", known.x_type, problem.x_type); bad != GEMMTUNE_OK) return bad;
  const OperationTraits& operation = traits(problem.operation);
  const DataType w_type = operation.own_w_type() ? operation.w_types.front() : problem.x_type;
  if (const auto bad = read_type_or("w_type", known.w_type, w_type, problem.w_type); bad != GEMMTUNE_OK)
    return bad;
  return read_type_or("y_type", known.y_type, default_y_type(problem.operation, problem.x_type),
                      problem.y_type);
}

gemmtune_status read_orders(const gemmtune_problem& known, Problem& problem) noexcept {
  if (!read_enumerator(known.x_order, order_count, problem.x_order))
    return fail_enumerator("x_order", known.x_order, "enum gemmtune_order");
  if (!read_enumerator(known.w_order, order_count, problem.w_order))
    return fail_enumerator("w_order", known.w_order, "enum gemmtune_order");
  return GEMMTUNE_OK;
}

gemmtune_status read_moe(const gemmtune_problem& problem, bool mixture, MoeShape& moe) noexcept {
  if (problem.moe == nullptr) return mixture ? fail_null("gemmtune_problem", "moe") : GEMMTUNE_OK;
  gemmtune_moe known;
  if (const auto bad = read_struct(problem.moe, known); bad != GEMMTUNE_OK) return bad;
  moe.experts = known.experts;
  moe.topk = known.topk;
  moe.shared_experts = known.shared_experts;
  moe.gated = known.gated != 0;
  moe.doweight_stage1 = known.doweight_stage1 != 0;
  if (!read_enumerator(known.activation, all_activations().size(), moe.activation))
    return fail_enumerator("activation", known.activation, "enum gemmtune_activation");
  if (!read_enumerator(known.quant_type, all_quant_types().size(), moe.quant_type))
    return fail_enumerator("quant_type", known.quant_type, "enum gemmtune_quant_type");
  return GEMMTUNE_OK;
}

/// A problem whose layout has not been compared with its form.
gemmtune_status read_fields(const gemmtune_problem* given, gemmtune_problem& known, OperationForm& form,
                            Problem& problem) noexcept {
  if (const auto bad = read_struct(given, known); bad != GEMMTUNE_OK) return bad;
  if (const auto bad = read_operation(known.operation, form); bad != GEMMTUNE_OK) return bad;
  problem.operation = form.operation;
  if (const auto bad = read_types(known, problem); bad != GEMMTUNE_OK) return bad;
  if (const auto bad = read_orders(known, problem); bad != GEMMTUNE_OK) return bad;
  if (const auto bad = read_moe(known, is_mixture(problem), problem.moe); bad != GEMMTUNE_OK) return bad;
  problem.m = known.m;
  problem.n = known.n;
  problem.k = known.k;
  if (known.batch != 0) problem.batch = known.batch;
  problem.bias = known.bias != 0;
  problem.scale_ab = known.scale_ab != 0;
  problem.e8m0_scales = known.e8m0_scales != 0;
  problem.w_group = known.w_group;
  if (known.w_group == 0 && has_weight_groups(problem) && known.k >= 0 && known.k <= max_dimension)
    problem.w_group = static_cast<std::int32_t>(known.k);
  problem.zero_points = known.zero_points != 0;
  if (known.alignment != 0) problem.alignment = known.alignment;
  return read_layout(known.weight_layout, problem.weight_layout);
}

}  // namespace

gemmtune_status read_type(const char* field, gemmtune_type given, DataType& type) noexcept {
  if (given == GEMMTUNE_TYPE_UNSET) {
    return guarded([&] {
      return fail(GEMMTUNE_INVALID_ARGUMENT,
                  fmt::format("{} is not set, expected one of enum gemmtune_type", field));
    });
  }
  if (read_enumerator(static_cast<std::int64_t>(given) - 1, all_data_types().size(), type))
    return GEMMTUNE_OK;
  return fail_enumerator(field, given, "enum gemmtune_type");
}

gemmtune_status read_operation(gemmtune_operation given, OperationForm& form) noexcept {
  std::size_t index = 0;
  if (!read_enumerator(given, all_operation_forms().size(), index))
    return fail_enumerator("operation", given, "enum gemmtune_operation");
  form = all_operation_forms()[index];
  return GEMMTUNE_OK;
}

gemmtune_operation operation_to_c(OperationForm form) {
  const auto forms = all_operation_forms();
  return static_cast<gemmtune_operation>(std::ranges::find(forms, form) - forms.begin());
}

gemmtune_status read_layout(gemmtune_layout given, WeightLayout& layout) noexcept {
  const LayoutId* const known = find_layout(given);
  if (known == nullptr) return fail_enumerator("weight layout", given, "the layouts of this gemmtune");
  layout = known->layout;
  return GEMMTUNE_OK;
}

std::string_view layout_text(gemmtune_layout layout) noexcept {
  const LayoutId* const known = find_layout(layout);
  return known == nullptr ? "unknown layout" : to_string(known->layout);
}

gemmtune_type type_to_c(DataType type) { return static_cast<gemmtune_type>(static_cast<int>(type) + 1); }

gemmtune_type type_of(ScaleType type) {
  switch (type) {
    case ScaleType::none:
      break;
    case ScaleType::f32:
      return GEMMTUNE_F32;
    case ScaleType::e8m0:
      return GEMMTUNE_U8;
    case ScaleType::e4m3:
      return GEMMTUNE_F8_E4M3FN;
    case ScaleType::bf16:
      return GEMMTUNE_BF16;
    case ScaleType::f16:
      return GEMMTUNE_F16;
  }
  return GEMMTUNE_TYPE_UNSET;
}

gemmtune_layout layout_to_c(WeightLayout layout) {
  for (const LayoutId& one : layout_ids)
    if (one.layout == layout) return one.id;
  return GEMMTUNE_LAYOUT_PLAIN;
}

gemmtune_status read_problem(const gemmtune_problem* given, gemmtune_problem& known,
                             Problem& problem) noexcept {
  OperationForm form;
  if (const auto bad = read_fields(given, known, form, problem); bad != GEMMTUNE_OK) return bad;
  if (form == form_of(problem)) return GEMMTUNE_OK;
  return guarded([&] { return report(check_form(form, problem)); });
}

gemmtune_status read_weight(const gemmtune_problem* given, Problem& problem) noexcept {
  gemmtune_problem known;
  OperationForm form;
  if (const auto bad = read_fields(given, known, form, problem); bad != GEMMTUNE_OK) return bad;
  problem.bias = false;
  // A column-major weight is used as it is.
  const bool may_be_packed =
      OperationForm(form.operation, true) == form && problem.w_order == Order::row_major;
  problem.weight_layout = may_be_packed ? WeightLayout::any : WeightLayout::plain;
  Problem weight = problem;
  weight.m = 1;
  return guarded([&] { return report(check(weight)); });
}

}  // namespace gemmtune::c
