// oneDNN's matmul behind the C table of onednn_module.h, built twice: libgemmtune_onednn.so links the libdnnl that the
// build found (the only file that sees dnnl.hpp); libgemmtune_onednn3.so (GEMMTUNE_ONEDNN_3) opens a libdnnl.so.3.
#include "backends/cpu/families/onednn/onednn_module.h"

#include <sched.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#ifdef GEMMTUNE_ONEDNN_3
#include "backends/cpu/families/onednn/dnnl3.h"
#else
#include <dnnl.hpp>
#endif

#include "backends/cpu/families/onednn/onednn_openmp.h"

namespace {

using gemmtune::onednn::OpenmpRoute;
using gemmtune::onednn::routed_openmp;
using gemmtune::onednn::set_team_size;

using dnnl::memory;

/// The packed form is the one that oneDNN chooses for this many rows; it is the same for every M in
/// oneDNN 2.6.3, and kernels for other M are made for this form or refused.
constexpr std::int64_t packing_rows = 16;

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// While it lives, the calling thread's OpenMP team is one of `runtime` and of this size (0: as it is); what the host had
/// set comes back.
class TeamSize {
 public:
  explicit TeamSize(int threads, const gemmtune_openmp_functions* runtime = nullptr)
      : route_(runtime), before_(threads > 0 ? set_team_size(threads) : 0) {}
  ~TeamSize() {
    if (before_ > 0) set_team_size(before_);
  }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  OpenmpRoute route_;
  int before_;
};

memory::data_type type_of(gemmtune_onednn_type type) {
  switch (type) {
    case gemmtune_onednn_bf16:
      return memory::data_type::bf16;
    case gemmtune_onednn_f16:
      return memory::data_type::f16;
    case gemmtune_onednn_s8:
      return memory::data_type::s8;
    case gemmtune_onednn_s32:
      return memory::data_type::s32;
    default:
      return memory::data_type::f32;
  }
}

int fail(gemmtune_onednn_why why, const char* text, int code = gemmtune_onednn_refused) {
  if (why.text != nullptr && why.size > 0) std::snprintf(why.text, why.size, "%s", text);
  return code;
}

/// Runs `body` and turns whatever it throws into a failure.
template <typename Body>
int guarded(gemmtune_onednn_why why, Body body) {
  try {
    body();
    return 0;
  } catch (const std::bad_alloc&) {
    return fail(why, "out of memory", gemmtune_onednn_no_memory);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory)
      return fail(why, "oneDNN is out of memory", gemmtune_onednn_no_memory);
    return fail(why, error.status == dnnl_unimplemented ? "oneDNN has no code for it" : error.message);
  } catch (const std::exception& error) {
    return fail(why, error.what());
  }
}

/// The plain weight as oneDNN's [k, n] operand.
memory::desc plain_weight(const gemmtune_onednn_weight& weight) {
  const memory::dims steps = weight.columns != 0 ? memory::dims{weight.n, 1} : memory::dims{1, weight.k};
  return {{weight.k, weight.n}, type_of(weight.type), steps};
}

dnnl::matmul::primitive_desc describe(const gemmtune_onednn_problem& problem, const memory::desc& weights) {
  const auto& weight = problem.weight;
  const auto y_type = type_of(problem.y_type);
  const memory::desc x({problem.m, weight.k}, type_of(weight.type),
                       problem.x_columns != 0 ? memory::format_tag::ba : memory::format_tag::ab);
  const memory::desc y({problem.m, weight.n}, y_type, memory::format_tag::ab);
  const memory::desc bias({1, weight.n}, y_type, memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  if (problem.bias != 0) return {cpu_engine(), x, weights, bias, y, attributes};
  return {cpu_engine(), x, weights, y, attributes};
#else
  const dnnl::matmul::desc operation =
      problem.bias != 0 ? dnnl::matmul::desc(x, weights, bias, y) : dnnl::matmul::desc(x, weights, y);
  return {operation, attributes, cpu_engine()};
#endif
}

/// Requires a TeamSize of weight.threads.
memory::desc packed_weight(const gemmtune_onednn_weight& weight) {
  gemmtune_onednn_problem problem{};
  problem.weight = weight;
  problem.m = packing_rows;
  problem.y_type = weight.type == gemmtune_onednn_s8 ? gemmtune_onednn_s32 : weight.type;
  const memory::desc any({weight.k, weight.n}, type_of(weight.type), memory::format_tag::any);
  return describe(problem, any).weights_desc();
}

/// The memory objects of one running call; their pointers are set for each.
class Call {
 public:
  Call(const dnnl::matmul::primitive_desc& description, bool bias)
      : stream_(cpu_engine()),
        x_(description.src_desc(), cpu_engine(), DNNL_MEMORY_NONE),
        w_(description.weights_desc(), cpu_engine(), DNNL_MEMORY_NONE),
        y_(description.dst_desc(), cpu_engine(), DNNL_MEMORY_NONE),
        scratch_(description.scratchpad_desc(), cpu_engine(), DNNL_MEMORY_NONE) {
    add(DNNL_ARG_SRC, x_);
    add(DNNL_ARG_WEIGHTS, w_);
    add(DNNL_ARG_DST, y_);
    add(DNNL_ARG_SCRATCHPAD, scratch_);
    if (bias) {
      bias_ = memory(description.bias_desc(), cpu_engine(), DNNL_MEMORY_NONE);
      add(DNNL_ARG_BIAS, *bias_);
    }
  }

  void run(const dnnl::matmul& primitive, const gemmtune_onednn_arguments& arguments) {
    x_.set_data_handle(const_cast<void*>(arguments.x));
    w_.set_data_handle(const_cast<void*>(arguments.w));
    y_.set_data_handle(arguments.y);
    scratch_.set_data_handle(arguments.scratch);
    if (bias_) bias_->set_data_handle(const_cast<void*>(arguments.bias));
    // The C function: the C++ one builds a list of arguments on the heap each time.
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.get(), stream_.get(), count_, arguments_.data()),
                            "oneDNN could not run the primitive");
    stream_.wait();
  }

 private:
  void add(int argument, const memory& object) {
    arguments_[static_cast<std::size_t>(count_)] = {argument, object.get()};
    ++count_;
  }

  dnnl::stream stream_;
  memory x_, w_, y_, scratch_;
  std::optional<memory> bias_;
  std::array<dnnl_exec_arg_t, 5> arguments_{};
  int count_ = 0;
};

}  // namespace

struct gemmtune_onednn_matmul {
  explicit gemmtune_onednn_matmul(const gemmtune_onednn_problem& asked,
                                  const dnnl::matmul::primitive_desc& made)
      : problem(asked), description(made), primitive(made), implementation(made.impl_info_str()) {}

  void run(const gemmtune_onednn_arguments& arguments) const {
    for (Slot& slot : slots) {
      if (slot.taken.exchange(true, std::memory_order_acquire)) continue;
      const std::unique_ptr<Slot, void (*)(Slot*)> release(
          &slot, [](Slot* own) { own->taken.store(false, std::memory_order_release); });
      if (!slot.call) slot.call.emplace(description, problem.bias != 0);
      return slot.call->run(primitive, arguments);
    }
    Call(description, problem.bias != 0).run(primitive, arguments);
  }

  /// A call that is at rest between uses, so that the hot path makes no objects. More callers at once than
  /// slots make their own.
  struct Slot {
    std::atomic<bool> taken{false};
    std::optional<Call> call;
  };

  gemmtune_onednn_problem problem;
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  std::string implementation;
  mutable std::array<Slot, 8> slots;
};

namespace {

const char* version() {
  static const std::string text = [] {
    const dnnl_version_t* v = dnnl_version();
    return std::to_string(v->major) + '.' + std::to_string(v->minor) + '.' + std::to_string(v->patch);
  }();
  return text.c_str();
}

const void* library_address() { return reinterpret_cast<const void*>(+*dnnl_version); }

int cap_isa(gemmtune_onednn_isa isa, gemmtune_onednn_why why) {
  static std::atomic<int> applied{-1};
  if (applied.load() == isa) return 0;
  constexpr std::array levels{dnnl::cpu_isa::sse41, dnnl::cpu_isa::avx2, dnnl::cpu_isa::avx512_core,
                              dnnl::cpu_isa::avx512_core_bf16, dnnl::cpu_isa::avx512_core_amx};
  const auto level = static_cast<std::size_t>(isa);
  if (level >= levels.size()) return fail(why, "unknown instruction-set level");
  if (dnnl::set_max_cpu_isa(levels[level]) != dnnl::status::success) {
    return fail(why, "oneDNN already runs in this process with another instruction-set limit");
  }
  applied.store(isa);
  return 0;
}

int create(const gemmtune_onednn_problem* problem, gemmtune_onednn_matmul** matmul, gemmtune_onednn_why why) {
  return guarded(why, [&] {
    const TeamSize team(problem->weight.threads);
    const memory::desc weights =
        problem->packed != 0 ? packed_weight(problem->weight) : plain_weight(problem->weight);
    *matmul = new gemmtune_onednn_matmul(*problem, describe(*problem, weights));
  });
}

void destroy(gemmtune_onednn_matmul* matmul) { delete matmul; }

const char* implementation(const gemmtune_onednn_matmul* matmul) { return matmul->implementation.c_str(); }

size_t scratch_bytes(const gemmtune_onednn_matmul* matmul) {
  return matmul->description.scratchpad_desc().get_size();
}

int execute(const gemmtune_onednn_matmul* matmul, const gemmtune_onednn_arguments* arguments,
            gemmtune_onednn_why why) {
  return guarded(why, [&] {
    const TeamSize team(matmul->problem.weight.threads, arguments->openmp);
    matmul->run(*arguments);
  });
}

int packed_bytes(const gemmtune_onednn_weight* weight, size_t* bytes, gemmtune_onednn_why why) {
  return guarded(why, [&] {
    const TeamSize team(weight->threads);
    *bytes = packed_weight(*weight).get_size();
  });
}

/// Copies between two forms of one weight.
void reorder(const memory::desc& from_form, const void* from, const memory::desc& to_form, void* to) {
  dnnl::stream stream(cpu_engine());
  memory source(from_form, cpu_engine(), const_cast<void*>(from));
  memory target(to_form, cpu_engine(), to);
#ifdef GEMMTUNE_ONEDNN_3
  dnnl::reorder(cpu_engine(), from_form, to_form).execute(stream, source, target);
#else
  dnnl::reorder(source, target).execute(stream, source, target);
#endif
  stream.wait();
}

int pack(const gemmtune_onednn_weight* weight, const void* plain, void* packed, gemmtune_onednn_why why) {
  return guarded(why, [&] {
    const TeamSize team(weight->threads, weight->openmp);
    reorder(plain_weight(*weight), plain, packed_weight(*weight), packed);
  });
}

int unpack(const gemmtune_onednn_weight* weight, const void* packed, void* plain, gemmtune_onednn_why why) {
  return guarded(why, [&] {
    const TeamSize team(weight->threads, weight->openmp);
    reorder(packed_weight(*weight), packed, plain_weight(*weight), plain);
  });
}

void pin_team(const int* cores, int count) {
  struct Pinning {
    const gemmtune_openmp_functions* openmp;
    const int* cores;
    int count;
  };
  Pinning pinning{routed_openmp(), cores, count};
  if (pinning.openmp == nullptr) return;
  pinning.openmp->parallel(
      [](void* data) {
        const Pinning& each = *static_cast<const Pinning*>(data);
        const int index = each.openmp->thread_number();
        if (index == 0 || index >= each.count || each.cores[index] >= CPU_SETSIZE) return;
        cpu_set_t mask;
        CPU_ZERO(&mask);
        CPU_SET(each.cores[index], &mask);
        sched_setaffinity(0, sizeof mask, &mask);
      },
      &pinning, static_cast<unsigned>(count), 0);
}

const gemmtune_onednn_table table{
    GEMMTUNE_ONEDNN_ABI, version, library_address, cap_isa, create, destroy,  implementation,
    scratch_bytes,       execute, packed_bytes,    pack,    unpack, pin_team,
};

}  // namespace

#ifdef GEMMTUNE_ONEDNN_3
extern "C" __attribute__((visibility("default"))) const gemmtune_onednn_table* gemmtune_onednn3_module(
    const char* path, gemmtune_onednn_why why) {
  try {
    const std::string reason = dnnl::open_dnnl(path);
    if (reason.empty()) {
      gemmtune::onednn::route_openmp(library_address());
      return &table;
    }
    fail(why, reason.c_str());
  } catch (const std::bad_alloc&) {
    fail(why, "out of memory");
  }
  return nullptr;
}
#else
extern "C" __attribute__((visibility("default"))) const gemmtune_onednn_table* gemmtune_onednn_module(void) {
  gemmtune::onednn::route_openmp(library_address());
  return &table;
}
#endif
