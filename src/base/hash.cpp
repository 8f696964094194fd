#include "base/hash.h"

#include <fmt/format.h>

namespace gemmtune {

std::uint64_t hash64(std::string_view text) {
  // FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/), then the finalizer of SplitMix64: FNV alone mixes
  // the last bytes badly into the high bits, which short_hash keeps.
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char character : text) {
    hash ^= static_cast<unsigned char>(character);
    hash *= 0x100000001b3ULL;
  }
  hash ^= hash >> 30;
  hash *= 0xbf58476d1ce4e5b9ULL;
  hash ^= hash >> 27;
  hash *= 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

std::string short_hash(std::string_view text, int digits) {
  return fmt::format("{:016x}", hash64(text)).substr(0, static_cast<std::size_t>(digits));
}

}  // namespace gemmtune
