#include "backends/cpu/threads/openmp_runtime.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include "backends/cpu/machine/affinity.h"
#include "backends/cpu/machine/load_time_setting.h"
#include "base/shared_library.h"

namespace gemmtune::cpu {
namespace {

/// One loaded library or the program, as the dynamic linker lists it.
struct LoadedObject {
  std::string path;
  std::string soname;
  std::vector<std::string> needed;  // sonames

  std::string_view file() const { return std::string_view(path).substr(path.rfind('/') + 1); }
  bool is_named(std::string_view name) const { return !name.empty() && (soname == name || file() == name); }
};

struct LoadedObjects {
  std::vector<LoadedObject> objects;  // in the order of loading
  unsigned long long loads = 0;       // how often any was loaded so far
  bool complete = true;               // false: out of memory
};

/// glibc relocates the addresses of a dynamic section when it loads it; the vDSO's stay offsets.
const char* at_address(const dl_phdr_info& info, ElfW(Addr) value) {
  return reinterpret_cast<const char*>(value < info.dlpi_addr ? info.dlpi_addr + value : value);
}

LoadedObject describe(const dl_phdr_info& info) {
  LoadedObject object;
  object.path = info.dlpi_name;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  }
  if (dynamic == nullptr) return object;
  const char* strings = nullptr;
  for (const auto* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) strings = at_address(info, entry->d_un.d_ptr);
  }
  if (strings == nullptr) return object;
  for (const auto* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SONAME) object.soname = strings + entry->d_un.d_val;
    if (entry->d_tag == DT_NEEDED) object.needed.emplace_back(strings + entry->d_un.d_val);
  }
  return object;
}

unsigned long long loads_so_far() {
  unsigned long long loads = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        *static_cast<unsigned long long*>(data) = info->dlpi_adds;
        return 1;
      },
      &loads);
  return loads;
}

LoadedObjects loaded_objects() {
  LoadedObjects found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& all = *static_cast<LoadedObjects*>(data);
        all.loads = info->dlpi_adds;
        try {  // no exception may leave the dynamic linker's loop
          all.objects.push_back(describe(*info));
          return 0;
        } catch (const std::bad_alloc&) {
          all.complete = false;
          return 1;
        }
      },
      &found);
  if (!found.complete) throw std::bad_alloc();
  return found;
}

/// "libgomp.so.1", "libgomp-a34b3233.so.1" of a wheel; not "libgomp-plugin-nvptx.so.1" or "libomptarget.so".
bool is_runtime_file(std::string_view file) {
  if (file.starts_with("libgomp-plugin")) return false;
  for (const std::string_view name : {"libgomp", "libiomp5", "libomp"}) {
    if (!file.starts_with(name) || file.size() == name.size()) continue;
    const char next = file[name.size()];
    if (next == '.' || next == '-') return true;
  }
  return false;
}

/// Libraries that are opened for kernels of ours, unless another one needs them.
bool is_library_of_ours(std::string_view file) {
  for (const std::string_view name : {"libgemmtune", "libdnnl.", "libdnnl-", "libopenblas"}) {
    if (file.starts_with(name)) return true;
  }
  return false;
}

template <typename Function>
bool find_own(void* library, std::string_view path, const char* name, Function& function) {
  void* const address = dlsym(library, name);
  Dl_info info{};
  // dlsym also looks into what the library needs.
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr ||
      path != info.dli_fname)
    return false;
  static_assert(sizeof function == sizeof address);
  std::memcpy(&function, &address, sizeof function);
  return true;
}

/// PyTorch's, set before a runtime is found that asks it.
std::atomic<std::int32_t (*)(std::uint32_t*)> torch_count{nullptr};

int torch_max_threads() {
  return TorchThreads{.get_num_threads = torch_count.load(std::memory_order_acquire)}.threads();
}

bool is_torch(const LoadedObject& object) { return object.file().starts_with("libtorch_cpu"); }

/// Empty if it lacks a function.
TorchThreads open_torch(const LoadedObject& object) {
  TorchThreads torch;
  void* const library = dlopen(object.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  const bool complete = find_own(library, object.path, "torch_parallel_for", torch.parallel_for) &&
                        find_own(library, object.path, "torch_get_num_threads", torch.get_num_threads);
  if (complete) return torch;
  dlclose(library);
  return {};
}

/// Null if it lacks a function.
std::unique_ptr<OpenmpRuntime> open_runtime(const LoadedObject& object) {
  void* const library = dlopen(object.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto runtime = std::make_unique<OpenmpRuntime>();
  runtime->path = object.path;
  gemmtune_openmp_functions& own = runtime->functions;
  const bool complete = find_own(library, object.path, "GOMP_parallel", own.parallel) &&
                        find_own(library, object.path, "GOMP_barrier", own.barrier) &&
                        find_own(library, object.path, "omp_get_max_threads", own.max_threads) &&
                        find_own(library, object.path, "omp_in_parallel", own.in_parallel) &&
                        find_own(library, object.path, "omp_get_thread_num", own.thread_number) &&
                        find_own(library, object.path, "omp_get_num_threads", own.team_threads) &&
                        find_own(library, object.path, "omp_set_num_threads", own.set_threads);
  if (!complete) {
    dlclose(library);
    return nullptr;
  }
  // libomp is sometimes installed under libgomp's name; kmp_* are its own.
  runtime->is_libgomp =
      object.file().starts_with("libgomp") && dlsym(library, "kmp_set_blocktime") == nullptr;
  return runtime;
}

/// Who needs a runtime.
struct Users {
  bool torch = false;
  int others = 0;
  int ours = 0;

  bool is_programs() const { return torch || others > 0 || ours == 0; }
};

/// Every OpenMP runtime of the process. Never destroyed: kernels may run while the process ends.
class Runtimes {
 public:
  const OpenmpRuntime* programs() {
    const std::lock_guard lock(mutex_);
    look();
    return programs_;
  }
  const TorchThreads* torch() {
    const std::lock_guard lock(mutex_);
    look();
    return torch_.found() && !torch_on_openmp_ ? &torch_ : nullptr;
  }
  const OpenmpRuntime* any() {
    const std::lock_guard lock(mutex_);
    look();
    return programs_ != nullptr ? programs_ : brought_;
  }
  bool in_libgomps_region() const {
    for (const auto& function : in_parallel_) {
      int (*const in_parallel)() = function.load(std::memory_order_acquire);
      if (in_parallel == nullptr) return false;
      if (in_parallel() != 0) return true;
    }
    return false;
  }

 private:
  void look() {
    if (loads_so_far() == loads_) return;
    const LoadedObjects loaded = loaded_objects();
    programs_ = brought_ = nullptr;
    for (const LoadedObject& object : loaded.objects) {
      if (torch_.found() || !is_torch(object)) continue;
      torch_ = open_torch(object);  // never unloaded, so never changed
      torch_count.store(torch_.get_num_threads, std::memory_order_release);
    }
    Users best;
    for (const LoadedObject& object : loaded.objects) {
      if (!is_runtime_file(object.file())) continue;
      const Users users = users_of(object, loaded.objects);
      const OpenmpRuntime* runtime = known(object, users.torch && torch_.found());
      if (runtime == nullptr) continue;
      if (!users.is_programs()) {
        if (brought_ == nullptr) brought_ = runtime;
        continue;
      }
      const bool better = programs_ == nullptr || users.torch > best.torch ||
                          (users.torch == best.torch && users.others > best.others);
      if (!better) continue;
      programs_ = runtime;
      best = users;
    }
    torch_on_openmp_ = best.torch;
    loads_ = loaded.loads;
  }

  const OpenmpRuntime* known(const LoadedObject& object, bool asks_torch) {
    for (const auto& runtime : all_) {
      if (runtime->path == object.path &&
          (runtime->functions.max_threads == &torch_max_threads) == asks_torch)
        return runtime.get();
    }
    auto runtime = open_runtime(object);
    if (!runtime) return nullptr;
    if (asks_torch) runtime->functions.max_threads = &torch_max_threads;
    const auto next = static_cast<std::size_t>(
        std::ranges::count_if(all_, [](const auto& one) { return one->is_libgomp; }));
    // Asked for a thread that it does not know, another runtime than libgomp would start itself.
    if (runtime->is_libgomp && next < in_parallel_.size())
      in_parallel_[next].store(runtime->functions.in_parallel, std::memory_order_release);
    all_.push_back(std::move(runtime));
    return all_.back().get();
  }

  static Users users_of(const LoadedObject& runtime, const std::vector<LoadedObject>& objects) {
    Users users;
    for (const LoadedObject& object : objects) {
      const bool uses =
          std::ranges::any_of(object.needed, [&](const std::string& name) { return runtime.is_named(name); });
      if (!uses) continue;
      if (is_torch(object)) users.torch = true;
      if (is_of_ours(object, objects)) {
        ++users.ours;
      } else {
        ++users.others;
      }
    }
    return users;
  }

  static bool is_of_ours(const LoadedObject& library, const std::vector<LoadedObject>& objects) {
    if (!is_library_of_ours(library.file())) return false;
    return std::ranges::none_of(objects, [&](const LoadedObject& object) {
      return !is_library_of_ours(object.file()) &&
             std::ranges::any_of(object.needed,
                                 [&](const std::string& name) { return library.is_named(name); });
    });
  }

  std::mutex mutex_;
  unsigned long long loads_ = 0;
  std::vector<std::unique_ptr<OpenmpRuntime>> all_;
  const OpenmpRuntime* programs_ = nullptr;
  const OpenmpRuntime* brought_ = nullptr;  // by a library of ours
  TorchThreads torch_;
  bool torch_on_openmp_ = false;
  std::array<std::atomic<int (*)()>, 4> in_parallel_{};  // of libgomps; null behind the last
};

Runtimes& runtimes() {
  static auto* const all = new Runtimes;
  return *all;
}

}  // namespace

const OpenmpRuntime* programs_openmp() { return runtimes().programs(); }
const TorchThreads* programs_torch() { return runtimes().torch(); }

#ifdef GEMMTUNE_NO_VENDOR_LIBRARIES
// Thread sanitizer does not see what orders the threads of a runtime that is not built with it.
Result<const OpenmpRuntime*> any_openmp(bool) {
  return Status::not_found("OpenMP is left out of this build (thread sanitizer)");
}
#else
Result<const OpenmpRuntime*> any_openmp(bool bounded_spin) {
  if (const OpenmpRuntime* runtime = runtimes().any()) return runtime;
  {
    const ScopedAffinity kept(thread_affinity());  // libgomp may pin the thread that loads it (OMP_PROC_BIND)
    const BoundedOpenmpSpin spin(bounded_spin);
    const auto library = SharedLibrary::open({"libgomp.so.1"});
    if (!library.ok())
      return Status::not_found(
          "no OpenMP runtime is loaded, and libgomp cannot be: {} (apt-get install libgomp1)",
          library.message());
  }
  if (const OpenmpRuntime* runtime = runtimes().any()) return runtime;
  return Status::not_found("libgomp.so.1 lacks a function that is needed");
}
#endif

bool in_parallel_region(const OpenmpRuntime& runtime) {
  if (runtime.functions.in_parallel() != 0) return true;
  return runtimes().in_libgomps_region();
}

}  // namespace gemmtune::cpu
