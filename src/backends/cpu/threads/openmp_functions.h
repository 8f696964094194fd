/* The functions of one OpenMP runtime. Plain C, because the loadable module of oneDNN takes them too. */
#ifndef GEMMTUNE_OPENMP_FUNCTIONS_H
#define GEMMTUNE_OPENMP_FUNCTIONS_H

/* All of one runtime: libgomp, or libiomp5 and libomp, which export libgomp's functions as well. */
typedef struct {
  /* GOMP_parallel: runs body(data) on each thread of a team of `threads`, 0: of as many as max_threads(). */
  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
  void (*barrier)(void); /* GOMP_barrier */
  int (*max_threads)(void);
  int (*in_parallel)(void);
  int (*thread_number)(void);
  int (*team_threads)(void); /* omp_get_num_threads */
  void (*set_threads)(int);  /* omp_set_num_threads */
} gemmtune_openmp_functions;

#endif
