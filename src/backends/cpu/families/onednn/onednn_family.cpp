#include "backends/cpu/families/onednn/onednn_family.h"

#include <cstring>
#include <new>
#include <utility>

#include "backends/cpu/families/kernel_set.h"
#include "backends/cpu/machine/memory.h"
#include "backends/cpu/threads/openmp_team.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cpu {
namespace {

std::string_view layout_word(const Problem& problem) {
  return to_string(problem.weight_layout == WeightLayout::plain ? WeightLayout::plain : WeightLayout::onednn);
}

const gemmtune_openmp_functions* functions_of(const ThreadTeam& team) {
  const OpenmpRuntime* const runtime = team.openmp();
  return runtime == nullptr ? nullptr : &runtime->functions;
}

RegionsOf regions_of(const gemmtune_openmp_functions* runtime) {
  return runtime == nullptr ? RegionsOf::ours : RegionsOf::program;
}

class OnednnKernel final : public Kernel {
 public:
  OnednnKernel(std::shared_ptr<const OnednnLibrary> library, gemmtune_onednn_matmul* matmul,
               const Problem& problem, int threads, const ThreadTeam& team)
      : library_(std::move(library)),
        matmul_(matmul),
        threads_(threads),
        team_(team),
        x_(operand_shapes(problem).x),
        y_(operand_shapes(problem).y),
        packed_(problem.weight_layout != WeightLayout::plain) {}
  ~OnednnKernel() override { library_->table().destroy(matmul_); }

  std::size_t workspace_bytes() const override { return library_->table().scratch_bytes(matmul_); }
  WeightLayout weight_layout() const override { return packed_ ? WeightLayout::onednn : WeightLayout::plain; }

  Status run(const Operands& operands, void* workspace, Stream) const override {
    const bool x_strided = is_strided(x_, operands.ldx);
    const bool y_strided = is_strided(y_, operands.ldy);
    if (x_strided || y_strided) return run_strided(operands, workspace, x_strided, y_strided);
    return execute(operands, operands.x, operands.y, workspace);
  }

 private:
  static bool is_strided(const MatrixShape& shape, std::int64_t leading) {
    return shape.lines() > 1 && leading != shape.line_elements();
  }

  Status execute(const Operands& operands, const void* x, void* y, void* workspace) const {
    const gemmtune_onednn_arguments arguments{x, operands.w, operands.bias,
                                              y, workspace,  functions_of(team_)};
    return with_openmp_team(threads_, regions_of(arguments.openmp),
                            [&] { return call_onednn(library_->table().execute, matmul_, &arguments); });
  }

  /// oneDNN's fast code wants dense x and y (it falls to other code or to its reference code otherwise), so
  /// strided ones go through dense copies, allocated for this call.
  Status run_strided(const Operands& operands, void* workspace, bool x_strided, bool y_strided) const {
    std::unique_ptr<Buffer> x_copy;
    std::unique_ptr<Buffer> y_copy;
    if (x_strided) {
      GEMMTUNE_TRY(x_copy, allocate_memory(static_cast<std::size_t>(x_.bytes()), Placement::plain));
      copy_lines(x_, x_copy->data(), x_.line_elements(), operands.x, operands.ldx);
    }
    if (y_strided) {
      GEMMTUNE_TRY(y_copy, allocate_memory(static_cast<std::size_t>(y_.bytes()), Placement::plain));
    }
    GEMMTUNE_RETURN_IF_ERROR(execute(operands, x_copy ? x_copy->data() : operands.x,
                                     y_copy ? y_copy->data() : operands.y, workspace));
    if (y_copy) copy_lines(y_, operands.y, operands.ldy, y_copy->data(), y_.line_elements());
    return {};
  }

  /// The lines of a matrix between places with these leading dimensions.
  static void copy_lines(const MatrixShape& shape, void* to, std::int64_t to_leading, const void* from,
                         std::int64_t from_leading) {
    const auto length = static_cast<std::size_t>(bytes_of(shape.type, shape.line_elements()));
    for (std::int64_t line = 0; line < shape.lines(); ++line) {
      std::memcpy(static_cast<std::byte*>(to) + bytes_of(shape.type, line * to_leading),
                  static_cast<const std::byte*>(from) + bytes_of(shape.type, line * from_leading), length);
    }
  }

  std::shared_ptr<const OnednnLibrary> library_;
  gemmtune_onednn_matmul* matmul_;
  int threads_;
  const ThreadTeam& team_;
  MatrixShape x_;
  MatrixShape y_;
  bool packed_;
};

/// Requires a type that oneDNN has.
gemmtune_onednn_weight weight_of(const Problem& problem, int threads, const ThreadTeam& team) {
  return {problem.n,
          problem.k,
          onednn_type(problem.w_type).value_or(gemmtune_onednn_f32),
          threads,
          problem.w_order == Order::column_major ? 1 : 0,
          functions_of(team)};
}

}  // namespace

OnednnFamily::OnednnFamily(std::shared_ptr<const OnednnLibrary> library, int threads, const ThreadTeam* team)
    : library_(std::move(library)), threads_(threads), team_(team) {}

Status OnednnFamily::accepts(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(refusal::check_plain_gemm(problem, refusal::Orders::any_input));
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  if (problem.weight_layout == WeightLayout::panel16) {
    return refusal::refuse(refusal::layout, "panel16 is not oneDNN's own");
  }
  const Status taken = library_->takes(problem.x_type, problem.y_type, problem.bias);
  if (taken.ok()) return {};
  return refusal::refuse(refusal::types, "{} to {}{} with oneDNN {} on this CPU: {}",
                         to_string(problem.x_type), to_string(problem.y_type),
                         problem.bias ? " and bias" : "", library_->version(), taken.message());
}

std::optional<WeightLayout> OnednnFamily::packed_layout(const Problem&) const { return WeightLayout::onednn; }

Space OnednnFamily::space(const Problem& problem) const {
  Space space;
  add_layout_parameter(layout_word(problem), space);
  return space;
}

Config OnednnFamily::default_config(const Problem& problem) const {
  Config config;
  config.set("w", std::string(layout_word(problem)));
  return config;
}

Result<std::unique_ptr<Kernel>> OnednnFamily::build(const Problem& problem, const Config&) const {
  const auto y_type = onednn_type(problem.y_type);
  gemmtune_onednn_problem asked{};
  asked.weight = weight_of(problem, threads_, *team_);
  asked.m = problem.m;
  asked.y_type = y_type.value_or(gemmtune_onednn_f32);
  asked.bias = problem.bias ? 1 : 0;
  asked.packed = problem.weight_layout == WeightLayout::plain ? 0 : 1;
  asked.x_columns = problem.x_order == Order::column_major ? 1 : 0;
  gemmtune_onednn_matmul* matmul = nullptr;
  const Status status = call_onednn(library_->table().create, &asked, &matmul);
  if (status.code() == StatusCode::out_of_memory) throw std::bad_alloc();  // as of our own kernels
  if (!status.ok()) return Status::unsupported("onednn: {}: {}", short_name(problem), status.message());
  std::unique_ptr<gemmtune_onednn_matmul, void (*)(gemmtune_onednn_matmul*)> owned(matmul,
                                                                                   library_->table().destroy);
  const std::string_view implementation = library_->table().implementation(matmul);
  if (implementation.starts_with("ref")) {
    return asked.packed != 0
               ? refusal::refuse(refusal::layout, "oneDNN packs this weight otherwise for M = {}", problem.m)
               : refusal::refuse(refusal::types, "oneDNN has only its reference code for {}",
                                 short_name(problem));
  }
  auto kernel = std::make_unique<OnednnKernel>(library_, matmul, problem, threads_, *team_);
  (void)owned.release();  // the kernel destroys it
  return kernel;
}

Result<std::size_t> OnednnFamily::packed_bytes(const Problem& problem) const {
  GEMMTUNE_RETURN_IF_ERROR(accepts(problem));
  const gemmtune_onednn_weight weight = weight_of(problem, threads_, *team_);
  std::size_t bytes = 0;
  GEMMTUNE_RETURN_IF_ERROR(call_onednn(library_->table().packed_bytes, &weight, &bytes));
  return round_up(bytes,
                  std::size_t{64});  // without bf16 instructions oneDNN keeps the plain form, of any size
}

Status OnednnFamily::pack(const Problem& problem, const void* plain, void* packed) const {
  GEMMTUNE_RETURN_IF_ERROR(accepts(problem));
  const gemmtune_onednn_weight weight = weight_of(problem, threads_, *team_);
  return with_openmp_team(threads_, regions_of(weight.openmp),
                          [&] { return call_onednn(library_->table().pack, &weight, plain, packed); });
}

Status OnednnFamily::unpack(const Problem& problem, const void* packed, void* plain) const {
  GEMMTUNE_RETURN_IF_ERROR(accepts(problem));
  const gemmtune_onednn_weight weight = weight_of(problem, threads_, *team_);
  return with_openmp_team(threads_, regions_of(weight.openmp),
                          [&] { return call_onednn(library_->table().unpack, &weight, packed, plain); });
}

}  // namespace gemmtune::cpu
