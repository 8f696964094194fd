/* Tuning in process: shapes in, a tuned file out. Part of libgemmtune_tuning; a program that only dispatches
 * needs gemmtune/c.h alone. No exception crosses this interface, and it prints nothing. */
#ifndef GEMMTUNE_TUNING_H
#define GEMMTUNE_TUNING_H

#include <gemmtune/c.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GEMMTUNE_TUNING_API __attribute__((visibility("default")))
#else
#define GEMMTUNE_TUNING_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of gemmtune_status in gemmtune/c.h. */
enum {
  GEMMTUNE_TUNING_OK = 0,
  GEMMTUNE_TUNING_INVALID_ARGUMENT = 1, /* the text names the value and what was expected */
  GEMMTUNE_TUNING_NOT_FOUND = 2,
  GEMMTUNE_TUNING_UNSUPPORTED = 3,
  GEMMTUNE_TUNING_IO_ERROR = 4,
  GEMMTUNE_TUNING_OUT_OF_MEMORY = 5,
  GEMMTUNE_TUNING_INTERNAL = 6
};

/* One problem of operation a16w16: y[M, N] = x[M, K] . w[N, K]^T (+ bias[N]). */
typedef struct gemmtune_tuning_shape {
  size_t size; /* sizeof(gemmtune_tuning_shape); the same in every element of an array */
  int64_t m;
  int64_t n;
  int64_t k;
  const char* x_type;  /* of x and w: "bf16", "fp16", "fp32"; NULL: "bf16" */
  const char* y_type;  /* NULL: as x_type */
  int32_t bias;        /* not 0: a bias[N] of y's type */
  int32_t bpreshuffle; /* not 0: the weight is packed once */
  int64_t calls;       /* how often the shape runs; below 1: 1 */
} gemmtune_tuning_shape;

typedef enum gemmtune_tuning_state {
  GEMMTUNE_TUNING_TUNED = 0,
  GEMMTUNE_TUNING_KEPT_DEFAULT = 1,
  GEMMTUNE_TUNING_SKIPPED_DONE = 2,
  GEMMTUNE_TUNING_UNSUPPORTED_SHAPE = 3,
  GEMMTUNE_TUNING_FAILED = 4,
  GEMMTUNE_TUNING_OUT_OF_BUDGET = 5
} gemmtune_tuning_state;

/* A shape is done. Texts live until the callback returns. */
typedef struct gemmtune_tuning_progress {
  size_t size;
  size_t index; /* of the shape, from 0 */
  size_t count;
  int32_t state;           /* gemmtune_tuning_state */
  const char* reason;      /* for skipped, unsupported, failed and out of budget; else "" */
  const char* kernel_name; /* "" where there is no row */
  double microseconds;     /* 0 where there is no row */
  double speedup;          /* over the default kernel; 0 where there is none */
} gemmtune_tuning_progress;

/* Set `size` and clear the rest: every other field has a default at zero. */
typedef struct gemmtune_tuning_options {
  size_t size;                         /* sizeof(gemmtune_tuning_options) */
  const char* input;                   /* an untuned CSV or a YAML of sizes; or NULL with `shapes` */
  const gemmtune_tuning_shape* shapes; /* used where `input` is NULL */
  size_t shape_count;
  const char* output;    /* the tuned file; shapes that it has are skipped unless `all` */
  const char* backend;   /* "cpu", "cuda", "hip"; NULL: the first that is available */
  const char* device;    /* "cpu:0-15"; NULL: the backend's default */
  int32_t threads;       /* CPU threads; 0: all cores of the device */
  int32_t all;           /* not 0: tune again what the output has */
  double budget_seconds; /* 0: none */
  const char* libtypes;  /* kernel families, comma list; NULL: all */
  const char* search;    /* NULL: "staged" */
  void (*progress)(const gemmtune_tuning_progress* progress, void* context); /* may be NULL */
  void* context;
  int32_t pin_threads;        /* not 0: bind the tuner's threads to cores, as the command line does */
  const char* worker_program; /* path of the gemmtune program: measure in a process of it, so that a kernel
                                 that crashes or hangs ends that process; NULL: measure in this process */
  int32_t confirmations; /* how often the finalists of each shape are measured. 2: a confirmation pass follows
                            once all shapes are settled, because neighbours on a shared machine change which
                            kernel is fastest; 1: none; 0: 2 on a CPU, else 1 */
} gemmtune_tuning_options;

typedef struct gemmtune_tuning_summary {
  size_t size; /* set by the caller */
  int64_t tuned;
  int64_t kept_default;
  int64_t skipped_done;
  int64_t unsupported;
  int64_t failed;
  int64_t out_of_budget;
  int64_t candidates; /* looked at */
  double seconds;
  double geometric_mean_speedup; /* over rows with a default kernel; 0: none */
} gemmtune_tuning_summary;

/* Tunes on the calling thread and returns when all is done. OK also where single shapes failed: the summary
 * (may be NULL) counts them. One call at a time for a device. */
GEMMTUNE_TUNING_API int gemmtune_tune(const gemmtune_tuning_options* options,
                                      gemmtune_tuning_summary* summary);

/* Online tuning: problems that no row of a context answers are tuned beside it, in this process, and their
 * rows kept in a file. Set `size` and clear the rest: every other field has a default at zero. */
typedef struct gemmtune_online_options {
  size_t size;             /* sizeof(gemmtune_online_options) */
  const char* file;        /* NULL: online_tuning.csv of the context's config folder, or
                              hip_online_tuning_res.csv of the working folder with hipblaslt_table */
  int32_t hipblaslt_table; /* not 0: the file is AITER's table of hipBLASLt's online tuning: exact M, a16w16,
                              M up to 512. 0 with file NULL: HIP_ONLINE_TUNING decides */
  int32_t synchronous;     /* not 0: the call that plans waits, at most three budgets. 0: HIP_ONLINE_TUNING
                              decides */
  int64_t budget_milliseconds; /* of one problem; 0: GEMMTUNE_ONLINE_BUDGET_MS, else 2000 */
} gemmtune_online_options;

/* Takes the context's misses until the context is destroyed or gets another miss handler. The first plan of
 * an unknown problem is the fallback's, at once; a thread beside measures the vendors' kernels and those of
 * families that rows of this device name, checks them, writes the best one's row and lets the context plan
 * the problem anew. Plans in hand stay valid. `options` may be NULL. */
GEMMTUNE_TUNING_API int gemmtune_enable_online_tuning(gemmtune_context* context,
                                                      const gemmtune_online_options* options);

/* The text of this thread's last call that did not return OK; "" before. Valid until the thread's next call.
 */
GEMMTUNE_TUNING_API const char* gemmtune_tuning_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* GEMMTUNE_TUNING_H */
