// What kernels ask of an x86-64 CPU, found at run time: instruction-set levels, and how it reads rows of a weight.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gemmtune::cpu {

/// Ordered: a higher level includes every lower one.
enum class Isa {
  scalar,      // any x86-64 (or any CPU): portable C++
  avx2,        // AVX2, FMA, F16C
  avx512,      // AVX-512 F, BW, VL, DQ
  avx512bf16,  // and BF16, VNNI
  amx,         // and AMX tile, bf16, int8, with the kernel's permission (ARCH_REQ_XCOMP_PERM 18) granted
};

std::string_view to_string(Isa isa);  // "scalar", "avx2" …
std::optional<Isa> parse_isa(std::string_view text);
/// The architecture name of tuned tables: x86-scalar, x86-avx2, x86-avx512, x86-avx512bf16, x86-amx.
std::string_view gfx_name(Isa isa);
/// What this CPU and operating system allow, asked once; AMX permission is requested here. `cap`
/// (GEMMTUNE_CPU_ISA) lowers the answer, never raises it.
Isa detect_isa(std::optional<Isa> cap = std::nullopt);
/// This CPU also permutes bytes of 64-byte vectors (VBMI), and detect_isa() says avx512bf16 or more.
bool has_byte_permutes();

/// How a core reads the rows of a plain 16-bit weight from memory fastest.
enum class RowReads {
  side_by_side,  // several rows at once, each with prefetches of its own
  in_turn,       // one row after the other, prefetched far ahead: the weight is a single run of addresses
  unaided,  // as the processor itself prefetches: a single run, or rows that are long; prefetches of a program slow few rows of x down
};
/// By CPUID's vendor and signature (EAX of leaf 1, which holds the family). In turn on AMD's family 1Ah (Zen 5), of which model 2h
/// was measured (docs/lab/cpu_few_rows.md), unaided on Zen 4 (models 1Xh, 6Xh, 7Xh and AXh of family 19h, of which model 11h was). Side by side
/// elsewhere, which was not measured.
RowReads row_reads_of(std::string_view vendor, std::uint32_t signature);
/// Of this CPU, at every level; asked once.
RowReads detect_row_reads();

}  // namespace gemmtune::cpu
