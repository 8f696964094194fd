#include <algorithm>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/jit_family.h"
#include "backends/gpu/families/own_families.h"
#include "backends/gpu/families/simt/simt_arguments.h"
#include "backends/gpu/families/simt/simt_launch_config.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::gpu {
namespace {

constexpr std::int64_t block_n = 64;
constexpr std::int64_t max_grid_rows = 65535;

class SimtKernel final : public JitKernel<SimtLaunchConfig> {
 public:
  SimtKernel(Programs programs, const Problem& problem, const SimtLaunchConfig& launch)
      : JitKernel(std::move(programs), problem, launch),
        shapes_(operand_shapes(problem)),
        k_atoms_(bits(problem.w_type) == 4 ? fragments_of(problem).k_tiles()
                                           : tiles_of(problem).row_chunks()) {
    shape_.threads = 256;
    shape_.grid[0] = static_cast<unsigned>(ceil_div(problem.n, block_n));
    shape_.grid[1] = static_cast<unsigned>(std::min(ceil_div(problem.m, launch.block_m), max_grid_rows));
    shape_.grid[2] = static_cast<unsigned>(problem.batch);
  }
  WeightLayout weight_layout() const override { return weight_layout_of(problem_); }
  Status run(const Operands& o, void*, Stream stream) const override {
    const std::int64_t ldw = shapes_.w.line_elements();
    SimtArguments values{o.x,
                         o.w,
                         o.bias,
                         scales_of(problem_, o),
                         o.y,
                         problem_.m,
                         problem_.n,
                         problem_.k,
                         o.ldy,
                         k_atoms_,
                         shapes_.x.row_step(o.ldx),
                         shapes_.x.column_step(o.ldx),
                         shapes_.w.row_step(ldw),
                         shapes_.w.column_step(ldw),
                         o.x_batch_stride,
                         problem_.n * problem_.k,
                         o.y_batch_stride,
                         format_of(o)};
    return enqueue(0, shape_, values, stream);
  }

 private:
  OperandShapes shapes_;
  std::int64_t k_atoms_;
  LaunchShape shape_;
};

class SimtFamily final : public JitFamily<SimtLaunchConfig> {
 public:
  explicit SimtFamily(Runtime& runtime) : JitFamily(runtime, {.name = "simt", .tie_rank = 30}) {}

  Status accepts(const Problem& problem) const override { return accepts_dense(problem, any_dense); }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    return packed_layout_of(problem);
  }
  Config default_config(const Problem& problem) const override {
    Config config;
    config.set("bm", std::int64_t{problem.m <= 16 ? 16 : 64});
    return config;
  }
  /// A thread adds one product of an element after the other.
  std::string sum_order(const Problem&, const Config&) const override { return "simt"; }

 protected:
  SimtLaunchConfig launch_config(const Problem&, const Config& config) const override {
    return {.block_m = config.number("bm", 16)};
  }
  void fill(LaunchSpace<SimtLaunchConfig>& space) const override {
    space.add({"bm", {"16", "64"}, "16", "block_m: rows of x in a tile"});
    space.rule("bm", Rule::search, refuse_empty_rows);
  }
  /// 10 TFLOP/s, far from any limit of the device, for all rows of the tiles.
  double cost(const Problem& problem, const SimtLaunchConfig& launch) const override {
    const auto rows = static_cast<double>(std::max(problem.m, launch.block_m));
    return 5 + 2 * rows * static_cast<double>(problem.n) * static_cast<double>(problem.k) *
                   static_cast<double>(problem.batch) / 10e6;
  }
  std::vector<Part> parts(const Problem& problem, const SimtLaunchConfig& launch) const override {
    Source source{"simt", device_text(), type_defines(problem), "simt"};
    source.defines.push_back(fmt::format("BLOCK_M={}", launch.block_m));
    source.defines.push_back(fmt::format("PACKED={}", is_packed(problem) ? 1 : 0));
    return {{std::move(source)}};
  }
  Result<std::unique_ptr<Kernel>> make_kernel(Programs programs, const Problem& problem,
                                              const SimtLaunchConfig& launch) const override {
    return std::make_unique<SimtKernel>(std::move(programs), problem, launch);
  }
  std::string device_text() const override { return include_line("backends/gpu/families/simt/simt.cu"); }
};

}  // namespace

std::string refuse_empty_rows(const Problem& problem, const SimtLaunchConfig& launch) {
  return launch.block_m > 16 && problem.m <= 16 ? "bm leaves most rows of the tile empty" : "";
}

std::unique_ptr<KernelFamily> make_simt_family(Runtime& runtime) {
  return std::make_unique<SimtFamily>(runtime);
}

const FamilyEntry& simt_entry() {
  static const FamilyEntry entry{
      .info = {.name = "simt", .rank = 50, .fallback_rank = 50},
      .make = [](const FamilyContext& context) { return make_simt_family(context.runtime); }};
  return entry;
}

}  // namespace gemmtune::gpu
