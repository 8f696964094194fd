// The architecture that a source is compiled for.
#pragma once

enum class Architecture { gfx90a, gfx942, gfx950 };
static __device__ constexpr Architecture architecture() {
#if defined(__gfx950__)
  return Architecture::gfx950;
#elif defined(__gfx942__)
  return Architecture::gfx942;
#else
  return Architecture::gfx90a;
#endif
}
