// What a format of operands asks of an instruction set, and how its weights lie in memory.
#include <optional>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "backends/cpu/families/blocked/w4_gemm.h"
#include "backends/refusal.h"

namespace gemmtune::cpu {
namespace {

/// 128² · k must stay below 2³¹.
constexpr std::int64_t max_integer_k = (std::int64_t{1} << 17) - 1;

bool needs_f32(DataType type) { return type == DataType::f16 || type == DataType::f32; }

/// visit(list) of the level's register tiles for rows of the weight as they lie.
template <typename Visit>
auto visit_rows(const KernelSet& set, Isa isa, const BlockFormat& format, Visit&& visit) {
  const W4Kernels* kernels = format.x.scale.type == ScaleType::none ? w4_kernels(set, isa, format) : nullptr;
  return kernels != nullptr ? visit(w4_tiles(*kernels, format.w)) : visit(block_rows(set, isa, format));
}

}  // namespace

const DecodeKernels& decode_kernels(Isa isa) {
#if defined(GEMMTUNE_X86_KERNELS)
  if (isa >= Isa::avx512bf16)
    return has_byte_permutes() ? avx512vbmi_decode_kernels : avx512vnni_decode_kernels;
  if (isa == Isa::avx512) return avx512_decode_kernels;
  if (isa == Isa::avx2) return avx2_decode_kernels;
#endif
  (void)isa;
  return scalar_decode_kernels;
}

Stored stored_type(DataType type) {
  switch (type) {
    case DataType::f8_e4m3fn:
      return Stored::f8_e4m3fn;
    case DataType::f8_e4m3fnuz:
      return Stored::f8_e4m3fnuz;
    case DataType::i8:
      return Stored::i8;
    case DataType::i4:
      return Stored::i4;
    default:
      return Stored::f4_e2m1;
  }
}

bool integer_sums(const BlockFormat& format) {
  const bool scaled_in_k = format.x.scale.columns > 1 || format.w.scale.columns > 1;
  return format.x.type == DataType::i8 && format.w.type == DataType::i8 &&
         format.x.columns <= max_integer_k && !scaled_in_k;
}

std::optional<Compute> compute_type(const KernelSet& set, Isa isa, const BlockFormat& format) {
  const IsaKernels* kernels = set.at(isa);
  if (kernels == nullptr) return std::nullopt;
  if (integer_sums(format)) {
    // AMX tiles have no integer panels here; below the level with VNNI there is one table a level.
    if (isa == Isa::amx) return std::nullopt;
    return Compute::i16;
  }
  const bool f32 = needs_f32(format.x.type) || needs_f32(format.w.type);
  if (kernels->bf16_compute) return f32 ? std::nullopt : std::optional(Compute::bf16);
  return Compute::f32;
}

const PanelList& block_panels(const KernelSet& set, Isa isa, const BlockFormat& format) {
  const Compute compute = *compute_type(set, isa, format);
  if (compute == Compute::i16) return decode_kernels(isa).integer_panels;
  const bool in_place = format.layout == WeightLayout::panel16 && wide(format.w.type);
  if (in_place) return set.at(isa)->panels[static_cast<int>(element_of(format.w.type))];
  return set.at(isa)->panels[static_cast<int>(compute == Compute::bf16 ? Element::bf16 : Element::f32)];
}

RowList block_rows(const KernelSet& set, Isa isa, const BlockFormat& format) {
  const MatrixShape& w = format.w;
  const IsaKernels* kernels = set.at(isa);
  const bool stored = w.type == DataType::bf16 || w.type == DataType::f32;
  const bool unscaled = w.scale.type == ScaleType::none && format.x.scale.type == ScaleType::none;
  if (kernels == nullptr || format.layout != WeightLayout::plain || !stored || !unscaled) return {nullptr, 0};
  if (kernels->bf16_compute != (w.type == DataType::bf16)) return {nullptr, 0};
  return kernels->rows[static_cast<int>(element_of(w.type))];
}

std::vector<RowsTile> rows_tiles(const KernelSet& set, Isa isa, const BlockFormat& format) {
  std::vector<RowsTile> tiles;
  visit_rows(set, isa, format, [&](const auto& list) {
    for (int i = 0; i < list.count; ++i) tiles.push_back({list.entries[i].mr, list.entries[i].nr});
  });
  return tiles;
}

bool has_rows_tile(const KernelSet& set, Isa isa, const BlockFormat& format, std::int64_t mr,
                   std::int64_t nr) {
  return visit_rows(set, isa, format, [&](const auto& list) { return find(list, mr, nr) != nullptr; });
}

std::int64_t fitting_rows_tile(const KernelSet& set, Isa isa, const BlockFormat& format, std::int64_t rows,
                               std::int64_t nr) {
  return visit_rows(set, isa, format, [&](const auto& list) -> std::int64_t {
    const auto* entry = fitting(list, rows, nr);
    return entry == nullptr ? 0 : entry->mr;
  });
}

std::string block_sum_order(const KernelSet& set, const BlockFormat& format, const BlockTile& tile) {
  if (integer_sums(format)) return std::string(integer_sum_order);
  if (format.x.scale.type == ScaleType::e8m0) return {};
  if (tile.rows && bits(format.w.type) == 4) return w4_sum_order(tile.isa);
  if (tile.rows && !find(block_rows(set, tile.isa, format), tile.mr, tile.nr)->sums_as_panels) return {};
  std::string order = panel_sum_order(tile.isa, 1);
  // Of weights, chunks beyond the range are summed apart for all columns that are decoded at once.
  if (format.w.scale.type == ScaleType::e8m0)
    order += fmt::format("-nc{}", std::max(tile.nc / tile.nr, std::int64_t{1}) * tile.nr);
  return order;
}

std::vector<Isa> block_levels(const KernelSet& set, const BlockFormat& format) {
  std::vector<Isa> levels;
  for (int i = static_cast<int>(set.level); i >= 0 && levels.size() < 2; --i) {
    const Isa isa = static_cast<Isa>(i);
    if (!compute_type(set, isa, format)) continue;
    if (isa == Isa::scalar && !levels.empty()) break;
    levels.push_back(isa);
  }
  return levels;
}

Panel16 panel16_of(const MatrixShape& w) {
  Panel16 panel{.n = w.rows, .k = w.columns, .element_bytes = bytes_of(w.type, 1), .pair = 1};
  if (w.type == DataType::bf16) panel.pair = 2;
  if (!wide(w.type)) panel.pair = 4;
  if (bits(w.type) == 4) panel.k = w.columns / 2;
  return panel;
}

Tile16 tile16_of(const MatrixShape& w) {
  const bool halves = bits(w.type) == 4;
  return {.n = w.rows, .k = halves ? w.columns / 2 : w.columns, .element_bytes = bytes_of(w.type, 1)};
}

std::int64_t layout_bytes(const MatrixShape& w, WeightLayout layout) {
  if (layout == WeightLayout::panel16) return panel16_of(w).bytes();
  return bytes_of(w.type, w.rows * w.columns);
}

void pack_matrices(const MatrixShape& w, WeightLayout layout, const void* plain, void* packed) {
  for (std::int64_t matrix = 0; matrix < w.count; ++matrix) {
    const char* from = static_cast<const char*>(plain) + matrix * bytes_of(w.type, w.rows * w.columns);
    char* to = static_cast<char*>(packed) + matrix * layout_bytes(w, layout);
    if (layout == WeightLayout::panel16) {
      pack_panel16(panel16_of(w), from, to);
    } else {
      shuffle_tile16(tile16_of(w), from, to);
    }
  }
}

void unpack_matrices(const MatrixShape& w, WeightLayout layout, const void* packed, void* plain) {
  for (std::int64_t matrix = 0; matrix < w.count; ++matrix) {
    const char* from = static_cast<const char*>(packed) + matrix * layout_bytes(w, layout);
    char* to = static_cast<char*>(plain) + matrix * bytes_of(w.type, w.rows * w.columns);
    if (layout == WeightLayout::panel16) {
      unpack_panel16(panel16_of(w), from, to);
    } else {
      unshuffle_tile16(tile16_of(w), from, to);
    }
  }
}

Status check_layout(const MatrixShape& w, WeightLayout layout) {
  if (layout == WeightLayout::plain || layout == WeightLayout::panel16) return {};
  if (layout == WeightLayout::aiter16x16) {
    if (tile16_of(w).fits()) return {};
    return refusal::refuse(refusal::layout,
                           "aiter16x16 of {} x {} {}: expected rows in multiples of 16 and 32 {} of k",
                           w.rows, w.columns, to_string(w.type), bits(w.type) == 4 ? "bytes" : "elements");
  }
  return refusal::refuse(refusal::layout, "{} is not taken, only plain, panel16 and aiter16x16",
                         to_string(layout));
}

}  // namespace gemmtune::cpu
