// hipblaslt: AMD's library, solution by solution.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "backends/gpu/families/element_code.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/hip/families/hipblaslt/handles.h"
#include "backends/hip/families/hipblaslt/solution.h"
#include "backends/hip/hip_driver.h"
#include "backends/hip/libraries.h"
#include "base/text.h"
#include "problem/operands.h"

namespace gemmtune::hip {
namespace {

class HipblasLtKernel final : public Kernel {
 public:
  HipblasLtKernel(const HipDriver& driver, const api::HipblasLt& lt, const LtHandles& handles,
                  const Problem& problem, LtDescription description, Solution solution)
      : driver_(driver),
        lt_(lt),
        handles_(handles),
        problem_(problem),
        strides_{.ldx = operand_shapes(problem).x.line_elements(),
                 .ldy = problem.n,
                 .x_batch = problem.m * problem.k,
                 .y_batch = problem.m * problem.n},
        description_(std::move(description)),
        solution_(std::move(solution)) {}
  ~HipblasLtKernel() override { driver_.enter(); }

  std::size_t workspace_bytes() const override { return solution_.workspace_bytes; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

  // The library's descriptors hold the pointers of a call and cannot be copied: calls take turns until they are
  // enqueued.
  Status run(const Operands& o, void* workspace, Stream stream) const override {
    driver_.enter();
    const api::HipStream there = driver_.stream_of(stream);
    GEMMTUNE_TRY(const auto handle, handles_.of(there));
    const std::lock_guard lock(enqueuing_);
    int bad = 0;
    const auto point = [&](int attribute, const void* pointer) {
      if (bad == 0) bad = description_.set(attribute, &pointer, sizeof(pointer));
    };
    if (problem_.bias) point(api::matmul_bias_pointer, o.bias);
    if (problem_.scale_ab) {
      point(api::matmul_a_scale_pointer, o.w_scale);
      point(api::matmul_b_scale_pointer, o.x_scale);
    }
    if (bad == 0) bad = set_strides({o.ldx, o.ldy, o.x_batch_stride, o.y_batch_stride});
    const float one = 1.0F;
    const float zero = 0.0F;
    const int status = bad != 0
                           ? bad
                           : lt_.matmul(handle, description_.matmul, &one, o.w, description_.w, o.x,
                                        description_.x, &zero, o.y, description_.y, o.y, description_.y,
                                        &solution_.algorithm, workspace, solution_.workspace_bytes, there);
    if (status == 0) return {};
    return Status(status == api::lt_not_supported ? StatusCode::unsupported : StatusCode::internal,
                  fmt::format("hipblaslt: {} with ldx = {}, ldy = {}: status {}", short_name(problem_), o.ldx,
                              o.ldy, status));
  }

 private:
  /// Between rows and between batches, in elements.
  struct Strides {
    std::int64_t ldx, ldy, x_batch, y_batch;
    bool operator==(const Strides&) const = default;
  };

  int set_strides(Strides strides) const {
    if (problem_.batch == 1) {
      strides.x_batch = strides_.x_batch;
      strides.y_batch = strides_.y_batch;
    }
    if (strides == strides_) return 0;
    int bad = 0;
    const auto set = [&](api::LtLayout layout, int attribute, std::int64_t& now, std::int64_t wanted) {
      if (bad == 0 && now != wanted) bad = lt_.layout_set(layout, attribute, &wanted, sizeof(wanted));
      if (bad == 0) now = wanted;
    };
    set(description_.x, api::layout_leading_dimension, strides_.ldx, strides.ldx);
    set(description_.y, api::layout_leading_dimension, strides_.ldy, strides.ldy);
    set(description_.x, api::layout_batch_stride, strides_.x_batch, strides.x_batch);
    set(description_.y, api::layout_batch_stride, strides_.y_batch, strides.y_batch);
    return bad;
  }

  const HipDriver& driver_;
  const api::HipblasLt& lt_;
  const LtHandles& handles_;
  Problem problem_;
  mutable std::mutex enqueuing_;
  mutable Strides strides_;    // that the description has; guarded by enqueuing_
  LtDescription description_;  // guarded by enqueuing_
  Solution solution_;
};

class HipblasLtFamily final : public LeafFamily {
 public:
  HipblasLtFamily(const HipDriver& driver, const api::HipblasLt& lt, std::unique_ptr<LtHandles> handles,
                  std::string build)
      : driver_(driver), lt_(lt), handles_(std::move(handles)), build_(std::move(build)) {}

  std::string_view name() const override { return "hipblaslt"; }
  int tie_rank() const override { return 0; }
  Status accepts(const Problem& problem) const override;
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }
  Space space(const Problem& problem) const override { return space_of(configs_of(*proposals(problem))); }
  Space exhaustive_space(const Problem& problem) const override;
  Config default_config(const Problem& problem) const override {
    return config_of(proposals(problem)->front(), build_);
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override;
  double predicted_microseconds(const Problem& problem, const Config& config) const override;
  std::int64_t resources(const Problem& problem, const Config& config) const override;
  std::string_view thread_pool() const override { return "gpu"; }

 private:
  using Solutions = std::shared_ptr<const std::vector<Solution>>;
  Solutions proposals(const Problem& problem) const;
  std::vector<Config> configs_of(const std::vector<Solution>& solutions) const {
    std::vector<Config> configs;
    for (const Solution& solution : solutions) configs.push_back(config_of(solution, build_));
    return configs;
  }
  Space space_of(std::vector<Config> configs) const;
  Result<Solution> wanted(const LtDescription& description, const Problem& problem,
                          const Config& config) const;

  const HipDriver& driver_;
  const api::HipblasLt& lt_;
  std::unique_ptr<LtHandles> handles_;
  std::string build_;  // of the library: its version and revision
  mutable std::mutex asking_;
  mutable std::map<std::string, Solutions> asked_;  // by problem; guarded by asking_
};

Status HipblasLtFamily::accepts(const Problem& problem) const {
  Problem in_ocp = problem;  // the library has AMD's own fp8 too
  for (DataType* type : {&in_ocp.x_type, &in_ocp.w_type})
    if (*type == DataType::f8_e4m3fnuz) *type = DataType::f8_e4m3fn;
  GEMMTUNE_RETURN_IF_ERROR(
      gpu::accepts_dense(in_ocp, {.orders = refusal::Orders::any_input, .batches = true}));
  if (proposals(problem)->empty())
    return Status::unsupported("problem: the library proposes nothing for {}", short_name(problem));
  return {};
}

HipblasLtFamily::Solutions HipblasLtFamily::proposals(const Problem& problem) const {
  const std::string key = print(problem);
  {
    const std::lock_guard lock(asking_);
    if (const auto found = asked_.find(key); found != asked_.end()) return found->second;
  }
  driver_.enter();
  auto list = std::make_shared<std::vector<Solution>>();
  if (const auto description = LtDescription::make(lt_, problem); description.ok())
    *list = proposed_solutions(lt_, handles_->first(), *description);
  const std::lock_guard lock(asking_);
  return asked_.try_emplace(key, std::move(list)).first->second;
}

/// The library's proposals first, in its order.
Space HipblasLtFamily::exhaustive_space(const Problem& problem) const {
  std::vector<Config> configs = configs_of(*proposals(problem));
  driver_.enter();
  std::set<std::string> known;
  for (const Config& config : configs) known.insert(config.text());
  const auto description = LtDescription::make(lt_, problem);
  if (!description.ok()) return space_of(std::move(configs));
  for (Config& config : configs_of(all_solutions(lt_, handles_->first(), *description)))
    if (known.insert(config.text()).second) configs.push_back(std::move(config));
  return space_of(std::move(configs));
}

Space HipblasLtFamily::space_of(std::vector<Config> configs) const {
  Space space;
  Parameter index{index_key, {}, own_choice, "index of the solution"};
  Parameter name{name_key, {}, any_name, "number of the solution's name"};
  index.range = name.range = NumberRange();
  for (const Config& config : configs) {
    index.values.emplace_back(config.word(index_key));
    name.values.emplace_back(config.word(name_key));
  }
  space.add(std::move(index));
  space.add(std::move(name));
  Parameter build{build_key, {}, any_build, "build of hipBLASLt"};
  if (Config::is_value(build_)) build.values.push_back(build_);
  space.add(std::move(build));
  space.list(std::move(configs));
  return space;
}

Result<Solution> HipblasLtFamily::wanted(const LtDescription& description, const Problem& problem,
                                         const Config& config) const {
  if (config.word(index_key, own_choice) == own_choice) return proposals(problem)->front();
  const auto index = static_cast<int>(config.number(index_key));
  GEMMTUNE_TRY(auto solution, solution_of(lt_, handles_->first(), description, index));
  const std::string_view name = config.word(name_key, any_name);
  if (name != any_name && name != name_number(solution.name)) {
    return Status::unsupported(
        "hipblaslt: solution {} is {} in this build of the library, another one than was tuned", index,
        solution.name);
  }
  return solution;
}

Result<std::unique_ptr<Kernel>> HipblasLtFamily::build(const Problem& problem, const Config& config) const {
  driver_.enter();
  GEMMTUNE_TRY(auto description, LtDescription::make(lt_, problem));
  GEMMTUNE_TRY(auto solution, wanted(description, problem, config));
  return std::make_unique<HipblasLtKernel>(driver_, lt_, *handles_, problem, std::move(description),
                                           std::move(solution));
}

/// The library's own order, about a roofline of the MI300X that our families share: its first choice goes first,
/// solutions that it does not propose last.
double HipblasLtFamily::predicted_microseconds(const Problem& problem, const Config& config) const {
  const Solutions list = proposals(problem);
  const std::string_view index = config.word(index_key);
  const auto place = std::ranges::find_if(
      *list, [&](const Solution& solution) { return std::to_string(solution.index) == index; });
  const double roofline = std::max(bytes(problem) / 4.0e6, flops(problem) / 900e6);
  return (roofline + 3) * (1.3 + 0.05 * static_cast<double>(place - list->begin()));
}

std::int64_t HipblasLtFamily::resources(const Problem& problem, const Config& config) const {
  for (const Solution& solution : *proposals(problem))
    if (std::to_string(solution.index) == config.word(index_key))
      return static_cast<std::int64_t>(solution.workspace_bytes);
  return 0;
}

/// nullptr where the library is missing. The driver must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_hipblaslt_family(const HipDriver& driver,
                                                    const std::string& library_folder) {
  const auto& opened = hipblas_lt(library_folder);
  if (!opened.ok()) return nullptr;
  auto handles = LtHandles::open(driver, opened.functions);
  if (!handles) return nullptr;
  return std::make_unique<HipblasLtFamily>(driver, opened.functions, std::move(handles),
                                           opened.description.version);
}

}  // namespace

const gpu::FamilyEntry& hipblaslt_entry() {
  static const gpu::FamilyEntry entry{.info = {.name = "hipblaslt",
                                               .rank = 10,
                                               .aliases = "hipblast,torch",
                                               .vendor = true,
                                               .fallback_rank = 10,
                                               .name_of_row = kernel_name_of_row},
                                      .compiled = false,
                                      .make = [](const gpu::FamilyContext& context) {
                                        return make_hipblaslt_family(driver_of(context),
                                                                     context.library_folder);
                                      }};
  return entry;
}

}  // namespace gemmtune::hip
