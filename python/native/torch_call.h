// What the operators share: errors, contexts, types, tensors, and a call of an operation. All of one library.
#pragma once

#include <dlfcn.h>
#include <gemmtune/c.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "torch_shim.h"

namespace gemmtune::torch_shim {

inline Functions torch{};

// ---- errors --------------------------------------------------------------------------------------------------------

/// Of this thread's last failure, for gemmtune.torch, which raises the exception of that kind.
inline thread_local int last_status = GEMMTUNE_OK;
/// Beside the codes of gemmtune_status: no plan, and the stream is being captured.
inline constexpr int not_planned = 100;
/// Autograd wants a gradient of the result.
inline constexpr int needs_gradient = 101;
inline const char* gradient_sentence = "";

[[noreturn]] inline void fail(int status, const std::string& sentence) {
  last_status = status;
  throw std::runtime_error("gemmtune: " + sentence);
}

inline void check(gemmtune_status status) {
  if (status != GEMMTUNE_OK) fail(status, gemmtune_last_error());
}

inline void check_torch(Failed failed, const char* what) {
  if (failed != 0) fail(GEMMTUNE_INTERNAL, std::string("PyTorch refuses ") + what);
}

// ---- devices and types ---------------------------------------------------------------------------------------------

inline std::int32_t cpu_type = 0;
inline std::int32_t cuda_type = 1;

inline constexpr std::size_t max_gpus = 64;
/// The context of a device, and the calls in it. A call counts in one of two phases: who replaces the context changes the phase, so
/// that calls that begin meanwhile do not keep it waiting.
struct ContextSlot {
  std::atomic<gemmtune_context*> context{nullptr};
  std::atomic<unsigned> phase{0};
  std::array<std::atomic<long>, 2> calls{};
  std::atomic<bool> is_in_graphs{false};  // graphs hold kernels of this context
};
inline ContextSlot cpu_slot;
inline std::array<ContextSlot, max_gpus> gpu_slots;
inline std::atomic<int> gpus_used{0};
/// Opens the context of a device (`gpu` below 0: the CPU) and sets it; answers 0, else its sentence stands in `message`.
using Opener = int (*)(int gpu, char* message, std::size_t capacity);
inline Opener opener = nullptr;

inline ContextSlot& context_slot(int gpu) {
  return gpu < 0 ? cpu_slot : gpu_slots[static_cast<std::size_t>(gpu)];
}

/// A call's hold on the context of its device.
class ContextUse {
 public:
  explicit ContextUse(int gpu) : slot_(context_slot(gpu)) {
    while (true) {
      calls_ = &slot_.calls[slot_.phase.load() & 1U];
      calls_->fetch_add(1);
      context_ = slot_.context.load();
      if (context_ != nullptr) return;
      calls_->fetch_sub(1);
      // Without a hold: the opener sets the context.
      std::array<char, 2048> message{};
      const int status = opener(gpu, message.data(), message.size());
      if (status != 0) fail(status, message.data());
    }
  }
  ContextUse(const ContextUse&) = delete;
  ContextUse& operator=(const ContextUse&) = delete;
  ~ContextUse() { calls_->fetch_sub(1); }

  gemmtune_context* get() const { return context_; }
  void keep_for_graphs() { slot_.is_in_graphs.store(true); }

 private:
  ContextSlot& slot_;
  std::atomic<long>* calls_ = nullptr;
  gemmtune_context* context_ = nullptr;
};

/// In a child made by fork(): calls of its parent's other threads are not in it.
inline void forget_parents_calls() {
  static pid_t process = getpid();
  if (std::exchange(process, getpid()) == process) return;
  const auto forget = [](ContextSlot& slot) {
    for (std::atomic<long>& calls : slot.calls) calls.store(0);
  };
  forget(cpu_slot);
  std::for_each(gpu_slots.begin(), gpu_slots.end(), forget);
}

/// Waits until no call that began before is in the slot's former context. False if one is still there after ten seconds.
inline bool wait_for_calls(ContextSlot& slot) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  // Twice: a call may have read the phase before the first change and count in it after.
  for (int change = 0; change < 2; ++change) {
    const unsigned before = slot.phase.fetch_add(1);
    while (slot.calls[before & 1U].load() != 0) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

struct TypePair {
  std::int32_t torch;
  gemmtune_type ours;
};
inline std::array<TypePair, 10> type_pairs{};
inline std::size_t type_pair_count = 0;
inline std::int32_t int32_type = 0;

inline void list_types() {
  const auto add = [](std::int32_t (*type)(), gemmtune_type ours) {
    if (type != nullptr) type_pairs[type_pair_count++] = {type(), ours};
  };
  add(torch.aoti_torch_dtype_bfloat16, GEMMTUNE_BF16);
  add(torch.aoti_torch_dtype_float16, GEMMTUNE_F16);
  add(torch.aoti_torch_dtype_float32, GEMMTUNE_F32);
  add(torch.aoti_torch_dtype_float8_e4m3fn, GEMMTUNE_F8_E4M3FN);
  add(torch.aoti_torch_dtype_float8_e4m3fnuz, GEMMTUNE_F8_E4M3FNUZ);
  add(torch.aoti_torch_dtype_int8, GEMMTUNE_I8);
  add(torch.aoti_torch_dtype_uint8, GEMMTUNE_U8);
  add(torch.torch_dtype_float8_e8m0fnu, GEMMTUNE_U8);
  add(torch.torch_dtype_float4_e2m1fn_x2, GEMMTUNE_F4_E2M1);
  // c10::ScalarType::Int4 has no function; it is where it was as long as its neighbour is.
  constexpr std::int32_t int4 = 40;
  if (torch.torch_dtype_float8_e8m0fnu != nullptr && torch.torch_dtype_float8_e8m0fnu() == int4 + 4)
    type_pairs[type_pair_count++] = {int4, GEMMTUNE_I4};
  int32_type = torch.aoti_torch_dtype_int32();
}

inline gemmtune_type type_of(std::int32_t dtype) {
  for (std::size_t i = 0; i < type_pair_count; ++i)
    if (type_pairs[i].torch == dtype) return type_pairs[i].ours;
  return GEMMTUNE_TYPE_UNSET;
}

inline std::int32_t torch_type_of(gemmtune_type type) {
  for (std::size_t i = 0; i < type_pair_count; ++i)
    if (type_pairs[i].ours == type) return type_pairs[i].torch;
  return type_pairs[0].torch;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

/// A tensor argument, which this owns. Empty for an optional one that is absent.
class Argument {
 public:
  Argument() = default;
  explicit Argument(Tensor tensor) : tensor_(tensor) { read(); }
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  ~Argument() {
    if (tensor_ != nullptr) torch.aoti_torch_delete_tensor_object(tensor_);
  }

  void reset(Tensor tensor) {
    tensor_ = tensor;
    if (tensor != nullptr) read();
  }
  Tensor handle() const { return tensor_; }
  /// Becomes what another one was.
  void take(Argument& other) {
    std::swap(tensor_, other.tensor_);
    read();
  }
  Tensor release() { return std::exchange(tensor_, nullptr); }
  explicit operator bool() const { return tensor_ != nullptr; }

  /// One more reference, which the caller owns.
  Tensor share() const {
    Tensor another = nullptr;
    check_torch(torch.aoti_torch_new_tensor_handle(tensor_, &another), "to share a tensor");
    return another;
  }

  void* data() const {
    void* pointer = nullptr;
    check_torch(torch.aoti_torch_get_data_ptr(tensor_, &pointer), "the address of a tensor");
    return pointer;
  }
  std::int64_t dim() const { return dim_; }
  std::int64_t size(std::int64_t i) const { return sizes_[i]; }
  std::int64_t stride(std::int64_t i) const { return strides_[i]; }
  std::int64_t elements() const {
    std::int64_t count = 1;
    for (std::int64_t i = 0; i < dim_; ++i) count *= sizes_[i];
    return count;
  }
  std::int32_t dtype() const { return dtype_; }
  gemmtune_type type() const { return type_of(dtype_); }
  /// As the C interface reads it; points into the tensor.
  gemmtune_array describe() const {
    const std::int32_t type = dtype_ == int32_type ? std::int32_t{GEMMTUNE_ARRAY_I32} : this->type();
    return {data(), type, static_cast<std::int32_t>(dim_), sizes_, strides_, 0};
  }
  /// From now on dim(), size() and describe() are those of a matrix over the same memory; the tensor itself stays as it is.
  void describe_as(std::int64_t rows, std::int64_t columns, std::int64_t row_stride) {
    matrix_sizes_ = {rows, columns};
    matrix_strides_ = {row_stride, 1};
    dim_ = 2;
    sizes_ = matrix_sizes_.data();
    strides_ = matrix_strides_.data();
  }
  /// The GPU that it is on, -1 for the CPU.
  int gpu(const char* name) const {
    std::int32_t type = 0;
    check_torch(torch.aoti_torch_get_device_type(tensor_, &type), "the device of a tensor");
    if (type == cpu_type) return -1;
    std::int32_t index = 0;
    check_torch(torch.aoti_torch_get_device_index(tensor_, &index), "the device of a tensor");
    if (type != cuda_type || index < 0 || index >= static_cast<std::int32_t>(max_gpus))
      fail(GEMMTUNE_UNSUPPORTED,
           std::string(name) + " is on a device of another kind, expected the CPU or CUDA");
    return index;
  }

 private:
  void read() {
    check_torch(torch.aoti_torch_get_dim(tensor_, &dim_), "the dimensions of a tensor");
    check_torch(torch.aoti_torch_get_sizes(tensor_, &sizes_), "the sizes of a tensor");
    check_torch(torch.aoti_torch_get_strides(tensor_, &strides_), "the strides of a tensor");
    check_torch(torch.aoti_torch_get_dtype(tensor_, &dtype_), "the type of a tensor");
  }

  Tensor tensor_ = nullptr;
  std::int64_t dim_ = 0;
  std::int64_t* sizes_ = nullptr;
  std::int64_t* strides_ = nullptr;
  std::int32_t dtype_ = 0;
  std::array<std::int64_t, 2> matrix_sizes_{};  // of describe_as()
  std::array<std::int64_t, 2> matrix_strides_{};
};

inline Tensor tensor_of(Value value) { return reinterpret_cast<Tensor>(value); }

/// What an optional argument holds; its cell on the heap is this library's to free.
inline Value take_optional(Value value, Value absent) {
  if (value == 0) return absent;
  auto* const cell = reinterpret_cast<Value*>(value);
  const Value held = *cell;
  delete cell;
  return held;
}

/// The arguments of a call, taken from the stack one by one in the order of the schema. Those that were not asked for when an
/// error ends the call leak nothing: the caller takes all of them first.
class Stack {
 public:
  explicit Stack(Value* values) : values_(values) {}
  Tensor tensor() { return tensor_of(values_[next_++]); }
  Tensor optional_tensor() { return tensor_of(take_optional(values_[next_++], 0)); }
  std::int64_t integer() { return static_cast<std::int64_t>(values_[next_++]); }
  bool flag() { return (values_[next_++] & 0xff) != 0; }
  /// Of an optional dtype; -1: absent.
  std::int32_t dtype() {
    return static_cast<std::int32_t>(take_optional(values_[next_++], static_cast<Value>(-1)));
  }

 private:
  Value* values_;
  std::size_t next_ = 0;
};

/// Whether a derivative may be recorded: by autograd, or in forward mode, whose levels are open where level 0 is.
inline bool may_be_differentiated() {
  if (torch.aoti_torch_grad_mode_is_enabled() || torch.forward_level == nullptr) return true;
  return torch.forward_level(0) != nullptr;
}

inline constexpr const char* needs_gradient_schema =
    "needs_gradient(Tensor? a, Tensor? b, Tensor? c, Tensor? d, Tensor? e, Tensor? f, Tensor? g, Tensor? h, "
    "Tensor? i, Tensor? j, Tensor? k, Tensor? l, Tensor? m, Tensor? n, Tensor? o) -> bool";
inline constexpr std::size_t max_operands = 15;

/// Refuses operands of which a derivative is wanted. The stable interface does not say which do: an operator in Python does.
inline void refuse_gradient(std::initializer_list<const Argument*> operands) {
  if (!may_be_differentiated()) return;
  std::array<Value, max_operands> stack{};
  std::size_t next = 0;
  for (const Argument* const tensor : operands)
    if (*tensor) stack[next++] = reinterpret_cast<Value>(new Value(reinterpret_cast<Value>(tensor->share())));
  check_torch(torch.aoti_torch_call_dispatcher("gemmtune::needs_gradient", "", stack.data()),
              "to say what needs a gradient");
  if ((stack[0] & 0xff) != 0) fail(needs_gradient, gradient_sentence);
}

// ---- a call --------------------------------------------------------------------------------------------------------

/// Makes the result, with x's leading dimensions.
inline Tensor make_result(const Argument& x, std::int64_t columns, std::int32_t dtype, int gpu) {
  std::array<std::int64_t, 8> sizes{};
  std::array<std::int64_t, 8> strides{};
  const std::int64_t dim = x.dim();
  if (dim > static_cast<std::int64_t>(sizes.size()))
    fail(GEMMTUNE_INVALID_ARGUMENT, "x has " + std::to_string(dim) + " dimensions, expected at most 8");
  for (std::int64_t i = 0; i < dim; ++i)
    sizes[static_cast<std::size_t>(i)] = i == dim - 1 ? columns : x.size(i);
  std::int64_t step = 1;
  for (std::int64_t i = dim - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = step;
    step *= std::max<std::int64_t>(1, sizes[static_cast<std::size_t>(i)]);
  }
  Tensor made = nullptr;
  check_torch(torch.aoti_torch_empty_strided(dim, sizes.data(), strides.data(), dtype,
                                             gpu < 0 ? cpu_type : cuda_type, gpu < 0 ? 0 : gpu, &made),
              "to allocate the result");
  return made;
}

/// A contiguous copy takes the tensor's place, as PyTorch's own operators do with what they cannot read where it lies.
inline void make_contiguous(Argument& tensor, int gpu) {
  Argument copy(
      make_result(tensor, tensor.dim() > 0 ? tensor.size(tensor.dim() - 1) : 1, tensor.dtype(), gpu));
  check_torch(torch.aoti_torch_copy_(copy.handle(), tensor.handle(), 0), "to copy an operand");
  tensor.take(copy);
}

/// Makes a GPU the current one while it lives, if there are several: gemmtune changes the thread's CUDA context.
class DeviceGuard {
 public:
  explicit DeviceGuard(int gpu) {
    if (gpus_used.load(std::memory_order_relaxed) > 1 || gpu > 0)
      check_torch(torch.aoti_torch_create_cuda_guard(gpu, &guard_), "to change the device");
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (guard_ != nullptr) torch.aoti_torch_delete_cuda_guard(guard_);
  }

 private:
  Guard guard_ = nullptr;
};

using StreamIsCapturing = int (*)(void* stream, int* status);

inline bool is_capturing(void* stream) {
  static const auto ask = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver == nullptr ? nullptr
                             : reinterpret_cast<StreamIsCapturing>(dlsym(driver, "cuStreamIsCapturing"));
  }();
  int status = 0;
  return ask != nullptr && ask(stream, &status) == 0 && status != 0;
}

inline void* current_stream(int gpu) {
  void* stream = nullptr;
  if (torch.aoti_torch_get_current_cuda_stream == nullptr)
    fail(GEMMTUNE_UNSUPPORTED, "this PyTorch was built without CUDA");
  check_torch(torch.aoti_torch_get_current_cuda_stream(gpu, &stream), "the current stream");
  return stream;
}

/// `what` would have had to happen before. Behind a call that failed.
[[noreturn]] inline void fail_not_planned(const char* what) {
  fail(not_planned, std::string(gemmtune_last_error()) +
                        ", and the stream is being captured into a graph, where no kernel can be compiled or "
                        "loaded; " +
                        what + " once before the capture, or call gemmtune.torch.warm(model, Ms)");
}

struct PlanOwner {
  gemmtune_plan* plan = nullptr;
  ~PlanOwner() { gemmtune_plan_release(plan); }
};

inline gemmtune_plan_info info_of(const gemmtune_plan* plan) {
  gemmtune_plan_info info{};
  info.size = sizeof info;
  check(gemmtune_plan_get_info(plan, &info));
  return info;
}

/// The workspace is PyTorch's: on a GPU it belongs to the stream, and to the graph while one is captured.
inline void run_plan(int gpu, const gemmtune_plan* plan, std::size_t workspace_bytes,
                     const gemmtune_operands& operands, void* stream) {
  Argument workspace;
  if (workspace_bytes > 0) {
    const std::int64_t size = static_cast<std::int64_t>(workspace_bytes);
    const std::int64_t stride = 1;
    Tensor made = nullptr;
    check_torch(torch.aoti_torch_empty_strided(1, &size, &stride, torch.aoti_torch_dtype_uint8(),
                                               gpu < 0 ? cpu_type : cuda_type, gpu < 0 ? 0 : gpu, &made),
                "to allocate a workspace");
    workspace.reset(made);
  }
  check(gemmtune_plan_run(plan, &operands, workspace ? workspace.data() : nullptr, stream));
}

inline void run_on_gpu(int gpu, const gemmtune_problem& problem, const gemmtune_operands& operands) {
  ContextUse context(gpu);
  const DeviceGuard guard(gpu);
  void* const stream = current_stream(gpu);
  PlanOwner owner;
  if (is_capturing(stream)) {
    context.keep_for_graphs();
    const gemmtune_status status = gemmtune_plan_find(context.get(), &problem, &owner.plan);
    if (status == GEMMTUNE_NOT_FOUND) fail_not_planned("run this size");
    check(status);
    gemmtune_plan_retain(owner.plan);  // for ever: the graph may be replayed after a reload dropped the plan
  } else {
    check(gemmtune_plan_create(context.get(), &problem, &owner.plan));
  }
  run_plan(gpu, owner.plan, info_of(owner.plan).workspace_bytes, operands, stream);
}

inline void run(int gpu, const gemmtune_problem& problem, const gemmtune_operands& operands) {
  if (gpu >= 0) return run_on_gpu(gpu, problem, operands);
  check(gemmtune_gemm(ContextUse(-1).get(), &problem, &operands, nullptr));
}

inline void require_device(const char* name, const Argument& tensor, int gpu, const char* first = "x") {
  if (tensor && tensor.gpu(name) != gpu)
    fail(GEMMTUNE_INVALID_ARGUMENT,
         std::string(name) + " is on another device than " + first + ", expected it beside " + first);
}

/// A call of any operation but silu_and_mul. gemmtune_read_arrays() decides whether its tensors are right.
struct Call {
  Argument x, w, bias, x_scale, w_scale, x_global_scale, w_global_scale, w_zero_points, w2, w2_scale, bias2,
      topk_ids, topk_weights, w2_global_scale, w2_zero_points, out;
  gemmtune_problem problem{};
  gemmtune_moe moe{};
  std::int32_t out_dtype = -1;

  explicit Call(gemmtune_operation operation) {
    problem.size = sizeof problem;
    problem.operation = operation;
    arrays_.size = sizeof arrays_;
    operands_.size = sizeof operands_;
  }

  /// `packed_n` is the rows of a weight that is not plain.
  void set_layout(std::int64_t layout, std::int64_t packed_n) {
    problem.weight_layout = static_cast<gemmtune_layout>(layout);
    if (layout != GEMMTUNE_LAYOUT_PLAIN) problem.n = packed_n;
  }

  void run() {
    const bool mixture = problem.operation == GEMMTUNE_FUSED_MOE;
    refuse_gradient({&x, &w, &bias, &x_scale, &w_scale, &x_global_scale, &w_global_scale, &w_zero_points, &w2,
                     &w2_scale, &bias2, &topk_ids, &topk_weights, &w2_global_scale, &w2_zero_points, &out});
    gpu_ = x.gpu("x");
    add("x", x, arrays_.x);
    add(mixture ? "w1" : "w", w, arrays_.w);
    add(mixture ? "bias1" : "bias", bias, arrays_.bias);
    add("x_scale", x_scale, arrays_.x_scale);
    add(mixture ? "w1_scale" : "w_scale", w_scale, arrays_.w_scale);
    add("x_global_scale", x_global_scale, arrays_.x_global_scale);
    add(mixture ? "w1_global_scale" : "w_global_scale", w_global_scale, arrays_.w_global_scale);
    add(mixture ? "w1_zero_points" : "w_zero_points", w_zero_points, arrays_.w_zero_points);
    add("out", out, arrays_.out);
    if (mixture) add_experts();
    if (out_dtype >= 0) set_result_type();
    read();
    if (!out) {
      out.reset(make_result(x, operands_.ldy, torch_type_of(problem.y_type), gpu_));
      operands_.y = out.data();  // PyTorch's memory begins at multiples of 64
    }
    torch_shim::run(gpu_, problem, operands_);
  }

  /// Runs a call of one weight if a tuned row answers it; `out`, made here if the caller gave none, has the result then. False if none
  /// does, or if the tensors are not what gemmtune reads and writes without a copy of x or `out`. takes_untuned: what no row answers
  /// runs as any other call, by the row of another M or the default kernel.
  bool run_if_tuned(bool takes_untuned = false) {
    refuse_gradient({&x, &w, &bias, &x_scale, &w_scale, &out});
    gpu_ = x.gpu("x");
    add("x", x, arrays_.x);
    add("w", w, arrays_.w);
    add("bias", bias, arrays_.bias);
    add("w_scale", w_scale, arrays_.w_scale);
    const bool copies_scale = x_scale && x_scale.dim() == 2 && x_scale.size(1) > 1 && x_scale.stride(1) != 1;
    // Copied once it is known that a row answers.
    if (copies_scale) x_scale.describe_as(x_scale.size(0), x_scale.size(1), x_scale.size(1));
    add("x_scale", x_scale, arrays_.x_scale);
    add("out", out, arrays_.out);
    if (out_dtype >= 0) set_result_type();
    const gemmtune_array* strided = nullptr;
    const auto is_read = [&] {
      return gemmtune_read_arrays(&arrays_, &problem, &operands_, &strided) == GEMMTUNE_OK &&
             strided == nullptr;
    };
    if (!is_read()) return false;
    ContextUse context(gpu_);
    if (gpu_ < 0) return run_tuned_plan(context, nullptr, copies_scale, takes_untuned);
    const DeviceGuard guard(gpu_);
    return run_tuned_plan(context, current_stream(gpu_), copies_scale, takes_untuned);
  }

 private:
  /// While a stream is captured only sizes that were planned before are answered.
  bool run_tuned_plan(ContextUse& context, void* stream, bool copies_scale, bool takes_untuned) {
    PlanOwner owner;
    const bool captures = gpu_ >= 0 && is_capturing(stream);
    const auto create = takes_untuned ? gemmtune_plan_create : gemmtune_plan_create_tuned;
    const gemmtune_status status =
        (captures ? gemmtune_plan_find : create)(context.get(), &problem, &owner.plan);
    if (status != GEMMTUNE_OK || owner.plan == nullptr) return false;
    const gemmtune_plan_info info = info_of(owner.plan);
    // A plan that was found may be of another caller, who takes rows of another M and the fallback.
    const bool is_tuned = info.match != GEMMTUNE_MATCH_UNTUNED && info.match != GEMMTUNE_MATCH_FINE &&
                          info.match != GEMMTUNE_MATCH_COARSE;
    if (!is_tuned && !takes_untuned) return false;
    if (captures) {
      context.keep_for_graphs();
      gemmtune_plan_retain(owner.plan);  // as in run_on_gpu()
    }
    if (copies_scale) {
      Argument dense(make_result(x_scale, x_scale.size(1), x_scale.dtype(), gpu_));
      check_torch(torch.aoti_torch_copy_(dense.handle(), x_scale.handle(), 0), "to copy x_scale");
      operands_.x_scale = dense.data();
      x_scale.take(dense);  // lives as long as the call
    }
    if (!out) {
      out.reset(make_result(x, operands_.ldy, torch_type_of(problem.y_type), gpu_));
      operands_.y = out.data();
    }
    run_plan(gpu_, owner.plan, info.workspace_bytes, operands_, stream);
    return true;
  }

  void add(const char* name, Argument& tensor, const gemmtune_array*& member) {
    if (!tensor) return;
    require_device(name, tensor, gpu_);
    described_[count_] = tensor.describe();
    member = &described_[count_];
    tensors_[count_++] = &tensor;
  }

  void add_experts() {
    add("w2", w2, arrays_.w2);
    add("w2_scale", w2_scale, arrays_.w2_scale);
    add("bias2", bias2, arrays_.bias2);
    add("topk_ids", topk_ids, arrays_.topk_ids);
    add("topk_weights", topk_weights, arrays_.topk_weights);
    add("w2_global_scale", w2_global_scale, arrays_.w2_global_scale);
    add("w2_zero_points", w2_zero_points, arrays_.w2_zero_points);
    moe.size = sizeof moe;
    moe_operands_.size = sizeof moe_operands_;
    arrays_.moe = &moe;
    arrays_.moe_operands = &moe_operands_;
  }

  void set_result_type() {
    problem.y_type = type_of(out_dtype);
    if (problem.y_type == GEMMTUNE_TYPE_UNSET)
      fail(GEMMTUNE_INVALID_ARGUMENT,
           "dtype of the result is one that gemmtune does not know, expected bf16, f16 or f32");
  }

  void read() {
    while (true) {
      const gemmtune_array* strided = nullptr;
      check(gemmtune_read_arrays(&arrays_, &problem, &operands_, &strided));
      if (strided == nullptr) return;
      const auto i = static_cast<std::size_t>(strided - described_.data());
      make_contiguous(*tensors_[i], gpu_);
      described_[i] = tensors_[i]->describe();
    }
  }

  int gpu_ = -1;
  std::size_t count_ = 0;
  std::array<gemmtune_array, max_operands> described_;  // the first count_ of them
  std::array<Argument*, max_operands> tensors_;
  gemmtune_arrays arrays_{};
  gemmtune_operands operands_{};
  gemmtune_moe_operands moe_operands_{};
};

}  // namespace gemmtune::torch_shim
