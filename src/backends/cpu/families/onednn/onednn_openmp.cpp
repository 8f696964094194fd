#include "backends/cpu/families/onednn/onednn_openmp.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

namespace gemmtune::onednn {
namespace {

thread_local OpenmpTarget current;
gemmtune_openmp_functions libdnnls{};  // the runtime that libdnnl was linked with
bool is_routed = false;                // libdnnls is complete, and libdnnl calls the functions below

const gemmtune_openmp_functions& reached() {
  return current.runtime == nullptr ? libdnnls : *current.runtime;
}

/// A region takes its target along: its threads are the runtime's.
struct Region {
  void (*body)(void*);
  void* data;
  OpenmpTarget target;
};

void run_region(void* data) {
  const Region& region = *static_cast<const Region*>(data);
  const OpenmpRoute same(region.target);
  region.body(region.data);
}

void parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  if (current.runtime == nullptr) return libdnnls.parallel(body, data, threads, flags);
  Region region{body, data, current};
  current.runtime->parallel(&run_region, &region, current.alone ? 1 : threads, flags);
}
void barrier() { reached().barrier(); }
int max_threads() { return reached().max_threads(); }
int in_parallel() { return current.alone ? 1 : reached().in_parallel(); }
int thread_number() { return reached().thread_number(); }
int team_threads() { return reached().team_threads(); }
void set_threads(int threads) { reached().set_threads(threads); }

struct Import {
  const char* name;
  void* ours;
  void** libdnnls;
};

template <typename Function>
Import import_of(const char* name, Function* ours, Function*& original) {
  return {name, reinterpret_cast<void*>(ours), reinterpret_cast<void**>(&original)};
}

const std::array<Import, 7>& imports() {
  static const std::array<Import, 7> all{
      import_of("GOMP_parallel", &parallel, libdnnls.parallel),
      import_of("GOMP_barrier", &barrier, libdnnls.barrier),
      import_of("omp_get_max_threads", &max_threads, libdnnls.max_threads),
      import_of("omp_in_parallel", &in_parallel, libdnnls.in_parallel),
      import_of("omp_get_thread_num", &thread_number, libdnnls.thread_number),
      import_of("omp_get_num_threads", &team_threads, libdnnls.team_threads),
      import_of("omp_set_num_threads", &set_threads, libdnnls.set_threads)};
  return all;
}

/// Null for a function that is not routed.
void* ours_of(std::string_view name) {
  for (const Import& one : imports()) {
    if (name == one.name) return one.ours;
  }
  return nullptr;
}

/// A call that starts or divides regions, or asks for a place in one: half of them on one runtime and half on another
/// would be wrong.
bool must_be_routed(std::string_view name) {
  return name.starts_with("GOMP_") || name.starts_with("__kmpc_") || name == "omp_get_level" ||
         name == "omp_get_active_level" || name == "omp_get_thread_limit";
}

/// The dynamic section of a loaded library, with the addresses that the dynamic linker has put there.
class Relocations {
 public:
  explicit Relocations(const link_map& library) : library_(library) {
    for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
      const auto address = entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) strings_ = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_JMPREL) tables_[0].first = reinterpret_cast<const ElfW(Rela)*>(address);
      if (entry->d_tag == DT_PLTRELSZ) tables_[0].bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_RELA) tables_[1].first = reinterpret_cast<const ElfW(Rela)*>(address);
      if (entry->d_tag == DT_RELASZ) tables_[1].bytes = entry->d_un.d_val;
    }
  }

  /// Calls visit(name, slot) for each imported function that is called through the slot.
  template <typename Visit>
  void visit_imports(Visit visit) const {
    if (symbols_ == nullptr || strings_ == nullptr) return;
    for (const Table& table : tables_) {
      if (table.first == nullptr) continue;
      const std::size_t count = table.bytes / sizeof(ElfW(Rela));
      for (std::size_t i = 0; i < count; ++i) {
        const ElfW(Rela)& one = table.first[i];
        if (!is_function_slot(ELF64_R_TYPE(one.r_info))) continue;
        const ElfW(Sym)& symbol = symbols_[ELF64_R_SYM(one.r_info)];
        if (symbol.st_shndx != SHN_UNDEF) continue;
        visit(std::string_view(strings_ + symbol.st_name),
              reinterpret_cast<void**>(library_.l_addr + one.r_offset));
      }
    }
  }

 private:
  struct Table {
    const ElfW(Rela) * first = nullptr;
    std::size_t bytes = 0;
  };

  static bool is_function_slot(std::uint64_t type) {
#if defined(__x86_64__)
    return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
    return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
#else
    (void)type;
    return false;
#endif
  }

  const link_map& library_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  std::array<Table, 2> tables_{};
};

/// The part of the library at `base` that is read-only once it is relocated; empty if there is none.
struct ReadOnlyRange {
  std::uintptr_t base = 0;
  std::uintptr_t first = 0;
  std::uintptr_t end = 0;

  explicit ReadOnlyRange(std::uintptr_t library) : base(library) {
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
          auto& range = *static_cast<ReadOnlyRange*>(data);
          if (info->dlpi_addr != range.base) return 0;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type != PT_GNU_RELRO) continue;
            range.first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            range.end = range.first + info->dlpi_phdr[i].p_memsz;
          }
          return 1;
        },
        this);
  }
  bool holds(const void* address) const {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    return value >= first && value < end;
  }
};

bool write_slot(void** slot, void* value, const ReadOnlyRange& read_only) {
  const auto page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(slot) & ~(page_bytes - 1));
  const bool is_read_only = read_only.holds(slot);
  if (is_read_only && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  if (is_read_only) (void)mprotect(page, page_bytes, PROT_READ);
  return true;
}

void route_once(const void* code) {
  Dl_info info{};
  link_map* library = nullptr;
  if (dladdr1(code, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) == 0 || library == nullptr)
    return;
  // It and what it needs, libdnnl's own runtime for one, are never unloaded: the handle stays open.
  void* const handle = dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return;
  for (const Import& one : imports()) {
    *one.libdnnls = dlsym(handle, one.name);
    if (*one.libdnnls != nullptr) continue;
    libdnnls = {};
    return;
  }
  const Relocations relocations(*library);
  bool all_known = true;
  relocations.visit_imports([&](std::string_view name, void**) {
    if (must_be_routed(name) && ours_of(name) == nullptr) all_known = false;
  });
  if (!all_known) return;
  const ReadOnlyRange read_only(library->l_addr);
  bool all_written = true;
  relocations.visit_imports([&](std::string_view name, void** slot) {
    if (void* const ours = ours_of(name)) all_written = write_slot(slot, ours, read_only) && all_written;
  });
  // A slot that could not be written calls libdnnl's own runtime, as all others do without a route.
  is_routed = all_written;
}

}  // namespace

void route_openmp(const void* code) {
  static std::once_flag once;
  std::call_once(once, [code] { route_once(code); });
}

OpenmpRoute::OpenmpRoute(const OpenmpTarget& target) : before_(current) { current = target; }
OpenmpRoute::OpenmpRoute(const gemmtune_openmp_functions* runtime)
    : OpenmpRoute(runtime == nullptr || !is_routed ? OpenmpTarget()
                                                   : OpenmpTarget{runtime, runtime->max_threads() == 1}) {}
OpenmpRoute::~OpenmpRoute() { current = before_; }

const gemmtune_openmp_functions* routed_openmp() {
  const gemmtune_openmp_functions& functions = reached();
  return functions.parallel == nullptr ? nullptr : &functions;
}

int set_team_size(int threads) {
  const gemmtune_openmp_functions* const functions = routed_openmp();
  if (functions == nullptr || current.alone) return 0;
  const int before = functions->max_threads();
  if (before != threads) functions->set_threads(threads);
  return before;
}

}  // namespace gemmtune::onednn
