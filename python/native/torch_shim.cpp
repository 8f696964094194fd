#include "torch_shim.h"

#include <dlfcn.h>

namespace gemmtune::torch_shim {
namespace {

void* loaded(const char* name) { return dlopen(name, RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL); }

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

#define GEMMTUNE_FIND(library, name) find(library, #name, functions.name)
#define GEMMTUNE_NEED(name) \
  GEMMTUNE_FIND(cpu, name); \
  if (functions.name == nullptr && missing == nullptr) missing = #name

const char* find_functions(Functions& functions) {
  void* const cpu = loaded("libtorch_cpu.so");
  if (cpu == nullptr) return "libtorch_cpu.so";
  void* const cuda = loaded("libtorch_cuda.so");
  const char* missing = nullptr;
  GEMMTUNE_NEED(aoti_torch_library_init_fragment);
  GEMMTUNE_NEED(aoti_torch_library_init_impl);
  GEMMTUNE_NEED(aoti_torch_library_def);
  GEMMTUNE_NEED(aoti_torch_library_impl);
  GEMMTUNE_NEED(aoti_torch_get_data_ptr);
  GEMMTUNE_NEED(aoti_torch_get_dim);
  GEMMTUNE_NEED(aoti_torch_get_sizes);
  GEMMTUNE_NEED(aoti_torch_get_strides);
  GEMMTUNE_NEED(aoti_torch_get_dtype);
  GEMMTUNE_NEED(aoti_torch_get_device_type);
  GEMMTUNE_NEED(aoti_torch_get_device_index);
  GEMMTUNE_NEED(aoti_torch_empty_strided);
  GEMMTUNE_NEED(aoti_torch_delete_tensor_object);
  GEMMTUNE_NEED(aoti_torch_new_tensor_handle);
  GEMMTUNE_NEED(aoti_torch_copy_);
  GEMMTUNE_NEED(aoti_torch_call_dispatcher);
  GEMMTUNE_NEED(aoti_torch_grad_mode_is_enabled);
  GEMMTUNE_NEED(aoti_torch_device_type_cpu);
  GEMMTUNE_NEED(aoti_torch_device_type_cuda);
  GEMMTUNE_NEED(aoti_torch_dtype_float32);
  GEMMTUNE_NEED(aoti_torch_dtype_float16);
  GEMMTUNE_NEED(aoti_torch_dtype_bfloat16);
  GEMMTUNE_NEED(aoti_torch_dtype_float8_e4m3fn);
  GEMMTUNE_NEED(aoti_torch_dtype_float8_e4m3fnuz);
  GEMMTUNE_NEED(aoti_torch_dtype_int8);
  GEMMTUNE_NEED(aoti_torch_dtype_uint8);
  GEMMTUNE_NEED(aoti_torch_dtype_int32);
  GEMMTUNE_NEED(aoti_torch_cpu_mm_out);
  GEMMTUNE_NEED(aoti_torch_cpu_addmm_out);
  GEMMTUNE_FIND(cuda, aoti_torch_cuda_mm_out);
  GEMMTUNE_FIND(cuda, aoti_torch_cuda_addmm_out);
  GEMMTUNE_FIND(cuda, aoti_torch_get_current_cuda_stream);
  GEMMTUNE_FIND(cuda, aoti_torch_create_cuda_guard);
  GEMMTUNE_FIND(cuda, aoti_torch_delete_cuda_guard);
  GEMMTUNE_FIND(cpu, torch_dtype_float8_e8m0fnu);
  GEMMTUNE_FIND(cpu, torch_dtype_float4_e2m1fn_x2);
  find(cpu, "_ZN5torch8autograd14ForwardADLevel14try_get_by_idxEm", functions.forward_level);
  return missing;
}

#undef GEMMTUNE_NEED
#undef GEMMTUNE_FIND

}  // namespace gemmtune::torch_shim
