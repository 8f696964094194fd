// gemmtune for C++20: a thin inline layer over gemmtune/c.h. Needs nothing but std; throws nothing.
//
//   gemmtune::Context context = …;                      // a device and its tuned files
//   auto plan = context.plan(problem);                  // bound to the kernel that the files name
//   plan->run({x, w, bias, y}, workspace);              // y = x · wᵀ + bias
//
//   gemmtune::gemm(problem, {x, w, bias, y}, &context);  // plan and run in one call
#pragma once

#include <gemmtune/c.h>
#include <gemmtune/problem.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace gemmtune {
// The library's own code uses some of these words for other things; an inline namespace keeps the symbols
// apart.
inline namespace api {

/// ok, or a code and a message with the value and what was expected.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Takes the message of this thread's last error if `code` is a failure.
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
    case Match::bucket:
      return "bucket";
    case Match::fewer_threads:
      return "fewer_threads";
    case Match::untuned:
      break;
  }
  return "untuned";
}

/// A word for a layout, for logs.
inline std::string_view to_string(Layout layout) {
  return gemmtune_layout_text(static_cast<gemmtune_layout>(layout));
}

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
  Layout weight_layout = Layout::plain;  // that w must have
  bool fallback_erratum = false;         // untuned, and the device's own fallback has an erratum
  std::string_view bits;                 // bit class of the row; empty: none
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
            known.workspace_bytes,
            static_cast<Layout>(known.weight_layout),
            known.fallback_erratum != 0,
            known.bits};
  }
  /// `workspace`: info().workspace_bytes, 64-byte aligned, not shared with a concurrent run. On a CPU
  /// `stream` is null and y is complete on return. Errors: null or misaligned pointers, a leading dimension
  /// below the row; then nothing was written.
  Status run(const Operands& operands, void* workspace = nullptr, void* stream = nullptr) const {
    return Status(gemmtune_plan_run(plan_, detail::COperands(operands).get(), workspace, stream));
  }
  gemmtune_plan* get() const noexcept { return plan_; }

 private:
  gemmtune_plan* plan_;
};

/// The tuned files of one operation, colon-separated; they replace its default.
struct TunedFiles {
  Operation operation = Operation::a16w16;
  std::string paths;
};

/// What a context is opened with; empty and 0: the environment's value, else the default (gemmtune/c.h).
struct Options {
  std::string config_folder;
  std::vector<TunedFiles> tuned_files;  // each operation at most once
  std::string backend;
  std::string device;
  int threads = 0;
  bool strict_environment = false;
  bool log_config = false;
  bool capture = false;  // record what is planned: gemmtune_capture_flush in gemmtune/c.h says how
  std::string capture_folder;
  gemmtune_parallel_for parallel_for = nullptr;
  void* parallel_for_context = nullptr;
  gemmtune_log log = nullptr;
  void* log_context = nullptr;
  bool verify_untuned = false;    // the first run of each plan that no row answered: gemmtune/c.h says how
  bool own_threads_only = false;  // on a CPU, rows of fewer threads do not answer
};

/// A device and its tuned files. Move-only; plans outlive it.
class Context {
 public:
  static Result<Context> open(const Options& options = {}) {
    const auto text = [](const std::string& value) { return value.empty() ? nullptr : value.c_str(); };
    gemmtune_context_options given{};
    given.size = sizeof given;
    given.config_folder = text(options.config_folder);
    std::vector<gemmtune_tuned_files> files;
    for (const TunedFiles& one : options.tuned_files)
      files.push_back({static_cast<gemmtune_operation>(one.operation), one.paths.c_str()});
    given.tuned_files = files.data();
    given.tuned_file_count = files.size();
    given.backend = text(options.backend);
    given.device = text(options.device);
    given.threads = options.threads;
    given.strict_environment = options.strict_environment ? 1 : 0;
    given.log_config = options.log_config ? 1 : 0;
    given.parallel_for = options.parallel_for;
    given.parallel_for_context = options.parallel_for_context;
    given.log = options.log;
    given.log_context = options.log_context;
    given.capture = options.capture ? 1 : 0;
    given.capture_folder = text(options.capture_folder);
    given.verify_untuned = options.verify_untuned ? 1 : 0;
    given.own_threads_only = options.own_threads_only ? 1 : 0;
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
    gemmtune_plan* made = nullptr;
    if (Status status(gemmtune_plan_create(context_, detail::CProblem(problem).get(), &made)); !status.ok())
      return status;
    return Plan(made);
  }
  /// The plan on one kernel, whatever the tuned files say: a kernelName, "family" or "family:index"
  /// (gemmtune_plan_create_named in gemmtune/c.h). Its first run is verified if `verify` is true.
  Result<Plan> plan_named(const std::string& kernel, const Problem& problem, bool verify = true) const {
    gemmtune_plan* made = nullptr;
    if (Status status(gemmtune_plan_create_named(context_, detail::CProblem(problem).get(), kernel.c_str(),
                                                 verify ? 0 : 1, &made));
        !status.ok())
      return status;
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
  /// visit(const gemmtune_source&) for each tuned file: the same as data. It must not throw.
  template <typename Visit>
  Status visit_sources(Visit&& visit) const {
    const gemmtune_source_visitor call = [](void* given, const gemmtune_source* source) {
      (*static_cast<std::remove_reference_t<Visit>*>(given))(*source);
    };
    return Status(
        gemmtune_context_visit_sources(context_, call, const_cast<void*>(static_cast<const void*>(&visit))));
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
  /// The type that a word ("fp8", "bf16") means on the device.
  Result<Type> type(const char* word) const {
    gemmtune_type type = GEMMTUNE_TYPE_UNSET;
    if (Status status(gemmtune_context_type(context_, word, &type)); !status.ok()) return status;
    return static_cast<Type>(type);
  }

  /// The layout that the tuned files were made for. M, bias and layout of `weight` are ignored, as below.
  Result<Layout> weight_layout(const Problem& weight) const {
    gemmtune_layout layout = GEMMTUNE_LAYOUT_PLAIN;
    if (Status status(gemmtune_weight_layout(context_, detail::CProblem(weight).get(), &layout));
        !status.ok()) {
      return status;
    }
    return static_cast<Layout>(layout);
  }
  Result<std::size_t> packed_weight_bytes(const Problem& weight, Layout layout) const {
    std::size_t bytes = 0;
    if (Status status(gemmtune_packed_weight_bytes(context_, detail::CProblem(weight).get(),
                                                   static_cast<gemmtune_layout>(layout), &bytes));
        !status.ok()) {
      return status;
    }
    return bytes;
  }
  /// plain [N, K] into `packed` (packed_weight_bytes, 64-byte aligned), and back for layouts that have an
  /// inverse.
  Status pack_weight(const Problem& weight, Layout layout, const void* plain, void* packed) const {
    return Status(gemmtune_pack_weight(context_, detail::CProblem(weight).get(),
                                       static_cast<gemmtune_layout>(layout), plain, packed));
  }
  Status unpack_weight(const Problem& weight, Layout layout, const void* packed, void* plain) const {
    return Status(gemmtune_unpack_weight(context_, detail::CProblem(weight).get(),
                                         static_cast<gemmtune_layout>(layout), packed, plain));
  }

  gemmtune_context* get() const noexcept { return context_; }

 private:
  explicit Context(gemmtune_context* context) noexcept : context_(context) {}

  gemmtune_context* context_;
};

}  // namespace api
}  // namespace gemmtune

#include <gemmtune/operations.h>  // needs what is above
