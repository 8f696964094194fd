#include "backends/cpu/machine/isa.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace gemmtune::cpu {
namespace {

struct Row {
  Isa isa;
  std::string_view name;
  std::string_view gfx;
};

constexpr Row rows[] = {
    {Isa::scalar, "scalar", "x86-scalar"}, {Isa::avx2, "avx2", "x86-avx2"},
    {Isa::avx512, "avx512", "x86-avx512"}, {Isa::avx512bf16, "avx512bf16", "x86-avx512bf16"},
    {Isa::amx, "amx", "x86-amx"},
};

#if defined(__x86_64__)
struct Registers {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool has(unsigned word, unsigned mask) { return (word & mask) == mask; }

/// The register states that the operating system saves (XCR0). Requires OSXSAVE.
std::uint64_t saved_states() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

/// Linux hands out the 8 KiB tile state on request only; asked once, threads made later have it too.
bool request_amx() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int tile_data = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

/// Bits by Intel's Software Developer's Manual, volume 2A, CPUID.
Isa highest(Isa cap) {
  const Registers one = cpuid(1, 0);
  constexpr unsigned fma_osxsave_avx_f16c = 1U << 12 | 1U << 27 | 1U << 28 | 1U << 29;
  if (!has(one.ecx, fma_osxsave_avx_f16c)) return Isa::scalar;
  const std::uint64_t states = saved_states();
  const Registers seven = cpuid(7, 0);
  if ((states & 0x6U) != 0x6U || !has(seven.ebx, 1U << 5)) return Isa::scalar;
  constexpr unsigned f_dq_bw_vl = 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;
  if (cap < Isa::avx512 || (states & 0xe6U) != 0xe6U || !has(seven.ebx, f_dq_bw_vl)) return Isa::avx2;
  const Registers seven_one = cpuid(7, 1);
  if (!has(seven.ecx, 1U << 11) || !has(seven_one.eax, 1U << 5)) return Isa::avx512;
  constexpr unsigned amx_bf16_tile_int8 = 1U << 22 | 1U << 24 | 1U << 25;
  const bool tiles = (states >> 17 & 3U) == 3U && has(seven.edx, amx_bf16_tile_int8);
  if (cap < Isa::amx || !tiles || !request_amx()) return Isa::avx512bf16;
  return Isa::amx;
}
#else
Isa highest(Isa) { return Isa::scalar; }
#endif

}  // namespace

std::string_view to_string(Isa isa) { return rows[static_cast<int>(isa)].name; }

std::string_view gfx_name(Isa isa) { return rows[static_cast<int>(isa)].gfx; }

std::optional<Isa> parse_isa(std::string_view text) {
  for (const Row& row : rows)
    if (text == row.name) return row.isa;
  return std::nullopt;
}

Isa detect_isa(std::optional<Isa> cap) {
  // Capped below AMX, the permission is not asked for: a process that never uses tiles keeps its small signal
  // frames.
  const Isa limit = cap.value_or(Isa::amx);
  if (limit == Isa::amx) {
    static const Isa everything = highest(Isa::amx);
    return everything;
  }
  static const Isa without_tiles = highest(Isa::avx512bf16);
  return without_tiles < limit ? without_tiles : limit;
}

bool has_byte_permutes() {
#if defined(__x86_64__)
  static const bool found = detect_isa(Isa::avx512bf16) >= Isa::avx512bf16 && has(cpuid(7, 0).ecx, 1U << 1);
  return found;
#else
  return false;
#endif
}

RowReads row_reads_of(std::string_view vendor, std::uint32_t signature) {
  // The extended family counts where the base family is 15 (AMD's Architecture Programmer's Manual, volume 3, appendix E.3.1).
  const std::uint32_t base = signature >> 8 & 0xfU;
  const std::uint32_t family = base == 0xfU ? base + (signature >> 20 & 0xffU) : base;
  if (vendor != "AuthenticAMD") return RowReads::side_by_side;
  if (family == 0x1a) return RowReads::in_turn;
  const std::uint32_t models = signature >> 16 & 0xfU;  // the extended model: sixteen models
  const bool zen_4 = family == 0x19 && (models == 0x1 || models == 0x6 || models == 0x7 || models == 0xa);
  return zen_4 ? RowReads::unaided : RowReads::side_by_side;
}

RowReads detect_row_reads() {
#if defined(__x86_64__)
  static const RowReads found = [] {
    const Registers zero = cpuid(0, 0);
    char vendor[12];
    std::memcpy(vendor, &zero.ebx, 4);
    std::memcpy(vendor + 4, &zero.edx, 4);
    std::memcpy(vendor + 8, &zero.ecx, 4);
    return row_reads_of({vendor, sizeof(vendor)}, cpuid(1, 0).eax);
  }();
  return found;
#else
  return RowReads::side_by_side;
#endif
}

}  // namespace gemmtune::cpu
