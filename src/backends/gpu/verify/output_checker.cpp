#include "backends/gpu/verify/output_checker.h"

#include <cstddef>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/verify/compare_arguments.h"
#include "backends/gpu/verify/device_reference.h"
#include "backends/gpu/verify/same_arguments.h"
#include "problem/operands.h"

namespace gemmtune::gpu {

namespace {

constexpr unsigned block_threads = 256;
constexpr unsigned blocks_of_same = 1024;
constexpr std::size_t memory_share = 4;  // a quarter of what is free

#define GEMMTUNE_SAME_OFFSET(field)                                                 \
  static_assert(offsetof(RowFigures, field) == offsetof(DeviceRowFigures, field) && \
                sizeof(RowFigures::field) == sizeof(DeviceRowFigures::field))
GEMMTUNE_SAME_OFFSET(error);
GEMMTUNE_SAME_OFFSET(reference);
GEMMTUNE_SAME_OFFSET(magnitude);
GEMMTUNE_SAME_OFFSET(product);
GEMMTUNE_SAME_OFFSET(output);
GEMMTUNE_SAME_OFFSET(max_output);
GEMMTUNE_SAME_OFFSET(max_error);
GEMMTUNE_SAME_OFFSET(max_exact_error);
GEMMTUNE_SAME_OFFSET(worst_excess);
GEMMTUNE_SAME_OFFSET(worst_output);
GEMMTUNE_SAME_OFFSET(worst_reference);
GEMMTUNE_SAME_OFFSET(worst_column);
GEMMTUNE_SAME_OFFSET(checked);
GEMMTUNE_SAME_OFFSET(misrounded);
GEMMTUNE_SAME_OFFSET(outside);
GEMMTUNE_SAME_OFFSET(not_finite);
GEMMTUNE_SAME_OFFSET(unwritten);
GEMMTUNE_SAME_OFFSET(first_not_finite);
GEMMTUNE_SAME_OFFSET(padding_written);
#undef GEMMTUNE_SAME_OFFSET
static_assert(sizeof(RowFigures) == sizeof(DeviceRowFigures));

/// The comparison with the reference, and that of two outputs. Of x and w they know nothing: one program serves all of them.
std::vector<Source> comparison_sources(const Problem& problem) {
  return {Source{"compare",
                 include_line("backends/gpu/verify/compare.cu"),
                 {"ELEMENT=2", fmt::format("OUTPUT={}", element_code(problem.y_type))},
                 "compare"},
          Source{"same", include_line("backends/gpu/verify/same.cu"), {}, "same"}};
}

class GpuOutputChecker final : public OutputChecker {
 public:
  GpuOutputChecker(Device& device, const Problem& problem) : device_(device), problem_(problem) {}

  Status make(Runtime& runtime) {
    const auto elements = static_cast<std::size_t>(rows() * columns());
    const std::size_t bytes = elements * (sizeof(double) + sizeof(float));
    if (bytes > device_.free_memory_bytes() / memory_share) {
      return Status::out_of_memory("no {} bytes of device memory for the reference of {}", bytes,
                                   short_name(problem_));
    }
    GEMMTUNE_TRY(reference_, is_mixture(problem_) ? make_moe_reference(runtime, device_, problem_)
                                                  : make_dense_reference(runtime, device_, problem_));
    GEMMTUNE_TRY(programs_, load_all(runtime, comparison_sources(problem_)));
    GEMMTUNE_RETURN_IF_ERROR(reserve(values_, elements * sizeof(double)));
    GEMMTUNE_RETURN_IF_ERROR(reserve(magnitudes_, elements * sizeof(float)));
    GEMMTUNE_RETURN_IF_ERROR(reserve(rows_, static_cast<std::size_t>(rows()) * sizeof(RowFigures)));
    return reserve(differences_, sizeof(unsigned));
  }

  Status compute_reference(const Operands& operands) override {
    return reference_->compute(operands, static_cast<double*>(values_->data()),
                               static_cast<float*>(magnitudes_->data()));
  }

  Status read_row(std::int64_t row, std::span<double> values, std::span<float> magnitudes) override {
    const auto n = static_cast<std::size_t>(columns());
    const std::size_t first = static_cast<std::size_t>(row) * n;
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_out(
        values.data(), static_cast<const double*>(values_->data()) + first, n * sizeof(double)));
    return device_.copy_out(magnitudes.data(), static_cast<const float*>(magnitudes_->data()) + first,
                            n * sizeof(float));
  }

  Result<std::vector<RowFigures>> compare(const void* y, std::int64_t ldy,
                                          const Tolerance& tolerance) override {
    CompareArguments values{y,
                            static_cast<const double*>(values_->data()),
                            static_cast<const float*>(magnitudes_->data()),
                            static_cast<DeviceRowFigures*>(rows_->data()),
                            columns(),
                            ldy,
                            tolerance.absolute,
                            tolerance.relative,
                            tolerance.output_epsilon,
                            tolerance.output_tiny,
                            tolerance.element_factor};
    LaunchShape shape;
    shape.threads = block_threads;
    shape.grid[0] = static_cast<unsigned>(rows());
    GEMMTUNE_RETURN_IF_ERROR(run(0, shape, &values));
    std::vector<RowFigures> figures(static_cast<std::size_t>(rows()));
    GEMMTUNE_RETURN_IF_ERROR(
        device_.copy_out(figures.data(), rows_->data(), figures.size() * sizeof(RowFigures)));
    return figures;
  }

  Result<bool> same(const void* one, const void* other, std::size_t bytes) override {
    GEMMTUNE_RETURN_IF_ERROR(device_.fill(differences_->data(), 0, sizeof(unsigned)));
    SameArguments values{static_cast<const unsigned*>(one), static_cast<const unsigned*>(other),
                         static_cast<unsigned*>(differences_->data()), static_cast<long long>(bytes)};
    LaunchShape shape;
    shape.threads = block_threads;
    shape.grid[0] = blocks_of_same;
    GEMMTUNE_RETURN_IF_ERROR(run(1, shape, &values));
    unsigned differences = 0;
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_out(&differences, differences_->data(), sizeof(differences)));
    return differences == 0;
  }

 private:
  /// Of y, of all batches.
  std::int64_t rows() const { return problem_.batch * problem_.m; }
  std::int64_t columns() const { return output_columns(problem_); }

  Status reserve(std::unique_ptr<Buffer>& buffer, std::size_t bytes) {
    GEMMTUNE_TRY(buffer, device_.allocate(bytes, Placement::plain));
    return {};
  }

  Status run(std::size_t program, const LaunchShape& shape, void* values) {
    void* arguments[] = {values};
    GEMMTUNE_RETURN_IF_ERROR(programs_[program]->launch(shape, arguments, {}));
    return device_.synchronize();
  }

  Device& device_;
  Problem problem_;
  std::unique_ptr<DeviceReference> reference_;
  std::vector<std::shared_ptr<Program>> programs_;  // as comparison_sources() has them
  std::unique_ptr<Buffer> values_;                  // [B, M, N] float64
  std::unique_ptr<Buffer> magnitudes_;              // [B, M, N] float32
  std::unique_ptr<Buffer> rows_;                    // [B, M] RowFigures
  std::unique_ptr<Buffer> differences_;
};

}  // namespace

std::vector<Source> checker_sources(const Problem& problem) {
  std::vector<Source> sources =
      is_mixture(problem) ? moe_reference_sources(problem) : dense_reference_sources(problem);
  for (Source& source : comparison_sources(problem)) sources.push_back(std::move(source));
  return sources;
}

Result<std::unique_ptr<OutputChecker>> make_output_checker(Device& device, Runtime& runtime,
                                                           const Problem& problem) {
  auto checker = std::make_unique<GpuOutputChecker>(device, problem);
  GEMMTUNE_RETURN_IF_ERROR(checker->make(runtime));
  return checker;
}

}  // namespace gemmtune::gpu
