// cublaslt: NVIDIA's library, by its own heuristic's choices.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/cublaslt/algorithm.h"
#include "backends/cuda/families/cublaslt/enumeration.h"
#include "backends/cuda/families/cublaslt/expand_scale_arguments.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/runtime.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {

namespace {

/// What a user of the library gives it: the baseline's, and so every candidate's.
constexpr std::size_t workspace_limit = std::size_t{64} << 20;

constexpr std::int64_t expand_threads = 256;

bool has_row_scales(const Problem& problem) { return quantization(problem) == QuantType::per_token; }
LtScales scales_of(const Problem& problem) {
  return has_row_scales(problem) ? LtScales::rows : LtScales::matrix;
}

/// A problem and the algorithm that computes it.
struct LtCall {
  LtProblem described;
  api::LtHeuristic chosen;
};

/// The library has scales of rows of both operands, or one of each: `per_matrix` is the second kind of call. If only one
/// operand's scales are of rows, or if the library has no such call, `expand` repeats a scale in the workspace; null:
/// there is no compiler.
struct ScaleForms {
  std::optional<LtCall> per_matrix;
  std::shared_ptr<gpu::Program> expand;
};

class CublasLtKernel final : public Kernel {
 public:
  CublasLtKernel(const CudaDriver& driver, const api::CublasLt& lt, api::LtHandle handle,
                 const Problem& problem, const LtCall& call, ScaleForms forms)
      : driver_(driver),
        lt_(lt),
        handle_(handle),
        problem_(problem),
        dense_ldx_(operand_shapes(problem).x.line_elements()),
        call_(call),
        forms_(std::move(forms)),
        library_workspace_(std::max(call.chosen.workspace_bytes,
                                    forms_.per_matrix ? forms_.per_matrix->chosen.workspace_bytes : 0)) {
    if (has_row_scales(problem)) library_workspace_ = round_up(library_workspace_, std::size_t{256});
  }

  std::size_t workspace_bytes() const override {
    if (!has_row_scales(problem_)) return library_workspace_;
    const std::int64_t rows = round_up(problem_.m, expand_threads) + problem_.n;
    return library_workspace_ + static_cast<std::size_t>(rows) * sizeof(float);
  }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

  // Descriptors are plain bytes: a copy a call keeps the kernel immutable.
  Status run(const Operands& o, void* workspace, Stream stream) const override {
    driver_.enter();
    const void* x_scale = o.x_scale;
    const void* w_scale = o.w_scale;
    const bool row_scales = has_row_scales(problem_);
    const bool per_matrix = row_scales && forms_.per_matrix && o.x_scale_step == 0 && o.w_scale_step == 0;
    if (row_scales && !per_matrix)
      GEMMTUNE_RETURN_IF_ERROR(expand_scales(o, workspace, stream, x_scale, w_scale));
    const LtCall& used = per_matrix ? *forms_.per_matrix : call_;
    LtProblem call = used.described;
    int bad = 0;
    const auto point = [&](int attribute, const void* pointer) {
      bad |= lt_.matmul_set(&call.matmul, attribute, &pointer, sizeof(pointer));
    };
    if (problem_.bias) point(api::matmul_bias_pointer, o.bias);
    if (problem_.scale_ab || row_scales) {
      point(api::matmul_a_scale_pointer, w_scale);
      point(api::matmul_b_scale_pointer, x_scale);
    }
    if (o.ldx != dense_ldx_)
      bad |= lt_.layout_set(&call.x, api::layout_leading_dimension, &o.ldx, sizeof(o.ldx));
    if (o.ldy != problem_.n)
      bad |= lt_.layout_set(&call.y, api::layout_leading_dimension, &o.ldy, sizeof(o.ldy));
    if (problem_.batch > 1) {
      bad |= lt_.layout_set(&call.x, api::layout_batch_stride, &o.x_batch_stride, sizeof(o.x_batch_stride));
      bad |= lt_.layout_set(&call.y, api::layout_batch_stride, &o.y_batch_stride, sizeof(o.y_batch_stride));
    }
    const float one = 1.0F;
    const float zero = 0.0F;
    const int status = bad != 0 ? bad
                                : lt_.matmul(handle_, &call.matmul, &one, o.w, &call.w, o.x, &call.x, &zero,
                                             o.y, &call.y, o.y, &call.y, &used.chosen.algorithm, workspace,
                                             library_workspace_, driver_.stream_of(stream));
    if (status == 0) return {};
    return Status(status == api::lt_not_supported ? StatusCode::unsupported : StatusCode::internal,
                  fmt::format("cublaslt: {} with ldx = {}, ldy = {}: {}", short_name(problem_), o.ldx, o.ldy,
                              lt_.status_text(status)));
  }

 private:
  /// Lets scales that are one for all rows be one for each.
  Status expand_scales(const Operands& o, void* workspace, Stream stream, const void*& x_scale,
                       const void*& w_scale) const {
    auto* room = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + library_workspace_);
    if (o.x_scale_step == 0) GEMMTUNE_RETURN_IF_ERROR(expand(x_scale, room, problem_.m, stream));
    room += round_up(problem_.m, expand_threads);
    return o.w_scale_step == 0 ? expand(w_scale, room, problem_.n, stream) : Status();
  }
  Status expand(const void*& scale, float* to, std::int64_t count, Stream stream) const {
    if (forms_.expand == nullptr)
      return Status::unsupported("cublaslt: without NVRTC it takes scales of rows of both operands only");
    ExpandScaleArguments values{static_cast<const float*>(scale), to, count};
    void* arguments[] = {&values};
    gpu::LaunchShape shape;
    shape.threads = expand_threads;
    shape.grid[0] = static_cast<unsigned>(ceil_div(count, expand_threads));
    scale = to;
    return forms_.expand->launch(shape, arguments, stream);
  }

  const CudaDriver& driver_;
  const api::CublasLt& lt_;
  api::LtHandle handle_;
  Problem problem_;
  std::int64_t dense_ldx_;
  LtCall call_;
  ScaleForms forms_;
  std::size_t library_workspace_;  // repeated scales follow
};

bool is_fast(const Config& config) { return config.number(fast_key, 0) != 0; }

/// One of the library's proposals.
struct Proposal {
  Config config;
  api::LtHeuristic heuristic;
};

class CublasLtFamily final : public LeafFamily {
 public:
  CublasLtFamily(gpu::Runtime& runtime, const CudaDriver& driver, const api::CublasLt& lt,
                 api::LtHandle handle, const Library& library)
      : runtime_(runtime), driver_(driver), lt_(lt), handle_(handle), version_(library.version) {}
  ~CublasLtFamily() override {
    driver_.enter();
    lt_.destroy(handle_);
  }

  std::string_view name() const override { return "cublaslt"; }
  int tie_rank() const override { return 0; }
  Status accepts(const Problem& problem) const override;
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }
  Space space(const Problem& problem) const override { return space_of(problem, proposed(problem)); }
  Space exhaustive_space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override { return proposals(problem)->front().config; }
  Config fast_config(const Problem& problem) const override;
  Accuracy accuracy(const Problem& problem, const Config& config) const override {
    return traits(problem.x_type).fp8 && is_fast(config) ? Accuracy::tensor_core : Accuracy::fp32;
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override;
  double predicted_microseconds(const Problem& problem, const Config& config) const override;
  std::int64_t resources(const Problem& problem, const Config& config) const override;
  std::string_view thread_pool() const override { return "gpu"; }

 private:
  using Proposals = std::shared_ptr<const std::vector<Proposal>>;
  Proposals proposals(const Problem& problem) const;
  std::vector<Config> proposed(const Problem& problem) const;
  static Space space_of(const Problem& problem, std::vector<Config> configs);
  const Proposal* find(const std::vector<Proposal>& list, const Config& config) const;
  ScaleForms scale_forms(const Problem& problem, const Config& config) const;

  gpu::Runtime& runtime_;
  const CudaDriver& driver_;
  const api::CublasLt& lt_;
  api::LtHandle handle_;
  std::string version_;
  mutable std::mutex asking_;
  mutable std::map<std::string, Proposals> asked_;  // by problem; guarded by asking_
};

Status CublasLtFamily::accepts(const Problem& problem) const {
  if (quantization(problem) == QuantType::per_1x128)
    return refusal::refuse(refusal::order,
                           "the library reads scales of 1 x 128 of x column by column, not row by row");
  GEMMTUNE_RETURN_IF_ERROR(gpu::accepts_dense(
      problem, {.orders = refusal::Orders::any_input, .row_scales = true, .batches = true}));
  if (traits(problem.operation).batched && has_row_scales(problem))
    return refusal::refuse(refusal::batch, "the library has no scales of rows of batches");
  if (proposals(problem)->empty())
    return Status::unsupported("problem: the library proposes nothing for {}", short_name(problem));
  return {};
}

CublasLtFamily::Proposals CublasLtFamily::proposals(const Problem& problem) const {
  const std::string key = print(problem);
  {
    const std::lock_guard lock(asking_);
    if (const auto found = asked_.find(key); found != asked_.end()) return found->second;
  }
  driver_.enter();
  auto list = std::make_shared<std::vector<Proposal>>();
  for (const bool fast : {false, true}) {
    auto described = describe(lt_, problem, fast, scales_of(problem));
    if (!described.ok()) continue;
    for (const api::LtHeuristic& one :
         heuristics(lt_, handle_, *described, problem.alignment, workspace_limit)) {
      Config config = config_of(lt_, *described, one.algorithm);
      if (find(*list, config) == nullptr) list->push_back({std::move(config), one});
    }
  }
  const std::lock_guard lock(asking_);
  return asked_.try_emplace(key, std::move(list)).first->second;
}

const Proposal* CublasLtFamily::find(const std::vector<Proposal>& list, const Config& config) const {
  for (const Proposal& one : list)
    if (one.config == config) return &one;
  return nullptr;
}

std::vector<Config> CublasLtFamily::proposed(const Problem& problem) const {
  std::vector<Config> configs;
  for (const Proposal& one : *proposals(problem)) configs.push_back(one.config);
  return configs;
}

Config CublasLtFamily::fast_config(const Problem& problem) const {
  const Proposals list = proposals(problem);
  const auto fast = std::ranges::find_if(*list, [](const Proposal& one) { return is_fast(one.config); });
  return fast == list->end() ? list->front().config : fast->config;
}

/// The library's proposals first, in its order.
Space CublasLtFamily::exhaustive_space(const Problem& problem) const {
  std::vector<Config> configs = proposed(problem);
  driver_.enter();
  std::set<std::string> known;
  for (const Config& config : configs) known.insert(config.text());
  for (const bool fast : {false, true}) {
    auto described = describe(lt_, problem, fast, scales_of(problem));
    if (!described.ok()) continue;
    for (Config& config : enumerate_algorithms(lt_, handle_, *described, workspace_limit)) {
      if (!known.contains(config.text())) configs.push_back(std::move(config));
    }
  }
  return space_of(problem, std::move(configs));
}

Space CublasLtFamily::space_of(const Problem& problem, std::vector<Config> configs) {
  Space space;
  for (Parameter& parameter : algorithm_parameters()) {
    std::set<std::int64_t> proposed;
    for (const Config& config : configs) proposed.insert(config.number(parameter.key));
    for (const std::int64_t value : proposed) parameter.values.push_back(std::to_string(value));
    space.add(std::move(parameter));
  }
  Parameter fast{fast_key, {}, "0", "1: fast accumulation, which the tensor core keeps over all of k"};
  if (traits(problem.x_type).fp8) fast.values = {"0", "1"};
  space.add(std::move(fast));
  space.list(std::move(configs));
  return space;
}

Result<std::unique_ptr<Kernel>> CublasLtFamily::build(const Problem& problem, const Config& config) const {
  driver_.enter();
  GEMMTUNE_TRY(auto described, describe(lt_, problem, is_fast(config), scales_of(problem)));
  const Proposals list = proposals(problem);
  const Proposal* proposed = find(*list, config);
  GEMMTUNE_TRY(auto chosen, proposed != nullptr ? Result<api::LtHeuristic>(proposed->heuristic)
                                                : algorithm_of(lt_, handle_, described, config));
  return std::make_unique<CublasLtKernel>(
      driver_, lt_, handle_, problem, LtCall{described, chosen},
      has_row_scales(problem) ? scale_forms(problem, config) : ScaleForms());
}

/// With one scale of each operand: the same algorithm if the library takes it so, else its first proposal.
ScaleForms CublasLtFamily::scale_forms(const Problem& problem, const Config& config) const {
  ScaleForms forms;
  auto program = runtime_.load({"expand_scale",
                                gpu::include_line("backends/cuda/families/cublaslt/expand_scale.cu"),
                                {},
                                "expand_scale"});
  if (program.ok()) forms.expand = std::move(*program);
  auto described = describe(lt_, problem, is_fast(config), LtScales::matrix);
  if (!described.ok()) return forms;
  auto chosen = algorithm_of(lt_, handle_, *described, config);
  if (chosen.ok() && chosen->workspace_bytes <= workspace_limit) {
    forms.per_matrix = LtCall{*described, *chosen};
    return forms;
  }
  const auto others = heuristics(lt_, handle_, *described, problem.alignment, workspace_limit);
  if (!others.empty()) forms.per_matrix = LtCall{*described, others.front()};
  return forms;
}

/// The library's own order, about a roofline that the other families share: its first choice goes first, with
/// either accumulation.
double CublasLtFamily::predicted_microseconds(const Problem& problem, const Config& config) const {
  const Proposals list = proposals(problem);
  const Proposal* proposed = find(*list, config);
  const auto end = proposed != nullptr ? list->begin() + (proposed - list->data()) : list->end();
  const auto place = std::count_if(
      list->begin(), end, [&](const Proposal& one) { return is_fast(one.config) == is_fast(config); });
  const double roofline = std::max(bytes(problem) / 4.3e6, flops(problem) / 790e6);
  return (roofline + 2) * (1.3 + 0.05 * static_cast<double>(place));
}

std::int64_t CublasLtFamily::resources(const Problem& problem, const Config& config) const {
  const Proposals list = proposals(problem);
  const Proposal* proposed = find(*list, config);
  return proposed != nullptr ? static_cast<std::int64_t>(proposed->heuristic.workspace_bytes) : 0;
}

/// nullptr where the library is missing. Both must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_cublaslt_family(gpu::Runtime& runtime, const CudaDriver& driver,
                                                   const std::string& library_folder) {
  const auto& opened = cublas_lt(library_folder);
  if (!opened.ok()) return nullptr;
  driver.enter();
  const CaptureUntouched untouched(driver.functions());
  api::LtHandle handle = nullptr;
  if (opened.functions.create(&handle) != 0) return nullptr;
  return std::make_unique<CublasLtFamily>(runtime, driver, opened.functions, handle, opened.description);
}

}  // namespace

const gpu::FamilyEntry& cublaslt_entry() {
  static const gpu::FamilyEntry entry{
      // Its accumulation of the class fp32 is slow: 2.5 times our kernels' time at M = 1.
      .info = {.name = "cublaslt",
               .rank = 10,
               .aliases = "hipblaslt,hipblast,torch",
               .vendor = true,
               .fallback_rank = 10,
               .row_scales_rank = 37},
      .compiled = false,
      .make = [](const gpu::FamilyContext& context) {
        return make_cublaslt_family(context.runtime, driver_of(context), context.library_folder);
      }};
  return entry;
}

}  // namespace gemmtune::cuda
