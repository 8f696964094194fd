// gemmtune for C++20: a thin inline layer over gemmtune/c.h. Needs nothing but std; throws nothing.
//
//   gemmtune::Context context = …;                      // a device and its tuned files
//   auto plan = context.plan(problem);                  // bound to the kernel that the files name
//   plan->run({x, w, bias, y}, workspace);              // y = x · wᵀ + bias
//
//   gemmtune::gemm_a16w16(x, w, y, m, n, k, {.bias = bias});   // all of it in one call
#pragma once

#include <gemmtune/c.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace gemmtune {
// The library's own code uses some of these words for other things; an inline namespace keeps the symbols
// apart.
inline namespace api {

/// ok, or a code and a sentence that names the value and what was expected.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Takes the sentence of this thread's last error where `code` is a failure.
  explicit Status(gemmtune_status code) : code_(code) {
    if (code_ != GEMMTUNE_OK) message_ = gemmtune_last_error();
  }

  bool ok() const noexcept { return code_ == GEMMTUNE_OK; }
  explicit operator bool() const noexcept { return ok(); }
  gemmtune_status code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

 private:
  gemmtune_status code_ = GEMMTUNE_OK;
  std::string message_;
};

/// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Status& status() const noexcept { return status_; }
  /// These require ok().
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// The values of gemmtune_type, gemmtune_operation and so on.
enum class Type { unset, bf16, f16, f32, f8_e4m3fn, f8_e4m3fnuz, i8, f4_e2m1, u8, i4 };
enum class Operation {
  a16w16,
  a8w8,
  a8w8_bpreshuffle,
  a8w8_blockscale,
  a8w8_blockscale_bpreshuffle,
  a4w4_blockscale,
  batched_bf16,
  batched_a8w8,
  fused_moe,
};
enum class QuantType { none, per_tensor, per_token, per_1x32, per_1x128, per_128x128 };
enum class Activation { none, silu, gelu, swiglu, situv2 };
enum class Layout { plain, panel16, onednn };
enum class Match { exact, range, fine, coarse, untuned };

inline std::string_view to_string(Match match) {
  switch (match) {
    case Match::exact:
      return "exact";
    case Match::range:
      return "range";
    case Match::fine:
      return "fine";
    case Match::coarse:
      return "coarse";
    case Match::untuned:
      break;
  }
  return "untuned";
}

/// An input on the context's device: its pointer, its type, and how far its rows lie apart in elements (0:
/// dense).
struct View {
  const void* data = nullptr;
  Type type = Type::unset;
  std::int64_t leading = 0;
};

/// An output, likewise; it may serve as an input, too.
struct MutableView {
  void* data = nullptr;
  Type type = Type::unset;
  std::int64_t leading = 0;

  operator View() const { return {data, type, leading}; }  // NOLINT(google-explicit-constructor)
};

inline View bf16(const void* data, std::int64_t leading = 0) { return {data, Type::bf16, leading}; }
inline View f16(const void* data, std::int64_t leading = 0) { return {data, Type::f16, leading}; }
inline View f32(const float* data, std::int64_t leading = 0) { return {data, Type::f32, leading}; }
inline MutableView bf16(void* data, std::int64_t leading = 0) { return {data, Type::bf16, leading}; }
inline MutableView f16(void* data, std::int64_t leading = 0) { return {data, Type::f16, leading}; }
inline MutableView f32(float* data, std::int64_t leading = 0) { return {data, Type::f32, leading}; }

/// What a mixture of experts has beside the sizes.
struct MoeShape {
  int experts = 0;
  int topk = 0;  // experts that a token is sent to
  Activation activation = Activation::none;
  QuantType quant_type = QuantType::none;
  bool gated = false;            // w1 holds a gate and an up half
  bool doweight_stage1 = false;  // the routing weight is applied after the first GEMM
};

/// y[M, N] = x[M, K] · w[N, K]ᵀ (+ bias[N]), row-major, accumulated in float32. Sizes in elements; m = 0 is
/// legal. What else an operation has is said in gemmtune/c.h.
struct Problem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Type x_type = Type::bf16;
  Type y_type = Type::unset;  // unset: x_type of a16w16 and batched_bf16, bf16 of the others
  bool bias = false;          // of y's type
  Layout weight_layout = Layout::plain;
  int alignment = 16;  // bytes, a power of two, promised for all four pointers
  Operation operation = Operation::a16w16;
  Type w_type = Type::unset;  // unset: x_type
  bool scale_ab = false;      // fp8 operands of a16w16
  std::int64_t batch = 1;     // of the batched operations
  MoeShape moe{};             // of fused_moe

  gemmtune_problem to_c() const {
    gemmtune_problem problem{};
    problem.size = sizeof problem;
    problem.operation = static_cast<gemmtune_operation>(operation);
    problem.x_type = static_cast<gemmtune_type>(x_type);
    problem.w_type = static_cast<gemmtune_type>(w_type);
    problem.y_type = static_cast<gemmtune_type>(y_type);
    problem.m = m;
    problem.n = n;
    problem.k = k;
    problem.bias = bias ? 1 : 0;
    problem.weight_layout = static_cast<gemmtune_layout>(weight_layout);
    problem.alignment = alignment;
    problem.scale_ab = scale_ab ? 1 : 0;
    problem.batch = batch;
    problem.experts = moe.experts;
    problem.topk = moe.topk;
    problem.activation = static_cast<gemmtune_activation>(moe.activation);
    problem.quant_type = static_cast<gemmtune_quant_type>(moe.quant_type);
    problem.gated = moe.gated ? 1 : 0;
    problem.doweight_stage1 = moe.doweight_stage1 ? 1 : 0;
    return problem;
  }
};

/// Pointers of one call. Leading dimensions in elements, 0: dense; the weight is dense.
struct Operands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
  std::int64_t ldx = 0;
  std::int64_t ldy = 0;

  gemmtune_operands to_c() const {
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    operands.x = x;
    operands.w = w;
    operands.bias = bias;
    operands.y = y;
    operands.ldx = ldx;
    operands.ldy = ldy;
    return operands;
  }
};

/// How a plan came about. The texts live as long as the plan.
struct PlanInfo {
  Match match = Match::untuned;
  bool other_environment = false;
  std::int64_t hit_m = 0;
  std::string_view kernel_name;
  std::string_view family;
  std::string_view rule;
  std::string_view file;
  std::size_t line = 0;
  std::size_t workspace_bytes = 0;
};

/// A problem bound to a kernel. Copies share it; any number of threads may run it at once.
class Plan {
 public:
  /// Takes over one reference.
  explicit Plan(gemmtune_plan* plan) noexcept : plan_(plan) {}
  Plan(const Plan& other) noexcept : plan_(other.plan_) {
    if (plan_ != nullptr) gemmtune_plan_retain(plan_);
  }
  Plan(Plan&& other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  Plan& operator=(Plan other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }
  ~Plan() { gemmtune_plan_release(plan_); }

  PlanInfo info() const {
    gemmtune_plan_info known{};
    known.size = sizeof known;
    if (gemmtune_plan_get_info(plan_, &known) != GEMMTUNE_OK) return {};
    return {static_cast<Match>(known.match),
            known.other_environment != 0,
            known.hit_m,
            known.kernel_name,
            known.family,
            known.rule,
            known.file,
            known.line,
            known.workspace_bytes};
  }
  /// `workspace`: info().workspace_bytes, 64-byte aligned, not shared with a concurrent run. On a CPU
  /// `stream` is null and y is complete on return. Errors: null or misaligned pointers, a leading dimension
  /// below the row; then nothing was written.
  Status run(const Operands& operands, void* workspace = nullptr, void* stream = nullptr) const {
    const gemmtune_operands given = operands.to_c();
    return Status(gemmtune_plan_run(plan_, &given, workspace, stream));
  }
  gemmtune_plan* get() const noexcept { return plan_; }

 private:
  gemmtune_plan* plan_;
};

/// What a context is opened with; empty and 0: the environment's value, else the default (gemmtune/c.h).
struct Options {
  std::string config_folder;
  std::string tuned_files;  // of a16w16, colon-separated; those of the other operations are below
  std::string backend;
  std::string device;
  int threads = 0;
  bool strict_environment = false;
  bool log_config = false;
  gemmtune_parallel_for parallel_for = nullptr;
  void* parallel_for_context = nullptr;
  gemmtune_log log = nullptr;
  void* log_context = nullptr;
  std::string tuned_files_a8w8;
  std::string tuned_files_a8w8_bpreshuffle;
  std::string tuned_files_a8w8_blockscale;
  std::string tuned_files_a8w8_blockscale_bpreshuffle;
  std::string tuned_files_a4w4_blockscale;
  std::string tuned_files_batched_bf16;
  std::string tuned_files_batched_a8w8;
  std::string tuned_files_fused_moe;
  bool capture = false;  // record what is planned: gemmtune_capture_flush in gemmtune/c.h says how
  std::string capture_folder;
};

/// A device and its tuned files. Move-only; plans outlive it.
class Context {
 public:
  static Result<Context> open(const Options& options = {}) {
    const auto text = [](const std::string& value) { return value.empty() ? nullptr : value.c_str(); };
    gemmtune_context_options given{};
    given.size = sizeof given;
    given.config_folder = text(options.config_folder);
    given.tuned_files_a16w16 = text(options.tuned_files);
    given.backend = text(options.backend);
    given.device = text(options.device);
    given.threads = options.threads;
    given.strict_environment = options.strict_environment ? 1 : 0;
    given.log_config = options.log_config ? 1 : 0;
    given.parallel_for = options.parallel_for;
    given.parallel_for_context = options.parallel_for_context;
    given.log = options.log;
    given.log_context = options.log_context;
    given.tuned_files_a8w8 = text(options.tuned_files_a8w8);
    given.tuned_files_a8w8_bpreshuffle = text(options.tuned_files_a8w8_bpreshuffle);
    given.tuned_files_a8w8_blockscale = text(options.tuned_files_a8w8_blockscale);
    given.tuned_files_a8w8_blockscale_bpreshuffle = text(options.tuned_files_a8w8_blockscale_bpreshuffle);
    given.tuned_files_a4w4_blockscale = text(options.tuned_files_a4w4_blockscale);
    given.tuned_files_batched_bf16 = text(options.tuned_files_batched_bf16);
    given.tuned_files_batched_a8w8 = text(options.tuned_files_batched_a8w8);
    given.tuned_files_fused_moe = text(options.tuned_files_fused_moe);
    given.capture = options.capture ? 1 : 0;
    given.capture_folder = text(options.capture_folder);
    gemmtune_context* context = nullptr;
    if (Status status(gemmtune_context_create(&given, &context)); !status.ok()) return status;
    return Context(context);
  }
  Context(Context&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  Context& operator=(Context&& other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~Context() { gemmtune_context_destroy(context_); }

  Result<Plan> plan(const Problem& problem) const {
    const gemmtune_problem given = problem.to_c();
    gemmtune_plan* made = nullptr;
    if (Status status(gemmtune_plan_create(context_, &given, &made)); !status.ok()) return status;
    return Plan(made);
  }
  /// Reads the tuned files again; plans in use stay valid.
  Status reload() const { return Status(gemmtune_context_reload(context_)); }
  /// Writes what capture has not written yet; ok where capture is off.
  Status flush_capture() const { return Status(gemmtune_capture_flush(context_)); }
  /// One line a tuned file: rows read, or why there are none.
  std::string sources() const {
    std::size_t needed = 0;
    if (gemmtune_context_sources(context_, nullptr, 0, &needed) != GEMMTUNE_OK) return {};
    std::string text(needed, '\0');
    if (gemmtune_context_sources(context_, text.data(), text.size(), nullptr) != GEMMTUNE_OK) return {};
    text.resize(std::char_traits<char>::length(text.c_str()));
    return text;
  }
  gemmtune_counters counters() const {
    gemmtune_counters values{};
    values.size = sizeof values;
    (void)gemmtune_context_counters(context_, &values);
    return values;
  }
  gemmtune_device_info device() const {
    gemmtune_device_info info{};
    info.size = sizeof info;
    (void)gemmtune_context_device(context_, &info);
    return info;
  }

  /// The layout that the tuned files were made for; M and layout of `weight` are ignored here and below.
  Result<Layout> weight_layout(const Problem& weight) const {
    const gemmtune_problem given = weight.to_c();
    gemmtune_layout layout = GEMMTUNE_LAYOUT_PLAIN;
    if (Status status(gemmtune_weight_layout(context_, &given, &layout)); !status.ok()) return status;
    return static_cast<Layout>(layout);
  }
  Result<std::size_t> packed_weight_bytes(const Problem& weight, Layout layout) const {
    const gemmtune_problem given = weight.to_c();
    std::size_t bytes = 0;
    if (Status status(
            gemmtune_packed_weight_bytes(context_, &given, static_cast<gemmtune_layout>(layout), &bytes));
        !status.ok()) {
      return status;
    }
    return bytes;
  }
  /// plain [N, K] into `packed` (packed_weight_bytes, 64-byte aligned), and back for layouts that have an
  /// inverse.
  Status shuffle_weight(const Problem& weight, Layout layout, const void* plain, void* packed) const {
    const gemmtune_problem given = weight.to_c();
    return Status(
        gemmtune_shuffle_weight(context_, &given, static_cast<gemmtune_layout>(layout), plain, packed));
  }
  Status unshuffle_weight(const Problem& weight, Layout layout, const void* packed, void* plain) const {
    const gemmtune_problem given = weight.to_c();
    return Status(
        gemmtune_unshuffle_weight(context_, &given, static_cast<gemmtune_layout>(layout), packed, plain));
  }

  gemmtune_context* get() const noexcept { return context_; }

 private:
  explicit Context(gemmtune_context* context) noexcept : context_(context) {}

  gemmtune_context* context_;
};

/// What gemm_a16w16 takes beside the matrices.
struct GemmOptions {
  const void* bias = nullptr;  // [N] of y's type
  Layout weight_layout = Layout::plain;
  int alignment = 16;                // bytes, promised for all pointers
  const Context* context = nullptr;  // null: the process's context, made from the environment
  void* stream = nullptr;            // null on a CPU
};

/// y[m, n] = x[m, k] · w[n, k]ᵀ (+ bias[n]) with the kernel that the config folder's tuned files name. x and
/// w have one type of bf16, f16, f32; y any of them. The weight is dense. Errors as Plan::run.
inline Status gemm_a16w16(View x, View w, MutableView y, std::int64_t m, std::int64_t n, std::int64_t k,
                          const GemmOptions& options = {}) {
  Problem asked{m, n, k, x.type, y.type, options.bias != nullptr, options.weight_layout, options.alignment};
  asked.w_type = w.type;
  const gemmtune_problem problem = asked.to_c();
  const gemmtune_operands operands =
      Operands{x.data, w.data, options.bias, y.data, x.leading, y.leading}.to_c();
  return Status(gemmtune_gemm_a16w16(options.context == nullptr ? nullptr : options.context->get(), &problem,
                                     &operands, options.stream));
}

}  // namespace api
}  // namespace gemmtune
