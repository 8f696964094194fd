// PyTorch's operators torch.ops.gemmtune.*: each reads its tensors through PyTorch's stable C interface, makes the problem and
// the operands of the C interface and runs them on the current stream. Functional operators make their result, those that end
// in _out write one. python/gemmtune/torch loads this library and registers what is Python's (fake kernels, autograd).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "torch_call.h"
#include "torch_tuned.h"

namespace gemmtune::torch_shim {
namespace {

/// Both forms of an operator on one weight have these arguments: x, w, bias?, x_scale?, w_scale?, n, layout, then out or
/// out_dtype. a8w8_blockscale and a4w4_blockscale have no bias.
template <gemmtune_operation operation, bool has_bias, bool into_out>
void matmul(Value* values, std::uint64_t, std::uint64_t) {
  Call call(operation);
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  if constexpr (operation == GEMMTUNE_A16W16) {
    call.bias.reset(stack.optional_tensor());
    call.x_scale.reset(stack.optional_tensor());
    call.w_scale.reset(stack.optional_tensor());
  } else {
    if constexpr (operation != GEMMTUNE_A16W4) call.x_scale.reset(stack.tensor());
    call.w_scale.reset(stack.tensor());
    if constexpr (has_bias) call.bias.reset(stack.optional_tensor());
  }
  if constexpr (into_out) call.out.reset(stack.tensor());
  const std::int64_t packed_n = stack.integer();
  call.set_layout(stack.integer(), packed_n);
  if constexpr (!into_out) call.out_dtype = stack.dtype();
  // A dependent launch may read a constant weight before the kernel in front has ended.
  if constexpr (operation == GEMMTUNE_A16W16 && !into_out)
    call.problem.constant_weights = call.problem.predecessor_triggers = stack.flag() ? 1 : 0;
  call.run();
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

/// A weight of 4 bits with scales of groups of k: x, w, the tensors of `Of` in its order, n, layout, then out or out_dtype.
template <typename Of, bool into_out>
void weight_format(Value* values, std::uint64_t, std::uint64_t) {
  Call call(Of::operation);
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  Of::take(stack, call);
  call.bias.reset(stack.optional_tensor());
  if constexpr (into_out) call.out.reset(stack.tensor());
  const std::int64_t packed_n = stack.integer();
  call.set_layout(stack.integer(), packed_n);
  if constexpr (!into_out) call.out_dtype = stack.dtype();
  call.run();
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

/// NVFP4 weights; x with scales of rows, with none, or NVFP4 too.
template <gemmtune_operation of>
struct Nvfp4 {
  static constexpr gemmtune_operation operation = of;
  static void take(Stack& stack, Call& call) {
    if constexpr (of != GEMMTUNE_A16W4_NVFP4) call.x_scale.reset(stack.tensor());
    call.w_scale.reset(stack.tensor());
    if constexpr (of == GEMMTUNE_A4W4_NVFP4) call.x_global_scale.reset(stack.tensor());
    call.w_global_scale.reset(stack.tensor());
  }
};

template <gemmtune_operation of>
struct Int4 {
  static constexpr gemmtune_operation operation = of;
  static void take(Stack& stack, Call& call) {
    if constexpr (of == GEMMTUNE_A8W4_INT4) call.x_scale.reset(stack.tensor());
    call.w_scale.reset(stack.tensor());
    call.w_zero_points.reset(stack.optional_tensor());
  }
};

/// linear of a plain weight without scales. PyTorch needs 40 ns for each argument that a call leaves out, so most calls get
/// a schema with few.
template <bool into_out>
void plain_linear(Value* values, std::uint64_t, std::uint64_t) {
  Call call(GEMMTUNE_A16W16);
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  call.bias.reset(stack.optional_tensor());
  if constexpr (into_out) call.out.reset(stack.tensor());
  call.run();
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

/// [B, M, K] · [B, N, K]ᵀ.
template <gemmtune_operation operation, bool into_out>
void batched(Value* values, std::uint64_t, std::uint64_t) {
  Call call(operation);
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  if constexpr (operation == GEMMTUNE_BATCHED_A8W8) {
    call.x_scale.reset(stack.tensor());
    call.w_scale.reset(stack.tensor());
  }
  call.bias.reset(stack.optional_tensor());
  if constexpr (into_out) call.out.reset(stack.tensor());
  call.run();
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

template <bool into_out>
void fused_moe(Value* values, std::uint64_t, std::uint64_t) {
  Call call(GEMMTUNE_FUSED_MOE);
  Stack stack(values);
  for (Argument* tensor : {&call.x, &call.w, &call.w2, &call.topk_ids, &call.topk_weights})
    tensor->reset(stack.tensor());
  for (Argument* tensor : {&call.x_scale, &call.w_scale, &call.w2_scale})
    tensor->reset(stack.optional_tensor());
  if constexpr (into_out) call.out.reset(stack.tensor());
  call.moe.activation = static_cast<gemmtune_activation>(stack.integer());
  call.moe.quant_type = static_cast<gemmtune_quant_type>(stack.integer());
  call.moe.gated = stack.flag() ? 1 : 0;
  call.moe.doweight_stage1 = stack.flag() ? 1 : 0;
  call.moe.shared_experts = static_cast<std::int32_t>(stack.integer());
  for (Argument* tensor : {&call.bias, &call.bias2}) tensor->reset(stack.optional_tensor());
  if constexpr (!into_out) call.out_dtype = stack.dtype();
  for (Argument* tensor :
       {&call.w_global_scale, &call.w2_global_scale, &call.w_zero_points, &call.w2_zero_points})
    tensor->reset(stack.optional_tensor());
  call.run();
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

// ---- between two products -------------------------------------------------------------------------------------------

/// silu(gate) · up.
struct Gated {
  Argument gate, up, out;

  void run() {
    refuse_gradient({&gate, &up, &out});
    const int gpu = gate.gpu("gate");
    require_device("up", up, gpu, "gate");
    require_device("out", out, gpu, "gate");
    read(gpu);
    if (!out) {
      out.reset(make_result(gate, operands_.ldy, gate.dtype(), gpu));
      operands_.y = out.data();
    }
    ContextUse context(gpu);
    if (gpu < 0) return check(gemmtune_silu_and_mul(context.get(), &operands_, nullptr));
    const DeviceGuard guard(gpu);
    void* const stream = current_stream(gpu);
    if (is_capturing(stream)) context.keep_for_graphs();
    const gemmtune_status status = gemmtune_silu_and_mul(context.get(), &operands_, stream);
    if (status == GEMMTUNE_NOT_FOUND) fail_not_planned("run it");
    check(status);
  }

 private:
  void read(int gpu) {
    operands_.size = sizeof operands_;
    while (true) {
      const gemmtune_array gates = gate.describe();
      const gemmtune_array ups = up.describe();
      const gemmtune_array outs = out ? out.describe() : gemmtune_array{};
      const gemmtune_array* strided = nullptr;
      check(gemmtune_read_silu_and_mul_arrays(&gates, &ups, out ? &outs : nullptr, &operands_, &strided));
      if (strided == nullptr) return;
      make_contiguous(strided == &gates ? gate : up, gpu);
    }
  }

  gemmtune_silu_and_mul_operands operands_{};
};

template <bool into_out>
void silu_and_mul(Value* values, std::uint64_t, std::uint64_t) {
  Gated call;
  Stack stack(values);
  call.gate.reset(stack.tensor());
  call.up.reset(stack.tensor());
  if constexpr (into_out) call.out.reset(stack.tensor());
  call.run();
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

// ---- registration --------------------------------------------------------------------------------------------------

struct Operator {
  const char* name;
  const char* schema;
  BoxedKernel kernel;
};

#define LINEAR "Tensor x, Tensor w, Tensor? bias=None, Tensor? x_scale=None, Tensor? w_scale=None"
#define SCALED "Tensor x, Tensor w, Tensor x_scale, Tensor w_scale"
#define MOE                                                                                      \
  "Tensor x, Tensor w1, Tensor w2, Tensor topk_ids, Tensor topk_weights, Tensor? x_scale=None, " \
  "Tensor? w1_scale=None, Tensor? w2_scale=None"
#define PACKED "int n=0, int layout=0"
#define MOE_WORDS                                                                                           \
  "int activation=1, int quant_type=0, bool gated=True, bool doweight_stage1=False, int shared_experts=0, " \
  "Tensor? bias1=None, Tensor? bias2=None"
#define MOE_FORMATS                                                                           \
  "Tensor? w1_global_scale=None, Tensor? w2_global_scale=None, Tensor? w1_zero_points=None, " \
  "Tensor? w2_zero_points=None"

/// A packed weight is a tensor of bytes with its `n` and its `layout`.
constexpr Operator operators[] = {
    {"linear", "linear(Tensor x, Tensor w, Tensor? bias=None) -> Tensor", &plain_linear<false>},
    {"linear.full",
     "linear.full(" LINEAR ", " PACKED ", ScalarType? out_dtype=None, bool constant_weight=False) -> Tensor",
     &matmul<GEMMTUNE_A16W16, true, false>},
    {"linear_out", "linear_out(Tensor x, Tensor w, Tensor? bias=None, *, Tensor(a!) out) -> ()",
     &plain_linear<true>},
    {"linear_out.full", "linear_out.full(" LINEAR ", *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<GEMMTUNE_A16W16, true, true>},
    {"a8w8", "a8w8(" SCALED ", Tensor? bias=None, " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<GEMMTUNE_A8W8, true, false>},
    {"a8w8_out", "a8w8_out(" SCALED ", Tensor? bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<GEMMTUNE_A8W8, true, true>},
    {"a8w8_blockscale", "a8w8_blockscale(" SCALED ", " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<GEMMTUNE_A8W8_BLOCKSCALE, false, false>},
    {"a8w8_blockscale_out", "a8w8_blockscale_out(" SCALED ", *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<GEMMTUNE_A8W8_BLOCKSCALE, false, true>},
    {"a4w4_blockscale", "a4w4_blockscale(" SCALED ", " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<GEMMTUNE_A4W4_BLOCKSCALE, false, false>},
    {"a4w4_blockscale_out", "a4w4_blockscale_out(" SCALED ", *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<GEMMTUNE_A4W4_BLOCKSCALE, false, true>},
    {"a16w4",
     "a16w4(Tensor x, Tensor w, Tensor w_scale, Tensor? bias=None, " PACKED
     ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<GEMMTUNE_A16W4, true, false>},
    {"a16w4_out",
     "a16w4_out(Tensor x, Tensor w, Tensor w_scale, Tensor? bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<GEMMTUNE_A16W4, true, true>},
    {"a8w4", "a8w4(" SCALED ", Tensor? bias=None, " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<GEMMTUNE_A8W4, true, false>},
    {"a8w4_out", "a8w4_out(" SCALED ", Tensor? bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<GEMMTUNE_A8W4, true, true>},
    {"a16w4_nvfp4",
     "a16w4_nvfp4(Tensor x, Tensor w, Tensor w_scale, Tensor w_global_scale, Tensor? bias=None, " PACKED
     ", ScalarType? out_dtype=None) -> Tensor",
     &weight_format<Nvfp4<GEMMTUNE_A16W4_NVFP4>, false>},
    {"a16w4_nvfp4_out",
     "a16w4_nvfp4_out(Tensor x, Tensor w, Tensor w_scale, Tensor w_global_scale, Tensor? bias=None, *, "
     "Tensor(a!) out, " PACKED ") -> ()",
     &weight_format<Nvfp4<GEMMTUNE_A16W4_NVFP4>, true>},
    {"a8w4_nvfp4",
     "a8w4_nvfp4(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor w_global_scale, Tensor? "
     "bias=None, " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &weight_format<Nvfp4<GEMMTUNE_A8W4_NVFP4>, false>},
    {"a8w4_nvfp4_out",
     "a8w4_nvfp4_out(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor w_global_scale, Tensor? "
     "bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &weight_format<Nvfp4<GEMMTUNE_A8W4_NVFP4>, true>},
    {"a4w4_nvfp4",
     "a4w4_nvfp4(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor x_global_scale, Tensor "
     "w_global_scale, Tensor? bias=None, " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &weight_format<Nvfp4<GEMMTUNE_A4W4_NVFP4>, false>},
    {"a4w4_nvfp4_out",
     "a4w4_nvfp4_out(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor x_global_scale, Tensor "
     "w_global_scale, Tensor? bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &weight_format<Nvfp4<GEMMTUNE_A4W4_NVFP4>, true>},
    {"a16w4_int4",
     "a16w4_int4(Tensor x, Tensor w, Tensor w_scale, Tensor? w_zero_points=None, Tensor? bias=None, " PACKED
     ", ScalarType? out_dtype=None) -> Tensor",
     &weight_format<Int4<GEMMTUNE_A16W4_INT4>, false>},
    {"a16w4_int4_out",
     "a16w4_int4_out(Tensor x, Tensor w, Tensor w_scale, Tensor? w_zero_points=None, Tensor? bias=None, *, "
     "Tensor(a!) out, " PACKED ") -> ()",
     &weight_format<Int4<GEMMTUNE_A16W4_INT4>, true>},
    {"a8w4_int4",
     "a8w4_int4(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor? w_zero_points=None, Tensor? "
     "bias=None, " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &weight_format<Int4<GEMMTUNE_A8W4_INT4>, false>},
    {"a8w4_int4_out",
     "a8w4_int4_out(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor? w_zero_points=None, Tensor? "
     "bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &weight_format<Int4<GEMMTUNE_A8W4_INT4>, true>},
    {"batched_bf16", "batched_bf16(Tensor x, Tensor w, Tensor? bias=None) -> Tensor",
     &batched<GEMMTUNE_BATCHED_BF16, false>},
    {"batched_bf16_out", "batched_bf16_out(Tensor x, Tensor w, Tensor? bias=None, *, Tensor(a!) out) -> ()",
     &batched<GEMMTUNE_BATCHED_BF16, true>},
    {"batched_a8w8", "batched_a8w8(" SCALED ", Tensor? bias=None) -> Tensor",
     &batched<GEMMTUNE_BATCHED_A8W8, false>},
    {"batched_a8w8_out", "batched_a8w8_out(" SCALED ", Tensor? bias=None, *, Tensor(a!) out) -> ()",
     &batched<GEMMTUNE_BATCHED_A8W8, true>},
    {"fused_moe", "fused_moe(" MOE ", " MOE_WORDS ", ScalarType? out_dtype=None, " MOE_FORMATS ") -> Tensor",
     &fused_moe<false>},
    {"fused_moe_out", "fused_moe_out(" MOE ", *, Tensor(a!) out, " MOE_WORDS ", " MOE_FORMATS ") -> ()",
     &fused_moe<true>},
    {"tuned_linear_out",
     "tuned_linear_out(Tensor x, Tensor w, Tensor? bias, bool constant_weight, *, Tensor(a!) out) -> ()",
     &tuned_linear_out},
    {"tuned_scaled_linear",
     "tuned_scaled_linear(" SCALED ", Tensor? bias, SymInt rows, ScalarType out_dtype, int kind, int other, "
     "bool constant_weight, int untuned_rows) -> Tensor",
     &tuned_scaled_linear},
    {"silu_and_mul", "silu_and_mul(Tensor gate, Tensor up) -> Tensor", &silu_and_mul<false>},
    {"silu_and_mul_out", "silu_and_mul_out(Tensor gate, Tensor up, *, Tensor(a!) out) -> ()",
     &silu_and_mul<true>},
};

constexpr const char* space = "gemmtune";

/// What PyTorch refused, or null. Libraries live as long as the process.
const char* register_operators() {
  Library definitions = nullptr;
  if (torch.aoti_torch_library_init_fragment(space, __FILE__, __LINE__, &definitions) != 0)
    return "the namespace";
  for (const Operator& one : operators)
    if (torch.aoti_torch_library_def(definitions, one.schema) != 0) return one.name;
  if (torch.aoti_torch_library_def(definitions, needs_gradient_schema) != 0) return "needs_gradient";
  for (const char* key : {"CPU", "CUDA"}) {
    Library kernels = nullptr;
    if (torch.aoti_torch_library_init_impl(space, key, __FILE__, __LINE__, &kernels) != 0) return key;
    for (const Operator& one : operators)
      if (torch.aoti_torch_library_impl(kernels, one.name, one.kernel) != 0) return one.name;
  }
  return nullptr;
}

}  // namespace
}  // namespace gemmtune::torch_shim

namespace shim = gemmtune::torch_shim;

extern "C" {

/// Registers the operators. The name of what this PyTorch lacks or refuses, or null. `gradient_sentence` refuses autograd and
/// stays valid.
GEMMTUNE_API const char* gemmtune_torch_register(shim::Opener opener, const char* gradient_sentence) {
  shim::gradient_sentence = gradient_sentence;
  if (const char* const missing = shim::find_functions(shim::torch)) return missing;
  shim::opener = opener;
  shim::cpu_type = shim::torch.aoti_torch_device_type_cpu();
  shim::cuda_type = shim::torch.aoti_torch_device_type_cuda();
  shim::list_types();
  return shim::register_operators();
}

/// The context of calls on a GPU, below 0 on the CPU; null: the opener is asked. Of one thread at a time. Waits for the calls in the former one. Not 0 if
/// that must never end: graphs hold its kernels, or a call does not leave it.
GEMMTUNE_API int gemmtune_torch_set_context(int gpu, gemmtune_context* context) {
  if (gpu >= static_cast<int>(shim::max_gpus)) return 0;
  shim::forget_parents_calls();
  shim::ContextSlot& slot = shim::context_slot(gpu);
  if (gpu >= 0 && context != nullptr && slot.context.load() == nullptr) ++shim::gpus_used;
  slot.context.store(context);
  const bool has_left = shim::wait_for_calls(slot);
  return slot.is_in_graphs.exchange(false) || !has_left ? 1 : 0;
}

/// The status of this thread's last failed operator, once: a gemmtune_status, or 100 if there is no plan while the stream is being
/// captured, 101 if autograd is refused.
GEMMTUNE_API int gemmtune_torch_take_status(void) { return std::exchange(shim::last_status, GEMMTUNE_OK); }

}  // extern "C"
