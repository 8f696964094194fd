/* gemmtune's C interface: open tuned files, plan a matrix multiplication, run it.
 *
 *   y[M, N] = x[M, K] . w[N, K]^T (+ bias[N]), row-major, accumulated in float32.
 *
 * Conventions
 *   - Every structure begins with `size`: set it to sizeof the structure and everything you do not use to
 * zero. A program built against an older header passes a smaller size; what it does not know keeps its
 * default.
 *   - Every function that can fail returns a gemmtune_status; gemmtune_last_error() holds the sentence.
 * Nothing prints, nothing throws.
 *   - All functions are safe to call from any thread. Environment variables are read once, when a context is
 * made.
 */
#ifndef GEMMTUNE_C_H
#define GEMMTUNE_C_H

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
  GEMMTUNE_NOT_FOUND = 2,        /* a file, family, library or device is not there */
  GEMMTUNE_UNSUPPORTED = 3,      /* legal, but this device or build cannot do it */
  GEMMTUNE_IO_ERROR = 4,
  GEMMTUNE_OUT_OF_MEMORY = 5,
  GEMMTUNE_INTERNAL = 6,
  GEMMTUNE_NULL_POINTER = 7, /* a required pointer is null */
  GEMMTUNE_MISALIGNED = 8    /* an operand or the workspace breaks its promised alignment */
} gemmtune_status;

/* A word for a code ("misaligned"); never null. */
GEMMTUNE_API const char* gemmtune_status_text(gemmtune_status status);
/* The sentence of this thread's last failure, naming the value and what was expected; "" before the first
 * one. Valid until this thread's next failure. */
GEMMTUNE_API const char* gemmtune_last_error(void);
/* "0.1.0" */
GEMMTUNE_API const char* gemmtune_version(void);

typedef enum gemmtune_type {
  GEMMTUNE_TYPE_UNSET = 0, /* of w and y: the type of x */
  GEMMTUNE_F32 = 1,
  GEMMTUNE_F16 = 2,
  GEMMTUNE_BF16 = 3,
  GEMMTUNE_F8_E4M3FN = 4,
  GEMMTUNE_F8_E4M3FNUZ = 5,
  GEMMTUNE_I8 = 6,
  GEMMTUNE_F4_E2M1 = 7, /* two in a byte */
  GEMMTUNE_U8 = 8,
  GEMMTUNE_I4 = 9 /* two in a byte */
} gemmtune_type;

/* What is multiplied, one for each of AITER's tables. */
typedef enum gemmtune_operation {
  GEMMTUNE_A16W16 = 0,           /* bf16, fp16, fp32; fp8 with scale_ab */
  GEMMTUNE_A8W8 = 1,             /* int8 or fp8, a scale for each row of x and of w */
  GEMMTUNE_A8W8_BPRESHUFFLE = 2, /* the same with a packed weight */
  GEMMTUNE_A8W8_BLOCKSCALE = 3,  /* fp8, x scaled in blocks of 1 x 128, w of 128 x 128 */
  GEMMTUNE_A8W8_BLOCKSCALE_BPRESHUFFLE = 4,
  GEMMTUNE_A4W4_BLOCKSCALE = 5, /* fp4 with a scale for every 32 of K */
  GEMMTUNE_BATCHED_BF16 = 6,
  GEMMTUNE_BATCHED_A8W8 = 7,
  GEMMTUNE_FUSED_MOE = 8 /* both GEMMs of a mixture of experts */
} gemmtune_operation;

/* How the operands of a mixture of experts are quantized: AITER's QuantType. */
typedef enum gemmtune_quant_type {
  GEMMTUNE_QUANT_NONE = 0,
  GEMMTUNE_QUANT_PER_TENSOR = 1,
  GEMMTUNE_QUANT_PER_TOKEN = 2,
  GEMMTUNE_QUANT_PER_1X32 = 3,
  GEMMTUNE_QUANT_PER_1X128 = 4,
  GEMMTUNE_QUANT_PER_128X128 = 5
} gemmtune_quant_type;

/* What stands between the two GEMMs of a mixture of experts: AITER's ActivationType. */
typedef enum gemmtune_activation {
  GEMMTUNE_ACTIVATION_NONE = 0,
  GEMMTUNE_ACTIVATION_SILU = 1,
  GEMMTUNE_ACTIVATION_GELU = 2,
  GEMMTUNE_ACTIVATION_SWIGLU = 3,
  GEMMTUNE_ACTIVATION_SITUV2 = 4
} gemmtune_activation;

/* How a weight lies in memory. It belongs to the weight: one copy serves every M. */
typedef enum gemmtune_layout {
  GEMMTUNE_LAYOUT_PLAIN = 0,      /* row-major [N, K], as a checkpoint holds it */
  GEMMTUNE_LAYOUT_PANEL16 = 1,    /* gemmtune's own: panels of 16 output features, contiguous over K */
  GEMMTUNE_LAYOUT_ONEDNN = 2,     /* what oneDNN asks for; opaque */
  GEMMTUNE_LAYOUT_AITER16X16 = 3, /* AITER's shuffle_weight(w, (16, 16)) */
  GEMMTUNE_LAYOUT_TILE64X128 = 4  /* gemmtune's own, for GPUs: tiles of 64 output features x 128 bytes of K */
} gemmtune_layout;

/* How well the tuned files knew a problem. */
typedef enum gemmtune_match {
  GEMMTUNE_MATCH_EXACT = 0,  /* a row of this M */
  GEMMTUNE_MATCH_RANGE = 1,  /* a row whose interval holds this M */
  GEMMTUNE_MATCH_FINE = 2,   /* M padded, fine step */
  GEMMTUNE_MATCH_COARSE = 3, /* M padded, coarse step */
  GEMMTUNE_MATCH_UNTUNED = 4 /* no row: the fallback */
} gemmtune_match;

typedef struct gemmtune_context gemmtune_context;
typedef struct gemmtune_plan gemmtune_plan;

/* ---- context
 * ------------------------------------------------------------------------------------------------ */

/* One part of a kernel's work. */
typedef void (*gemmtune_task)(void* task_context, int64_t part);
/* Runs task(task_context, part) for every part in [0, parts), on whatever threads it likes, and returns when
 * all are done. Must not throw. Parts may run one after another. */
typedef void (*gemmtune_parallel_for)(void* context, int64_t parts, gemmtune_task task, void* task_context);
/* level: 0 debug, 1 info, 2 warning, 3 error. May be called from any thread. */
typedef void (*gemmtune_log)(void* context, int level, const char* line);

typedef struct gemmtune_context_options {
  size_t size;
  /* Folder of the tuned files; null: GEMMTUNE_CONFIG_DIR, else $XDG_CONFIG_HOME/gemmtune, else
   * ~/.config/gemmtune. */
  const char* config_folder;
  /* Tuned files of a16w16, colon-separated, merged; replaces the default. Null: GEMMTUNE_CONFIG_A16W16, else
   * AITER_CONFIG_GEMM_BF16, else bf16_tuned_gemm.csv of the config folder merged with model_configs/ beside
   * it. */
  const char* tuned_files_a16w16;
  const char* backend;        /* "auto", "cpu" …; null: "auto" */
  const char* device;         /* "cpu", "cpu:0-15"; null: the backend's default */
  int32_t threads;            /* 0: GEMMTUNE_NUM_THREADS, else all cores of the device */
  int32_t strict_environment; /* not 0: rows measured in another environment do not answer */
  int32_t log_config; /* not 0: a line a problem with its row or rule. 0: GEMMTUNE_LOG_CONFIG decides */
  gemmtune_parallel_for
      parallel_for; /* null: gemmtune's own threads. `threads` then says how many run at once */
  void* parallel_for_context;
  gemmtune_log log; /* null: no log lines of this context */
  void* log_context;
  /* Tuned files of the other operations, as tuned_files_a16w16; null: GEMMTUNE_CONFIG_A8W8 …, else AITER's
   * variable, else the operation's file of the config folder. */
  const char* tuned_files_a8w8;
  const char* tuned_files_a8w8_bpreshuffle;
  const char* tuned_files_a8w8_blockscale;
  const char* tuned_files_a8w8_blockscale_bpreshuffle;
  const char* tuned_files_a4w4_blockscale;
  const char* tuned_files_batched_bf16;
  const char* tuned_files_batched_a8w8;
  const char* tuned_files_fused_moe;
  /* Not 0: record every problem that is planned, with its match and how often, in the untuned files of
   * capture_folder. 0: GEMMTUNE_CAPTURE, else AITER_TUNE_GEMM decides. See gemmtune_capture_flush. */
  int32_t capture;
  const char* capture_folder; /* null: the folder that the variable names, else the config folder */
} gemmtune_context_options;

/* Opens the device and reads the tuned files (missing ones are not an error). `options` may be null: all
 * defaults. The caller owns *context. Takes milliseconds. */
GEMMTUNE_API gemmtune_status gemmtune_context_create(const gemmtune_context_options* options,
                                                     gemmtune_context** context);
/* Plans made from it stay valid until they are released. No other call on this context may be running. Null
 * is ignored. */
GEMMTUNE_API void gemmtune_context_destroy(gemmtune_context* context);
/* The process's context with all defaults, made at the first call; owned by gemmtune, never destroyed. */
GEMMTUNE_API gemmtune_status gemmtune_default_context(gemmtune_context** context);
/* Reads the tuned files again and swaps them in; plans in use stay valid. Where a file cannot be read the old
 * rows stay and the error is returned. */
GEMMTUNE_API gemmtune_status gemmtune_context_reload(gemmtune_context* context);
/* The tuned files, one line each: path, and rows read or why there are none. Writes at most `capacity` bytes
 * with the final 0; *needed (may be null) is the full length with it. `text` may be null where capacity is 0.
 */
GEMMTUNE_API gemmtune_status gemmtune_context_sources(const gemmtune_context* context, char* text,
                                                      size_t capacity, size_t* needed);

typedef struct gemmtune_device_info {
  size_t size;
  const char* backend; /* "cpu"; all texts live as long as the context */
  const char* name;    /* "cpu:0-1" */
  const char* model;
  const char* gfx; /* the tables' architecture: "x86-avx2" */
  int32_t cu_num;  /* compute units: the threads of a CPU */
} gemmtune_device_info;

GEMMTUNE_API gemmtune_status gemmtune_context_device(const gemmtune_context* context,
                                                     gemmtune_device_info* info);

/* Capture: each problem that is planned (m = 0 excepted) gets one line in its operation's untuned CSV
 * (bf16_untuned_gemm.csv …, the input of `gemmtune tune`), and its calls and matches are added up in
 * <file>.calls.json beside it. Any number of processes may write the same files; what was there stays. A
 * thread of the context writes every second; the rest is written by this function, by
 * gemmtune_context_destroy and, for the default context, when the process exits. A process that is killed
 * loses what the last second brought. In a child made by fork() the parent's contexts record and write
 * nothing: make a context in the child.
 *
 * Writes what is not written yet; GEMMTUNE_OK where capture is off. On an error it stays and is tried again.
 */
GEMMTUNE_API gemmtune_status gemmtune_capture_flush(gemmtune_context* context);

/* How plan requests (gemmtune_plan_create and the one-call form, cached answers included) were served. */
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
} gemmtune_counters;

GEMMTUNE_API gemmtune_status gemmtune_context_counters(const gemmtune_context* context,
                                                       gemmtune_counters* counters);

/* ---- problems and plans
 * ------------------------------------------------------------------------------------- */

typedef struct gemmtune_problem {
  size_t size;
  gemmtune_operation operation;
  gemmtune_type x_type;
  gemmtune_type w_type; /* unset: x_type */
  gemmtune_type y_type; /* unset: x_type of a16w16 and batched_bf16, bf16 of the others */
  int64_t m;            /* rows of x; 0 is legal: nothing is read or written. Tokens of a fused_moe */
  int64_t n;            /* rows of w; inter_dim of a fused_moe (of one half, where gated) */
  int64_t k;            /* model_dim of a fused_moe */
  int32_t bias;         /* not 0: a bias [N] of y's type is added in float32 before rounding */
  int32_t scale_ab;     /* not 0: fp8 operands with one float32 scale each */
  gemmtune_layout weight_layout; /* plain with the _BPRESHUFFLE operations: packed, the layout is open */
  int32_t alignment;             /* bytes, a power of two, promised for x, w, bias and y; 0: 16 */
  int64_t batch;                 /* of the batched operations; 0: 1 */
  int32_t experts;               /* of a fused_moe, as are all below */
  int32_t topk;                  /* experts that a token is sent to */
  gemmtune_activation activation;
  gemmtune_quant_type quant_type;
  int32_t gated;           /* not 0: w1 holds a gate and an up half (AITER's use_g1u1) */
  int32_t doweight_stage1; /* not 0: the routing weight is applied after the first GEMM */
  /* Promises of every call, for rows with a pdl_kernelName (NVIDIA's programmatic dependent launch). Both not
   * 0: that kernel runs, and reads the weight while the kernel in front of it on the stream still runs. */
  int32_t constant_weights;     /* the kernel in front does not write w */
  int32_t predecessor_triggers; /* it executes griddepcontrol.launch_dependents; else little is gained */
} gemmtune_problem;

/* Pointers of one call, on the context's device. Weights and scales are dense. y must not overlap an input.
 *
 *   operation             x, y                  w            x_scale                   w_scale
 *   a16w16 with scale_ab  [M, K], [M, N]        [N, K]       one float                 one float
 *   a8w8                  [M, K], [M, N]        [N, K]       float [M] or one          float [N] or one
 *   a8w8_blockscale       [M, K], [M, N]        [N, K]       float [M, ceil(K/128)]    float [ceil(N/128),
 * ceil(K/128)] a4w4_blockscale       [M, K], [M, N]        [N, K]       e8m0 [M, K/32]            e8m0 [N,
 * K/32] batched_bf16          [B, M, K], [B, M, N]  [B, N, K]    -                         - batched_a8w8 [B,
 * M, K], [B, M, N]  [B, N, K]    float [B, M] or one       float [B, N] or one fused_moe             [T,
 * model_dim] both   see below    by quant_type             by quant_type
 *
 * The _bpreshuffle operations are as those without, with a packed weight. fp4: two elements to a byte, the
 * even one in the low half, K a multiple of 32. e8m0: a byte b is 2^(b - 127), 255 is NaN.
 *
 * fused_moe: w is w1 [E, inter_dim or, gated, 2 * inter_dim with the gate's rows first, model_dim], w2 is [E,
 * model_dim, inter_dim]; n is inter_dim, k model_dim. Scales of x, w and w2 are for each expert: one of
 * per_tensor, one a row of per_token, of 1 x 128 of x and 128 x 128 of the weights of per_1x128 and
 * per_128x128, e8m0 of 1 x 32 of per_1x32; operands of 16 bits have none. y[t] = sum over t's experts of r *
 * w2 * act(gate) * up; with doweight_stage1 the routing weight r scales gate and up before the activation
 * instead. */
typedef struct gemmtune_operands {
  size_t size;
  const void* x;       /* rows ldx elements apart */
  const void* w;       /* in the problem's weight layout */
  const void* bias;    /* [N] of y's type; required where the problem has a bias, ignored elsewhere */
  void* y;             /* rows ldy elements apart */
  int64_t ldx;         /* elements, >= k; 0: k */
  int64_t ldy;         /* elements, >= the columns of y; 0: those */
  const void* x_scale; /* required where the table above has one */
  const void* w_scale;
  int32_t x_scale_per_tensor; /* of a8w8 and batched_a8w8, not 0: x_scale is one float for all rows */
  int32_t w_scale_per_tensor;
  int64_t x_batch_stride; /* of batched operations: elements from batch to batch; 0: m * ldx */
  int64_t y_batch_stride; /* 0: m * ldy */
  const void* w2;         /* of fused_moe, as are all below */
  const void* w2_scale;
  const int32_t* topk_ids;   /* [T, topk]: 0 to experts - 1 */
  const float* topk_weights; /* [T, topk] */
} gemmtune_operands;

/* Binds a problem to the kernel that the tuned files name, or to the fallback. Answers come from a cache of
 * 4096 problems; else the kernel is created, which may take milliseconds. The caller owns one reference of
 * *plan. */
GEMMTUNE_API gemmtune_status gemmtune_plan_create(gemmtune_context* context, const gemmtune_problem* problem,
                                                  gemmtune_plan** plan);
/* One more reference. */
GEMMTUNE_API void gemmtune_plan_retain(gemmtune_plan* plan);
/* Gives one reference back; the last one frees the plan. Null is ignored. */
GEMMTUNE_API void gemmtune_plan_release(gemmtune_plan* plan);

typedef struct gemmtune_plan_info {
  size_t size;
  gemmtune_match match;
  int32_t other_environment; /* 1: the row was measured with another device model or library version */
  int64_t hit_m;             /* M of the row that answered; 0 where untuned */
  const char* kernel_name;   /* as in tuned files; all texts live as long as the plan */
  const char* family;        /* the kernel's family: libtype */
  const char* rule;          /* what decided, in words, with the rows that were passed over and why */
  const char* file;          /* of the row; "" where untuned */
  size_t line;               /* of the row, 1-based; 0 where untuned */
  size_t workspace_bytes;
} gemmtune_plan_info;

GEMMTUNE_API gemmtune_status gemmtune_plan_get_info(const gemmtune_plan* plan, gemmtune_plan_info* info);

/* Runs the plan. Any number of threads may run one plan at once, each with a workspace of its own of
 * workspace_bytes, 64-byte aligned (null where that is 0). On a CPU `stream` is null and the result is
 * complete on return; on a GPU the work is enqueued on the stream. Allocates nothing. On an error nothing was
 * written. */
GEMMTUNE_API gemmtune_status gemmtune_plan_run(const gemmtune_plan* plan, const gemmtune_operands* operands,
                                               void* workspace, void* stream);

/* The short forms, one an operation: plan from the cache, workspace kept by the context for each thread and
 * stream. `context` null: the default context. */
GEMMTUNE_API gemmtune_status gemmtune_gemm_a16w16(gemmtune_context* context, const gemmtune_problem* problem,
                                                  const gemmtune_operands* operands, void* stream);
GEMMTUNE_API gemmtune_status gemmtune_gemm_a8w8(gemmtune_context* context, const gemmtune_problem* problem,
                                                const gemmtune_operands* operands, void* stream);
GEMMTUNE_API gemmtune_status gemmtune_gemm_a8w8_bpreshuffle(gemmtune_context* context,
                                                            const gemmtune_problem* problem,
                                                            const gemmtune_operands* operands, void* stream);
GEMMTUNE_API gemmtune_status gemmtune_gemm_a8w8_blockscale(gemmtune_context* context,
                                                           const gemmtune_problem* problem,
                                                           const gemmtune_operands* operands, void* stream);
GEMMTUNE_API gemmtune_status gemmtune_gemm_a8w8_blockscale_bpreshuffle(gemmtune_context* context,
                                                                       const gemmtune_problem* problem,
                                                                       const gemmtune_operands* operands,
                                                                       void* stream);
GEMMTUNE_API gemmtune_status gemmtune_gemm_a4w4_blockscale(gemmtune_context* context,
                                                           const gemmtune_problem* problem,
                                                           const gemmtune_operands* operands, void* stream);
GEMMTUNE_API gemmtune_status gemmtune_gemm_batched_bf16(gemmtune_context* context,
                                                        const gemmtune_problem* problem,
                                                        const gemmtune_operands* operands, void* stream);
GEMMTUNE_API gemmtune_status gemmtune_gemm_batched_a8w8(gemmtune_context* context,
                                                        const gemmtune_problem* problem,
                                                        const gemmtune_operands* operands, void* stream);
GEMMTUNE_API gemmtune_status gemmtune_fused_moe(gemmtune_context* context, const gemmtune_problem* problem,
                                                const gemmtune_operands* operands, void* stream);

/* ---- problems that no row answers
 * ---------------------------------------------------------------------------- The hook by which
 * libgemmtune_tuning tunes online (gemmtune_enable_online_tuning in gemmtune/tuning.h); a program may have
 * its own. */

/* What was asked and is not known. All texts live until the call returns. */
typedef struct gemmtune_miss {
  size_t size;
  const char* problem; /* "a16w16 m=1 n=2048 k=2048 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain …" */
  const char* file; /* where a row of it belongs: the online file of its operation; "" where there is none */
  const char* fallback;        /* name of the kernel that runs meanwhile */
  const char* proven_families; /* comma list: those that rows of this device name, and the fallback's */
  const char* tuned_files;     /* colon list: the tuned files that were asked; some may not exist */
} gemmtune_miss;

/* On the thread that plans, once a plan that no row answered; never while the stream of the call is recorded
 * into a graph (as far as the device can tell). Must not throw. Not 0: gemmtune_context_reload_online was
 * called, look once more. */
typedef int32_t (*gemmtune_missed)(void* handler_context, const gemmtune_miss* miss);

typedef struct gemmtune_miss_handler {
  size_t size;
  gemmtune_missed missed;
  /* When no call of `missed` runs and none will come: the handler was replaced, the context destroyed, or the
   * process exits. May call functions of the context. Null: nothing. */
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

/* ---- weights that are packed once
 * ---------------------------------------------------------------------------- `problem` describes the
 * weight: operation, n, k, types, bias; m and weight_layout are ignored. */

/* The layout that the tuned files were made for on this device: plain where no row of a packed weight can
 * run. */
GEMMTUNE_API gemmtune_status gemmtune_weight_layout(const gemmtune_context* context,
                                                    const gemmtune_problem* problem, gemmtune_layout* layout);
/* Bytes of the weight in `layout`. */
GEMMTUNE_API gemmtune_status gemmtune_packed_weight_bytes(const gemmtune_context* context,
                                                          const gemmtune_problem* problem,
                                                          gemmtune_layout layout, size_t* bytes);
/* plain [N, K] into `packed`, which holds gemmtune_packed_weight_bytes, 64-byte aligned; no overlap. */
GEMMTUNE_API gemmtune_status gemmtune_pack_weight(const gemmtune_context* context,
                                                  const gemmtune_problem* problem, gemmtune_layout layout,
                                                  const void* plain, void* packed);
/* The inverse, for layouts that have one (panel16, aiter16x16, tile64x128; onednn by its own reorder). */
GEMMTUNE_API gemmtune_status gemmtune_unpack_weight(const gemmtune_context* context,
                                                    const gemmtune_problem* problem, gemmtune_layout layout,
                                                    const void* packed, void* plain);

#ifdef __cplusplus
}
#endif

#endif /* GEMMTUNE_C_H */
