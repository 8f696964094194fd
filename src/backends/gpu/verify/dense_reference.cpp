#include <algorithm>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/verify/device_reference.h"
#include "backends/gpu/verify/reference_arguments.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::gpu {

namespace {

constexpr std::int64_t tile = 64;
constexpr std::int64_t max_grid_rows = 65535;

class DenseReference final : public DeviceReference {
 public:
  DenseReference(Device& device, const Problem& problem, std::shared_ptr<Program> program)
      : device_(device), problem_(problem), program_(std::move(program)) {}

  Status compute(const Operands& operands, double* values, float* magnitudes) const override {
    const OperandShapes shapes = operand_shapes(problem_);
    const std::int64_t ldw = shapes.w.line_elements();
    ReferenceArguments given{operands.x,
                             operands.w,
                             operands.bias,
                             scales_of(problem_, operands),
                             values,
                             magnitudes,
                             problem_.m,
                             problem_.n,
                             problem_.k,
                             shapes.x.row_step(operands.ldx),
                             shapes.x.column_step(operands.ldx),
                             shapes.w.row_step(ldw),
                             shapes.w.column_step(ldw),
                             operands.x_batch_stride,
                             problem_.n * problem_.k,
                             format_of(operands)};
    LaunchShape shape;
    shape.threads = 256;
    shape.grid[0] = static_cast<unsigned>(ceil_div(problem_.n, tile));
    shape.grid[1] = static_cast<unsigned>(std::min(ceil_div(problem_.m, tile), max_grid_rows));
    shape.grid[2] = static_cast<unsigned>(problem_.batch);
    void* arguments[] = {&given};
    GEMMTUNE_RETURN_IF_ERROR(program_->launch(shape, arguments, {}));
    return device_.synchronize();
  }

 private:
  Device& device_;
  Problem problem_;
  std::shared_ptr<Program> program_;
};

}  // namespace

Result<std::vector<std::shared_ptr<Program>>> load_all(Runtime& runtime, const std::vector<Source>& sources) {
  std::vector<std::shared_ptr<Program>> programs;
  for (const Source& source : sources) {
    GEMMTUNE_TRY(auto program, runtime.load(source));
    programs.push_back(std::move(program));
  }
  return programs;
}

std::vector<Source> dense_reference_sources(const Problem& problem) {
  return {Source{"reference", include_line("backends/gpu/verify/reference.cu"), type_defines(problem),
                 "reference"}};
}

Result<std::unique_ptr<DeviceReference>> make_dense_reference(Runtime& runtime, Device& device,
                                                              const Problem& problem) {
  GEMMTUNE_RETURN_IF_ERROR(accepts_dense(problem, any_dense));
  GEMMTUNE_TRY(auto programs, load_all(runtime, dense_reference_sources(problem)));
  return std::make_unique<DenseReference>(device, problem, std::move(programs.front()));
}

}  // namespace gemmtune::gpu
