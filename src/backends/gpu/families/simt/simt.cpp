#include "backends/gpu/families/simt/simt.h"

#include <algorithm>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/simt/simt_arguments.h"
#include "backends/gpu/jit/compiled_family.h"
#include "backends/gpu/jit/device_files.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::gpu {
namespace {

constexpr std::int64_t block_n = 64;
constexpr std::int64_t max_grid_rows = 65535;

class SimtKernel final : public Kernel {
 public:
  SimtKernel(std::shared_ptr<Program> program, const Problem& problem, std::int64_t block_m)
      : program_(std::move(program)),
        problem_(problem),
        shapes_(operand_shapes(problem)),
        k_atoms_(problem.w_type == DataType::f4_e2m1 ? fragments_of(problem).k_tiles()
                                                     : tiles_of(problem).pieces()),
        layout_(weight_layout_of(problem)) {
    shape_.threads = 256;
    shape_.grid[0] = static_cast<unsigned>(ceil_div(problem.n, block_n));
    shape_.grid[1] = static_cast<unsigned>(std::min(ceil_div(problem.m, block_m), max_grid_rows));
    shape_.grid[2] = static_cast<unsigned>(problem.batch);
  }
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return layout_; }
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
                         o.y_batch_stride};
    void* arguments[] = {&values};
    return program_->launch(shape_, arguments, stream);
  }

 private:
  std::shared_ptr<Program> program_;
  Problem problem_;
  OperandShapes shapes_;
  std::int64_t k_atoms_;
  WeightLayout layout_;
  LaunchShape shape_;
};

class SimtFamily final : public CompiledFamily {
 public:
  explicit SimtFamily(Runtime& runtime) : runtime_(runtime) {}

  std::string_view name() const override { return "simt"; }
  std::string identity() const override { return fmt::format("simt r1 source {}", text_hash(source_)); }
  int tie_rank() const override { return 30; }
  Status accepts(const Problem& problem) const override {
    return accepts_dense(problem, {.weights = Weights::packed_too,
                                   .orders = refusal::Orders::any_input,
                                   .row_scales = true,
                                   .block_scales = true,
                                   .int8 = true,
                                   .fp8 = Fp8::both,
                                   .fp4 = true,
                                   .batches = true});
  }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    return packed_layout_of(problem);
  }

  Space space(const Problem& problem) const override {
    Space space;
    space.add(Parameter{
        .key = "bm", .values = {"16", "64"}, .absent = "16", .meaning = "block_m: rows of x in a tile"});
    space.add(Constraint{"bm",
                         [m = problem.m](const Config& config) -> std::string {
                           return config.number("bm") > 16 && m <= 16
                                      ? "bm leaves most rows of the tile empty"
                                      : "";
                         },
                         Rule::search});
    return space;
  }
  Config default_config(const Problem& problem) const override {
    Config config;
    config.set("bm", std::int64_t{problem.m <= 16 ? 16 : 64});
    return config;
  }
  Source source(const Problem& problem, const Config& config) const override {
    Source source{"simt", source_, type_defines(problem), "simt"};
    source.defines.push_back(fmt::format("BLOCK_M={}", config.number("bm")));
    source.defines.push_back(fmt::format("PACKED={}", problem.bpreshuffle ? 1 : 0));
    return source;
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    auto program = runtime_.load(source(problem, config));
    if (!program.ok()) return program.status();
    return std::unique_ptr<Kernel>(
        std::make_unique<SimtKernel>(std::move(*program), problem, config.number("bm")));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    // 10 TFLOP/s, far from any limit of the device, for all rows of the tiles.
    const auto tile = static_cast<double>(config.number("bm"));
    const double rows = std::max(static_cast<double>(problem.m), tile);
    return 5 + 2 * rows * static_cast<double>(problem.n) * static_cast<double>(problem.k) *
                   static_cast<double>(problem.batch) / 10e6;
  }
  std::string_view thread_pool() const override { return "gpu"; }

 private:
  Runtime& runtime_;
  std::string source_ = include_line("backends/gpu/families/simt/simt.cu");
};

}  // namespace

std::unique_ptr<KernelFamily> make_simt_family(Runtime& runtime) {
  return std::make_unique<SimtFamily>(runtime);
}

}  // namespace gemmtune::gpu
