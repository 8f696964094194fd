/* 01_linear in C11: y = x . w^T + bias in float32, with the kernel that a tuned file names.
 *
 *   02_linear [TUNED_FILE]      without a file: the config folder's tuned files
 */
#include <gemmtune/c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { rows = 4, features_out = 256, features_in = 512 };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, gemmtune_last_error());
  return 1;
}

/* Fills the inputs; the values are exact in float32, so that sums are, too. */
static void fill(float* x, float* w, float* bias) {
  for (int i = 0; i < rows * features_in; ++i) x[i] = (float)(i % 13 - 6) / 8;
  for (int i = 0; i < features_out * features_in; ++i) w[i] = (float)(i % 11 - 5) / 16;
  for (int i = 0; i < features_out; ++i) bias[i] = (float)(i % 3);
}

/* Elements of y that differ from a plain loop; clears y for the next try. */
static int wrong(const float* x, const float* w, const float* bias, float* y) {
  int count = 0;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < features_out; ++column) {
      double sum = bias[column];
      for (int step = 0; step < features_in; ++step) {
        sum += (double)x[row * features_in + step] * w[column * features_in + step];
      }
      count += !(fabs(y[row * features_out + column] - sum) <= 1e-4);
      y[row * features_out + column] = 0;
    }
  }
  return count;
}

static int run(gemmtune_context* context, const gemmtune_operands* operands, int bad[2]) {
  const gemmtune_problem problem = {.size = sizeof problem,
                                    .x_type = GEMMTUNE_F32,
                                    .m = rows,
                                    .n = features_out,
                                    .k = features_in,
                                    .bias = 1};
  gemmtune_plan* plan = NULL;
  if (gemmtune_plan_create(context, &problem, &plan) != GEMMTUNE_OK) return fail("plan");
  gemmtune_plan_info info = {.size = sizeof info};
  gemmtune_plan_get_info(plan, &info);
  printf("kernel: %s\nrow: %s:%zu\nrule: %s\n", info.kernel_name, info.file, info.line, info.rule);

  void* workspace = aligned_alloc(64, (info.workspace_bytes / 64 + 1) * 64);
  gemmtune_status status = gemmtune_plan_run(plan, operands, workspace, NULL);
  free(workspace);
  gemmtune_plan_release(plan);
  if (status != GEMMTUNE_OK) return fail("run");
  bad[0] = wrong(operands->x, operands->w, operands->bias, operands->y);

  if (gemmtune_gemm(context, &problem, operands, NULL) != GEMMTUNE_OK) return fail("one call");
  bad[1] = wrong(operands->x, operands->w, operands->bias, operands->y);
  return 0;
}

/* One line a tuned file. */
static void print_source(void* unused, const gemmtune_source* source) {
  (void)unused;
  if (source->rows > 0 || source->named) {
    printf("%s: %zu rows, %zu of this device%s%s\n", source->path, source->rows, source->own_rows,
           source->unused[0] != '\0' ? "; " : "", source->unused);
  }
}

/* How the calls were served, and by which files: what a service exports to its monitoring. */
static void report(const gemmtune_context* context) {
  gemmtune_counters counters = {.size = sizeof counters};
  if (gemmtune_context_counters(context, &counters) != GEMMTUNE_OK) return;
  const uint64_t tuned = counters.exact + counters.range + counters.fine + counters.coarse + counters.bucket;
  printf("calls: %llu tuned, %llu untuned, %llu by rows of fewer threads\n", (unsigned long long)tuned,
         (unsigned long long)counters.untuned, (unsigned long long)counters.fewer_threads);
  gemmtune_context_visit_sources(context, print_source, NULL);
}

int main(int argc, char** argv) {
  const gemmtune_tuned_files files = {.operation = GEMMTUNE_A16W16, .paths = argc > 1 ? argv[1] : NULL};
  const gemmtune_context_options options = {
      .size = sizeof options, .tuned_files = &files, .tuned_file_count = 1};
  gemmtune_context* context = NULL;
  if (gemmtune_context_create(&options, &context) != GEMMTUNE_OK) return fail("context");

  float* x = aligned_alloc(64, sizeof(float) * rows * features_in);
  float* w = aligned_alloc(64, sizeof(float) * features_out * features_in);
  float* bias = aligned_alloc(64, sizeof(float) * features_out);
  float* y = aligned_alloc(64, sizeof(float) * rows * features_out);
  fill(x, w, bias);
  const gemmtune_operands operands = {.size = sizeof operands, .x = x, .w = w, .bias = bias, .y = y};
  int bad[2] = {0, 0};
  int result = run(context, &operands, bad);
  if (result == 0) printf("wrong elements: %d by the plan, %d by the one call\n", bad[0], bad[1]);
  report(context);
  free(x);
  free(w);
  free(bias);
  free(y);
  gemmtune_context_destroy(context);
  return result != 0 || bad[0] + bad[1] != 0;
}
