// The functions of PyTorch's stable C interface that the operators use, declared here and found in the process at load: this
// library needs neither PyTorch's headers to be built nor one certain PyTorch to be loaded.
#pragma once

#include <cstdint>
#include <memory>

namespace gemmtune::torch_shim {

struct TensorObject;
struct LibraryObject;
struct GuardObject;
struct ForwardLevelObject;
using Tensor = TensorObject*;
using Library = LibraryObject*;
using Guard = GuardObject*;
/// An argument or result: an integer, a Tensor, or of optional ones null or a pointer to such a value on the heap.
using Value = std::uint64_t;
/// Takes its arguments from the stack, owns them, and leaves its results there.
using BoxedKernel = void (*)(Value* stack, std::uint64_t arguments, std::uint64_t results);
using Failed = std::int32_t;  // 0: no

struct Functions {
  Failed (*aoti_torch_library_init_fragment)(const char* space, const char* file, std::uint32_t line,
                                             Library*);
  Failed (*aoti_torch_library_init_impl)(const char* space, const char* key, const char* file,
                                         std::uint32_t line, Library*);
  Failed (*aoti_torch_library_def)(Library, const char* schema);
  Failed (*aoti_torch_library_impl)(Library, const char* name, BoxedKernel);
  Failed (*aoti_torch_get_data_ptr)(Tensor, void**);
  Failed (*aoti_torch_get_dim)(Tensor, std::int64_t*);
  Failed (*aoti_torch_get_sizes)(Tensor, std::int64_t**);
  Failed (*aoti_torch_get_strides)(Tensor, std::int64_t**);
  Failed (*aoti_torch_get_dtype)(Tensor, std::int32_t*);
  Failed (*aoti_torch_get_device_type)(Tensor, std::int32_t*);
  Failed (*aoti_torch_get_device_index)(Tensor, std::int32_t*);
  Failed (*aoti_torch_empty_strided)(std::int64_t dimensions, const std::int64_t* sizes,
                                     const std::int64_t* strides, std::int32_t dtype,
                                     std::int32_t device_type, std::int32_t device_index, Tensor*);
  Failed (*aoti_torch_delete_tensor_object)(Tensor);
  Failed (*aoti_torch_new_tensor_handle)(Tensor, Tensor* another);
  Failed (*aoti_torch_copy_)(Tensor to, Tensor from, std::int32_t non_blocking);
  Failed (*aoti_torch_call_dispatcher)(const char* name, const char* overload, Value* stack);
  bool (*aoti_torch_grad_mode_is_enabled)();
  std::int32_t (*aoti_torch_device_type_cpu)();
  std::int32_t (*aoti_torch_device_type_cuda)();
  std::int32_t (*aoti_torch_dtype_float32)();
  std::int32_t (*aoti_torch_dtype_float16)();
  std::int32_t (*aoti_torch_dtype_bfloat16)();
  std::int32_t (*aoti_torch_dtype_float8_e4m3fn)();
  std::int32_t (*aoti_torch_dtype_float8_e4m3fnuz)();
  std::int32_t (*aoti_torch_dtype_int8)();
  std::int32_t (*aoti_torch_dtype_uint8)();
  std::int32_t (*aoti_torch_dtype_int32)();
  // Kernels of torch.mm and torch.addmm without a dispatcher in front.
  Failed (*aoti_torch_cpu_mm_out)(Tensor out, Tensor a, Tensor b);
  Failed (*aoti_torch_cpu_addmm_out)(Tensor out, Tensor added, Tensor a, Tensor b, double beta, double alpha);
  // In a PyTorch with CUDA alone; null elsewhere.
  Failed (*aoti_torch_cuda_mm_out)(Tensor out, Tensor a, Tensor b);
  Failed (*aoti_torch_cuda_addmm_out)(Tensor out, Tensor added, Tensor a, Tensor b, double beta,
                                      double alpha);
  Failed (*aoti_torch_get_current_cuda_stream)(std::int32_t device_index, void** stream);
  Failed (*aoti_torch_create_cuda_guard)(std::int32_t device_index, Guard*);
  Failed (*aoti_torch_delete_cuda_guard)(Guard);
  // Types of later versions; null in older ones.
  std::int32_t (*torch_dtype_float8_e8m0fnu)();
  std::int32_t (*torch_dtype_float4_e2m1fn_x2)();
  // torch::autograd::ForwardADLevel::try_get_by_idx: a level of forward-mode differentiation if it is open. The stable interface does
  // not say it. Null where PyTorch has no function of this name.
  std::shared_ptr<ForwardLevelObject> (*forward_level)(std::uint64_t index);
};

/// Finds the functions in the libraries that this process has loaded. The name of one that is missing and needed, or null.
const char* find_functions(Functions& functions);

}  // namespace gemmtune::torch_shim
