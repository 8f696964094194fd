// AVX-512 with VNNI and VBMI: small types become bf16 by look-ups.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_kernels.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_decode.h"
#include "backends/cpu/microkernels/integer_pairs_vnni.h"
#include "backends/cpu/microkernels/byte_tables.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

constexpr long bytes_ahead = 2048;  // of a panel: what hides the latency of memory

/// The slow form of a type, for what has scales of 32 elements.
template <typename Type>
struct WithScales;
template <>
struct WithScales<E4m3fnBytes> {
  using Decoder = DecodeE4m3fn;
};
template <>
struct WithScales<E4m3fnuzBytes> {
  using Decoder = DecodeE4m3fnuz;
};

template <typename Type>
void decode_fp8_row(const DecodeRowArgs& args) {
  if (args.exponents != nullptr) return decode_row<typename WithScales<Type>::Decoder, ToBf16>(args);
  const Fp8Decoder<Type> decoder;
  const char* from = static_cast<const char*>(args.from);
  char* to = static_cast<char*>(args.to);
  for (long first = 0; first < args.count; first += 32, to += 64) {
    const long left = args.count - first;
    const __mmask32 there = left >= 32 ? 0xffffffffU : (1U << left) - 1;
    __m512i even;
    __m512i odd;
    decoder.decode(_mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(there, from + first)), even, odd);
    _mm512_storeu_si512(to, even);
  }
}

template <typename Type>
void decode_fp8_panel(const DecodePanelArgs& args) {
  if (args.exponents != nullptr) return decode_panel<typename WithScales<Type>::Decoder, ToBf16>(args);
  const Fp8Decoder<Type> decoder;
  // Elements 0 and 1 of a dword at even places, 2 and 3 at odd ones.
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  const char* from = static_cast<const char*>(args.from);
  char* to = static_cast<char*>(args.to);
  for (long line = 0; line < 8 * args.chunks; ++line, from += 64, to += 128) {
    __builtin_prefetch(from + bytes_ahead);
    __m512i first;
    __m512i second;
    decoder.decode(_mm512_shuffle_epi8(_mm512_loadu_si512(from), order), first, second);
    _mm512_storeu_si512(to, first);
    _mm512_storeu_si512(to + 64, second);
  }
}

/// Each byte in a dword: its low four bits lowest in the low half, its high four bits lowest in the high
/// half.
inline __m512i codes_of_bytes(__m128i bytes) {
  const __m512i wide = _mm512_cvtepu8_epi32(bytes);
  return _mm512_or_si512(wide, _mm512_slli_epi32(wide, 12));
}

void decode_f4_row(const DecodeRowArgs& args) {
  if (args.factors != nullptr) return decode_row<DecodeE2m1, ToBf16>(args);
  const F4Decoder decoder;
  const char* from = static_cast<const char*>(args.from);
  char* to = static_cast<char*>(args.to);
  for (long first = 0; first < args.count; first += 32, from += 16, to += 64) {
    const long left = args.count - first;
    const auto bytes_there = static_cast<__mmask16>(left >= 32 ? 0xffffU : (1U << (left + 1) / 2) - 1);
    const __mmask32 there = left >= 32 ? 0xffffffffU : (1U << left) - 1;
    const unsigned char exponent =
        args.exponents == nullptr ? static_cast<unsigned char>(127) : args.exponents[first / 32];
    const __m512i codes = codes_of_bytes(_mm_maskz_loadu_epi8(bytes_there, from));
    __m512i values;
    if (exponent >= min_f4_exponent && exponent <= max_f4_exponent) {
      const __m512i exponents = _mm512_set1_epi16(static_cast<short>(static_cast<int>(exponent) << 7));
      values = decoder.decode(codes, F4Decoder::away(exponents));
    } else {
      const __m512 factor = powers_of_two(_mm_set1_epi8(static_cast<char>(exponent)));
      values = pairs_of_upper_halves(slow_f4(codes, factor), slow_f4(_mm512_srli_epi32(codes, 16), factor));
    }
    _mm512_storeu_si512(to, _mm512_maskz_mov_epi16(there, values));
  }
}

/// A chunk of a panel: four lines, 16 pairs of k.
inline void decode_f4_chunk(const F4Decoder& decoder, const char* from, __m128i exponents, char* to) {
  const __m512i away = F4Decoder::away_of_columns(exponents);
  if (!F4Decoder::in_range(away)) {
    for (unsigned pair = 0; pair < 16; ++pair) {
      const __m512i codes = _mm512_srli_epi32(_mm512_loadu_si512(from + pair / 4 * 64), pair % 4 * 8);
      const __m512 factors = powers_of_two(exponents);
      _mm512_storeu_si512(
          to + pair * 64,
          pairs_of_upper_halves(slow_f4(codes, factors), slow_f4(_mm512_srli_epi32(codes, 4), factors)));
    }
    return;
  }
  // The low half of each dword in both halves, the high one in both; then shifted to an element each.
  const __m512i low =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
  const __m512i high =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
  const __m512i none_and_four = _mm512_set1_epi32(0x00040000);
  const __m512i eight_and_twelve = _mm512_set1_epi32(0x000c0008);
#pragma GCC unroll 4
  for (int line = 0; line < 4; ++line) {
    __builtin_prefetch(from + line * 64 + bytes_ahead);
    const __m512i codes = _mm512_loadu_si512(from + line * 64);
    const __m512i first = _mm512_shuffle_epi8(codes, low);
    const __m512i second = _mm512_shuffle_epi8(codes, high);
    char* out = to + line * 256;
    _mm512_storeu_si512(out, decoder.decode(_mm512_srlv_epi16(first, none_and_four), away));
    _mm512_storeu_si512(out + 64, decoder.decode(_mm512_srlv_epi16(first, eight_and_twelve), away));
    _mm512_storeu_si512(out + 128, decoder.decode(_mm512_srlv_epi16(second, none_and_four), away));
    _mm512_storeu_si512(out + 192, decoder.decode(_mm512_srlv_epi16(second, eight_and_twelve), away));
  }
}

void decode_f4_panel(const DecodePanelArgs& args) {
  if (args.exponents == nullptr) return decode_panel<DecodeE2m1, ToBf16>(args);
  const F4Decoder decoder;
  const StreamScaleArgs scales{.exponents = args.exponents,
                               .stride = args.exponent_stride,
                               .rows = args.columns,
                               .count = args.chunks,
                               .out = nullptr};
  Exponents exponents;
  for (long chunk = 0; chunk < args.chunks; ++chunk) {
    if (chunk % 16 == 0) load_exponents(scales, chunk, exponents);
    decode_f4_chunk(decoder, static_cast<const char*>(args.from) + chunk * 256, exponents.of(chunk % 16),
                    static_cast<char*>(args.to) + chunk * 1024);
  }
}

constexpr DecodeKernels vbmi_decode_tables() {
  DecodeKernels tables = vnni_decode_tables();
  auto& rows = tables.row[static_cast<int>(Compute::bf16)];
  auto& panels = tables.panel[static_cast<int>(Compute::bf16)];
  rows[static_cast<int>(Stored::f8_e4m3fn)] = decode_fp8_row<E4m3fnBytes>;
  rows[static_cast<int>(Stored::f8_e4m3fnuz)] = decode_fp8_row<E4m3fnuzBytes>;
  rows[static_cast<int>(Stored::f4_e2m1)] = decode_f4_row;
  panels[static_cast<int>(Stored::f8_e4m3fn)] = decode_fp8_panel<E4m3fnBytes>;
  panels[static_cast<int>(Stored::f8_e4m3fnuz)] = decode_fp8_panel<E4m3fnuzBytes>;
  panels[static_cast<int>(Stored::f4_e2m1)] = decode_f4_panel;
  return tables;
}

}  // namespace

constexpr DecodeKernels avx512vbmi_decode_kernels = vbmi_decode_tables();

}  // namespace gemmtune::cpu
