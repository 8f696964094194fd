// Memory of a CPU device in its placements (backend.h).
#pragma once

#include <cstddef>
#include <memory>

#include "backends/backend.h"

namespace gemmtune::cpu {

/// Alignment of every placement but page_end.
inline constexpr std::size_t buffer_alignment = 64;
/// Bytes of canary on each side of a guarded buffer.
inline constexpr std::size_t guard_bytes = 256;

/// plain, guarded: from the heap, content undefined. guarded data begins and ends at a canary, to the byte.
/// page_end: the last byte is the last one of a page, the next page cannot be read or written; data() is thus
/// aligned only as far as `bytes` and the page size are both multiples of it. The bytes before the data in
/// its first page are readable. pool: zeros, on huge pages where the system has them, every page touched.
///
/// 0 bytes are allowed: data() is then a valid pointer of which nothing may be read. Errors: out_of_memory
/// with the bytes asked for, also where a request above 16 MiB exceeds what is free (the system would promise
/// it, then kill the process that uses it).
Result<std::unique_ptr<Buffer>> allocate_memory(std::size_t bytes, Placement placement);

inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
/// Before memory of others is written: the system may put what lies on whole huge pages there, what was touched before too. Content
/// stays; a system without huge pages does nothing.
void prefer_huge_pages(void* data, std::size_t bytes);

}  // namespace gemmtune::cpu
