// The names of JSON documents (formats/json.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gemmtune {

template <typename Value, typename Condition = void>
struct JsonSerializer;

/// The members of an object in the order of their names.
using Json = nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t,
                                  double, std::allocator, JsonSerializer>;
/// The members of an object in the order in which they were added.
using OrderedJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t,
                                         std::uint64_t, double, std::allocator, JsonSerializer>;

}  // namespace gemmtune
