// JSON documents that survive a failed allocation at any place: nlohmann's, with a destructor of our own.
//
// nlohmann's destructor moves all values of a tree into a vector, so that no depth overflows the stack; without
// memory for the vector it ends the process, and it does so wherever a tree is unwound: one that is held, one that
// the parser has half made, the operands of an initializer list. Ours recurses once a level and allocates nothing.
// The depth of trees is bounded by what makes them: parse_json() and parse_json_object() refuse deeper ones than
// max_json_depth. Json and OrderedJson are types of their own, so nlohmann::json in a host program is untouched.
//
// Before nlohmann 3.11.3 an initializer list that cannot be made loses the memory of what it had: code that runs in a
// host program assigns members instead.
//
// The only place of src/ that includes nlohmann/json.hpp (tools/check_layers.py): a file that used Json without the
// declarations below would instantiate nlohmann's destructor.
#pragma once

#include <nlohmann/json.hpp>

#include "formats/json_text.h"

namespace gemmtune {

/// Makes Json and OrderedJson other types than nlohmann's; converts as they do.
template <typename Value, typename Condition>
struct JsonSerializer : nlohmann::adl_serializer<Value, Condition> {};

}  // namespace gemmtune

template <>
void gemmtune::Json::json_value::destroy(value_t type);
template <>
void gemmtune::OrderedJson::json_value::destroy(value_t type);

// Before nlohmann 3.11.3, a null that becomes an object or an array has its new type while the memory for it is
// asked for, and the invariant "an object has members" is asserted when it is then destroyed. Nothing else is
// asserted there.
template <>
inline void gemmtune::Json::assert_invariant(bool /*check_parents*/) const noexcept {}
template <>
inline void gemmtune::OrderedJson::assert_invariant(bool /*check_parents*/) const noexcept {}
