// The layouts of a weight [N, K] in memory. The layout belongs to the weight, not to a kernel: a model holds
// one copy and calls it with many M.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gemmtune {

enum class WeightLayout {
  any,      // not decided yet: a problem whose weight may still be packed (bpreshuffle in a shape list)
  plain,    // row-major [N, K], as a checkpoint holds it
  panel16,  // ours: see below
  onednn,   // what oneDNN's matmul asks for (opaque bytes, made and read by the onednn family)
};

std::string_view to_string(WeightLayout layout);
std::optional<WeightLayout> parse_weight_layout(std::string_view text);

/// panel16: [ceil(N/16)][Kp/pair][16][pair] elements, pair = 2 for 2-byte bf16 and 1 for fp16 and fp32, Kp =
/// K rounded up to 32; columns past N and steps past K are zero. One panel holds 16 output features over all
/// of K contiguously, so a kernel reads it front to back; for bf16 each run of 32 k is one 1 KiB AMX B tile
/// and one row of 16 pairs is one operand of vdpbf16ps.
struct Panel16 {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t element_bytes = 2;
  std::int64_t pair = 2;

  static constexpr std::int64_t columns = 16;
  static constexpr std::int64_t k_multiple = 32;
  std::int64_t panels() const { return (n + columns - 1) / columns; }
  std::int64_t padded_k() const { return (k + k_multiple - 1) / k_multiple * k_multiple; }
  std::int64_t panel_bytes() const { return padded_k() * columns * element_bytes; }
  std::int64_t bytes() const { return panels() * panel_bytes(); }
};

/// Plain [N, K] into panel16 and back. `destination` holds shape.bytes() (n·k·element_bytes for the inverse);
/// source and destination must not overlap.
void pack_panel16(const Panel16& shape, const void* plain, void* destination);
void unpack_panel16(const Panel16& shape, const void* packed, void* destination);

}  // namespace gemmtune
