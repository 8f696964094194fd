// JSON texts read and printed: errors with file:line and a bound on nesting; one form of printed lines and documents.
// Kept out of line, as the parser and the printer are slow to compile.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/json_fwd.h"

namespace gemmtune {

inline constexpr std::size_t max_json_depth = 64;

/// "source:line: no JSON: why" for what nlohmann's parser says of byte `byte` (1-based); long texts are cut.
Status no_json(const std::string& source, std::string_view text, std::size_t byte, std::string_view why);

/// An error "source:line: a NUL byte, …" for a text that has one: nlohmann's parser takes it for the end and drops what
/// follows.
Status check_no_nul(const std::string& source, std::string_view text);

/// Discarded (is_discarded()) where the text is no JSON, has a NUL byte or is nested deeper than max_json_depth.
Json parse_json(std::string_view text);

/// One line. Of these three, bytes that are no UTF-8 become U+FFFD.
std::string json_line(const Json& json);
std::string json_line(const OrderedJson& json);
/// Indented by two blanks, ends with a new line.
std::string json_document(const Json& json);
std::string json_document(const OrderedJson& json);
/// Quoted, in ASCII: what Python's json.dump writes for a text.
std::string json_ascii_string(const std::string& text);

/// A JSON object, nested at most max_json_depth deep: printing and destroying a tree recurse once a level.
Result<Json> parse_json_object(const std::string& source, const std::string& text);

}  // namespace gemmtune
