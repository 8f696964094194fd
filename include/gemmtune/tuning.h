/* Tuning in process: problems in, a tuned file out. Part of libgemmtune_tuning; a program that only
 * dispatches needs gemmtune/c.h alone, whose rules for structures and errors hold here too. */
#ifndef GEMMTUNE_TUNING_H
#define GEMMTUNE_TUNING_H

#include <gemmtune/c.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gemmtune_tuning_state {
  GEMMTUNE_TUNING_TUNED = 0,
  GEMMTUNE_TUNING_KEPT_DEFAULT = 1,
  GEMMTUNE_TUNING_SKIPPED_DONE = 2,
  GEMMTUNE_TUNING_UNSUPPORTED_SHAPE = 3,
  GEMMTUNE_TUNING_FAILED = 4,
  GEMMTUNE_TUNING_OUT_OF_BUDGET = 5,
  GEMMTUNE_TUNING_INTERRUPTED = 6
} gemmtune_tuning_state;

/* A problem is done. Texts live until the callback returns. */
typedef struct gemmtune_tuning_progress {
  size_t size;
  size_t index; /* of the problem, from 0 */
  size_t count;
  gemmtune_tuning_state state;
  const char* reason;      /* for skipped, unsupported, failed, out of budget, interrupted; else "" */
  const char* kernel_name; /* "" where there is no row */
  double microseconds;     /* 0 where there is no row */
  double speedup;          /* over the default kernel; 0 where there is none */
  double joules;           /* of a call, with `energy` or another objective than time; 0: not measured */
  double default_joules;   /* of the default kernel's */
} gemmtune_tuning_progress;

typedef struct gemmtune_tuning_options {
  size_t size;
  const char* input; /* an untuned CSV or a YAML of sizes; or null with `problems` */
  /* Used if `input` is null: problems of one operation, all of one `size`. A packed weight has layout any:
   * the tuner chooses. */
  const gemmtune_problem* problems;
  size_t problem_count;
  const int64_t* calls; /* [problem_count]: how often each runs, below 1: 1; null: 1 each */
  const char*
      output; /* the tuned file, never null and not "-"; problems that it has are skipped unless `all`. A .yaml gets tune_gemm's
                          * results, and its problems are tuned again */
  /* "cpu", "cuda", "hip"; null: the first that is available. "external": kernels of another program
   * (docs/evaluators.md). */
  const char* backend;
  const char* device;    /* "cpu:0-15"; null: the backend's default; of "external" that program's command */
  int32_t threads;       /* CPU threads; 0: all cores of the device */
  int32_t all;           /* not 0: tune again what the output has */
  double budget_seconds; /* 0: none */
  const char* libtypes;  /* kernel families, comma list; null: all */
  const char* search;    /* null: "staged" */
  void (*progress)(const gemmtune_tuning_progress* progress, void* context); /* may be null */
  void* context;
  int32_t pin_threads; /* not 0: bind the tuner's threads to cores, as the command line does */
  /* The confirmation pass, once all problems are settled: the finalists of each run again and both passes
   * decide, because neighbours on a shared machine change what is fastest. 2: on; 1: off; 0: on for a CPU. */
  int32_t confirmations;
  /* Path of the gemmtune program: measure in a process of it, so that a kernel that crashes or hangs ends
   * that process. Null: measure in this process. */
  const char* worker_program;
  /* "default" or null: no kernel of a lower accuracy class than the default kernel's. "fast": all classes,
   * compared with the library's fast accumulation. Classes differ for fp8 on a GPU alone (docs/correctness.md). */
  const char* accuracy;
  /* "time" or null; "energy": the fewest joules a call, "edp": the smallest product of joules and time, among the finalists
   * up to 1.3 times the fastest one's time. Speed-ups stay those of time (docs/energy.md). */
  const char* objective;
  /* Not 0: measure the joules of finalists and defaults. GEMMTUNE_UNSUPPORTED where the device counts none, as with another
   * objective than time. */
  int32_t energy;
} gemmtune_tuning_options;

typedef struct gemmtune_tuning_summary {
  size_t size;
  int64_t tuned;
  int64_t kept_default;
  int64_t skipped_done;
  int64_t unsupported;
  int64_t failed;
  int64_t out_of_budget;
  int64_t candidates; /* measured or refused */
  double seconds;
  double geometric_mean_speedup; /* over rows with a default kernel; 0: none */
} gemmtune_tuning_summary;

/* Tunes on the calling thread and returns when all is done. GEMMTUNE_OK also if single problems failed: the
 * summary (may be null) counts them. One call at a time for a device. */
GEMMTUNE_API gemmtune_status gemmtune_tune(const gemmtune_tuning_options* options,
                                           gemmtune_tuning_summary* summary);

/* Online tuning: problems that no row of a context answers are tuned beside it, and their rows kept in a
 * file: on a CPU in a worker process within a share of the machine, on a GPU in this process. */
typedef struct gemmtune_online_options {
  size_t size;
  /* Null: online_tuning.csv of the context's config folder, or hip_online_tuning_res.csv of the working
   * folder with hipblaslt_table. */
  const char* file;
  /* Not 0: the file is AITER's table of hipBLASLt's online tuning: exact M, a16w16, M up to 512. 0 with file
   * null: HIP_ONLINE_TUNING decides. */
  int32_t hipblaslt_table;
  int32_t synchronous; /* not 0: the call that plans waits, at most three budgets. 0: HIP_ONLINE_TUNING */
  /* Of one problem, of all of the machine's time: a worker takes 1/share of it. 0: GEMMTUNE_ONLINE_BUDGET_MS,
   * else 2000 */
  int64_t budget_milliseconds;
  /* Of the processor time of the context's cores, what the worker may use, up to 1. 0: GEMMTUNE_ONLINE_SHARE,
   * else 0.25; below 0: no worker, this process measures. A worker that callers wait for (synchronous) has
   * all. */
  double share;
  /* Path of the gemmtune program that the worker is a process of. Null: GEMMTUNE_PROGRAM, else the one that
   * lies around this library. */
  const char* worker_program;
} gemmtune_online_options;

/* Takes the context's misses until the context is destroyed or gets another miss handler. The first plan of
 * an unknown problem is the fallback's, at once; a thread beside has kernels measured and verified, writes
 * the best one's row and lets the context plan the problem anew. Existing plans stay valid. In a worker process
 * all families are tried; if none can be started, which is logged once, this process measures the vendors'
 * kernels and those of families that rows of this device name. `options` may be null. */
GEMMTUNE_API gemmtune_status gemmtune_enable_online_tuning(gemmtune_context* context,
                                                           const gemmtune_online_options* options);

#ifdef __cplusplus
}
#endif

#endif /* GEMMTUNE_TUNING_H */
