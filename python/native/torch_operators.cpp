// PyTorch's operators torch.ops.gemmtune.*: each reads its tensors through PyTorch's stable C interface, makes the problem and
// the operands of the C interface and runs them on the current stream. Functional operators make their result, those that end
// in _out write one. python/gemmtune/torch loads this library and registers what is Python's (fake kernels, autograd).
#include <dlfcn.h>
#include <gemmtune/c.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <string>
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
std::atomic<gemmtune_context*> cpu_context{nullptr};
std::array<std::atomic<gemmtune_context*>, max_gpus> gpu_contexts{};
std::atomic<int> gpus_used{0};
/// Opens the context of a device (`gpu` below 0: the CPU) and sets it; answers 0, else its sentence stands in `message`.
using Opener = int (*)(int gpu, char* message, std::size_t capacity);
Opener opener = nullptr;

std::atomic<gemmtune_context*>& context_slot(int gpu) {
  return gpu < 0 ? cpu_context : gpu_contexts[static_cast<std::size_t>(gpu)];
}

gemmtune_context* context_of(int gpu) {
  if (gemmtune_context* const known = context_slot(gpu).load(std::memory_order_acquire)) return known;
  std::array<char, 2048> message{};
  const int status = opener(gpu, message.data(), message.size());
  if (status != 0) fail(status, message.data());
  return context_slot(gpu).load(std::memory_order_acquire);
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
  std::int64_t size(std::int64_t i) const { return sizes_[i < 0 ? dim_ + i : i]; }
  std::int64_t stride(std::int64_t i) const { return strides_[i < 0 ? dim_ + i : i]; }
  std::int32_t dtype() const { return dtype_; }
  gemmtune_type type() const { return type_of(dtype_); }
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t i = 0; i < dim_; ++i) product *= sizes_[i];
    return product;
  }
  bool is_dense() const {
    std::int64_t expected = 1;
    for (std::int64_t i = dim_ - 1; i >= 0; --i) {
      if (sizes_[i] != 1 && strides_[i] != expected) return false;
      expected *= sizes_[i];
    }
    return true;
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
  std::string shape() const {
    std::string text = "[";
    for (std::int64_t i = 0; i < dim_; ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes_[i]);
    return text + "]";
  }
  std::string strides() const {
    std::string text = "[";
    for (std::int64_t i = 0; i < dim_; ++i) text += (i > 0 ? ", " : "") + std::to_string(strides_[i]);
    return text + "]";
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

/// Refuses operands of which autograd wants a gradient. The stable interface does not say which do: an operator in Python does.
void refuse_gradient(const Argument& x, const Argument& w, const Argument& third) {
  if (!torch.aoti_torch_grad_mode_is_enabled()) return;
  const auto optional = [](const Argument& tensor) {
    return tensor ? reinterpret_cast<Value>(new Value(reinterpret_cast<Value>(tensor.share()))) : Value{0};
  };
  std::array<Value, 3> stack{reinterpret_cast<Value>(x.share()), optional(w), optional(third)};
  check_torch(torch.aoti_torch_call_dispatcher("gemmtune::needs_gradient", "", stack.data()),
              "to say what needs a gradient");
  if ((stack[0] & 0xff) != 0) fail(needs_gradient, gradient_sentence);
}

// ---- a call --------------------------------------------------------------------------------------------------------

/// The rows of x or y as one dimension.
struct Rows {
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  std::int64_t distance = 0;  // of rows, in elements; of column-major ones of columns
  bool column_major = false;
};

[[noreturn]] void fail_strides(const char* name, const Argument& tensor, const char* expected) {
  fail(GEMMTUNE_INVALID_ARGUMENT, std::string(name) + " has strides " + tensor.strides() + " and shape " +
                                      tensor.shape() + ", expected " + expected);
}

bool is_column_major(const Argument& tensor) {
  return tensor.dim() == 2 && tensor.size(0) > 1 && tensor.size(1) > 1 && tensor.stride(0) == 1 &&
         tensor.stride(1) >= tensor.size(0);
}

/// Whether the rows of a tensor are contiguous and at one distance, and then how they lie.
bool find_rows(const Argument& tensor, Rows& found) {
  found = {};
  found.columns = tensor.size(-1);
  found.distance = found.columns;
  if (found.columns > 1 && tensor.stride(-1) != 1) return false;
  for (std::int64_t i = tensor.dim() - 2; i >= 0; --i) {
    const std::int64_t size = tensor.size(i);
    if (size > 1 && found.rows == 1) found.distance = tensor.stride(i);
    if (size > 1 && found.rows > 1 && tensor.stride(i) != found.rows * found.distance) return false;
    found.rows *= size;
    if (found.rows == 0) break;
  }
  for (std::int64_t i = 0; i < tensor.dim() - 1; ++i)
    if (tensor.size(i) == 0) found.rows = 0;
  return found.rows <= 1 || found.distance >= found.columns;
}

void require_dimension(const char* name, const Argument& tensor) {
  if (tensor.dim() < 1)
    fail(GEMMTUNE_INVALID_ARGUMENT, std::string(name) + " has no dimension, expected at least one");
}

Rows rows_of_result(const Argument& out) {
  require_dimension("out", out);
  Rows found;
  if (!find_rows(out, found)) fail_strides("out", out, "contiguous rows at one distance");
  return found;
}

gemmtune_problem new_problem(gemmtune_operation operation, const Argument& x, const Argument& w) {
  gemmtune_problem problem{};
  problem.size = sizeof problem;
  problem.operation = operation;
  problem.x_type = x.type();
  problem.w_type = w.type();
  for (const auto& [name, tensor] : {std::pair("x", &x), std::pair("w", &w)}) {
    if (tensor->type() == GEMMTUNE_TYPE_UNSET)
      fail(GEMMTUNE_INVALID_ARGUMENT,
           std::string("dtype of ") + name +
               " is one that gemmtune does not know, expected bf16, f16, f32, fp8 e4m3, int8 or uint8");
  }
  return problem;
}

std::int64_t bytes_of(gemmtune_type type) {
  return type == GEMMTUNE_F32 ? 4 : type == GEMMTUNE_F16 || type == GEMMTUNE_BF16 ? 2 : 1;
}

bool is_float(gemmtune_type type) {
  return type == GEMMTUNE_BF16 || type == GEMMTUNE_F16 || type == GEMMTUNE_F32;
}

/// What the result's type is if nobody says it.
gemmtune_type default_y(gemmtune_type x) { return is_float(x) ? x : GEMMTUNE_BF16; }

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

/// The rows of x; an x whose rows are not at one distance is copied, as PyTorch's own operators do.
Rows rows_of_x(Argument& x, int gpu, bool may_be_column_major) {
  require_dimension("x", x);
  Rows found;
  if (find_rows(x, found)) return found;
  if (may_be_column_major && is_column_major(x)) {
    found = {x.size(0), x.size(1), x.stride(1), true};
    return found;
  }
  Argument dense(make_result(x, x.size(-1), x.dtype(), gpu));
  check_torch(torch.aoti_torch_copy_(dense.handle(), x.handle(), 0), "to copy x");
  x.take(dense);
  find_rows(x, found);
  return found;
}

/// 16 bytes, or less if a pointer is a multiple of less.
std::int32_t alignment_of(const gemmtune_operands& operands) {
  std::uintptr_t together = 16;
  for (const void* pointer : {operands.x, operands.w, operands.bias, static_cast<const void*>(operands.y)})
    together |= reinterpret_cast<std::uintptr_t>(pointer);
  return static_cast<std::int32_t>(together & (~together + 1));
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

/// On a GPU the workspace is PyTorch's: it belongs to the stream, and to the graph while one is captured.
void run_on_gpu(int gpu, const gemmtune_problem& problem, const gemmtune_operands& operands) {
  gemmtune_context* const context = context_of(gpu);
  const DeviceGuard guard(gpu);
  void* const stream = current_stream(gpu);
  PlanOwner owner;
  if (is_capturing(stream)) {
    const gemmtune_status status = gemmtune_plan_find(context, &problem, &owner.plan);
    if (status == GEMMTUNE_NOT_FOUND) fail_not_planned("run this size");
    check(status);
    gemmtune_plan_retain(owner.plan);  // for ever: the graph may be replayed after a reload dropped the plan
  } else {
    check(gemmtune_plan_create(context, &problem, &owner.plan));
  }
  gemmtune_plan_info info{};
  info.size = sizeof info;
  check(gemmtune_plan_get_info(owner.plan, &info));
  Argument workspace;
  if (info.workspace_bytes > 0) {
    const std::int64_t size = static_cast<std::int64_t>(info.workspace_bytes);
    const std::int64_t stride = 1;
    Tensor made = nullptr;
    check_torch(torch.aoti_torch_empty_strided(1, &size, &stride, torch.aoti_torch_dtype_uint8(), cuda_type,
                                               gpu, &made),
                "to allocate a workspace");
    workspace.reset(made);
  }
  check(gemmtune_plan_run(owner.plan, &operands, workspace ? workspace.data() : nullptr, stream));
}

void run(int gpu, gemmtune_problem& problem, const gemmtune_operands& operands) {
  problem.alignment = alignment_of(operands);
  if (gpu >= 0) return run_on_gpu(gpu, problem, operands);
  check(gemmtune_gemm(context_of(-1), &problem, &operands, nullptr));
}

void require_device(const char* name, const Argument& tensor, int gpu, const char* first = "x") {
  if (tensor && tensor.gpu(name) != gpu)
    fail(GEMMTUNE_INVALID_ARGUMENT,
         std::string(name) + " is on another device than " + first + ", expected it beside " + first);
}

void read_bias(const Argument& bias, gemmtune_problem& problem, gemmtune_operands& operands) {
  if (!bias) return;
  if (bias.dim() != 1 || bias.size(0) != problem.n || !bias.is_dense())
    fail(GEMMTUNE_INVALID_ARGUMENT,
         "bias has shape " + bias.shape() + ", expected [" + std::to_string(problem.n) + "], contiguous");
  if (bias.type() != problem.y_type)
    fail(GEMMTUNE_INVALID_ARGUMENT, "dtype of bias is not that of the result, expected the same");
  problem.bias = 1;
  operands.bias = bias.data();
}

/// A scale of `count` elements, or of one where `single` is there to say so. Read as bytes where `e8m0`.
gemmtune_scales scales_of(const gemmtune_problem& problem) {
  gemmtune_scales scales{};
  scales.size = sizeof scales;
  check(gemmtune_problem_scales(&problem, &scales));
  return scales;
}

/// Null if there are none. `one`, if not null, becomes 1 if one for all rows was given.
const void* read_scale(const char* name, const Argument& scale, std::int64_t count, gemmtune_type type,
                       std::int32_t* one = nullptr) {
  if (count == 0) return nullptr;
  if (!scale) fail(GEMMTUNE_NULL_POINTER, std::string(name) + " is missing: quantized operands have scales");
  const std::int64_t elements = scale.elements();
  if (elements != count && !(one != nullptr && elements == 1))
    fail(GEMMTUNE_INVALID_ARGUMENT, std::string(name) + " has " + std::to_string(elements) +
                                        " elements, expected " + std::to_string(count) +
                                        (one != nullptr ? " or 1" : ""));
  if (scale.type() != type)
    fail(GEMMTUNE_INVALID_ARGUMENT, std::string("dtype of ") + name +
                                        (type == GEMMTUNE_U8 ? " is not e8m0 or uint8" : " is not float32") +
                                        ", expected that");
  if (!scale.is_dense()) fail_strides(name, scale, "a dense tensor");
  if (one != nullptr && elements == 1) *one = 1;
  return scale.data();
}

/// The scales that the problem has.
void read_scales(const gemmtune_problem& problem, const Argument& x_scale, const Argument& w_scale,
                 gemmtune_operands& operands) {
  const gemmtune_scales scales = scales_of(problem);
  operands.x_scale = read_scale("x_scale", x_scale, scales.x, scales.x_type,
                                scales.x_or_one != 0 ? &operands.x_scale_per_tensor : nullptr);
  operands.w_scale = read_scale("w_scale", w_scale, scales.w, scales.w_type,
                                scales.w_or_one != 0 ? &operands.w_scale_per_tensor : nullptr);
}

struct Quantization {
  gemmtune_operation plain;
  gemmtune_operation packed;
};

/// The weight alone is of fp4, two elements to a byte.
bool is_weight_only(gemmtune_operation operation) {
  return operation == GEMMTUNE_A16W4 || operation == GEMMTUNE_A8W4;
}

/// x · wᵀ of one weight: linear, a8w8, a8w8_blockscale, a4w4_blockscale, a16w4, a8w4 and their _out forms.
struct Matmul {
  Argument x, w, bias, x_scale, w_scale, out;
  std::int64_t packed_n = 0;
  std::int64_t layout = GEMMTUNE_LAYOUT_PLAIN;
  std::int32_t out_dtype = -1;
  bool constant_weight = false;  // a dependent launch may read it before the kernel in front has ended

  void read_weight(gemmtune_problem& problem, gemmtune_operands& operands) const {
    operands.w = w.data();
    problem.weight_layout = static_cast<gemmtune_layout>(layout);
    if (layout != GEMMTUNE_LAYOUT_PLAIN) {
      problem.n = packed_n;
      if (!is_weight_only(problem.operation)) problem.w_type = problem.x_type;
      // Packed weights are never smaller than plain ones.
      if (w.type() != GEMMTUNE_U8 || !w.is_dense() || packed_n < 1 ||
          w.elements() <
              packed_n * problem.k * bytes_of(problem.w_type) / (is_weight_only(problem.operation) ? 2 : 1))
        fail(GEMMTUNE_INVALID_ARGUMENT,
             "w has shape " + w.shape() + ", expected the bytes of a packed weight [" +
                 std::to_string(packed_n) + ", " + std::to_string(problem.k) + "]");
      return;
    }
    const bool halves = problem.operation == GEMMTUNE_A4W4_BLOCKSCALE || is_weight_only(problem.operation);
    const std::int64_t per_element = halves ? 2 : 1;
    if (w.dim() != 2 || w.size(1) * per_element != problem.k)
      fail(GEMMTUNE_INVALID_ARGUMENT, "w has shape " + w.shape() + ", expected [N, " +
                                          std::to_string(problem.k / per_element) +
                                          "], because x has so many columns");
    problem.n = w.size(0);
    if (w.is_dense()) return;
    if (w.stride(0) != 1 || w.stride(1) != w.size(0) || halves)
      fail_strides("w", w, "a dense matrix or its transpose");
    problem.w_order = GEMMTUNE_COLUMN_MAJOR;
  }

  void run(Quantization quantization) {
    refuse_gradient(x, w, bias);
    gemmtune_problem problem =
        new_problem(layout == GEMMTUNE_LAYOUT_PLAIN ? quantization.plain : quantization.packed, x, w);
    const bool fp4 = problem.operation == GEMMTUNE_A4W4_BLOCKSCALE;
    if (fp4) problem.x_type = problem.w_type = GEMMTUNE_F4_E2M1;
    if (is_weight_only(problem.operation)) problem.w_type = GEMMTUNE_F4_E2M1;
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    const int gpu = x.gpu("x");
    require_device("w", w, gpu);
    require_device("bias", bias, gpu);
    require_device("x_scale", x_scale, gpu);
    require_device("w_scale", w_scale, gpu);
    const Rows rows = rows_of_x(x, gpu, !fp4 && !is_weight_only(problem.operation));
    problem.m = rows.rows;
    problem.k = rows.columns * (fp4 ? 2 : 1);
    problem.x_order = rows.column_major ? GEMMTUNE_COLUMN_MAJOR : GEMMTUNE_ROW_MAJOR;
    operands.x = x.data();
    operands.ldx = rows.distance * (fp4 ? 2 : 1);
    read_weight(problem, operands);
    if (!out) {
      const std::int32_t dtype = out_dtype >= 0 ? out_dtype : torch_type_of(default_y(problem.x_type));
      out.reset(make_result(x, problem.n, dtype, gpu));
    } else {
      require_device("out", out, gpu);
    }
    problem.constant_weights = problem.predecessor_triggers = constant_weight ? 1 : 0;
    problem.y_type = out.type();
    const Rows y = rows_of_result(out);
    if (out.dim() != x.dim() || y.rows != problem.m || y.columns != problem.n)
      fail(GEMMTUNE_INVALID_ARGUMENT, "out has shape " + out.shape() + ", expected x's " + x.shape() +
                                          " with " + std::to_string(problem.n) + " columns");
    operands.y = out.data();
    operands.ldy = y.distance;
    read_bias(bias, problem, operands);
    if (problem.operation == GEMMTUNE_A16W16 && (x_scale || w_scale)) problem.scale_ab = 1;
    if (quantization.plain == GEMMTUNE_A8W8_BLOCKSCALE)
      problem.e8m0_scales = w_scale.type() == GEMMTUNE_U8 ? 1 : 0;
    if (problem.operation != GEMMTUNE_A16W16 || problem.scale_ab != 0)
      read_scales(problem, x_scale, w_scale, operands);
    torch_shim::run(gpu, problem, operands);
  }
};

/// Both forms of an operator on one weight have these arguments: x, w, bias?, x_scale?, w_scale?, n, layout, then out or
/// out_dtype. a8w8_blockscale and a4w4_blockscale have no bias.
template <Quantization quantization, bool has_bias, bool into_out>
void matmul(Value* values, std::uint64_t, std::uint64_t) {
  Matmul call;
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  if constexpr (quantization.plain == GEMMTUNE_A16W16) {
    call.bias.reset(stack.optional_tensor());
    call.x_scale.reset(stack.optional_tensor());
    call.w_scale.reset(stack.optional_tensor());
  } else {
    if constexpr (quantization.plain != GEMMTUNE_A16W4) call.x_scale.reset(stack.tensor());
    call.w_scale.reset(stack.tensor());
    if constexpr (has_bias) call.bias.reset(stack.optional_tensor());
  }
  if constexpr (into_out) call.out.reset(stack.tensor());
  call.packed_n = stack.integer();
  call.layout = stack.integer();
  if constexpr (!into_out) call.out_dtype = stack.dtype();
  if constexpr (quantization.plain == GEMMTUNE_A16W16 && !into_out) call.constant_weight = stack.flag();
  call.run(quantization);
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

constexpr Quantization linear{GEMMTUNE_A16W16, GEMMTUNE_A16W16};

/// linear of a plain weight without scales. PyTorch needs 40 ns for each argument that a call leaves out, so most calls get
/// a schema with few.
template <bool into_out>
void plain_linear(Value* values, std::uint64_t, std::uint64_t) {
  Matmul call;
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  call.bias.reset(stack.optional_tensor());
  if constexpr (into_out) call.out.reset(stack.tensor());
  call.run(linear);
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

constexpr Quantization a8w8{GEMMTUNE_A8W8, GEMMTUNE_A8W8_BPRESHUFFLE};
constexpr Quantization a8w8_blockscale{GEMMTUNE_A8W8_BLOCKSCALE, GEMMTUNE_A8W8_BLOCKSCALE_BPRESHUFFLE};
constexpr Quantization a4w4_blockscale{GEMMTUNE_A4W4_BLOCKSCALE, GEMMTUNE_A4W4_BLOCKSCALE};
constexpr Quantization a16w4{GEMMTUNE_A16W4, GEMMTUNE_A16W4};
constexpr Quantization a8w4{GEMMTUNE_A8W4, GEMMTUNE_A8W4};

/// [B, M, K] · [B, N, K]ᵀ.
struct Batched {
  Argument x, w, bias, x_scale, w_scale, out;

  void run(gemmtune_operation operation) {
    refuse_gradient(x, w, bias);
    gemmtune_problem problem = new_problem(operation, x, w);
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    const int gpu = x.gpu("x");
    for (const auto& [name, tensor] :
         {std::pair("w", &w), std::pair("bias", &bias), std::pair("x_scale", &x_scale),
          std::pair("w_scale", &w_scale), std::pair("out", &out)})
      require_device(name, *tensor, gpu);
    if (x.dim() != 3 || w.dim() != 3 || w.size(0) != x.size(0) || w.size(2) != x.size(2))
      fail(GEMMTUNE_INVALID_ARGUMENT,
           "x and w have shapes " + x.shape() + " and " + w.shape() + ", expected [B, M, K] and [B, N, K]");
    if (!w.is_dense()) fail_strides("w", w, "a dense tensor");
    if (x.size(2) > 1 && x.stride(2) != 1) fail_strides("x", x, "contiguous rows");
    problem.batch = x.size(0);
    problem.m = x.size(1);
    problem.n = w.size(1);
    problem.k = x.size(2);
    operands.x = x.data();
    operands.w = w.data();
    operands.ldx = problem.m > 1 ? x.stride(1) : problem.k;
    operands.x_batch_stride = problem.batch > 1 ? x.stride(0) : 0;
    if (!out) out.reset(make_result(x, problem.n, torch_type_of(GEMMTUNE_BF16), gpu));
    if (out.dim() != 3 || out.size(0) != problem.batch || out.size(1) != problem.m ||
        out.size(2) != problem.n || (problem.n > 1 && out.stride(2) != 1))
      fail_strides("out", out, "[B, M, N] with contiguous rows");
    problem.y_type = out.type();
    operands.y = out.data();
    operands.ldy = problem.m > 1 ? out.stride(1) : problem.n;
    operands.y_batch_stride = problem.batch > 1 ? out.stride(0) : 0;
    read_bias(bias, problem, operands);
    if (operation == GEMMTUNE_BATCHED_A8W8) read_scales(problem, x_scale, w_scale, operands);
    torch_shim::run(gpu, problem, operands);
  }
};

template <gemmtune_operation operation, bool into_out>
void batched(Value* values, std::uint64_t, std::uint64_t) {
  Batched call;
  Stack stack(values);
  call.x.reset(stack.tensor());
  call.w.reset(stack.tensor());
  if constexpr (operation == GEMMTUNE_BATCHED_A8W8) {
    call.x_scale.reset(stack.tensor());
    call.w_scale.reset(stack.tensor());
  }
  call.bias.reset(stack.optional_tensor());
  if constexpr (into_out) call.out.reset(stack.tensor());
  call.run(operation);
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

struct Mixture {
  Argument x, w1, w2, topk_ids, topk_weights, x_scale, w1_scale, w2_scale, bias1, bias2, out;
  gemmtune_moe moe{};

  void check_shapes(const gemmtune_problem& problem, std::int64_t per_element) const {
    const auto require = [](const char* name, const Argument& tensor,
                            std::initializer_list<std::int64_t> shape) {
      bool same = tensor.dim() == static_cast<std::int64_t>(shape.size());
      std::string expected;
      std::int64_t i = 0;
      for (const std::int64_t size : shape) {
        same = same && tensor.size(i++) == size;
        expected += (expected.empty() ? "" : ", ") + std::to_string(size);
      }
      if (!same)
        fail(GEMMTUNE_INVALID_ARGUMENT,
             std::string(name) + " has shape " + tensor.shape() + ", expected [" + expected + "]");
      if (!tensor.is_dense()) fail_strides(name, tensor, "a dense tensor");
    };
    require("w1", w1, {moe.experts, problem.n * (moe.gated != 0 ? 2 : 1), problem.k / per_element});
    require("w2", w2, {moe.experts, problem.k, problem.n / per_element});
    require("topk_ids", topk_ids, {problem.m, topk_ids.size(1)});
    require("topk_weights", topk_weights, {problem.m, topk_ids.size(1)});
    require("out", out, {problem.m, problem.k});
    if (problem.bias != 0) {
      require("bias1", bias1, {moe.experts, w1.size(1)});
      require("bias2", bias2, {moe.experts, problem.k});
      if (bias1.type() != GEMMTUNE_F32 || bias2.type() != GEMMTUNE_F32)
        fail(GEMMTUNE_INVALID_ARGUMENT, "dtype of bias1 or bias2 is another one, expected float32");
    }
    if (topk_ids.dtype() != int32_type || topk_weights.type() != GEMMTUNE_F32)
      fail(GEMMTUNE_INVALID_ARGUMENT,
           "dtype of topk_ids or topk_weights is another one, expected int32 and float32");
  }

  void run(std::int32_t out_dtype) {
    refuse_gradient(x, w1, w2);
    gemmtune_problem problem = new_problem(GEMMTUNE_FUSED_MOE, x, w1);
    problem.bias = bias1 || bias2 ? 1 : 0;
    if (problem.bias != 0 && (!bias1 || !bias2))
      fail(GEMMTUNE_INVALID_ARGUMENT,
           std::string(bias1 ? "bias2" : "bias1") + " is missing, expected bias1 and bias2 or neither");
    if (x.dim() != 2 || w1.dim() != 3 || w2.dim() != 3 || topk_ids.dim() != 2 || !x.is_dense())
      fail(GEMMTUNE_INVALID_ARGUMENT, "x, w1, w2 and topk_ids have shapes " + x.shape() + ", " + w1.shape() +
                                          ", " + w2.shape() + " and " + topk_ids.shape() +
                                          ", expected 2, 3, 3 and 2 dimensions and a dense x");
    const bool bytes_are_fp4 = moe.quant_type == GEMMTUNE_QUANT_PER_1X32;
    if (problem.w_type == GEMMTUNE_U8) problem.w_type = GEMMTUNE_F4_E2M1;
    if (bytes_are_fp4 && problem.x_type == GEMMTUNE_U8) problem.x_type = GEMMTUNE_F4_E2M1;
    const bool halves = problem.w_type == GEMMTUNE_F4_E2M1 || problem.w_type == GEMMTUNE_I4;
    const std::int64_t per_element = halves ? 2 : 1;
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    gemmtune_moe_operands moe_operands{};
    moe_operands.size = sizeof moe_operands;
    const int gpu = x.gpu("x");
    for (const auto& [name, tensor] :
         {std::pair("w1", &w1), std::pair("w2", &w2), std::pair("topk_ids", &topk_ids),
          std::pair("topk_weights", &topk_weights), std::pair("x_scale", &x_scale),
          std::pair("w1_scale", &w1_scale), std::pair("w2_scale", &w2_scale), std::pair("bias1", &bias1),
          std::pair("bias2", &bias2)})
      require_device(name, *tensor, gpu);
    problem.m = x.size(0);
    problem.k = x.size(1) * (problem.x_type == GEMMTUNE_F4_E2M1 ? 2 : 1);
    problem.n = w2.size(2) * per_element;
    moe.size = sizeof moe;
    moe.experts = static_cast<std::int32_t>(w1.size(0));
    moe.topk = static_cast<std::int32_t>(topk_ids.size(1)) + moe.shared_experts;
    problem.moe = &moe;
    if (!out) {
      const std::int32_t dtype = out_dtype >= 0 ? out_dtype : torch_type_of(default_y(problem.x_type));
      out.reset(make_result(x, problem.k, dtype, gpu));
    } else {
      require_device("out", out, gpu);
    }
    check_shapes(problem, per_element);
    problem.y_type = out.type();
    operands.x = x.data();
    operands.w = w1.data();
    operands.y = out.data();
    const gemmtune_scales scales = scales_of(problem);
    operands.x_scale = read_scale("x_scale", x_scale, scales.x, scales.x_type);
    operands.w_scale = read_scale("w1_scale", w1_scale, scales.w, scales.w_type);
    moe_operands.w2 = w2.data();
    moe_operands.w2_scale = read_scale("w2_scale", w2_scale, scales.w2, scales.w2_type);
    moe_operands.topk_ids = static_cast<const std::int32_t*>(topk_ids.data());
    moe_operands.topk_weights = static_cast<const float*>(topk_weights.data());
    if (problem.bias != 0) {
      operands.bias = bias1.data();
      moe_operands.bias2 = static_cast<const float*>(bias2.data());
    }
    operands.moe = &moe_operands;
    torch_shim::run(gpu, problem, operands);
  }
};

template <bool into_out>
void fused_moe(Value* values, std::uint64_t, std::uint64_t) {
  Mixture call;
  Stack stack(values);
  for (Argument* tensor : {&call.x, &call.w1, &call.w2, &call.topk_ids, &call.topk_weights})
    tensor->reset(stack.tensor());
  for (Argument* tensor : {&call.x_scale, &call.w1_scale, &call.w2_scale})
    tensor->reset(stack.optional_tensor());
  if constexpr (into_out) call.out.reset(stack.tensor());
  call.moe.activation = static_cast<gemmtune_activation>(stack.integer());
  call.moe.quant_type = static_cast<gemmtune_quant_type>(stack.integer());
  call.moe.gated = stack.flag() ? 1 : 0;
  call.moe.doweight_stage1 = stack.flag() ? 1 : 0;
  call.moe.shared_experts = static_cast<std::int32_t>(stack.integer());
  for (Argument* tensor : {&call.bias1, &call.bias2}) tensor->reset(stack.optional_tensor());
  std::int32_t out_dtype = -1;
  if constexpr (!into_out) out_dtype = stack.dtype();
  call.run(out_dtype);
  if constexpr (!into_out) values[0] = reinterpret_cast<Value>(call.out.release());
}

// ---- between two products -------------------------------------------------------------------------------------------

/// silu(gate) · up.
struct Gated {
  Argument gate, up, out;

  void run() {
    refuse_gradient(gate, up, Argument());
    const int gpu = gate.gpu("gate");
    require_device("up", up, gpu, "gate");
    if (gate.type() == GEMMTUNE_TYPE_UNSET || up.dtype() != gate.dtype())
      fail(GEMMTUNE_INVALID_ARGUMENT,
           "dtype of gate or up is another one, expected one of bf16, f16 and f32 for both");
    bool same = gate.dim() == up.dim();
    for (std::int64_t i = 0; same && i < gate.dim(); ++i) same = gate.size(i) == up.size(i);
    if (!same)
      fail(GEMMTUNE_INVALID_ARGUMENT,
           "gate and up have shapes " + gate.shape() + " and " + up.shape() + ", expected the same");
    gemmtune_silu_and_mul_operands operands{};
    operands.size = sizeof operands;
    operands.type = gate.type();
    require_dimension("gate", gate);
    const Rows gates = rows_of_x(gate, gpu, false);
    const Rows ups = rows_of_x(up, gpu, false);
    if (!out) {
      out.reset(make_result(gate, gates.columns, gate.dtype(), gpu));
    } else {
      require_device("out", out, gpu, "gate");
    }
    const Rows results = rows_of_result(out);
    if (out.dtype() != gate.dtype() || results.rows != gates.rows || results.columns != gates.columns)
      fail(GEMMTUNE_INVALID_ARGUMENT,
           "out has shape " + out.shape() + ", expected gate's shape and type, " + gate.shape());
    operands.rows = gates.rows;
    operands.columns = gates.columns;
    operands.gate = gate.data();
    operands.up = up.data();
    operands.y = out.data();
    operands.ldgate = gates.distance;
    operands.ldup = ups.distance;
    operands.ldy = results.distance;
    gemmtune_context* const context = context_of(gpu);
    if (gpu < 0) return check(gemmtune_silu_and_mul(context, &operands, nullptr));
    const DeviceGuard guard(gpu);
    void* const stream = current_stream(gpu);
    const gemmtune_status status = gemmtune_silu_and_mul(context, &operands, stream);
    if (status == GEMMTUNE_NOT_FOUND) fail_not_planned("run it");
    check(status);
  }
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
     &matmul<linear, true, false>},
    {"linear_out", "linear_out(Tensor x, Tensor w, Tensor? bias=None, *, Tensor(a!) out) -> ()",
     &plain_linear<true>},
    {"linear_out.full", "linear_out.full(" LINEAR ", *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<linear, true, true>},
    {"a8w8", "a8w8(" SCALED ", Tensor? bias=None, " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<a8w8, true, false>},
    {"a8w8_out", "a8w8_out(" SCALED ", Tensor? bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<a8w8, true, true>},
    {"a8w8_blockscale", "a8w8_blockscale(" SCALED ", " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<a8w8_blockscale, false, false>},
    {"a8w8_blockscale_out", "a8w8_blockscale_out(" SCALED ", *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<a8w8_blockscale, false, true>},
    {"a4w4_blockscale", "a4w4_blockscale(" SCALED ", " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<a4w4_blockscale, false, false>},
    {"a4w4_blockscale_out", "a4w4_blockscale_out(" SCALED ", *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<a4w4_blockscale, false, true>},
    {"a16w4",
     "a16w4(Tensor x, Tensor w, Tensor w_scale, Tensor? bias=None, " PACKED
     ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<a16w4, true, false>},
    {"a16w4_out",
     "a16w4_out(Tensor x, Tensor w, Tensor w_scale, Tensor? bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<a16w4, true, true>},
    {"a8w4", "a8w4(" SCALED ", Tensor? bias=None, " PACKED ", ScalarType? out_dtype=None) -> Tensor",
     &matmul<a8w4, true, false>},
    {"a8w4_out", "a8w4_out(" SCALED ", Tensor? bias=None, *, Tensor(a!) out, " PACKED ") -> ()",
     &matmul<a8w4, true, true>},
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
  if (torch.aoti_torch_library_def(definitions,
                                   "needs_gradient(Tensor x, Tensor? w, Tensor? third) -> bool") != 0)
    return "needs_gradient";
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

/// The context of calls on a GPU, below 0 on the CPU; null: the opener is asked.
GEMMTUNE_API void gemmtune_torch_set_context(int gpu, gemmtune_context* context) {
  if (gpu >= static_cast<int>(shim::max_gpus)) return;
  if (gpu >= 0 && context != nullptr && shim::context_slot(gpu).load() == nullptr) ++shim::gpus_used;
  shim::context_slot(gpu).store(context, std::memory_order_release);
}

/// The status of this thread's last failed operator, once: a gemmtune_status, or 100 if there is no plan while the stream is being
/// captured, 101 if autograd is refused.
GEMMTUNE_API int gemmtune_torch_take_status(void) { return std::exchange(shim::last_status, GEMMTUNE_OK); }

}  // extern "C"
