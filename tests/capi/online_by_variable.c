/* A program that links libgemmtune alone, with online tuning asked for by the environment.
 * online_by_variable FOLDER row|missing: waits until an online row answers, or expects the line that
 * libgemmtune_tuning is missing and a fallback that goes on. Exit status 0: it was so. */
#define _POSIX_C_SOURCE 199309L
#include <gemmtune/c.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int missing_lines = 0;

static void note(void* context, int level, const char* line) {
  (void)context;
  (void)level;
  if (strstr(line, "needs libgemmtune_tuning") != NULL) ++missing_lines;
  printf("%s\n", line);
}

/* -1: it failed. */
static int match_of(gemmtune_context* context) {
  gemmtune_problem problem;
  memset(&problem, 0, sizeof problem);
  problem.size = sizeof problem;
  problem.x_type = GEMMTUNE_F32;
  problem.m = 5;
  problem.n = 64;
  problem.k = 96;
  gemmtune_plan* plan = NULL;
  if (gemmtune_plan_create(context, &problem, &plan) != GEMMTUNE_OK) {
    printf("%s\n", gemmtune_last_error());
    return -1;
  }
  gemmtune_plan_info info;
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  const gemmtune_status status = gemmtune_plan_get_info(plan, &info);
  const int match = status == GEMMTUNE_OK ? (int)info.match : -1;
  gemmtune_plan_release(plan);
  return match;
}

int main(int count, char** words) {
  if (count != 3) return 2;
  gemmtune_context_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.config_folder = words[1];
  options.backend = "cpu";
  options.threads = 2;
  options.log = note;
  gemmtune_context* context = NULL;
  if (gemmtune_context_create(&options, &context) != GEMMTUNE_OK) {
    printf("%s\n", gemmtune_last_error());
    return 1;
  }
  int match = match_of(context);
  const struct timespec pause = {0, 10 * 1000 * 1000};
  if (strcmp(words[2], "row") == 0) {
    for (int i = 0; i < 12000 && match == GEMMTUNE_MATCH_UNTUNED; ++i) {
      nanosleep(&pause, NULL);
      match = match_of(context);
    }
    gemmtune_context_destroy(context);
    printf("match %d, expected %d\n", match, GEMMTUNE_MATCH_EXACT);
    return match == GEMMTUNE_MATCH_EXACT && missing_lines == 0 ? 0 : 1;
  }
  gemmtune_context_destroy(context);
  printf("match %d, expected %d; %d lines, expected 1\n", match, GEMMTUNE_MATCH_UNTUNED, missing_lines);
  return match == GEMMTUNE_MATCH_UNTUNED && missing_lines == 1 ? 0 : 1;
}
