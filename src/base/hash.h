// A stable 64-bit hash of text (FNV-1a with a final avalanche): its values may stand in files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gemmtune {

std::uint64_t hash64(std::string_view text);
/// The first `digits` (≤ 16) hexadecimal digits of hash64(text), lower case.
std::string short_hash(std::string_view text, int digits = 10);

}  // namespace gemmtune
