/* Opens a context on the backend argv[1] and multiplies on a CPU: it loads what libgemmtune loads. Exits with 0, or with 1 where
 * there is no such device. */
#include <gemmtune/c.h>
#include <stdio.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  gemmtune_context_options options = {.size = sizeof options, .backend = argv[1], .threads = 1};
  gemmtune_context* context = NULL;
  if (gemmtune_context_create(&options, &context) != GEMMTUNE_OK) {
    fprintf(stderr, "%s\n", gemmtune_last_error());
    return 1;
  }
  _Alignas(64) float x[8] = {1}, w[8] = {1}, y[1] = {0};
  const gemmtune_problem problem = {.size = sizeof problem, .x_type = GEMMTUNE_F32, .m = 1, .n = 1, .k = 8};
  const gemmtune_operands operands = {.size = sizeof operands, .x = x, .w = w, .y = y};
  const gemmtune_status status = gemmtune_gemm(context, &problem, &operands, NULL);
  if (status != GEMMTUNE_OK) fprintf(stderr, "%s\n", gemmtune_last_error());
  gemmtune_context_destroy(context);
  return status == GEMMTUNE_OK && y[0] == 1 ? 0 : 3;
}
