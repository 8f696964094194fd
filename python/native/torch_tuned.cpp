#include "torch_tuned.h"

#include <array>

#include "torch_call.h"

namespace gemmtune::torch_shim {
namespace {

/// Calls another operator. It takes its arguments from the stack, owns them, and leaves its result there.
void call_operator(const char* name, Value* stack) {
  check_torch(torch.aoti_torch_call_dispatcher(name, "", stack), name);
}

Value optional_value(Argument& tensor) {
  return tensor ? reinterpret_cast<Value>(new Value(reinterpret_cast<Value>(tensor.release()))) : 0;
}

/// out = x · w (+ bias), by the kernel that torch.nn.functional.linear comes to. w is [K, N].
void multiply_by_torch(const Call& call) {
  const bool on_cpu = call.x.gpu("x") < 0;
  const auto mm = on_cpu ? torch.aoti_torch_cpu_mm_out : torch.aoti_torch_cuda_mm_out;
  const auto addmm = on_cpu ? torch.aoti_torch_cpu_addmm_out : torch.aoti_torch_cuda_addmm_out;
  if (mm == nullptr || addmm == nullptr)
    fail(GEMMTUNE_UNSUPPORTED, "this PyTorch has no aoti_torch_cuda_mm_out, expected one with CUDA");
  const Failed failed =
      call.bias ? addmm(call.out.handle(), call.bias.handle(), call.x.handle(), call.w.handle(), 1, 1)
                : mm(call.out.handle(), call.x.handle(), call.w.handle());
  check_torch(failed, "the product of x and w");
}

/// What the operands of a tuned_scaled_linear are.
enum class Scaled : std::int64_t { per_tensor, per_token, blocks };
/// Its operator where no row answers; other values are a key of the operator in Python.
constexpr std::int64_t cutlass_operator = 1;
constexpr std::int64_t deep_gemm_operator = 2;
constexpr std::int64_t deep_gemm_e8m0_operator = 3;  // scales are powers of two
constexpr const char* python_operator = "gemmtune_vllm::stock_scaled_linear";

gemmtune_operation operation_of(Scaled kind) {
  if (kind == Scaled::per_token) return GEMMTUNE_A8W8;
  return kind == Scaled::blocks ? GEMMTUNE_A8W8_BLOCKSCALE : GEMMTUNE_A16W16;
}

/// As gemmtune reads it, [N, K], if w is a view [K, N] of that.
bool describe_transposed(Argument& w) {
  if (w.dim() != 2 || w.stride(0) != 1 || w.stride(1) != w.size(0)) return false;
  w.describe_as(w.size(1), w.size(0), w.size(0));
  return true;
}

/// As gemmtune reads them: w as [N, K] if it is a view [K, N] of that, and of x and its scales the first `rows`, if a kernel padded them.
/// False if they have other shapes.
bool describe_scaled(Call& call, Scaled kind, std::int64_t rows) {
  Argument& x = call.x;
  Argument& w = call.w;
  if (x.dim() != 2 || w.dim() != 2 || x.stride(1) != 1 || x.size(0) < rows) return false;
  const std::int64_t padded = x.size(0);
  if (padded > rows) x.describe_as(rows, x.size(1), x.stride(0));
  if (kind == Scaled::blocks) return true;
  if (!describe_transposed(w)) return false;
  if (call.x_scale.elements() == 1 || kind == Scaled::per_tensor) return call.x_scale.elements() == 1;
  Argument& scale = call.x_scale;
  const bool is_column = scale.dim() == 1 || (scale.dim() == 2 && scale.size(1) == 1);
  if (!is_column || (scale.size(0) != rows && scale.size(0) != padded)) return false;
  if (scale.size(0) != rows) scale.describe_as(rows, 1, scale.stride(0));
  return true;
}

}  // namespace

void tuned_linear_out(Value* values, std::uint64_t, std::uint64_t) {
  Call call(GEMMTUNE_A16W16);
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  call.bias.reset(stack.optional_tensor());
  call.problem.constant_weights = call.problem.predecessor_triggers = stack.flag() ? 1 : 0;
  call.out.reset(stack.tensor());
  if (!describe_transposed(call.w) || !call.run_if_tuned()) multiply_by_torch(call);
}

void tuned_scaled_linear(Value* values, std::uint64_t, std::uint64_t) {
  Stack stack(values);
  Argument x(stack.tensor()), w(stack.tensor()), x_scale(stack.tensor()), w_scale(stack.tensor()), bias;
  bias.reset(stack.optional_tensor());
  const std::int64_t rows = stack.integer();
  const auto out_dtype = static_cast<std::int32_t>(stack.integer());
  const auto kind = static_cast<Scaled>(stack.integer());
  const std::int64_t other = stack.integer();
  const bool constant_weight = stack.flag();
  const bool takes_untuned = rows <= stack.integer();
  const std::int64_t padded = x.dim() == 2 ? x.size(0) : -1;
  {
    Call call(operation_of(kind));
    call.problem.constant_weights = call.problem.predecessor_triggers = constant_weight ? 1 : 0;
    call.x.reset(x.share());
    call.w.reset(w.share());
    call.x_scale.reset(x_scale.share());
    call.w_scale.reset(w_scale.share());
    if (bias) call.bias.reset(bias.share());
    call.out_dtype = out_dtype;
    if (describe_scaled(call, kind, rows) && call.run_if_tuned(takes_untuned)) {
      values[0] = reinterpret_cast<Value>(call.out.release());
      return;
    }
  }
  if (other == cutlass_operator && padded == rows) {
    Argument out(make_result(x, w.size(1), out_dtype, x.gpu("x")));
    std::array<Value, 6> others{
        reinterpret_cast<Value>(out.share()),       reinterpret_cast<Value>(x.release()),
        reinterpret_cast<Value>(w.release()),       reinterpret_cast<Value>(x_scale.release()),
        reinterpret_cast<Value>(w_scale.release()), optional_value(bias)};
    call_operator("_C::cutlass_scaled_mm", others.data());
    values[0] = reinterpret_cast<Value>(out.release());
    return;
  }
  if (other == deep_gemm_operator || other == deep_gemm_e8m0_operator) {
    Argument out(make_result(x, w.size(0), out_dtype, x.gpu("x")));
    const Value scales_are_e8m0 = other == deep_gemm_e8m0_operator ? 1 : 0;
    std::array<Value, 6> others{
        reinterpret_cast<Value>(x.release()), reinterpret_cast<Value>(x_scale.release()),
        reinterpret_cast<Value>(w.release()), reinterpret_cast<Value>(w_scale.release()),
        reinterpret_cast<Value>(out.share()), scales_are_e8m0};
    call_operator("vllm::fp8_gemm_nt_op", others.data());
    values[0] = reinterpret_cast<Value>(out.release());
    return;
  }
  std::array<Value, 8> others{reinterpret_cast<Value>(x.release()),
                              reinterpret_cast<Value>(w.release()),
                              reinterpret_cast<Value>(x_scale.release()),
                              reinterpret_cast<Value>(w_scale.release()),
                              optional_value(bias),
                              static_cast<Value>(rows),
                              static_cast<Value>(out_dtype),
                              static_cast<Value>(other)};
  call_operator(python_operator, others.data());
  values[0] = others[0];
}

}  // namespace gemmtune::torch_shim
