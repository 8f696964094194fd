/* A libdnnl.so.3 that only says its version: FAKE_MINOR, and on what its CPU kernels run: FAKE_RUNTIME. With FAKE_PARTIAL it has no other
 * function, else all that gemmtune looks for, which refuse everything. */
struct version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};

const struct version* dnnl_version(void) {
  static const struct version own = {3, FAKE_MINOR, 1, "fake", FAKE_RUNTIME, 0};
  return &own;
}

#ifndef FAKE_PARTIAL
#define REFUSE(name) \
  int name(void) { return 3; }
REFUSE(dnnl_set_max_cpu_isa)
REFUSE(dnnl_engine_create)
REFUSE(dnnl_engine_destroy)
REFUSE(dnnl_stream_create)
REFUSE(dnnl_stream_wait)
REFUSE(dnnl_stream_destroy)
REFUSE(dnnl_memory_desc_create_with_strides)
REFUSE(dnnl_memory_desc_create_with_tag)
REFUSE(dnnl_memory_desc_clone)
REFUSE(dnnl_memory_desc_get_size)
REFUSE(dnnl_memory_desc_destroy)
REFUSE(dnnl_memory_create)
REFUSE(dnnl_memory_set_data_handle)
REFUSE(dnnl_memory_destroy)
REFUSE(dnnl_primitive_attr_create)
REFUSE(dnnl_primitive_attr_set_scratchpad_mode)
REFUSE(dnnl_primitive_attr_destroy)
REFUSE(dnnl_matmul_primitive_desc_create)
REFUSE(dnnl_reorder_primitive_desc_create)
REFUSE(dnnl_primitive_desc_query)
REFUSE(dnnl_primitive_desc_query_md)
REFUSE(dnnl_primitive_desc_destroy)
REFUSE(dnnl_primitive_create)
REFUSE(dnnl_primitive_execute)
REFUSE(dnnl_primitive_destroy)
int omp_get_max_threads(void) { return 1; }
void omp_set_num_threads(int threads) { (void)threads; }
int omp_get_thread_num(void) { return 0; }
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  (void)threads;
  (void)flags;
  body(data);
}
#endif
