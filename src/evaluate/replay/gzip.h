// Files that gzip compressed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gemmtune {

/// The text begins as every gzip file does.
bool is_gzip(std::string_view bytes);

/// What gzip compressed; files that were joined (cat a.gz b.gz) are one text. Damaged or cut-off data and a result above
/// `limit` bytes are errors.
Result<std::string> gunzip(std::string_view bytes, std::size_t limit);

}  // namespace gemmtune
