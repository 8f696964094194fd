// Problems and weight layouts of the C interface, for both libraries.
#pragma once

#include <string_view>

#include "capi/c_status.h"
#include "problem/operands.h"

namespace gemmtune::c {

/// The problem of a descriptor; its sizes are not checked yet. `known` is the descriptor as this version
/// knows it.
gemmtune_status read_problem(const gemmtune_problem* given, gemmtune_problem& known,
                             Problem& problem) noexcept;
/// The problem of a function about one weight, checked but for M: layout `any` where the weight may be packed, else plain.
gemmtune_status read_weight(const gemmtune_problem* given, Problem& problem) noexcept;
/// Of a field that must be set.
gemmtune_status read_type(const char* field, gemmtune_type given, DataType& type) noexcept;
gemmtune_status read_operation(gemmtune_operation given, OperationForm& form) noexcept;
gemmtune_operation operation_to_c(OperationForm form);
gemmtune_status read_layout(gemmtune_layout given, WeightLayout& layout) noexcept;
gemmtune_layout layout_to_c(WeightLayout layout);
gemmtune_type type_to_c(DataType type);
/// The type of scales in an array: U8 of e8m0; unset of none.
gemmtune_type type_of(ScaleType type);
/// gemmtune_layout_text(): a literal.
std::string_view layout_text(gemmtune_layout layout) noexcept;

}  // namespace gemmtune::c
