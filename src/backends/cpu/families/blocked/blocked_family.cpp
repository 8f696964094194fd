// The families `quantized` (scaled operands) and `batched`.
#include "backends/cpu/families/blocked/block_space.h"
#include "backends/cpu/families/blocked/blocked.h"
#include "backends/cpu/families/own_families.h"
#include "backends/refusal.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t mc_values[] = {64, 256, 1024};
constexpr std::int64_t nc_values[] = {0, 128, 256, 512};
// What can be built beside them.
constexpr NumberRange mc_range{1, 4096};
constexpr NumberRange nc_range{0, 2048, panel_columns};

bool takes_quantized(const Problem& problem) {
  const OperationTraits& operation = traits(problem.operation);
  return !operation.batched && !operation.mixture && is_quantized(problem);
}

bool takes_batched(const Problem& problem) { return traits(problem.operation).batched; }

/// The difference between the two families.
struct Character {
  std::string_view name;
  int tie_rank;
  bool (*takes)(const Problem&);
  std::string_view operations;  // for a refusal
};

constexpr Character quantized{"quantized", 12, takes_quantized, "scaled operands without batches"};
constexpr Character batched{"batched", 13, takes_batched, "batched_bf16 and batched_a8w8"};

BlockTile wide_tile_of(const Config& config) {
  BlockTile tile = tile_of(config);
  tile.nc = config.number("nc", 0);
  return tile;
}

class BlockedFamily final : public LeafFamily {
 public:
  BlockedFamily(const Character& character, const KernelSet& set, int threads)
      : character_(character), set_(set), threads_(std::max(threads, 1)) {}

  std::string_view name() const override { return character_.name; }
  int tie_rank() const override { return character_.tie_rank; }
  Status accepts(const Problem& problem) const override {
    if (!character_.takes(problem))
      return refusal::refuse(refusal::operation, "{}{} is not taken, only {}", to_string(form_of(problem)),
                             problem.scale_ab ? " with scaleAB" : "", character_.operations);
    return accepts_blocked(problem);
  }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    return is_packed(problem) ? block_layout(problem) : WeightLayout::panel16;
  }

  Space space(const Problem& problem) const override {
    const BlockFormat format = format_of(problem);
    Space space;
    add_tile_parameters(set_, format, space);
    add_numbers(space, "mc", mc_values, "64", "rows a block", mc_range);
    add_numbers(space, "nc", nc_values, "0", "columns decoded at once, 0: those of the register tile",
                nc_range);
    add_tile_constraints(set_, {format, problem.m, set_.level}, space);
    space.add(Constraint{"nc",
                         [problem](const Config& config) -> std::string {
                           const std::int64_t nc = config.number("nc", 0);
                           if (nc == 0) return {};
                           if (problem.m <= config.number("mr", 1)) return "nc is for more rows than mr";
                           if (nc <= config.number("nr", 16)) return "nc means the same as 0";
                           for (const std::int64_t smaller : nc_values)
                             if (smaller != 0 && smaller < nc && smaller >= problem.n)
                               return "nc means the same as a smaller one";
                           return {};
                         },
                         Rule::search});
    space.add(Constraint{"mc",
                         [problem](const Config& config) -> std::string {
                           for (const std::int64_t smaller : mc_values)
                             if (smaller < config.number("mc") && smaller >= problem.m)
                               return "mc means the same as a smaller one";
                           return {};
                         },
                         Rule::search});
    return space;
  }

  Config default_config(const Problem& problem) const override {
    const BlockFormat format = format_of(problem);
    Config config = tile_config(default_tile(set_, {format, problem.m, set_.level}), format);
    config.set("mc", problem.m > mc_values[0] ? mc_values[1] : mc_values[0]);
    const bool wide = problem.m > config.number("mr", 1) && problem.n > nc_values[1];
    config.set("nc", wide ? nc_values[2] : 0);
    return config;
  }

  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    const BlockedSettings settings{wide_tile_of(config), config.number("mc", 64)};
    return make_blocked_kernel(set_, problem, settings, threads_);
  }

  std::string sum_order(const Problem& problem, const Config& config) const override {
    return block_sum_order(set_, format_of(problem), wide_tile_of(config));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    const std::int64_t mc = config.number("mc", 64);
    const double passes = static_cast<double>(ceil_div(problem.m, mc));
    const double once = block_microseconds(set_, {format_of(problem), std::min(mc, problem.m), set_.level},
                                           wide_tile_of(config));
    return once * passes * static_cast<double>(problem.batch) / worthwhile_threads(problem, threads_);
  }
  std::int64_t resources(const Problem&, const Config& config) const override {
    return config.number("mc", 64) * config.number("kc", 512);
  }

 private:
  const Character& character_;
  KernelSet set_;
  int threads_;
};

}  // namespace

std::unique_ptr<KernelFamily> make_quantized_family(const KernelSet& set, int threads) {
  return std::make_unique<BlockedFamily>(quantized, set, threads);
}
std::unique_ptr<KernelFamily> make_batched_family(const KernelSet& set, int threads) {
  return std::make_unique<BlockedFamily>(batched, set, threads);
}

std::unique_ptr<KernelFamily> make_quantized_family(Isa level, int threads) {
  return make_quantized_family(kernel_set(level), threads);
}
std::unique_ptr<KernelFamily> make_batched_family(Isa level, int threads) {
  return make_batched_family(kernel_set(level), threads);
}

}  // namespace gemmtune::cpu
