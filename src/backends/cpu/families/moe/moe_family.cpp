#include "backends/cpu/families/blocked/block_space.h"
#include "backends/cpu/families/blocked/blocked.h"
#include "backends/cpu/families/moe/moe.h"
#include "backends/cpu/families/own_families.h"
#include "backends/refusal.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t block_values[] = {16, 32, 64, 128};
constexpr NumberRange block_range{1, 1024};  // what can be built beside them

/// Rows that a block has on the average.
std::int64_t default_rows(const Problem& problem) {
  return std::max<std::int64_t>(1, ceil_div(routed_pairs(problem), problem.moe.experts));
}

/// More rows than nearly all blocks have, where tokens choose experts at random.
std::int64_t likely_rows(const Problem& problem) {
  const std::int64_t usual = default_rows(problem);
  std::int64_t deviation = 1;
  while (deviation * deviation < usual) ++deviation;
  return std::min(problem.m, usual + 3 * deviation);
}

class MoeFamily final : public LeafFamily {
 public:
  MoeFamily(const KernelSet& set, int threads) : set_(set), threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return "moe"; }
  int tie_rank() const override { return 14; }

  Status accepts(const Problem& problem) const override {
    if (!is_mixture(problem))
      return refusal::refuse(refusal::operation, "{} is not taken, only fused_moe",
                             to_string(form_of(problem)));
    GEMMTUNE_RETURN_IF_ERROR(accepts_blocked(problem));
    if (problem.weight_layout != WeightLayout::plain)
      return refusal::refuse(refusal::layout, "{} is not taken, only plain",
                             to_string(problem.weight_layout));
    GEMMTUNE_RETURN_IF_ERROR(refusal::check_activation(problem));
    if (levels(problem).empty())
      return refusal::refuse(refusal::types, "x {} with w {} is not taken", to_string(problem.x_type),
                             to_string(problem.w_type));
    return {};
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }

  Space space(const Problem& problem) const override {
    Space space;
    add_tile_parameters(set_, tile_format(problem), space, true);
    add_numbers(space, "bm", block_values, "32", "tokens of a block", block_range);
    space.add({"st",
               {"1", "2"},
               "2",
               "stages: blocks through both multiplications, or all blocks through one, then the other"});
    add_rows_parameter(set_, tile_format(problem), space);
    add_tile_constraints(set_, {tile_format(problem), likely_rows(problem), set_.level}, space);
    space.add(Constraint{"second", [this, problem](const Config& config) -> std::string {
                           const BlockTile tile = tile_of(config);
                           const MoeFormats formats = moe_formats(set_, tile.isa, problem);
                           if (!compute_type(set_, tile.isa, formats.second))
                             return "this isa cannot multiply the hidden layer";
                           if (tile.rows)
                             return has_rows_tile(set_, tile.isa, formats.second, tile.mr, tile.nr)
                                        ? ""
                                        : "mr x nr is no register tile for rows of the second weight";
                           const PanelList& list = block_panels(set_, tile.isa, formats.second);
                           return find(list, tile.mr, tile.nr / panel_columns) == nullptr
                                      ? "mr x nr is no register tile of the second multiplication"
                                      : "";
                         }});
    space.add(Constraint{"bm",
                         [problem](const Config& config) -> std::string {
                           if (config.number("bm") < config.number("mr")) return "bm is less than mr";
                           for (const std::int64_t smaller : block_values)
                             if (smaller < config.number("bm") && smaller >= problem.m)
                               return "bm means the same as a smaller one";
                           return {};
                         },
                         Rule::search});
    return space;
  }

  Config default_config(const Problem& problem) const override {
    const BlockFormat format = tile_format(problem);
    Config config = tile_config(default_tile(problem), format);
    // In the order of the space: names are read back in it.
    config.set("bm", default_rows(problem) > 32 ? 64 : 32);
    config.set("st", 2);
    config.set("rows", few_rows_tile(problem) ? 1 : 0);
    return config;
  }

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    return make_moe_kernel(set_, problem,
                           {tile_of(config), config.number("bm", 32), config.number("st", 2) == 1}, threads_);
  }

  /// Both multiplications', then a token's experts by slot. Activations and weighted sums are rounded as the instruction set does.
  std::string sum_order(const Problem& problem, const Config& config) const override {
    const BlockTile tile = tile_of(config);
    const MoeFormats formats = moe_formats(set_, tile.isa, problem);
    const std::string first = block_sum_order(set_, formats.first, tile);
    const std::string second = block_sum_order(set_, formats.second, tile);
    if (first.empty() || second.empty()) return {};
    return fmt::format("{}, {}, slots of {}", first, second, to_string(tile.isa));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    const BlockTile tile = tile_of(config);
    const MoeFormats formats = moe_formats(set_, tile.isa, problem);
    const std::int64_t rows = std::min(default_rows(problem), config.number("bm", 32));
    const double a_block = block_microseconds(set_, {formats.first, rows, set_.level}, tile) +
                           block_microseconds(set_, {formats.second, rows, set_.level}, tile);
    const auto blocks = static_cast<double>(ceil_div(routed_pairs(problem), rows));
    const bool few = config.number("st", 2) == 1 && blocks < 2 * threads_;
    return a_block * blocks / (few ? 1 : worthwhile_threads(problem, threads_));
  }
  std::int64_t resources(const Problem&, const Config& config) const override {
    return config.number("bm", 32) * config.number("st", 2);
  }

 private:
  /// The levels that can do both multiplications.
  std::vector<Isa> levels(const Problem& problem) const {
    std::vector<Isa> both;
    for (const Isa isa : block_levels(set_, tile_format(problem)))
      if (compute_type(set_, isa, moe_formats(set_, isa, problem).second)) both.push_back(isa);
    return both;
  }
  /// A tile for rows of the weights as they lie, where blocks have so few tokens that packing them would cost
  /// more than it saves.
  std::optional<BlockTile> few_rows_tile(const Problem& problem) const {
    constexpr std::int64_t few = 16;
    constexpr std::int64_t few_of_four_bits = 32;  // beside panels of bf16 pairs
    constexpr std::int64_t vector_rows = 4;
    const std::int64_t rows = default_rows(problem);
    if (bits(problem.w_type) == 4) {
      const auto tile = default_rows_tile(set_, {tile_format(problem), likely_rows(problem), set_.level});
      if (tile && tile->isa == Isa::amx) return tile;  // decodes once for all tokens of a block
      const bool pairs = tile && set_.at(tile->isa)->bf16_compute && set_.level < Isa::amx;
      return rows > (pairs ? few_of_four_bits : few) ? std::nullopt : tile;
    }
    if (rows > few) return std::nullopt;
    for (const Isa isa : levels(problem)) {
      const RowList list = block_rows(set_, isa, tile_format(problem));
      // Vectors keep up with memory for a few rows, and follow it row by row.
      const bool tiles = set_.at(isa)->rows_read_x_panels;
      if (tiles && rows <= vector_rows) continue;
      const std::int64_t nr = tiles ? panel_columns : 1;
      if (const RowEntry* entry = fitting(list, likely_rows(problem), nr); entry != nullptr)
        return BlockTile{.isa = isa, .mr = entry->mr, .nr = nr, .kc = 256, .rows = true};
    }
    return std::nullopt;
  }
  BlockTile default_tile(const Problem& problem) const {
    const std::optional<BlockTile> few = few_rows_tile(problem);
    return few ? *few : cpu::default_tile(set_, {tile_format(problem), default_rows(problem), set_.level});
  }
  static BlockFormat tile_format(const Problem& problem) {
    const OperandShapes shapes = operand_shapes(problem);
    return {shapes.x, shapes.w, WeightLayout::plain};
  }

  KernelSet set_;
  int threads_;
};

}  // namespace

MoeFormats moe_formats(const KernelSet& set, Isa isa, const Problem& problem) {
  const OperandShapes shapes = operand_shapes(problem);
  const IsaKernels* kernels = set.at(isa);
  const bool bf16 = kernels != nullptr && kernels->bf16_compute && problem.w_type != DataType::f16;
  const MatrixShape hidden{bf16 ? DataType::bf16 : DataType::f32, 1, routed_pairs(problem), problem.n, {}};
  return {{shapes.x, shapes.w, WeightLayout::plain}, {hidden, shapes.w2, WeightLayout::plain}};
}

std::unique_ptr<KernelFamily> make_moe_family(const KernelSet& set, int threads) {
  return std::make_unique<MoeFamily>(set, threads);
}
std::unique_ptr<KernelFamily> make_moe_family(Isa level, int threads) {
  return make_moe_family(kernel_set(level), threads);
}

}  // namespace gemmtune::cpu
