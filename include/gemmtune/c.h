/* gemmtune's C interface: open tuned files, plan a matrix multiplication, run it.
 *
 *   y[M, N] = x[M, K] . w[N, K]^T (+ bias[N]), row-major (x and w of an a16w16 in either order), accumulated in
 *   float32.
 *
 * Structures
 *   Every structure that begins with `size`: set it to sizeof the structure and every member that you do not
 *   use to zero. `size` versions it: a program built against an older header passes a smaller size, down to
 *   that of the first release, and what it does not know keeps its default; a larger size is taken if all
 *   that is unknown here is zero.
 *
 * Errors
 *   Every function that can fail returns a gemmtune_status, those of gemmtune/tuning.h too;
 *   gemmtune_last_error() is the message. No exception leaves. If a call fails, nothing was
 *   written to its outputs; an opaque handle that it would have created is null.
 *
 * Log
 *   Warnings and errors that are nobody's return value (a tuned file that is not used, a capture that cannot be
 *   written) go to stderr, unless gemmtune_set_log or a context's `log` takes them. Nothing else is printed.
 *
 * Threads
 *   Every function may be called from any thread, on one context or plan at the same time too, except
 *   gemmtune_context_destroy. Environment variables are read once, when a context is created.
 *
 * Processes
 *   After fork() a child may use its parent's contexts of a CPU. Results are the same, but gemmtune's own
 *   threads are not in the child and the calling thread does all the work: create a context in the child for
 *   speed. The thread that called fork() has lost its OpenMP team (libgomp keeps a record of the team, but
 *   not its threads, and would wait for them for ever). If it ran kernels of an OpenMP library (oneDNN)
 *   through gemmtune before, the child runs them on a thread created for each call (0.1 to 0.3 ms more) as
 *   long as it calls from that thread; its other threads are not affected. OpenMP regions of the program's
 *   own are not seen. A context of a GPU cannot be used in the child: CUDA does not allow it.
 *
 * Memory
 *   Where an allocation fails, a function returns GEMMTUNE_OUT_OF_MEMORY (a tuning may lose a candidate
 *   instead). Files are whole or as they were, and the context goes on. One exception: oneDNN ends the process
 *   where it has no memory itself.
 *
 * Numbers
 *   alpha and beta  There are none: y = x . w^T (+ bias), and what y held is not read. A scale other than 1
 *                   belongs into w_scale, or into the weight.
 *   NaN, infinity   An element of y is NaN if a NaN is among the x, w, bias or scales that it is computed
 *                   from; infinite inputs and sums beyond float32 follow IEEE 754 (0 * inf and inf - inf are
 *                   NaN). Elements of y that do not depend on them are not changed by them. A sum beyond the
 *                   range of y's type is infinite. Instructions for bf16 (VDPBF16PS of AVX-512, AMX) flush what
 *                   is below the normal numbers: inputs, single products and results below 2^-126 may count as
 *                   zero. e8m0 scales are exact from 2^-127 to 2^127, wherever scaled sums of 32 or 128 elements
 *                   are in the range of float. A product of two scales of a block (a8w8_blockscale), and the
 *                   sums of a8w4 before x_scale, must be in that range too.
 *   determinism     One plan returns the same bits for the same operands, in every run on that device with
 *                   that number of threads: no kernel adds in an order that depends on timing, and the tuner
 *                   refuses kernels whose two runs differ. Different kernels, thus other M, other tuned files
 *                   or other devices, may differ in the last bits. The fallback of a vendor's library is as
 *                   deterministic as the library.
 *   alignment       x, w, w2, biases and y are multiples of the `alignment` that the problem promises;
 *                   workspaces, and the packed weight of gemmtune_pack_weight, of 64 bytes. A pointer that is
 *                   not is refused with GEMMTUNE_MISALIGNED. Scales, topk_ids and topk_weights are aligned as
 *                   their types are in C; that is not checked.
 *
 * GPUs
 *   asynchronous    gemmtune_plan_run and gemmtune_gemm enqueue on the stream and return; operands and
 *                   workspace belong to the kernel until the stream has passed it. GEMMTUNE_OK means that it
 *                   was enqueued. A fault inside a kernel shows where the program waits for the stream; CUDA
 *                   then refuses all work of the process on that device, and each later call here returns
 *                   that error too.
 *   graph capture   gemmtune_plan_run may be captured: it only enqueues kernels. Create the plan before, and
 *                   keep plan and workspace as long as the graph. Do not capture gemmtune_gemm: it may
 *                   compile or load a kernel, and a larger call may replace the workspace that the graph
 *                   uses.
 */
#ifndef GEMMTUNE_C_H
#define GEMMTUNE_C_H

#include <gemmtune/enumerations.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GEMMTUNE_API __attribute__((visibility("default")))
#else
#define GEMMTUNE_API
#endif

typedef enum gemmtune_status {
  GEMMTUNE_OK = 0,
  GEMMTUNE_INVALID_ARGUMENT = 1, /* a value, size or leading dimension is out of range */
  GEMMTUNE_NOT_FOUND = 2,        /* a file, family, library or device is missing */
  GEMMTUNE_UNSUPPORTED = 3,      /* legal, but this device or build cannot do it */
  GEMMTUNE_IO_ERROR = 4,
  GEMMTUNE_OUT_OF_MEMORY = 5,
  GEMMTUNE_INTERNAL = 6,
  GEMMTUNE_NULL_POINTER = 7, /* a required pointer is null */
  GEMMTUNE_MISALIGNED = 8    /* an operand or the workspace breaks its promised alignment */
} gemmtune_status;

/* A word for a code ("misaligned"); never null. */
GEMMTUNE_API const char* gemmtune_status_text(gemmtune_status status);
/* The message of this thread's last failure, with the value and what was expected; "" before the first one.
 * Valid until this thread's next failure. */
GEMMTUNE_API const char* gemmtune_last_error(void);
/* Makes `message` (copied, at most 2047 bytes; null: "") this thread's last error and returns `status`. For
 * libraries on top of this one, so that their users have one place to look: libgemmtune_tuning reports
 * through it. */
GEMMTUNE_API gemmtune_status gemmtune_set_last_error(gemmtune_status status, const char* message);
/* "0.2.0" */
GEMMTUNE_API const char* gemmtune_version(void);

/* A word for a layout ("plain", "panel16"), for logs; "unknown layout" for a value that is none. Never
 * null. */
GEMMTUNE_API const char* gemmtune_layout_text(gemmtune_layout layout);

/* How well the tuned files knew a problem. */
typedef enum gemmtune_match {
  GEMMTUNE_MATCH_EXACT = 0,   /* a row of this M */
  GEMMTUNE_MATCH_RANGE = 1,   /* a row whose interval has this M */
  GEMMTUNE_MATCH_FINE = 2,    /* M padded, fine step */
  GEMMTUNE_MATCH_COARSE = 3,  /* M padded, coarse step */
  GEMMTUNE_MATCH_UNTUNED = 4, /* no row: the fallback */
  GEMMTUNE_MATCH_BUCKET = 5,  /* a bucket of a Triton config (JSON) */
  /* Of a CPU: no row of its number of threads; a row of the nearest smaller number. The first call is verified. */
  GEMMTUNE_MATCH_FEWER_THREADS = 6
} gemmtune_match;

typedef struct gemmtune_context gemmtune_context;
typedef struct gemmtune_plan gemmtune_plan;

/* ---- log ---------------------------------------------------------------------------------------------- */

/* level: 0 debug, 1 info, 2 warning, 3 error. May be called from any thread, from several at once. */
typedef void (*gemmtune_log)(void* context, int level, const char* line);

/* Every line of every context and of the library goes to `log` from now on. Null: to stderr again, from warnings on, with
 * GEMMTUNE_LOG_CONFIG or log_config from information on. When this returns no other thread is in the previous function.
 * While the process ends lines go to stderr. */
GEMMTUNE_API void gemmtune_set_log(gemmtune_log log, void* context);
/* Writes a line into that log: for libraries on top of this one, as libgemmtune_tuning. */
GEMMTUNE_API gemmtune_status gemmtune_log_line(int32_t level, const char* line);

/* ---- context ----------------------------------------------------------------------------------------- */

/* One part of a kernel's work. */
typedef void (*gemmtune_task)(void* task_context, int64_t part);
/* Runs task(task_context, part) for every part in [0, parts), on any threads, and returns when all are done.
 * Must not throw. Parts may run one after another. */
typedef void (*gemmtune_parallel_for)(void* context, int64_t parts, gemmtune_task task, void* task_context);
/* The tuned files of one operation. Never grows: arrays of it have no size member. */
typedef struct gemmtune_tuned_files {
  gemmtune_operation operation;
  /* Colon-separated, merged; they replace the operation's default. Null: the default, which is
   * GEMMTUNE_CONFIG_A16W16 (_A8W8 ...), else AITER's variable, else the operation's file of the config folder
   * (bf16_tuned_gemm.csv ...) merged with those of model_configs/ beside it. Triton configs (*.json) and folders of
   * them may stand there too. */
  const char* paths;
} gemmtune_tuned_files;

typedef struct gemmtune_context_options {
  size_t size;
  /* Null: GEMMTUNE_CONFIG_DIR, else $XDG_CONFIG_HOME/gemmtune, else ~/.config/gemmtune. Triton configs in it and in its
   * folder triton/ are read too, unless GEMMTUNE_CONFIG_TRITON names others. */
  const char* config_folder;
  const gemmtune_tuned_files* tuned_files; /* tuned_file_count of them, each operation at most once */
  size_t tuned_file_count;
  const char* backend;        /* "auto", "cpu" ...; null: "auto" */
  const char* device;         /* "cpu", "cpu:0-15"; null: the backend's default */
  int32_t threads;            /* 0: GEMMTUNE_NUM_THREADS, else all cores of the device */
  int32_t strict_environment; /* not 0: rows measured in another environment do not answer */
  int32_t
      log_config; /* not 0: an info line a problem, in AITER's words. 0: GEMMTUNE_LOG_CONFIG, AITER_LOG_TUNED_CONFIG */
  /* Not 0: record every problem that is planned, with its match and how often, in the untuned files of
   * capture_folder. 0: GEMMTUNE_CAPTURE, else AITER_TUNE_GEMM decides. See gemmtune_capture_flush. */
  int32_t capture;
  const char* capture_folder; /* null: the folder that the variable names, else the config folder */
  /* Null: the team that GEMMTUNE_TEAM says. `threads` then says how many run at once. */
  gemmtune_parallel_for parallel_for;
  void* parallel_for_context;
  gemmtune_log log; /* gets the lines of this context in place of stderr */
  void* log_context;
  /* Not 0: the first run of each plan that no row answered is compared with a float64 reference of the caller's
   * operands, on the host; the call waits for it. A kernel that is wrong is replaced, with a log line of the
   * process. A run under stream capture is not verified. 0: GEMMTUNE_VERIFY_UNTUNED decides. See docs/errata.md. */
  int32_t verify_untuned;
  /* Not 0: on a CPU rows of fewer threads do not answer (GEMMTUNE_MATCH_FEWER_THREADS); nor do they with
   * strict_environment. 0: GEMMTUNE_FEWER_THREADS decides. */
  int32_t own_threads_only;
} gemmtune_context_options;

/* Opens the device and reads the tuned files (missing ones are not an error). `options` may be null: all
 * defaults. The caller owns *context. Takes milliseconds on a CPU. */
GEMMTUNE_API gemmtune_status gemmtune_context_create(const gemmtune_context_options* options,
                                                     gemmtune_context** context);
/* Plans made from it stay valid until they are released. No other call on this context may be running. Null
 * is ignored. */
GEMMTUNE_API void gemmtune_context_destroy(gemmtune_context* context);
/* The process's context with all defaults, created by the first call; owned by gemmtune, never destroyed. */
GEMMTUNE_API gemmtune_status gemmtune_default_context(gemmtune_context** context);
/* Reads the tuned files again (not the shipped ones) and swaps them in; plans in use stay valid. If a file cannot be read the old
 * rows stay and the error is returned. */
GEMMTUNE_API gemmtune_status gemmtune_context_reload(gemmtune_context* context);
/* The tuned files, one line each, and one of the shipped tables: path, and rows read or why there are none. Writes at most `capacity` bytes
 * with the final 0; *needed (may be null) is the full length with it. `text` may be null if capacity is 0. */
GEMMTUNE_API gemmtune_status gemmtune_context_sources(const gemmtune_context* context, char* text,
                                                      size_t capacity, size_t* needed);

/* A tuned file as a context has read it. */
typedef struct gemmtune_source {
  size_t size;
  gemmtune_operation operation;
  const char* path;
  int32_t named;                 /* not 0: by a variable or the program; 0: a file of the config folder */
  int32_t online;                /* not 0: rows of online tuning */
  size_t rows;                   /* or buckets of a Triton config */
  size_t left_out;               /* rows that could not be read */
  size_t own_rows;               /* of the context's device */
  size_t other_environment_rows; /* of own_rows: measured in another environment */
  size_t fewer_threads_rows;     /* that may answer as GEMMTUNE_MATCH_FEWER_THREADS */
  const char* devices;           /* rows by gfx and cu_num: "gfx950/256:200,gfx942/304:32"; "" for none */
  const char* unused;            /* why its rows do not answer, as in the log; "" if they may */
  int32_t shipped;               /* not 0: a table that comes with gemmtune; `rows` are those of the device */
} gemmtune_source;

/* The texts live until it returns. It must not throw. */
typedef void (*gemmtune_source_visitor)(void* visitor_context, const gemmtune_source* source);
/* Calls `visit` for each tuned file, on this thread; once for all shipped tables with rows of other devices alone (path: their folder,
 * operation: that of the first). */
GEMMTUNE_API gemmtune_status gemmtune_context_visit_sources(const gemmtune_context* context,
                                                            gemmtune_source_visitor visit,
                                                            void* visitor_context);

typedef struct gemmtune_device_info {
  size_t size;
  const char* backend; /* "cpu"; all texts live as long as the context */
  const char* name;    /* "cpu:0-1" */
  const char* model;
  const char* gfx; /* the tables' architecture: "x86-avx2" */
  int32_t cu_num;  /* compute units: the threads of a CPU */
  /* Whose threads run a CPU's kernels by now: "openmp", "own", "callback" (GEMMTUNE_TEAM); "" of a GPU. */
  const char* team;
} gemmtune_device_info;

GEMMTUNE_API gemmtune_status gemmtune_context_device(const gemmtune_context* context,
                                                     gemmtune_device_info* info);
/* The type that a word means on the context's device, as for the program and its files: "fp8" is the fp8 that the device
 * computes with (e4m3fnuz on gfx94x, e4m3fn elsewhere); other words ("bf16", "int8", "torch.float8_e4m3fn" ...) mean the
 * same everywhere. A word that names no type is GEMMTUNE_INVALID_ARGUMENT. */
GEMMTUNE_API gemmtune_status gemmtune_context_type(const gemmtune_context* context, const char* word,
                                                   gemmtune_type* type);

/* Capture: each problem that is planned (sizes of 0 excepted) gets one line in its operation's untuned CSV
 * (bf16_untuned_gemm.csv ..., the input of `gemmtune tune`), and its calls and matches are added up in
 * <file>.calls.json beside it. Any number of processes may write the same files; existing rows stay. The line is
 * written during the first call, or within 100 ms if the files are slow or in use. Calls are written every second by
 * a thread of the context, by this function, when a thread that made them ends, by gemmtune_context_destroy, and for
 * every context when the process exits. A process that is killed, or ends by _exit, loses calls of the last second.
 * In a child made by fork() contexts of the parent go on recording, what the child does.
 *
 * Writes what is not written yet; GEMMTUNE_OK if capture is off. On an error it stays and is tried again. */
GEMMTUNE_API gemmtune_status gemmtune_capture_flush(gemmtune_context* context);

/* How plan requests (gemmtune_plan_create and gemmtune_gemm, cached answers included) were served. */
typedef struct gemmtune_counters {
  size_t size;
  uint64_t exact;
  uint64_t range;
  uint64_t fine;
  uint64_t coarse;
  uint64_t untuned;           /* those that failed because nothing could run the problem, too */
  uint64_t other_environment; /* of those above: by a row measured in another environment */
  uint64_t plans_made;        /* requests that the plan cache could not answer */
  uint64_t invalid_rows;      /* rows that were passed over because their kernel cannot run here */
  uint64_t bucket;            /* buckets of Triton configs */
  uint64_t fewer_threads;     /* of a CPU: rows of fewer threads */
} gemmtune_counters;

GEMMTUNE_API gemmtune_status gemmtune_context_counters(const gemmtune_context* context,
                                                       gemmtune_counters* counters);

/* ---- problems and plans ------------------------------------------------------------------------------ */

/* What a mixture of experts has beside the sizes. */
typedef struct gemmtune_moe {
  size_t size;
  int32_t experts;
  int32_t topk; /* experts that a token is sent to */
  gemmtune_activation activation;
  gemmtune_quant_type quant_type;
  int32_t gated;           /* not 0: w1 holds a gate and an up half (AITER's use_g1u1) */
  int32_t doweight_stage1; /* not 0: the routing weight is applied after the first GEMM */
  /* The last of the experts, counted in experts and topk, which every token visits with the weight 1. */
  int32_t shared_experts;
} gemmtune_moe;

/* Dimensions are at most 2^31 - 1, tensors at most 2^47 bytes; all sizes are checked with arithmetic that
 * does not overflow. m, n and k may be 0: if y has no elements, nothing is read or written; with k = 0 each row of y
 * is the bias, or zero, and x, w and scales are not read. */
typedef struct gemmtune_problem {
  size_t size;
  gemmtune_operation operation;
  gemmtune_type x_type;
  gemmtune_type w_type; /* unset: x_type; fp4 or int4 of weights of a format of their own */
  gemmtune_type y_type; /* unset: x_type of a16w16 and batched_bf16, bf16 of the others */
  int64_t m;            /* rows of x; tokens of a fused_moe */
  int64_t n;            /* rows of w; inter_dim of a fused_moe (of one half, if gated), which is never 0 */
  int64_t k;            /* model_dim of a fused_moe */
  int64_t batch;        /* of the batched operations; 0: 1 */
  int32_t bias; /* not 0: a bias [N] of y's type is added in float32 before rounding; of a fused_moe two */
  int32_t scale_ab;              /* not 0: fp8 operands with one float32 scale each */
  gemmtune_layout weight_layout; /* plain is refused by the _BPRESHUFFLE operations */
  int32_t alignment;             /* bytes, a power of two, promised for x, w, w2, biases and y; 0: 16 */
  const gemmtune_moe* moe;       /* of a fused_moe, null elsewhere; read during the call only */
  /* Promises of every call, for rows with a pdl_kernelName (NVIDIA's programmatic dependent launch). Both not
   * 0: that kernel runs, and reads the weight while the previous kernel on the stream still runs, and where that
   * is such a launch too, those before it. */
  int32_t constant_weights;     /* none of these kernels writes w or its scales */
  int32_t predecessor_triggers; /* it executes griddepcontrol.launch_dependents; else little is gained */
  /* Of an a16w16; row-major elsewhere. x column-major is [K, M] row by row, with rows ldx elements apart; w
   * column-major is [K, N] row by row, dense and in the plain layout. y is row-major always. */
  gemmtune_order x_order;
  gemmtune_order w_order;
  /* Of an a8w8_blockscale, not 0: scales are e8m0 bytes, 2^(byte - 127) (DeepSeek's scale_fmt ue8m0), not float. */
  int32_t e8m0_scales;
  /* Of an int4 weight: 32, 64, 128 or k, the elements of k that share a scale; 0: k, whole rows. 0 elsewhere. */
  int32_t w_group;
  int32_t zero_points; /* of an int4 weight (both of a fused_moe), not 0: it has zero points */
} gemmtune_problem;

/* What a call of a mixture of experts has beside the other operands. */
typedef struct gemmtune_moe_operands {
  size_t size;
  const void* w2;
  const void* w2_scale;
  /* [T, topk - shared_experts]: 0 to experts - shared_experts - 1, or -1: an empty slot, which adds nothing (another rank's
   * expert, padding). A token of empty slots alone is 0, or what its shared experts add. Other ids are refused on a CPU; on
   * a GPU they make their token NaN. */
  const int32_t* topk_ids;
  const float* topk_weights;    /* [T, topk - shared_experts]; of empty slots not read */
  const float* bias2;           /* [E, model_dim]; required if the problem has a bias, ignored elsewhere */
  const float* w2_global_scale; /* [E]; required with per_1x16, ignored elsewhere */
  const int8_t* w2_zero_points; /* [E, model_dim, inter_dim/group], as w_zero_points */
} gemmtune_moe_operands;

/* Pointers of one call, on the context's device. Weights, biases and scales are dense. A call whose y shares a byte with
 * an input is refused; rows of x and y may take turns in one buffer. Shapes of w, biases, scales and routes are not
 * known here: what the table says is read from each pointer (gemmtune_read_arrays checks shapes).
 *
 *   operation             x           y           w           x_scale               w_scale
 *   --------------------  ----------  ----------  ----------  --------------------  -----------------
 *   a16w16                [M, K]      [M, N]      [N, K]      -                     -
 *   a16w16 with scale_ab  [M, K]      [M, N]      [N, K]      one float             one float
 *   a8w8                  [M, K]      [M, N]      [N, K]      float [M] or one      float [N] or one
 *   a8w8_blockscale       [M, K]      [M, N]      [N, K]      float [M, KB]         float [NB, KB]
 *   a4w4_blockscale       [M, K]      [M, N]      [N, K]      e8m0 [M, K/32]        e8m0 [N, K/32]
 *   a16w4                 [M, K]      [M, N]      [N, K] fp4  -                     e8m0 [N, K/32]
 *   a8w4                  [M, K]      [M, N]      [N, K] fp4  float [M] or one      e8m0 [N, K/32]
 *   a16w4_nvfp4           [M, K]      [M, N]      [N, K] fp4  -                     e4m3 [N, K/16]
 *   a8w4_nvfp4            [M, K]      [M, N]      [N, K] fp4  float [M] or one      e4m3 [N, K/16]
 *   a4w4_nvfp4            [M, K]      [M, N]      [N, K]      e4m3 [M, K/16]        e4m3 [N, K/16]
 *   a16w4_int4            [M, K]      [M, N]      [N, K] int4 -                     y's type [N, K/group]
 *   a8w4_int4             [M, K]      [M, N]      [N, K] int4 float [M] or one      y's type [N, K/group]
 *   batched_bf16          [B, M, K]   [B, M, N]   [B, N, K]   -                     -
 *   batched_a8w8          [B, M, K]   [B, M, N]   [B, N, K]   float [B, M] or one   float [B, N] or one
 *   fused_moe             [T, model]  [T, model]  w1, below   by quant_type         by quant_type, per expert
 *
 * The _bpreshuffle operations are as those without, with a packed weight. KB is ceil(K/128), NB ceil(N/128).
 * fp4 and int4: two elements to a byte, the even one in the low half, K a multiple of the elements that share a scale (int4
 * with whole rows: of 2; mixtures: of 32). e8m0: a byte b is 2^(b - 127), 255 is NaN.
 *
 * NVFP4: an element is e2m1 . scale . w_global_scale (x_global_scale), where a scale is an f8_e4m3fn (0x7f and 0xff are NaN) and
 * the global one a float; its reciprocal, as some checkpoints store it, is not meant. int4: an element is (q - z) . scale, with
 * q from -8 to 7 in two's complement and z an int8 of w_zero_points [N, K/group], from -8 to 8; without zero points z is 0.
 * What checkpoints store as 0 to 15 becomes q by subtracting 8, and so does z.
 *
 * fused_moe (T is M, model is K = model_dim, inter_dim is N, E is experts):
 *
 *   w1  [E, inter_dim, model_dim]; gated [E, 2 * inter_dim, model_dim], the gate's rows first
 *   w2  [E, model_dim, inter_dim]
 *
 *   quant_type   x_scale                            w_scale and w2_scale, for each expert
 *   -----------  ---------------------------------  -------------------------------------
 *   none         -                                  -
 *   per_tensor   one float                          one float
 *   per_token    float [T]                          one float per row
 *   per_1x32     e8m0 [T, model_dim/32]             e8m0, one per 1 x 32
 *   per_1x128    float [T, ceil(model_dim/128)]     float, one per 128 x 128
 *   per_128x128  float [T, ceil(model_dim/128)]     float, one per 128 x 128
 *   per_1x16     -                                  e4m3, one per 1 x 16; NVFP4 weights
 *   per_group    -                                  y's type, one per 1 x group; int4 weights
 *
 * per_1x16 and per_group are of weights alone, fp4 and int4 with x of bf16 or f16, which lie as above. With per_1x16
 * w_global_scale and w2_global_scale have a float for each expert. With per_group w_group is of both weights, or 0, whole rows
 * of either; w_zero_points [E, rows of w1, model_dim/group] and w2_zero_points are given both or neither. model_dim and
 * inter_dim are multiples of 16, or of the group.
 *
 * Operands of 16 bits have no scale; fp4 weights have per_1x32's, whatever the quant_type, which is then of x.
 * y[t] = sum over t's experts of r * w2 * (act(gate) * up), act(w1 * x) if not gated; with doweight_stage1 the
 * routing weight r scales gate and up before the activation instead. With a bias each expert has two, in float
 * whatever y is: bias (bias1) [E, rows of w1] is added to w1 * x, bias2 [E, model_dim] to w2 * h, both before r
 * is applied. */
typedef struct gemmtune_operands {
  size_t size;
  const void* x;       /* rows ldx elements apart; of a column-major x the rows of [K, M] */
  const void* w;       /* in the problem's weight layout and order */
  const void* bias;    /* [N] of y's type, of a fused_moe bias1; ignored where the problem has no bias */
  void* y;             /* rows ldy elements apart */
  int64_t ldx;         /* elements, >= k; 0: k. Of a column-major x >= m; 0: m */
  int64_t ldy;         /* elements, >= the columns of y; 0: those */
  const void* x_scale; /* required if the table above has one */
  const void* w_scale;
  int32_t x_scale_per_tensor; /* of a8w8, batched_a8w8 and a8w4*, not 0: x_scale is one float for all rows */
  int32_t w_scale_per_tensor;
  int64_t
      x_batch_stride; /* of batched operations: elements from batch to batch; 0: m * ldx. Batches may also lie side by side
                                       ([M, B, K]: x_batch_stride = K, ldx = B * K) */
  int64_t y_batch_stride;           /* 0: m * ldy */
  const gemmtune_moe_operands* moe; /* of a fused_moe, ignored elsewhere; read during the call only */
  const float* x_global_scale;      /* one float; required where x or w is NVFP4, ignored elsewhere */
  const float* w_global_scale;      /* likewise; of a fused_moe [E] */
  const int8_t* w_zero_points;      /* required if the problem has them, ignored elsewhere */
} gemmtune_operands;

/* Binds a problem to the kernel that the tuned files name, or to the fallback. Answers come from a cache of
 * 4096 problems; else the kernel is created, which may take milliseconds. The caller owns one reference of
 * *plan. */
GEMMTUNE_API gemmtune_status gemmtune_plan_create(gemmtune_context* context, const gemmtune_problem* problem,
                                                  gemmtune_plan** plan);
/* The same if a row answers that was measured at this M, or, of a fused_moe, at its token tier: not GEMMTUNE_MATCH_FINE, not
 * GEMMTUNE_MATCH_COARSE of other operations. On a GPU a row of a16w16 without scales does not answer if it keeps the default
 * kernel of the vendor's library, which programs call themselves. If none answers, *plan is null, the status GEMMTUNE_OK, and no
 * kernel was made: for callers that have a kernel of their own for such problems. Both answers are cached, counted and captured. */
GEMMTUNE_API gemmtune_status gemmtune_plan_create_tuned(gemmtune_context* context,
                                                        const gemmtune_problem* problem,
                                                        gemmtune_plan** plan);
/* gemmtune_plan_create from the cache alone: GEMMTUNE_NOT_FOUND if the plan would have to be made, which compiles or loads a
 * kernel. For callers whose stream is being captured into a graph. */
GEMMTUNE_API gemmtune_status gemmtune_plan_find(gemmtune_context* context, const gemmtune_problem* problem,
                                                gemmtune_plan** plan);
/* The plan of a problem on one kernel, whatever the tuned files say. `kernel` is a kernelName as in tuned files;
 * "family", that family's default; or "family:index": the solution of that index of hipBLASLt, for other families
 * (cublaslt, tiled, …) the config of that place, from 0, in the order in which the family proposes them for the
 * problem (`gemmtune explain --space FAMILY` describes it). GEMMTUNE_NOT_FOUND for a name, family or index that is not here,
 * GEMMTUNE_UNSUPPORTED with the reason if the kernel does not take the problem or is known to be wrong for it.
 * `unverified` 0: the plan's first run waits for its result and compares it with a float64 reference, on the
 * caller's operands; a wrong one is GEMMTUNE_INTERNAL, and the next run is verified again. A run whose stream is
 * being captured is not verified. Plans are made anew each time and count in no counter. */
GEMMTUNE_API gemmtune_status gemmtune_plan_create_named(gemmtune_context* context,
                                                        const gemmtune_problem* problem, const char* kernel,
                                                        int32_t unverified, gemmtune_plan** plan);
/* One more reference. */
GEMMTUNE_API void gemmtune_plan_retain(gemmtune_plan* plan);
/* Gives one reference back; the last one frees the plan. Null is ignored. */
GEMMTUNE_API void gemmtune_plan_release(gemmtune_plan* plan);

typedef struct gemmtune_plan_info {
  size_t size;
  gemmtune_match match;
  int32_t other_environment; /* 1: the row was measured with another device model or library version */
  int64_t hit_m;             /* M of the row that answered, of a bucket its largest M; 0 if untuned */
  const char* kernel_name;   /* as in tuned files; all texts live as long as the plan */
  const char* family;        /* the kernel's family: libtype */
  const char* rule;          /* what decided, in words, with the rows that were passed over and why */
  const char* file;          /* of the row; "" if untuned */
  size_t line;               /* of the row, 1-based; 0 if untuned */
  size_t workspace_bytes;
  gemmtune_layout weight_layout; /* that w must have: the problem's, or the plan's choice if that was any */
  /* Not 0: untuned, and the device's own fallback was passed over for an erratum (docs/errata.md); `rule` names both
   * kernels. */
  int32_t fallback_erratum;
  const char*
      bits; /* bit class of the row, whose weight has the same bits at every M (docs/invariant.md); "": none */
} gemmtune_plan_info;

GEMMTUNE_API gemmtune_status gemmtune_plan_get_info(const gemmtune_plan* plan, gemmtune_plan_info* info);

/* *erratum is not 0 if this kernel (its name as in tuned files) is known to be wrong for the problem on the context's
 * device (docs/errata.md). GEMMTUNE_NOT_FOUND for a name of no family that is here. Builds nothing. */
GEMMTUNE_API gemmtune_status gemmtune_kernel_erratum(const gemmtune_context* context,
                                                     const gemmtune_problem* problem, const char* kernel_name,
                                                     int32_t* erratum);

/* Runs the plan. Any number of threads may run one plan at once, each with a workspace of its own of
 * workspace_bytes, 64-byte aligned (null if that is 0). On a CPU `stream` is null and the result is complete
 * on return; on a GPU it is the CUstream, null the default one, and the work is enqueued. Allocates nothing,
 * except that oneDNN copies strided x and y. */
GEMMTUNE_API gemmtune_status gemmtune_plan_run(const gemmtune_plan* plan, const gemmtune_operands* operands,
                                               void* workspace, void* stream);

/* Both in one call, any operation: the plan from the cache, a workspace that the context keeps for each
 * thread and stream. `context` null: the default context. weight_layout must not be any: nothing would say
 * how to pack w. */
GEMMTUNE_API gemmtune_status gemmtune_gemm(gemmtune_context* context, const gemmtune_problem* problem,
                                           const gemmtune_operands* operands, void* stream);

/* ---- operands as arrays ------------------------------------------------------------------------------ */

/* int32, beside the values of gemmtune_type: the type of topk_ids. */
enum { GEMMTUNE_ARRAY_I32 = 0x1000 };

/* An array as a library of tensors describes it. Never grows. */
typedef struct gemmtune_array {
  const void* data;
  int32_t type; /* a gemmtune_type or GEMMTUNE_ARRAY_I32; unset: a type that gemmtune does not know */
  int32_t dimensions;
  const int64_t* sizes;   /* of bytes that hold two elements each (fp4, int4) the number of bytes */
  const int64_t* strides; /* in elements (such bytes), of any sign; null: contiguous */
  int32_t read_only;      /* not 0: `out` must not be this array */
} gemmtune_array;

/* The arrays of one call, named as Python names them; null: absent. */
typedef struct gemmtune_arrays {
  size_t size;
  const gemmtune_array* x;
  const gemmtune_array* w; /* w1 of a fused_moe; of a packed weight its bytes */
  const gemmtune_array* out;
  const gemmtune_array* bias; /* bias1 of a fused_moe */
  const gemmtune_array* x_scale;
  const gemmtune_array* w_scale; /* w1_scale of a fused_moe */
  const gemmtune_array* w2;
  const gemmtune_array* w2_scale;
  const gemmtune_array* bias2;
  const gemmtune_array* topk_ids;
  const gemmtune_array* topk_weights;
  /* Of a fused_moe. `moe` holds all but experts and topk, which are written; moe_operands is written. */
  gemmtune_moe* moe;
  gemmtune_moe_operands* moe_operands;
  const gemmtune_array* x_global_scale; /* of NVFP4 operands */
  const gemmtune_array* w_global_scale;
  const gemmtune_array* w_zero_points; /* of int4 weights */
  const gemmtune_array* w2_global_scale;
  const gemmtune_array* w2_zero_points;
} gemmtune_arrays;

/* Makes a call's problem and operands of its arrays. This is the one place that decides which types, shapes, strides and
 * read-only arrays are right; Python and PyTorch ask it.
 *
 *   x               [..., K] (batched: [B, M, K]; fused_moe: [T, K]): contiguous rows at one distance, which is not
 *                   below K; of an a16w16 of bf16, f16 or f32 also a column-major [M, K]
 *   out             x's shape with the columns of y; contiguous rows at one distance, not read-only
 *   w, w1, w2       the shape of the table at gemmtune_operands, contiguous; w of an a16w16 may be a transposed view
 *   bias, bias2     the table's shape, contiguous
 *   scales          the table's shape, contiguous; dimensions of size 1 may be there or not, and B or E may be merged
 *                   with the rows behind it. x_scale may have x's leading dimensions in place of M. One element where
 *                   one is enough
 *   topk_ids, topk_weights   [T, topk - shared_experts], contiguous, int32 and float
 *
 * Strides of dimensions of size 1, and of arrays without elements, mean nothing. An array that the operation does not have
 * is refused.
 *
 * In `problem` the caller sets operation (of a packed weight too: its _BPRESHUFFLE form follows), weight_layout, of a packed
 * weight n and, if known, k and w_type, the promises, and y_type for a call without `out` (unset: x's type if that is bf16,
 * f16 or f32, else bf16). All other members are written, and all of *operands. Without `out`, operands->y is null and
 * operands->ldy the columns of y: allocate x's shape with that many columns of problem->y_type. If the array is contiguous
 * and at a multiple of 16 bytes, it is enough to set operands->y; else call again with it.
 *
 * x, x_scale, topk_ids and topk_weights belong to one call, so a contiguous copy of them is cheap. If one of them has
 * strides that no kernel reads, or elements at odd addresses, *strided is that array: copy it and call again; nothing else
 * was written. If all is well *strided is null. `strided` null: such an array is refused. */
GEMMTUNE_API gemmtune_status gemmtune_read_arrays(const gemmtune_arrays* arrays, gemmtune_problem* problem,
                                                  gemmtune_operands* operands,
                                                  const gemmtune_array** strided);

/* ---- between two products ---------------------------------------------------------------------------- */

/* y = silu(gate) * up, element by element, silu(v) = v / (1 + exp(-v)), computed in float32 and rounded once: what a gated
 * feed-forward layer has between its products. Matrices of rows x columns on the context's device. gate and up may be columns
 * of one matrix; y may be gate or up, with the same distance of rows, and is refused if it overlaps them in another way. */
typedef struct gemmtune_silu_and_mul_operands {
  size_t size;
  gemmtune_type type; /* of all three: F32, F16 or BF16 */
  int64_t rows;       /* 0 is legal, here and below: nothing is read or written */
  int64_t columns;
  const void* gate; /* aligned as an element; fastest if 16 bytes divide pointers, rows and distances */
  const void* up;
  void* y;
  int64_t ldgate; /* elements from row to row, >= columns; 0: columns */
  int64_t ldup;
  int64_t ldy;
} gemmtune_silu_and_mul_operands;

/* `context` null: the default context; `stream` as for gemmtune_plan_run. A GPU's first call of a type compiles and loads a
 * kernel: GEMMTUNE_NOT_FOUND if `stream` is being captured then. */
GEMMTUNE_API gemmtune_status gemmtune_silu_and_mul(gemmtune_context* context,
                                                   const gemmtune_silu_and_mul_operands* operands,
                                                   void* stream);

/* The operands of three arrays, as gemmtune_read_arrays reads others: one shape and type, contiguous rows at one distance.
 * `out` null: y is null and ldy the columns; gate and up may have to be copied. */
GEMMTUNE_API gemmtune_status gemmtune_read_silu_and_mul_arrays(const gemmtune_array* gate,
                                                               const gemmtune_array* up,
                                                               const gemmtune_array* out,
                                                               gemmtune_silu_and_mul_operands* operands,
                                                               const gemmtune_array** strided);

/* The scales of a problem, by the table of gemmtune_operands: how many each operand has, and of which type, F32, U8 (e8m0),
 * F8_E4M3FN, BF16 or F16; 0 and unset where it has none. */
typedef struct gemmtune_scales {
  size_t size;
  int64_t x;
  int64_t w;
  int64_t w2; /* of a fused_moe */
  gemmtune_type x_type;
  gemmtune_type w_type;
  gemmtune_type w2_type;
  int32_t x_or_one; /* not 0: one for all rows is enough (x_scale_per_tensor) */
  int32_t w_or_one;
  int32_t x_global; /* not 0: x_global_scale is required */
  int32_t w_global;
  int64_t w_zero_points; /* how many */
  int32_t w2_global;     /* not 0: w2_global_scale is required */
  int64_t w2_zero_points;
} gemmtune_scales;

GEMMTUNE_API gemmtune_status gemmtune_problem_scales(const gemmtune_problem* problem,
                                                     gemmtune_scales* scales);

/* ---- weights that are packed once ---------------------------------------------------------------------
 * `problem` describes the weight: operation, n, k, batch, types, scale_ab; m, bias and weight_layout are
 * ignored. */

/* The layout that the tuned files were made for on this device: that of most rows of this weight. Without
 * such a row plain, and for the _BPRESHUFFLE operations the one that the fallback reads. */
GEMMTUNE_API gemmtune_status gemmtune_weight_layout(const gemmtune_context* context,
                                                    const gemmtune_problem* problem, gemmtune_layout* layout);
/* Bytes of the weight in `layout`, a multiple of 64. */
GEMMTUNE_API gemmtune_status gemmtune_packed_weight_bytes(const gemmtune_context* context,
                                                          const gemmtune_problem* problem,
                                                          gemmtune_layout layout, size_t* bytes);
/* plain [N, K] into `packed`, which has gemmtune_packed_weight_bytes and is 64-byte aligned; no overlap. On a
 * CPU the system is asked for huge pages, for each whole 2 MiB of `packed` that begins at a multiple of 2 MiB. */
GEMMTUNE_API gemmtune_status gemmtune_pack_weight(const gemmtune_context* context,
                                                  const gemmtune_problem* problem, gemmtune_layout layout,
                                                  const void* plain, void* packed);
/* The inverse, into `plain` [N, K]; GEMMTUNE_UNSUPPORTED for layouts that have none on this device. */
GEMMTUNE_API gemmtune_status gemmtune_unpack_weight(const gemmtune_context* context,
                                                    const gemmtune_problem* problem, gemmtune_layout layout,
                                                    const void* packed, void* plain);

/* ---- problems that no row answers ---------------------------------------------------------------------
 * The hook by which libgemmtune_tuning tunes online (gemmtune_enable_online_tuning in gemmtune/tuning.h); a
 * program may have its own. */

/* What was asked and is not known. All texts live until the call returns. */
typedef struct gemmtune_miss {
  size_t size;
  /* "a16w16 m=1 n=2048 k=2048 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain ..." */
  const char* problem;
  const char* file;     /* where a row of it belongs: the online file of its operation; "" if there is none */
  const char* fallback; /* name of the kernel that runs meanwhile */
  const char* proven_families; /* comma list: those that rows of this device name, and the fallback's */
  const char* tuned_files;     /* colon list: the tuned files that were asked; some may not exist */
} gemmtune_miss;

/* Called on the thread that plans, once per plan that no row answered; never while the stream of the call is
 * captured into a graph (as far as the device can tell). Must not throw. Returns not 0 if
 * gemmtune_context_reload_online was called: the context looks once more. */
typedef int32_t (*gemmtune_missed)(void* handler_context, const gemmtune_miss* miss);

typedef struct gemmtune_miss_handler {
  size_t size;
  gemmtune_missed missed;
  /* Called when no call of `missed` runs and none will come: the handler was replaced, the context destroyed,
   * or the process exits; not after a gemmtune_context_set_miss_handler that failed. May call functions of the
   * context. Null: nothing. */
  void (*release)(void* handler_context);
  void* handler_context;
  /* Rows that the context looks up after the tuned files, from now on. Null: online_tuning.csv of the config
   * folder, or hip_online_tuning_res.csv of the working folder with hipblaslt_table. */
  const char* file;
  int32_t hipblaslt_table; /* not 0: the file is AITER's table of hipBLASLt's online tuning (exact M only) */
} gemmtune_miss_handler;

/* Replaces the context's handler; null takes it away (rows that were read stay). */
GEMMTUNE_API gemmtune_status gemmtune_context_set_miss_handler(gemmtune_context* context,
                                                               const gemmtune_miss_handler* handler);
/* Reads the online file again: problems that no row answered and that it has now are planned anew; all other
 * plans stay. */
GEMMTUNE_API gemmtune_status gemmtune_context_reload_online(gemmtune_context* context);
/* Writes a line into the context's log; level as of gemmtune_log. */
GEMMTUNE_API gemmtune_status gemmtune_context_log(gemmtune_context* context, int32_t level, const char* line);

#ifdef __cplusplus
}
#endif

#endif /* GEMMTUNE_C_H */
