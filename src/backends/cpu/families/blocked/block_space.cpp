#include "backends/cpu/families/blocked/block_space.h"

#include <set>

#include "backends/cpu/families/blocked/w4_gemm.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t kc_values[] = {256, 512, 2048};
// What can be built beside them; a block of scales is 128 elements of k.
constexpr NumberRange kc_range{128, 8192, 128};
// AMX tiles of fp8: sums of each block of k are stored, scaled and added. Times what the multiplication alone takes, measured on a Xeon with
// 1 to 32 rows (docs/lab/cpu_block_scales.md).
constexpr double scaled_tile_factor = 5;

/// fp8 whose sums are scaled block by block of k.
bool has_scaled_blocks(const MatrixShape& w) {
  return bits(w.type) == 8 && scales_sums(w) && !w.scale.global && w.scale.columns > 1;
}

std::string refuse_tile(const KernelSet& set, const BlockFormat& format, const BlockTile& tile) {
  if (!compute_type(set, tile.isa, format))
    return "the device does not have this isa, or it cannot multiply the types";
  if (tile.rows)
    return has_rows_tile(set, tile.isa, format, tile.mr, tile.nr)
               ? ""
               : "mr x nr is no register tile of this isa for rows of the weight as they lie";
  if (tile.nr % panel_columns != 0 ||
      find(block_panels(set, tile.isa, format), tile.mr, tile.nr / panel_columns) == nullptr)
    return "mr x nr is no register tile of this isa and layout";
  return {};
}

/// Rows as they lie are for few rows of x: beyond some tiles of them, packed weights are read less often. Rows of 4-bit weights
/// are decoded again for each tile, from the inner cache.
std::string refuse_rows(const KernelSet& set, const BlockWork& work, const BlockTile& tile) {
  if (tile.mr > fitting_rows_tile(set, tile.isa, work.format, work.rows, tile.nr))
    return "mr leaves rows of the register tile empty";
  if (bits(work.format.w.type) == 4) {
    if (work.rows > 16 * tile.mr) return "rows decodes the weight more than sixteen times";
  } else if (work.rows > 4 * tile.mr) {
    return "rows takes more than four passes over the weight";
  }
  if (tile.kc != kc_values[0]) return "kc means the same as another value";
  return {};
}

/// Requires a register tile that the isa has.
std::string refuse_waste(const KernelSet& set, const BlockWork& work, const BlockTile& tile) {
  if (tile.rows) return refuse_rows(set, work, tile);
  const PanelList& list = block_panels(set, tile.isa, work.format);
  const std::int64_t panels = tile.nr / panel_columns;
  const std::int64_t enough = fitting(list, work.rows, panels)->mr;
  if (tile.mr > enough) return "mr leaves rows of the register tile empty";
  // Small tiles load more than they multiply; they are for the ends of m only.
  std::int64_t largest = 0;
  for (int i = 0; i < list.count; ++i) {
    const PanelEntry& entry = list.entries[i];
    if (entry.mr <= fitting(list, work.rows, entry.panels)->mr)
      largest = std::max<std::int64_t>(largest, std::int64_t{entry.mr} * entry.panels);
  }
  if (tile.mr * panels * 3 < largest * 2) return "mr x nr uses too few registers";
  for (const std::int64_t smaller : kc_values)
    if (smaller < tile.kc && smaller >= work.format.x.columns) return "kc means the same as a smaller one";
  return {};
}

}  // namespace

void add_tile_parameters(const KernelSet& set, const BlockFormat& format, Space& space, bool with_rows) {
  Parameter isa{"isa", {}, "scalar", "instruction set"};
  std::set<std::int64_t> rows;
  std::set<std::int64_t> columns;
  for (const Isa level : block_levels(set, format)) {
    isa.values.emplace_back(to_string(level));
    const PanelList& list = block_panels(set, level, format);
    for (int i = 0; i < list.count; ++i) {
      rows.insert(list.entries[i].mr);
      columns.insert(list.entries[i].panels * panel_columns);
    }
    if (!with_rows) continue;
    for (const RowsTile& tile : rows_tiles(set, level, format)) {
      rows.insert(tile.mr);
      columns.insert(tile.nr);
    }
  }
  space.add(std::move(isa));
  add_layout_parameter(to_string(format.layout), space);
  add_numbers(space, "mr", rows, "1", "rows of the register tile");
  add_numbers(space, "nr", columns, "16", "columns of the register tile");
  add_numbers(space, "kc", kc_values, "512", "elements of k decoded at once", kc_range);
}

void add_rows_parameter(const KernelSet& set, const BlockFormat& format, Space& space) {
  bool any = false;
  for (const Isa level : block_levels(set, format)) any = any || !rows_tiles(set, level, format).empty();
  std::vector<std::string> values{"0"};
  if (any) values.emplace_back("1");
  space.add({"rows", std::move(values), "0", "1: the weight's rows are read as they lie, 0: packed"});
}

void add_tile_constraints(const KernelSet& set, const BlockWork& work, Space& space) {
  space.add(
      Constraint{"tile", [set, work](const Config& c) { return refuse_tile(set, work.format, tile_of(c)); }});
  space.add(Constraint{"waste", [set, work](const Config& c) { return refuse_waste(set, work, tile_of(c)); },
                       Rule::search});
}

BlockTile tile_of(const Config& config) {
  return {.isa = parse_isa(config.word("isa")).value_or(Isa::scalar),
          .mr = config.number("mr", 1),
          .nr = config.number("nr", 16),
          .kc = config.number("kc", 512),
          .rows = config.number("rows", 0) == 1};
}

Config tile_config(const BlockTile& tile, const BlockFormat& format) {
  return {{"isa", to_string(tile.isa)},
          {"w", to_string(format.layout)},
          {"mr", tile.mr},
          {"nr", tile.nr},
          {"kc", tile.kc}};
}

BlockTile default_tile(const KernelSet& set, const BlockWork& work) {
  // Longer blocks of k are carried less often. Sums that are scaled in k are carried at each scale, so the least k does: L1 holds it
  // decoded, 64 columns wide.
  const bool is_long = work.format.x.columns > kc_values[0] && !has_scaled_blocks(work.format.w);
  BlockTile best;
  double best_cost = 0;
  for (const Isa isa : block_levels(set, work.format)) {
    const PanelList& list = block_panels(set, isa, work.format);
    for (int i = 0; i < list.count; ++i) {
      BlockTile tile{.isa = isa,
                     .mr = list.entries[i].mr,
                     .nr = list.entries[i].panels * panel_columns,
                     .kc = is_long ? kc_values[1] : kc_values[0]};
      if (!refuse_waste(set, work, tile).empty()) continue;
      const double cost = block_microseconds(set, work, tile);
      if (best_cost != 0 && cost >= best_cost) continue;
      best_cost = cost;
      best = tile;
    }
  }
  return best;
}

std::optional<BlockTile> default_rows_tile(const KernelSet& set, const BlockWork& work) {
  std::optional<BlockTile> best;
  double best_cost = 0;
  for (const Isa isa : block_levels(set, work.format))
    for (const RowsTile& rows : rows_tiles(set, isa, work.format)) {
      const BlockTile tile{.isa = isa, .mr = rows.mr, .nr = rows.nr, .kc = kc_values[0], .rows = true};
      if (!refuse_rows(set, work, tile).empty()) continue;
      const double cost = block_microseconds(set, work, tile);
      if (best && cost >= best_cost) continue;
      best_cost = cost;
      best = tile;
    }
  return best;
}

double block_microseconds(const KernelSet& set, const BlockWork& work, const BlockTile& tile) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const MatrixShape& w = work.format.w;
  const MachineRates machine = machine_rates(tile.isa, bits(w.type) == 32 ? DataType::f32 : DataType::bf16,
                                             std::max(tile.isa, work.level));
  const double rows = real(round_up(work.rows, tile.mr));
  const double weights = real(round_up(w.rows, tile.nr)) * real(w.columns);
  const double memory = weights * bits(w.type) / 8 / machine.memory_bytes_per_microsecond;
  if (tile.rows && bits(w.type) == 4) {
    constexpr double exposed = 0.3;
    const double computing = w4_microseconds(set, work.format, work.rows, {tile.isa, tile.mr, tile.nr});
    return std::max(computing, memory) + exposed * std::min(computing, memory);
  }
  const double loads = 1.0 / real(tile.mr) + 16.0 / real(tile.nr) * 0.06;
  double multiplying = 2 * rows * weights / machine.flops_per_microsecond * (0.85 + loads);
  if (tile.isa == Isa::amx && has_scaled_blocks(w)) multiplying *= scaled_tile_factor;
  // Decoding and, for plain rows, transposing: elements a microsecond.
  const bool tables = tile.isa >= Isa::avx512bf16 && has_byte_permutes() && w.type != DataType::i8;
  const double rate = (work.format.layout == WeightLayout::panel16 ? (tables ? 30e3 : 8e3) : 4e3) *
                      (tile.isa == Isa::scalar ? 0.2 : 1);
  const double blocks = real(ceil_div(w.columns, tile.kc));
  double carrying = rows * real(w.rows) * (blocks - 1) * 8 / 60e3;
  // Sums that are scaled in k are carried from block to block of 128 anyway; weights had better stay beside
  // them.
  if (scales_sums(w) && w.scale.columns > 1) {
    constexpr double innermost_cache = 32 << 10;
    carrying = real(tile.nr * tile.kc) * 2 > innermost_cache ? 0.1 * multiplying : 0;
  }
  // Rows that do not stay in an inner cache come from an outer one for each block of columns, those of a
  // block of k for each register tile.
  constexpr double inner_cache = 1e6;
  const double x_bytes = rows * real(w.columns) * 2;
  const double wide_blocks = real(ceil_div(w.rows, std::max(tile.nc, tile.nr)));
  if (x_bytes > inner_cache && !tile.rows) {
    const double a_block = x_bytes / blocks;
    const double again = a_block > inner_cache ? real(ceil_div(w.rows, tile.nr)) : wide_blocks;
    carrying += x_bytes * again / 60e3;
  }
  if (tile.rows) {
    const double passes = rows / real(tile.mr);
    const double dots = multiplying * (1 + 0.5 / real(tile.nr)) + passes * weights / 40e3;
    return std::max(dots, memory);
  }
  const double computing = multiplying + weights / rate + carrying;
  const double exposed = has_scaled_blocks(w) ? 0.3 * std::min(computing, memory) : 0;
  return std::max(computing, memory) + exposed;
}

}  // namespace gemmtune::cpu
