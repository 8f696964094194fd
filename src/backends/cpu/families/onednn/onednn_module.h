/* The table of functions that the loadable modules libgemmtune_onednn.so and libgemmtune_onednn3.so hand out.
 * Plain C, so that a module built against another oneDNN (2.x or 3.x) or by another compiler fits. No exception
 * crosses it. Functions that can fail return a gemmtune_onednn_code and, on failure, write a sentence into
 * `why`. */
#ifndef GEMMTUNE_ONEDNN_MODULE_H
#define GEMMTUNE_ONEDNN_MODULE_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/threads/openmp_functions.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GEMMTUNE_ONEDNN_ABI 3

typedef enum {
  gemmtune_onednn_f32 = 0,
  gemmtune_onednn_bf16 = 1,
  gemmtune_onednn_f16 = 2,
  gemmtune_onednn_s8 = 3, /* of x and w; y is s32 then */
  gemmtune_onednn_s32 = 4
} gemmtune_onednn_type;

typedef enum {
  gemmtune_onednn_done = 0,
  gemmtune_onednn_refused = 1,
  gemmtune_onednn_no_memory = 2 /* the same call may succeed later */
} gemmtune_onednn_code;

/* Values of cap_isa: what the instruction-set levels of gemmtune are to oneDNN. */
typedef enum {
  gemmtune_onednn_sse41 = 0,
  gemmtune_onednn_avx2 = 1,
  gemmtune_onednn_avx512 = 2,
  gemmtune_onednn_avx512_bf16 = 3,
  gemmtune_onednn_amx = 4
} gemmtune_onednn_isa;

/* A weight [n, k]; the bytes of its packed form depend on these and on `threads` alone, not on `columns`. */
typedef struct {
  int64_t n, k;
  gemmtune_onednn_type type;
  int threads;
  int columns; /* it is column-major: [k, n] row by row */
  const gemmtune_openmp_functions*
      openmp; /* whose team packs and unpacks it; null: that of libdnnl's own runtime */
} gemmtune_onednn_weight;

/* y[m, n] = x[m, k] * w[n, k]^T (+ bias[n] of y's type), all dense, y row-major. */
typedef struct {
  gemmtune_onednn_weight weight;
  int64_t m;
  gemmtune_onednn_type y_type;
  int bias;
  int packed;    /* the weight is in its packed form */
  int x_columns; /* x is column-major: [k, m] row by row */
} gemmtune_onednn_problem;

typedef struct {
  const void* x;
  const void* w;
  const void* bias;
  void* y;
  void* scratch;                           /* scratch_bytes(), 64-byte aligned */
  const gemmtune_openmp_functions* openmp; /* whose team runs it; null: that of libdnnl's own runtime */
} gemmtune_onednn_arguments;

typedef struct {
  char* text;
  size_t size;
} gemmtune_onednn_why;

/* A primitive. Immutable; execute may be called by any number of threads at once, each with its own scratch.
 */
typedef struct gemmtune_onednn_matmul gemmtune_onednn_matmul;

typedef struct {
  uint32_t abi; /* GEMMTUNE_ONEDNN_ABI */
  const char* (*version)(void);
  /* A function of libdnnl, by whose address the library's file is found. */
  const void* (*library_address)(void);
  /* Limits oneDNN in this process. Fails once oneDNN has made its first primitive with another limit. */
  int (*cap_isa)(gemmtune_onednn_isa isa, gemmtune_onednn_why why);
  int (*create)(const gemmtune_onednn_problem* problem, gemmtune_onednn_matmul** matmul,
                gemmtune_onednn_why why);
  void (*destroy)(gemmtune_onednn_matmul* matmul);
  /* oneDNN's name for the code that runs, "brg:avx512_core" for example. */
  const char* (*implementation)(const gemmtune_onednn_matmul* matmul);
  size_t (*scratch_bytes)(const gemmtune_onednn_matmul* matmul);
  int (*execute)(const gemmtune_onednn_matmul* matmul, const gemmtune_onednn_arguments* arguments,
                 gemmtune_onednn_why why);
  int (*packed_bytes)(const gemmtune_onednn_weight* weight, size_t* bytes, gemmtune_onednn_why why);
  /* Row-major [n, k] into the packed form and back. */
  int (*pack)(const gemmtune_onednn_weight* weight, const void* plain, void* packed, gemmtune_onednn_why why);
  int (*unpack)(const gemmtune_onednn_weight* weight, const void* packed, void* plain,
                gemmtune_onednn_why why);
  /* Starts the calling thread's team of `count` threads, of libdnnl's own OpenMP runtime, and puts its workers
   * (1 …) on cores[i], each from inside the team. The calling thread is left alone. */
  void (*pin_team)(const int* cores, int count);
} gemmtune_onednn_table;

/* The one exported function of libgemmtune_onednn.so, which is linked to the libdnnl of the build. */
#define GEMMTUNE_ONEDNN_ENTRY "gemmtune_onednn_module"
typedef const gemmtune_onednn_table* (*gemmtune_onednn_entry)(void);

/* The one exported function of libgemmtune_onednn3.so: opens this libdnnl.so.3 (a path, or a name that the loader
 * looks for). Null with the reason in `why` if the file cannot be used; another one may then be tried. One
 * library a process. */
#define GEMMTUNE_ONEDNN3_ENTRY "gemmtune_onednn3_module"
typedef const gemmtune_onednn_table* (*gemmtune_onednn3_entry)(const char* path, gemmtune_onednn_why why);

#ifdef __cplusplus
}
#endif

#endif
