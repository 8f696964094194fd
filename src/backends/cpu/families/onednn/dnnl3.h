// The part of oneDNN 3's interface that onednn_module.cpp uses, over a libdnnl.so.3 that is opened at run time: C
// functions by their names, and the classes of dnnl.hpp around them. The build needs no header of oneDNN 3; its C
// interface is the same in every 3.x. For one source file only.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#define DNNL_VERSION_MAJOR 3
#define DNNL_RUNTIME_OMP 2u
#define DNNL_CPU_RUNTIME DNNL_RUNTIME_OMP  // open_dnnl() refuses others
#define DNNL_MEMORY_NONE nullptr
#define DNNL_ARG_SRC 1
#define DNNL_ARG_DST 17
#define DNNL_ARG_WEIGHTS 33
#define DNNL_ARG_BIAS 41
#define DNNL_ARG_SCRATCHPAD 80

enum dnnl_status_t : int { dnnl_success = 0, dnnl_out_of_memory = 1, dnnl_unimplemented = 3 };
enum dnnl_query_t : int {
  dnnl_query_impl_info_str = 8,
  dnnl_query_src_md = 129,
  dnnl_query_weights_md = 131,
  dnnl_query_dst_md = 133,
  dnnl_query_scratchpad_md = 136
};

struct dnnl_version_t {
  int major;
  int minor;
  int patch;
  const char* hash;
  unsigned cpu_runtime;
  unsigned gpu_runtime;
};
struct dnnl_exec_arg_t {
  int arg;
  void* memory;
};

// Objects of oneDNN are pointers that only it looks into.
using dnnl_handle = void*;
using dnnl_const_handle = const void*;

/// Every function: its name, its result, its parameters.
#define GEMMTUNE_DNNL_FUNCTIONS(function)                                                                 \
  function(dnnl_version, const dnnl_version_t*, ());                                                      \
  function(dnnl_set_max_cpu_isa, dnnl_status_t, (int));                                                   \
  function(dnnl_engine_create, dnnl_status_t, (dnnl_handle*, int, std::size_t));                          \
  function(dnnl_engine_destroy, dnnl_status_t, (dnnl_handle));                                            \
  function(dnnl_stream_create, dnnl_status_t, (dnnl_handle*, dnnl_handle, unsigned));                     \
  function(dnnl_stream_wait, dnnl_status_t, (dnnl_handle));                                               \
  function(dnnl_stream_destroy, dnnl_status_t, (dnnl_handle));                                            \
  function(dnnl_memory_desc_create_with_strides, dnnl_status_t,                                           \
           (dnnl_handle*, int, const std::int64_t*, int, const std::int64_t*));                           \
  function(dnnl_memory_desc_create_with_tag, dnnl_status_t,                                               \
           (dnnl_handle*, int, const std::int64_t*, int, int));                                           \
  function(dnnl_memory_desc_clone, dnnl_status_t, (dnnl_handle*, dnnl_const_handle));                     \
  function(dnnl_memory_desc_get_size, std::size_t, (dnnl_const_handle));                                  \
  function(dnnl_memory_desc_destroy, dnnl_status_t, (dnnl_handle));                                       \
  function(dnnl_memory_create, dnnl_status_t, (dnnl_handle*, dnnl_const_handle, dnnl_handle, void*));     \
  function(dnnl_memory_set_data_handle, dnnl_status_t, (dnnl_handle, void*));                             \
  function(dnnl_memory_destroy, dnnl_status_t, (dnnl_handle));                                            \
  function(dnnl_primitive_attr_create, dnnl_status_t, (dnnl_handle*));                                    \
  function(dnnl_primitive_attr_set_scratchpad_mode, dnnl_status_t, (dnnl_handle, int));                   \
  function(dnnl_primitive_attr_destroy, dnnl_status_t, (dnnl_handle));                                    \
  function(dnnl_matmul_primitive_desc_create, dnnl_status_t,                                              \
           (dnnl_handle*, dnnl_handle, dnnl_const_handle, dnnl_const_handle, dnnl_const_handle,           \
            dnnl_const_handle, dnnl_const_handle));                                                       \
  function(                                                                                               \
      dnnl_reorder_primitive_desc_create, dnnl_status_t,                                                  \
      (dnnl_handle*, dnnl_const_handle, dnnl_handle, dnnl_const_handle, dnnl_handle, dnnl_const_handle)); \
  function(dnnl_primitive_desc_query, dnnl_status_t, (dnnl_const_handle, dnnl_query_t, int, void*));      \
  function(dnnl_primitive_desc_query_md, dnnl_const_handle, (dnnl_const_handle, dnnl_query_t, int));      \
  function(dnnl_primitive_desc_destroy, dnnl_status_t, (dnnl_handle));                                    \
  function(dnnl_primitive_create, dnnl_status_t, (dnnl_handle*, dnnl_const_handle));                      \
  function(dnnl_primitive_execute, dnnl_status_t,                                                         \
           (dnnl_const_handle, dnnl_handle, int, const dnnl_exec_arg_t*));                                \
  function(dnnl_primitive_destroy, dnnl_status_t, (dnnl_handle))

#define GEMMTUNE_DNNL_DECLARE(name, result, parameters) inline result(*name) parameters = nullptr
GEMMTUNE_DNNL_FUNCTIONS(GEMMTUNE_DNNL_DECLARE);
#undef GEMMTUNE_DNNL_DECLARE

namespace dnnl {

enum class status { success = dnnl_success };
enum class cpu_isa {
  sse41 = 0x1,
  avx2 = 0x7,
  avx512_core = 0x27,
  avx512_core_bf16 = 0xe7,
  avx512_core_amx = 0xfef
};
enum class scratchpad_mode { user = 1 };

struct error : std::exception {
  error(dnnl_status_t number, const char* text) : status(number), message(text) {}
  const char* what() const noexcept override { return message; }
  static void wrap_c_api(dnnl_status_t number, const char* text) {
    if (number != dnnl_success) throw error(number, text);
  }
  dnnl_status_t status;
  const char* message;
};

inline status set_max_cpu_isa(cpu_isa isa) {
  return static_cast<status>(dnnl_set_max_cpu_isa(static_cast<int>(isa)));
}

/// What `create` writes to its first parameter; throws with `text` if it refuses.
template <typename Create, typename... Arguments>
dnnl_handle made_by(const char* text, Create create, Arguments... arguments) {
  dnnl_handle made = nullptr;
  error::wrap_c_api(create(&made, arguments...), text);
  return made;
}

/// One object of oneDNN; copies share it.
class object {
 public:
  object() = default;
  object(dnnl_handle handle, dnnl_status_t (*destroy)(dnnl_handle)) : handle_(handle, destroy) {}
  dnnl_handle get() const { return handle_.get(); }

 private:
  std::shared_ptr<void> handle_;
};

struct engine : object {
  enum class kind { cpu = 1 };
  engine(kind which, std::size_t index)
      : object(made_by("oneDNN has no engine", dnnl_engine_create, static_cast<int>(which), index),
               dnnl_engine_destroy) {}
};

struct stream : object {
  static constexpr unsigned in_order = 1;
  explicit stream(const engine& of)
      : object(made_by("oneDNN has no stream", dnnl_stream_create, of.get(), in_order), dnnl_stream_destroy) {
  }
  void wait() { error::wrap_c_api(dnnl_stream_wait(get()), "oneDNN could not wait"); }
};

struct memory : object {
  using dims = std::vector<std::int64_t>;
  enum class data_type { f16 = 1, bf16 = 2, f32 = 3, s32 = 4, s8 = 5 };
  enum class format_tag { any, ab, ba };  // not oneDNN's numbers

  struct desc : object {
    desc(const dims& sizes, data_type type, const dims& steps)
        : object(make(sizes, type, steps), dnnl_memory_desc_destroy) {}
    desc(const dims& sizes, data_type type, format_tag tag)
        : object(tag == format_tag::any  ? make_any(sizes, type)
                 : tag == format_tag::ab ? make(sizes, type, {sizes[1], 1})
                                         : make(sizes, type, {1, sizes[0]}),
                 dnnl_memory_desc_destroy) {}
    /// A copy of one that oneDNN owns.
    explicit desc(dnnl_const_handle owned)
        : object(made_by("oneDNN could not copy a description", dnnl_memory_desc_clone, owned),
                 dnnl_memory_desc_destroy) {}
    std::size_t get_size() const { return dnnl_memory_desc_get_size(get()); }

   private:
    static dnnl_handle make(const dims& sizes, data_type type, const dims& steps) {
      return made_by("oneDNN takes no such matrix", dnnl_memory_desc_create_with_strides,
                     static_cast<int>(sizes.size()), sizes.data(), static_cast<int>(type), steps.data());
    }
    static dnnl_handle make_any(const dims& sizes, data_type type) {
      constexpr int any = 1;
      return made_by("oneDNN takes no such matrix", dnnl_memory_desc_create_with_tag,
                     static_cast<int>(sizes.size()), sizes.data(), static_cast<int>(type), any);
    }
  };

  memory(const desc& form, const engine& of, void* data)
      : object(made_by("oneDNN made no memory object", dnnl_memory_create, form.get(), of.get(), data),
               dnnl_memory_destroy) {}
  void set_data_handle(void* data) const {
    error::wrap_c_api(dnnl_memory_set_data_handle(get(), data), "oneDNN took no pointer");
  }
};

struct primitive_attr : object {
  primitive_attr()
      : object(made_by("oneDNN made no attributes", dnnl_primitive_attr_create),
               dnnl_primitive_attr_destroy) {}
  void set_scratchpad_mode(scratchpad_mode mode) {
    error::wrap_c_api(dnnl_primitive_attr_set_scratchpad_mode(get(), static_cast<int>(mode)),
                      "oneDNN took no scratchpad mode");
  }
};

struct primitive : object {
  explicit primitive(const object& description)
      : object(made_by("oneDNN could not make the primitive", dnnl_primitive_create, description.get()),
               dnnl_primitive_destroy) {}
};

struct matmul : primitive {
  struct primitive_desc : object {
    primitive_desc(const engine& of, const memory::desc& x, const memory::desc& w, const memory::desc& y,
                   const primitive_attr& attributes)
        : object(make(of, x, w, nullptr, y, attributes), dnnl_primitive_desc_destroy) {}
    primitive_desc(const engine& of, const memory::desc& x, const memory::desc& w, const memory::desc& bias,
                   const memory::desc& y, const primitive_attr& attributes)
        : object(make(of, x, w, bias.get(), y, attributes), dnnl_primitive_desc_destroy) {}

    memory::desc src_desc() const { return part(dnnl_query_src_md, 0); }
    memory::desc weights_desc() const { return part(dnnl_query_weights_md, 0); }
    memory::desc bias_desc() const { return part(dnnl_query_weights_md, 1); }
    memory::desc dst_desc() const { return part(dnnl_query_dst_md, 0); }
    memory::desc scratchpad_desc() const { return part(dnnl_query_scratchpad_md, 0); }
    const char* impl_info_str() const {
      const char* text = nullptr;
      error::wrap_c_api(dnnl_primitive_desc_query(get(), dnnl_query_impl_info_str, 0, &text),
                        "oneDNN does not name its code");
      return text;
    }

   private:
    static dnnl_handle make(const engine& of, const memory::desc& x, const memory::desc& w,
                            dnnl_const_handle bias, const memory::desc& y, const primitive_attr& attributes) {
      return made_by("oneDNN refuses the product", dnnl_matmul_primitive_desc_create, of.get(), x.get(),
                     w.get(), bias, y.get(), attributes.get());
    }
    memory::desc part(dnnl_query_t what, int index) const {
      return memory::desc(dnnl_primitive_desc_query_md(get(), what, index));
    }
  };

  explicit matmul(const primitive_desc& description) : primitive(description) {}
};

struct reorder : primitive {
  /// The form and the engine of each.
  reorder(const engine& of, const memory::desc& from, const memory::desc& to)
      : primitive({made_by("oneDNN has no such reorder", dnnl_reorder_primitive_desc_create, from.get(),
                           of.get(), to.get(), of.get(), nullptr),
                   dnnl_primitive_desc_destroy}) {}
  void execute(const stream& in, const memory& from, const memory& to) const {
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, from.get()}, {DNNL_ARG_DST, to.get()}};
    error::wrap_c_api(dnnl_primitive_execute(get(), in.get(), 2, arguments),
                      "oneDNN could not run the primitive");
  }
};

/// "SYCL": what the CPU's kernels of a library run on, by dnnl_version_t::cpu_runtime.
inline const char* runtime_name(unsigned runtime) {
  switch (runtime) {
    case 1:
      return "one thread";
    case DNNL_RUNTIME_OMP:
      return "OpenMP";
    case 4:
      return "TBB";
    case 8:
      return "the host's thread pool";
    case 512:
      return "SYCL";
    default:
      return "an unknown runtime";
  }
}

/// Opens the file and finds all functions in it. Empty, or why not: then the
/// functions are as before. At most one file a process.
inline std::string open_dnnl(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return reason != nullptr ? reason : "it cannot be loaded";
  }
  const auto version = reinterpret_cast<decltype(dnnl_version)>(dlsym(library, "dnnl_version"));
  if (version == nullptr) return "it has no function dnnl_version";
  const dnnl_version_t& its = *version();
  const std::string name = "oneDNN " + std::to_string(its.major) + '.' + std::to_string(its.minor) + '.' +
                           std::to_string(its.patch);
  if (its.major != DNNL_VERSION_MAJOR) return name + " has another interface than oneDNN 3";
  if (its.cpu_runtime != DNNL_RUNTIME_OMP)
    return name + " runs on " + runtime_name(its.cpu_runtime) + ", expected OpenMP";
  if (dnnl_version != nullptr)
    return version == dnnl_version ? std::string() : "another libdnnl.so.3 is loaded in this process";
#define GEMMTUNE_DNNL_CHECK(name, result, parameters) \
  if (dlsym(library, #name) == nullptr) return std::string("it has no function ") + #name
  GEMMTUNE_DNNL_FUNCTIONS(GEMMTUNE_DNNL_CHECK);
#undef GEMMTUNE_DNNL_CHECK
#define GEMMTUNE_DNNL_BIND(name, result, parameters) \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name))
  GEMMTUNE_DNNL_FUNCTIONS(GEMMTUNE_DNNL_BIND);
#undef GEMMTUNE_DNNL_BIND
  return {};
}

}  // namespace dnnl
