#include "backends/cuda/families/cublaslt/algorithm.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gemmtune::cuda {
namespace {

/// More than the library ever proposed for one problem.
constexpr int max_heuristics = 64;
constexpr std::uintptr_t scale_alignment = 256;

using Attribute = api::AlgorithmAttribute;
constexpr auto& attributes = api::algorithm_attributes;

std::uint32_t read(const api::CublasLt& lt, const api::LtAlgorithm& algorithm, const Attribute& attribute) {
  std::uint32_t value = 0;
  std::size_t written = 0;
  if (lt.algorithm_get(&algorithm, attribute.id, &value, attribute.bytes, &written) != 0) return 0;
  return value;
}

}  // namespace

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
    default:
      return -1;
  }
}

Result<LtProblem> describe(const api::CublasLt& lt, const Problem& problem, bool fast, LtScales scales) {
  LtProblem made;
  made.has_fast = traits(problem.x_type).fp8;
  made.fast = fast;
  if (fast && !made.has_fast)
    return Status::unsupported("cublaslt: fast accumulation is of fp8 operands, not of {}",
                               to_string(problem.x_type));
  made.element_type = lt_type(problem.x_type);
  made.output_type = lt_type(problem.y_type);
  const auto n = static_cast<std::uint64_t>(problem.n);
  const auto m = static_cast<std::uint64_t>(problem.m);
  const auto k = static_cast<std::uint64_t>(problem.k);
  int bad = lt.matmul_init(&made.matmul, sizeof(made.matmul), api::compute_f32, api::type_f32);
  const auto set = [&](int attribute, std::int32_t value) {
    bad |= lt.matmul_set(&made.matmul, attribute, &value, sizeof(value));
  };
  // To the library, which is column-major, a row-major w [N, K] is a matrix [K, N] that it has to transpose.
  const bool x_columns = problem.x_order == Order::column_major;
  const bool w_columns = problem.w_order == Order::column_major;
  set(api::matmul_transpose_a, w_columns ? api::operation_none : api::operation_transpose);
  set(api::matmul_transpose_b, x_columns ? api::operation_transpose : api::operation_none);
  if (problem.bias) {
    set(api::matmul_epilogue, api::epilogue_bias);
    set(api::matmul_bias_type, made.output_type);
  }
  if (scales == LtScales::rows) {
    set(api::matmul_a_scale_mode, api::scale_mode_outer_vector);
    set(api::matmul_b_scale_mode, api::scale_mode_outer_vector);
  }
  if (quantization(problem) == QuantType::per_token) {
    // The heuristic wants to see that there are scales; nothing is read there.
    const void* somewhere = reinterpret_cast<const void*>(scale_alignment);
    bad |= lt.matmul_set(&made.matmul, api::matmul_a_scale_pointer, &somewhere, sizeof(somewhere));
    bad |= lt.matmul_set(&made.matmul, api::matmul_b_scale_pointer, &somewhere, sizeof(somewhere));
  }
  if (made.has_fast) {
    const auto value = static_cast<std::int8_t>(fast ? 1 : 0);
    bad |= lt.matmul_set(&made.matmul, api::matmul_fast_accumulation, &value, sizeof(value));
  }
  bad |= w_columns ? lt.layout_init(&made.w, sizeof(made.w), made.element_type, n, k, problem.n)
                   : lt.layout_init(&made.w, sizeof(made.w), made.element_type, k, n, problem.k);
  bad |= x_columns ? lt.layout_init(&made.x, sizeof(made.x), made.element_type, m, k, problem.m)
                   : lt.layout_init(&made.x, sizeof(made.x), made.element_type, k, m, problem.k);
  bad |= lt.layout_init(&made.y, sizeof(made.y), made.output_type, n, m, problem.n);
  if (traits(problem.operation).batched) {
    const auto count = static_cast<std::int32_t>(problem.batch);
    for (const auto& [layout, stride] :
         {std::pair{&made.w, problem.n * problem.k}, std::pair{&made.x, problem.m * problem.k},
          std::pair{&made.y, problem.m * problem.n}}) {
      bad |= lt.layout_set(layout, api::layout_batch_count, &count, sizeof(count));
      bad |= lt.layout_set(layout, api::layout_batch_stride, &stride, sizeof(stride));
    }
  }
  if (bad != 0) return Status::unsupported("cublaslt: {} cannot be described ({})", short_name(problem), bad);
  return made;
}

std::vector<Parameter> algorithm_parameters() {
  std::vector<Parameter> parameters;
  for (const Attribute& attribute : attributes) {
    Parameter parameter{attribute.key, {}, "0", attribute.meaning};
    parameter.range = NumberRange();
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

Config config_of(const api::CublasLt& lt, const LtProblem& problem, const api::LtAlgorithm& algorithm) {
  Config config;
  for (const Attribute& attribute : attributes)
    config.set(attribute.key, static_cast<std::int64_t>(read(lt, algorithm, attribute)));
  if (problem.has_fast) config.set(fast_key, std::int64_t{problem.fast});
  return config;
}

Result<api::LtHeuristic> algorithm_of(const api::CublasLt& lt, api::LtHandle handle, LtProblem& problem,
                                      const Config& config) {
  api::LtAlgorithm algorithm{};
  const auto id = static_cast<int>(config.number("algo"));
  int status =
      lt.algorithm_init(handle, api::compute_f32, api::type_f32, problem.element_type, problem.element_type,
                        problem.output_type, problem.output_type, id, &algorithm);
  if (status != 0)
    return Status::unsupported("cublaslt: algorithm {} is not in this version for these types", id);
  for (const Attribute& attribute : attributes) {
    if (attribute.id == api::algorithm_id) continue;
    const auto wanted = static_cast<std::uint32_t>(config.number(attribute.key));
    if (read(lt, algorithm, attribute) == wanted) continue;
    (void)lt.algorithm_set(&algorithm, attribute.id, &wanted, attribute.bytes);
    if (const std::uint32_t taken = read(lt, algorithm, attribute); taken != wanted) {
      return Status::unsupported("cublaslt: algorithm {} takes {} for {} ({}), not {}", id, taken,
                                 attribute.key, attribute.meaning, wanted);
    }
  }
  api::LtHeuristic result{};
  status = lt.algorithm_check(handle, &problem.matmul, &problem.w, &problem.x, &problem.y, &problem.y,
                              &algorithm, &result);
  if (status != 0)
    return Status::unsupported("cublaslt: {} does not do this problem: {}", config.text(),
                               lt.status_text(status));
  result.algorithm = algorithm;
  return result;
}

std::vector<api::LtHeuristic> heuristics(const api::CublasLt& lt, api::LtHandle handle, LtProblem& problem,
                                         std::int64_t alignment, std::size_t workspace_bytes) {
  std::vector<api::LtHeuristic> found(max_heuristics);
  api::LtPreference preference = nullptr;
  if (lt.preference_create(&preference) != 0) return {};
  const std::uint64_t bytes = workspace_bytes;
  lt.preference_set(preference, api::preference_workspace_bytes, &bytes, sizeof(bytes));
  const auto aligned = static_cast<std::uint32_t>(alignment);
  for (int operand = 0; operand < 4; ++operand)
    lt.preference_set(preference, api::preference_alignment_a + operand, &aligned, sizeof(aligned));
  int count = 0;
  const int status = lt.heuristic(handle, &problem.matmul, &problem.w, &problem.x, &problem.y, &problem.y,
                                  preference, max_heuristics, found.data(), &count);
  lt.preference_destroy(preference);
  found.resize(status == 0 ? static_cast<std::size_t>(std::clamp(count, 0, max_heuristics)) : 0);
  std::erase_if(found, [](const api::LtHeuristic& one) { return one.state != 0; });
  return found;
}

}  // namespace gemmtune::cuda
