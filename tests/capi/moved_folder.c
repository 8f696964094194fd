/* Loads libgemmtune by LD_LIBRARY_PATH, goes to the folder argv[1], creates a context and prints the files of
 * gemmtune that are mapped then. */
#include <dlfcn.h>
#include <gemmtune/c.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  void* library = dlopen("libgemmtune.so.0", RTLD_NOW);
  if (library == NULL || argc != 2) {
    fprintf(stderr, "%s\n", library == NULL ? dlerror() : "expected a folder");
    return 2;
  }
  gemmtune_status (*create)(const gemmtune_context_options*, gemmtune_context**) = NULL;
  const char* (*last_error)(void) = NULL;
  *(void**)&create = dlsym(library, "gemmtune_context_create");
  *(void**)&last_error = dlsym(library, "gemmtune_last_error");
  if (create == NULL || last_error == NULL || chdir(argv[1]) != 0) {
    perror(argv[1]);
    return 2;
  }
  gemmtune_context_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.backend = "cpu";
  options.threads = 1;
  gemmtune_context* context = NULL;
  if (create(&options, &context) != GEMMTUNE_OK) {
    fprintf(stderr, "%s\n", last_error());
    return 1;
  }
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[8192];
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    const char* path = strchr(line, '/');
    if (path != NULL && strstr(path, "libgemmtune") != NULL) fputs(path, stdout);
  }
  return 0;
}
