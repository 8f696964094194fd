// PyTorch's operators torch.ops.gemmtune.*: each reads its tensors through PyTorch's stable C interface, makes the problem and
// the operands of the C interface and runs them on the current stream. Functional operators make their result, those that end
// in _out write one. python/gemmtune/torch loads this library and registers what is Python's (fake kernels, autograd).
#include <dlfcn.h>
#include <gemmtune/c.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "torch_shim.h"

namespace gemmtune::torch_shim {
namespace {

Functions torch{};

// ---- errors --------------------------------------------------------------------------------------------------------

/// Of this thread's last failure, for gemmtune.torch, which raises the exception of that kind.
thread_local int last_status = GEMMTUNE_OK;
/// Beside the codes of gemmtune_status: no plan, and the stream is being captured.
constexpr int not_planned = 100;
/// Autograd wants a gradient of the result.
constexpr int needs_gradient = 101;
const char* gradient_sentence = "";

[[noreturn]] void fail(int status, const std::string& sentence) {
  last_status = status;
  throw std::runtime_error("gemmtune: " + sentence);
}

void check(gemmtune_status status) {
  if (status != GEMMTUNE_OK) fail(status, gemmtune_last_error());
}

void check_torch(Failed failed, const char* what) {
  if (failed != 0) fail(GEMMTUNE_INTERNAL, std::string("PyTorch refuses ") + what);
}

// ---- devices and types ---------------------------------------------------------------------------------------------

std::int32_t cpu_type = 0;
std::int32_t cuda_type = 1;

constexpr std::size_t max_gpus = 64;
/// The context of a device, and the calls in it. A call counts in one of two phases: who replaces the context changes the phase, so
/// that calls that begin meanwhile do not keep it waiting.
struct ContextSlot {
  std::atomic<gemmtune_context*> context{nullptr};
  std::atomic<unsigned> phase{0};
  std::array<std::atomic<long>, 2> calls{};
  std::atomic<bool> is_in_graphs{false};  // graphs hold kernels of this context
};
ContextSlot cpu_slot;
std::array<ContextSlot, max_gpus> gpu_slots;
std::atomic<int> gpus_used{0};
/// Opens the context of a device (`gpu` below 0: the CPU) and sets it; answers 0, else its sentence stands in `message`.
using Opener = int (*)(int gpu, char* message, std::size_t capacity);
Opener opener = nullptr;

ContextSlot& context_slot(int gpu) { return gpu < 0 ? cpu_slot : gpu_slots[static_cast<std::size_t>(gpu)]; }

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
void forget_parents_calls() {
  static pid_t process = getpid();
  if (std::exchange(process, getpid()) == process) return;
  const auto forget = [](ContextSlot& slot) {
    for (std::atomic<long>& calls : slot.calls) calls.store(0);
  };
  forget(cpu_slot);
  std::for_each(gpu_slots.begin(), gpu_slots.end(), forget);
}

/// Waits until no call that began before is in the slot's former context. False if one is still there after ten seconds.
bool wait_for_calls(ContextSlot& slot) {
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
std::array<TypePair, 10> type_pairs{};
std::size_t type_pair_count = 0;
std::int32_t int32_type = 0;

void list_types() {
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

gemmtune_type type_of(std::int32_t dtype) {
  for (std::size_t i = 0; i < type_pair_count; ++i)
    if (type_pairs[i].torch == dtype) return type_pairs[i].ours;
  return GEMMTUNE_TYPE_UNSET;
}

std::int32_t torch_type_of(gemmtune_type type) {
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

Tensor tensor_of(Value value) { return reinterpret_cast<Tensor>(value); }

/// What an optional argument holds; its cell on the heap is this library's to free.
Value take_optional(Value value, Value absent) {
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
bool may_be_differentiated() {
  if (torch.aoti_torch_grad_mode_is_enabled() || torch.forward_level == nullptr) return true;
  return torch.forward_level(0) != nullptr;
}

constexpr const char* needs_gradient_schema =
    "needs_gradient(Tensor? a, Tensor? b, Tensor? c, Tensor? d, Tensor? e, Tensor? f, Tensor? g, Tensor? h, "
    "Tensor? i, "
    "Tensor? j, Tensor? k) -> bool";
constexpr std::size_t max_operands = 11;

/// Refuses operands of which a derivative is wanted. The stable interface does not say which do: an operator in Python does.
void refuse_gradient(std::initializer_list<const Argument*> operands) {
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
Tensor make_result(const Argument& x, std::int64_t columns, std::int32_t dtype, int gpu) {
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
void make_contiguous(Argument& tensor, int gpu) {
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

bool is_capturing(void* stream) {
  static const auto ask = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return driver == nullptr ? nullptr
                             : reinterpret_cast<StreamIsCapturing>(dlsym(driver, "cuStreamIsCapturing"));
  }();
  int status = 0;
  return ask != nullptr && ask(stream, &status) == 0 && status != 0;
}

void* current_stream(int gpu) {
  void* stream = nullptr;
  if (torch.aoti_torch_get_current_cuda_stream == nullptr)
    fail(GEMMTUNE_UNSUPPORTED, "this PyTorch was built without CUDA");
  check_torch(torch.aoti_torch_get_current_cuda_stream(gpu, &stream), "the current stream");
  return stream;
}

/// `what` would have had to happen before. Behind a call that failed.
[[noreturn]] void fail_not_planned(const char* what) {
  fail(not_planned, std::string(gemmtune_last_error()) +
                        ", and the stream is being captured into a graph, where no kernel can be compiled or "
                        "loaded; " +
                        what + " once before the capture, or call gemmtune.torch.warm(model, Ms)");
}

struct PlanOwner {
  gemmtune_plan* plan = nullptr;
  ~PlanOwner() { gemmtune_plan_release(plan); }
};

gemmtune_plan_info info_of(const gemmtune_plan* plan) {
  gemmtune_plan_info info{};
  info.size = sizeof info;
  check(gemmtune_plan_get_info(plan, &info));
  return info;
}

/// The workspace is PyTorch's: on a GPU it belongs to the stream, and to the graph while one is captured.
void run_plan(int gpu, const gemmtune_plan* plan, std::size_t workspace_bytes,
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

void run_on_gpu(int gpu, const gemmtune_problem& problem, const gemmtune_operands& operands) {
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

void run(int gpu, const gemmtune_problem& problem, const gemmtune_operands& operands) {
  if (gpu >= 0) return run_on_gpu(gpu, problem, operands);
  check(gemmtune_gemm(ContextUse(-1).get(), &problem, &operands, nullptr));
}

void require_device(const char* name, const Argument& tensor, int gpu, const char* first = "x") {
  if (tensor && tensor.gpu(name) != gpu)
    fail(GEMMTUNE_INVALID_ARGUMENT,
         std::string(name) + " is on another device than " + first + ", expected it beside " + first);
}

/// A call of any operation but silu_and_mul. gemmtune_read_arrays() decides whether its tensors are right.
struct Call {
  Argument x, w, bias, x_scale, w_scale, w2, w2_scale, bias2, topk_ids, topk_weights, out;
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
    refuse_gradient(
        {&x, &w, &bias, &x_scale, &w_scale, &w2, &w2_scale, &bias2, &topk_ids, &topk_weights, &out});
    gpu_ = x.gpu("x");
    add("x", x, arrays_.x);
    add(mixture ? "w1" : "w", w, arrays_.w);
    add(mixture ? "bias1" : "bias", bias, arrays_.bias);
    add("x_scale", x_scale, arrays_.x_scale);
    add(mixture ? "w1_scale" : "w_scale", w_scale, arrays_.w_scale);
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

  /// Runs a call of one weight if a tuned row answers it; `out` has the result then. False if none does, or if the tensors are not
  /// what gemmtune reads without a copy of x.
  bool run_if_tuned() {
    refuse_gradient({&x, &w, &bias, &x_scale, &w_scale});
    gpu_ = x.gpu("x");
    add("x", x, arrays_.x);
    add("w", w, arrays_.w);
    add("bias", bias, arrays_.bias);
    add("w_scale", w_scale, arrays_.w_scale);
    const bool copies_scale = x_scale && x_scale.dim() == 2 && x_scale.size(1) > 1 && x_scale.stride(1) != 1;
    // Copied once it is known that a row answers.
    if (copies_scale) x_scale.describe_as(x_scale.size(0), x_scale.size(1), x_scale.size(1));
    add("x_scale", x_scale, arrays_.x_scale);
    if (out_dtype >= 0) set_result_type();
    const gemmtune_array* strided = nullptr;
    const auto is_read = [&] {
      return gemmtune_read_arrays(&arrays_, &problem, &operands_, &strided) == GEMMTUNE_OK && strided == nullptr;
    };
    if (!is_read()) return false;
    ContextUse context(gpu_);
    if (gpu_ < 0) return run_tuned_plan(context, nullptr, copies_scale);
    const DeviceGuard guard(gpu_);
    return run_tuned_plan(context, current_stream(gpu_), copies_scale);
  }

 private:
  /// While a stream is captured only sizes that were planned before are answered.
  bool run_tuned_plan(ContextUse& context, void* stream, bool copies_scale) {
    PlanOwner owner;
    const bool captures = gpu_ >= 0 && is_capturing(stream);
    const gemmtune_status status = captures
                                       ? gemmtune_plan_find(context.get(), &problem, &owner.plan)
                                       : gemmtune_plan_create_tuned(context.get(), &problem, &owner.plan);
    if (status != GEMMTUNE_OK || owner.plan == nullptr) return false;
    const gemmtune_plan_info info = info_of(owner.plan);
    if (info.match == GEMMTUNE_MATCH_UNTUNED) return false;
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
    out.reset(make_result(x, operands_.ldy, torch_type_of(problem.y_type), gpu_));
    operands_.y = out.data();
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
  std::array<gemmtune_array, 11> described_;  // the first count_ of them
  std::array<Argument*, 11> tensors_;
  gemmtune_arrays arrays_{};
  gemmtune_operands operands_{};
  gemmtune_moe_operands moe_operands_{};
};

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
  call.run();
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

// ---- a tuned row's kernel, else another operator ------------------------------------------------------------------------

/// Calls another operator. It takes its arguments from the stack, owns them, and leaves its result there.
void call_operator(const char* name, Value* stack) {
  check_torch(torch.aoti_torch_call_dispatcher(name, "", stack), name);
}

Value optional_value(Argument& tensor) {
  return tensor ? reinterpret_cast<Value>(new Value(reinterpret_cast<Value>(tensor.release()))) : 0;
}

/// x · wᵀ (+ bias); aten::linear where no row answers.
void tuned_linear(Value* values, std::uint64_t, std::uint64_t) {
  Call call(GEMMTUNE_A16W16);
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  call.bias.reset(stack.optional_tensor());
  call.problem.constant_weights = call.problem.predecessor_triggers = stack.flag() ? 1 : 0;
  if (call.run_if_tuned()) {
    values[0] = reinterpret_cast<Value>(call.out.release());
    return;
  }
  std::array<Value, 3> others{reinterpret_cast<Value>(call.x.release()),
                              reinterpret_cast<Value>(call.w.release()), optional_value(call.bias)};
  call_operator("aten::linear", others.data());
  values[0] = others[0];
}

/// What the operands of a tuned_scaled_linear are.
enum class Scaled : std::int64_t { per_tensor, per_token, blocks };
/// Its operator where no row answers; other values are a key of the operator in Python.
constexpr std::int64_t cutlass_operator = 1;
constexpr std::int64_t deep_gemm_operator = 2;
constexpr const char* python_operator = "gemmtune_vllm::stock_scaled_linear";

gemmtune_operation operation_of(Scaled kind) {
  if (kind == Scaled::per_token) return GEMMTUNE_A8W8;
  return kind == Scaled::blocks ? GEMMTUNE_A8W8_BLOCKSCALE : GEMMTUNE_A16W16;
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
  const std::int64_t k = w.size(0);
  if (w.stride(0) != 1 || w.stride(1) != k) return false;
  w.describe_as(w.size(1), k, k);
  if (call.x_scale.elements() == 1 || kind == Scaled::per_tensor) return call.x_scale.elements() == 1;
  Argument& scale = call.x_scale;
  const bool is_column = scale.dim() == 1 || (scale.dim() == 2 && scale.size(1) == 1);
  if (!is_column || (scale.size(0) != rows && scale.size(0) != padded)) return false;
  if (scale.size(0) != rows) scale.describe_as(rows, 1, scale.stride(0));
  return true;
}

/// vLLM's fp8 products of x [rows or more, K] with scales; another operator where no row answers.
void tuned_scaled_linear(Value* values, std::uint64_t, std::uint64_t) {
  Stack stack(values);
  Argument x(stack.tensor()), w(stack.tensor()), x_scale(stack.tensor()), w_scale(stack.tensor()), bias;
  bias.reset(stack.optional_tensor());
  const std::int64_t rows = stack.integer();
  const auto out_dtype = static_cast<std::int32_t>(stack.integer());
  const auto kind = static_cast<Scaled>(stack.integer());
  const std::int64_t other = stack.integer();
  const std::int64_t padded = x.dim() == 2 ? x.size(0) : -1;
  {
    Call call(operation_of(kind));
    call.x.reset(x.share());
    call.w.reset(w.share());
    call.x_scale.reset(x_scale.share());
    call.w_scale.reset(w_scale.share());
    if (bias) call.bias.reset(bias.share());
    call.out_dtype = out_dtype;
    if (describe_scaled(call, kind, rows) && call.run_if_tuned()) {
      values[0] = reinterpret_cast<Value>(call.out.release());
      return;
    }
  }
  if (other == cutlass_operator && padded == rows) {
    Argument out(make_result(x, w.size(1), out_dtype, x.gpu("x")));
    std::array<Value, 6> others{reinterpret_cast<Value>(out.share()),     reinterpret_cast<Value>(x.release()),
                                reinterpret_cast<Value>(w.release()),     reinterpret_cast<Value>(x_scale.release()),
                                reinterpret_cast<Value>(w_scale.release()), optional_value(bias)};
    call_operator("_C::cutlass_scaled_mm", others.data());
    values[0] = reinterpret_cast<Value>(out.release());
    return;
  }
  if (other == deep_gemm_operator) {
    Argument out(make_result(x, w.size(0), out_dtype, x.gpu("x")));
    const Value scales_are_e8m0 = 0;
    std::array<Value, 6> others{reinterpret_cast<Value>(x.release()),       reinterpret_cast<Value>(x_scale.release()),
                                reinterpret_cast<Value>(w.release()),       reinterpret_cast<Value>(w_scale.release()),
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
    {"batched_bf16", "batched_bf16(Tensor x, Tensor w, Tensor? bias=None) -> Tensor",
     &batched<GEMMTUNE_BATCHED_BF16, false>},
    {"batched_bf16_out", "batched_bf16_out(Tensor x, Tensor w, Tensor? bias=None, *, Tensor(a!) out) -> ()",
     &batched<GEMMTUNE_BATCHED_BF16, true>},
    {"batched_a8w8", "batched_a8w8(" SCALED ", Tensor? bias=None) -> Tensor",
     &batched<GEMMTUNE_BATCHED_A8W8, false>},
    {"batched_a8w8_out", "batched_a8w8_out(" SCALED ", Tensor? bias=None, *, Tensor(a!) out) -> ()",
     &batched<GEMMTUNE_BATCHED_A8W8, true>},
    {"fused_moe", "fused_moe(" MOE ", " MOE_WORDS ", ScalarType? out_dtype=None) -> Tensor",
     &fused_moe<false>},
    {"fused_moe_out", "fused_moe_out(" MOE ", *, Tensor(a!) out, " MOE_WORDS ") -> ()", &fused_moe<true>},
    {"tuned_linear", "tuned_linear(Tensor x, Tensor w, Tensor? bias=None, bool constant_weight=False) -> Tensor",
     &tuned_linear},
    {"tuned_scaled_linear",
     "tuned_scaled_linear(" SCALED
     ", Tensor? bias, SymInt rows, ScalarType out_dtype, int kind, int other) -> Tensor",
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
