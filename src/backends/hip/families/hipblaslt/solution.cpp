#include "backends/hip/families/hipblaslt/solution.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/hash.h"

namespace gemmtune::hip {
namespace {

/// More than an index has ever been proposed for.
constexpr int max_proposals = 128;
constexpr float one = 1.0F;
constexpr float zero = 0.0F;

/// nullopt if the algorithm does not support the problem within the workspace.
std::optional<Solution> supported(const api::HipblasLt& lt, api::LtHandle handle,
                                  const LtDescription& problem, const api::LtAlgorithm& algorithm) {
  Solution solution;
  solution.algorithm = algorithm;
  if (lt.supported(handle, problem.matmul, &one, problem.w, problem.x, &zero, problem.y, problem.y,
                   &solution.algorithm, &solution.workspace_bytes) != 0 ||
      solution.workspace_bytes > workspace_limit)
    return std::nullopt;
  solution.index = lt.index_of(&solution.algorithm);
  solution.name = lt.name_of(handle, &solution.algorithm);
  return solution;
}

/// Each solution once, in the order of `found`.
std::vector<Solution> supported_of(const api::HipblasLt& lt, api::LtHandle handle,
                                   const LtDescription& problem, const std::vector<api::LtHeuristic>& found) {
  std::vector<Solution> solutions;
  std::set<int> seen;
  for (const api::LtHeuristic& each : found) {
    if (each.state != 0) continue;
    auto solution = supported(lt, handle, problem, each.algorithm);
    if (solution && seen.insert(solution->index).second) solutions.push_back(std::move(*solution));
  }
  return solutions;
}

}  // namespace

std::string name_number(std::string_view solution_name) {
  return std::to_string(std::max<std::uint64_t>(1, hash64(solution_name) >> 32));
}

std::string kernel_name_of_row(std::string_view libtype, std::int64_t solution_index,
                               std::string_view kernel_name) {
  Candidate candidate{"hipblaslt", 1, {}};
  if (libtype != "torch" && solution_index >= 0) {
    candidate.config.set(index_key, solution_index);
    const bool is_named = !kernel_name.empty() && kernel_name != "None" && kernel_name != "Null";
    if (is_named) candidate.config.set(name_key, name_number(kernel_name));
  }
  return candidate.kernel_name();
}

int lt_type(DataType type) {
  switch (type) {
    case DataType::f32:
      return api::type_f32;
    case DataType::f16:
      return api::type_f16;
    case DataType::bf16:
      return api::type_bf16;
    case DataType::f8_e4m3fn:
      return api::type_e4m3;
    case DataType::f8_e4m3fnuz:
      return api::type_e4m3_fnuz;
    default:
      return -1;
  }
}

LtDescription& LtDescription::operator=(LtDescription&& other) noexcept {
  std::swap(matmul, other.matmul);
  std::swap(w, other.w);
  std::swap(x, other.x);
  std::swap(y, other.y);
  std::swap(lt_, other.lt_);
  transpose_w = other.transpose_w;
  transpose_x = other.transpose_x;
  element_type = other.element_type;
  output_type = other.output_type;
  return *this;
}

LtDescription::~LtDescription() {
  if (lt_ == nullptr) return;
  for (const api::LtLayout layout : {w, x, y})
    if (layout != nullptr) lt_->layout_destroy(layout);
  if (matmul != nullptr) lt_->matmul_destroy(matmul);
}

Result<LtDescription> LtDescription::make(const api::HipblasLt& lt, const Problem& problem) {
  LtDescription made(lt);
  made.element_type = lt_type(problem.x_type);
  made.output_type = lt_type(problem.y_type);
  const auto n = static_cast<std::uint64_t>(problem.n);
  const auto m = static_cast<std::uint64_t>(problem.m);
  const auto k = static_cast<std::uint64_t>(problem.k);
  // To the library, which is column-major, a row-major w [N, K] is a matrix [K, N] that it has to transpose.
  const bool x_columns = problem.x_order == Order::column_major;
  const bool w_columns = problem.w_order == Order::column_major;
  made.transpose_w = w_columns ? api::operation_none : api::operation_transpose;
  made.transpose_x = x_columns ? api::operation_transpose : api::operation_none;
  int bad = lt.matmul_create(&made.matmul, api::compute_f32, api::type_f32);
  const auto set = [&](int attribute, std::int32_t value) {
    if (bad == 0) bad = made.set(attribute, &value, sizeof(value));
  };
  set(api::matmul_transpose_a, made.transpose_w);
  set(api::matmul_transpose_b, made.transpose_x);
  // Which solutions fit depends on whether there is a bias or a scale, that is on their pointers; a call sets its own.
  const auto stand_in = [&](int attribute) {
    const void* const pointer = &one;
    if (bad == 0) bad = made.set(attribute, &pointer, sizeof(pointer));
  };
  if (problem.bias) {
    set(api::matmul_epilogue, api::epilogue_bias);
    set(api::matmul_bias_type, made.output_type);
    stand_in(api::matmul_bias_pointer);
  }
  if (problem.scale_ab) {
    stand_in(api::matmul_a_scale_pointer);
    stand_in(api::matmul_b_scale_pointer);
  }
  const auto layout = [&](api::LtLayout& target, int type, std::uint64_t rows, std::uint64_t columns) {
    if (bad == 0) bad = lt.layout_create(&target, type, rows, columns, static_cast<std::int64_t>(rows));
    if (bad == 0 && traits(problem.operation).batched) {
      const auto count = static_cast<std::int32_t>(problem.batch);
      const auto stride = static_cast<std::int64_t>(rows * columns);
      bad = lt.layout_set(target, api::layout_batch_count, &count, sizeof(count));
      if (bad == 0) bad = lt.layout_set(target, api::layout_batch_stride, &stride, sizeof(stride));
    }
  };
  layout(made.w, made.element_type, w_columns ? n : k, w_columns ? k : n);
  layout(made.x, made.element_type, x_columns ? m : k, x_columns ? k : m);
  layout(made.y, made.output_type, n, m);
  if (bad != 0)
    return Status::unsupported("hipblaslt: {} cannot be described ({})", short_name(problem), bad);
  return made;
}

Config config_of(const Solution& solution, const std::string& build) {
  Config config{{index_key, std::int64_t{solution.index}}, {name_key, name_number(solution.name)}};
  if (Config::is_value(build)) config.set(build_key, build);
  return config;
}

std::vector<Solution> proposed_solutions(const api::HipblasLt& lt, api::LtHandle handle,
                                         const LtDescription& problem) {
  api::LtPreference preference = nullptr;
  if (lt.preference_create(&preference) != 0) return {};
  const std::uint64_t bytes = workspace_limit;
  lt.preference_set(preference, api::preference_workspace_bytes, &bytes, sizeof(bytes));
  std::vector<api::LtHeuristic> found(max_proposals);
  int count = 0;
  const int status = lt.heuristic(handle, problem.matmul, problem.w, problem.x, problem.y, problem.y,
                                  preference, max_proposals, found.data(), &count);
  lt.preference_destroy(preference);
  found.resize(status == 0 ? static_cast<std::size_t>(std::clamp(count, 0, max_proposals)) : 0);
  return supported_of(lt, handle, problem, found);
}

std::vector<Solution> all_solutions(const api::HipblasLt& lt, api::LtHandle handle,
                                    const LtDescription& problem) {
  std::vector<api::LtHeuristic> found;
  if (lt.all_solutions(handle, api::gemm, problem.transpose_w, problem.transpose_x, problem.element_type,
                       problem.element_type, problem.output_type, problem.output_type, api::compute_f32,
                       &found) != 0)
    return {};
  return supported_of(lt, handle, problem, found);
}

Result<Solution> solution_of(const api::HipblasLt& lt, api::LtHandle handle, const LtDescription& problem,
                             int index) {
  std::vector<int> wanted{index};
  std::vector<api::LtHeuristic> found;
  if (lt.by_index(handle, &wanted, &found) != 0 || found.empty())
    return Status::unsupported("hipblaslt: this build of the library has no solution {}", index);
  auto solution = supported(lt, handle, problem, found.front().algorithm);
  if (!solution) return Status::unsupported("hipblaslt: solution {} does not do this problem", index);
  if (solution->index != index)
    return Status::unsupported("hipblaslt: the library gives solution {} for {}", solution->index, index);
  return std::move(*solution);
}

}  // namespace gemmtune::hip
