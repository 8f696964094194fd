#include "backends/cpu/machine/address_space.h"

#include <sys/mman.h>
#include <sys/resource.h>

namespace gemmtune::cpu {

bool has_limited_address_space() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

Status check_address_space(std::string_view library, std::size_t bytes) {
  if (!has_limited_address_space()) return {};
  void* const room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    return Status::out_of_memory("{} takes {} MiB of address space, which `ulimit -v` does not leave",
                                 library, bytes >> 20);
  }
  munmap(room, bytes);
  return {};
}

}  // namespace gemmtune::cpu
