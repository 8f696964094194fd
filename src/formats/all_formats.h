// Every format that holds rows or sizes: one row each in all_formats.cpp. What `gemmtune convert` goes by,
// and how every command identifies a file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/conversion.h"

namespace gemmtune {

std::span<const Format> all_formats();
/// By name; an error lists the names.
Result<const Format*> find_format(std::string_view name);
/// From the extension, the header, and what the content begins with. An empty file, or one without a time, is
/// a tuned table if its name is that of one.
const Format& detect_format(const std::string& source, std::string_view content);
/// AITER's tuned CSV, with or without gfx.
bool is_tuned_format(const Format& format);
/// An error that says what the file is, and with `remedy` how what was expected is made of it.
Status refuse_format(const std::string& source, std::string_view content, std::string_view expected,
                     std::string_view remedy);
/// ok for a tuned CSV; else an error that says what the file is.
Status require_tuned_format(const std::string& source, std::string_view content);

/// Writes the rows in the format. Everything of `rows` that is not in the text is in rows.left_out
/// afterwards: rows, columns (with the count of their rows) and parts.
Result<std::string> write_rows(const Format& format, ConversionRows& rows, const ConversionOptions& options);

}  // namespace gemmtune
