// The C functions of the miss handler, and the way to the library that has one.
#include <dlfcn.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/shared_library.h"
#include "capi/c_support.h"

namespace gemmtune::c {
namespace {

constexpr const char* enable_function = "gemmtune_enable_online_tuning";
using Enable = decltype(&gemmtune_enable_online_tuning);

class CMissHandler final : public MissHandler {
 public:
  explicit CMissHandler(const gemmtune_miss_handler& given) : given_(given) {}
  ~CMissHandler() override {
    if (in_use_ && given_.release != nullptr) given_.release(given_.handler_context);
  }
  /// The context has it. Before, a failure leaves what was given to its owner.
  void set_in_use() { in_use_ = true; }
  bool missed(const Miss& miss) override {
    const std::string problem = print(miss.problem);
    gemmtune_miss reported{};
    reported.size = sizeof reported;
    reported.problem = problem.c_str();
    reported.file = miss.file.c_str();
    reported.fallback = miss.fallback.c_str();
    reported.proven_families = miss.proven_families.c_str();
    reported.tuned_files = miss.tuned_files.c_str();
    return given_.missed(given_.handler_context, &reported) != 0;
  }

 private:
  gemmtune_miss_handler given_;
  bool in_use_ = false;
};

gemmtune_status set_handler(Context& context, const gemmtune_miss_handler& given) {
  OnlineFile file;
  if (given.file != nullptr) {
    file = {given.file,
            given.hipblaslt_table != 0 ? OnlineFormat::hipblaslt_table : OnlineFormat::gemmtune_csv};
  } else {
    file = context.default_online_file(given.hipblaslt_table != 0 ? OnlineTuning::aiter
                                                                  : OnlineTuning::gemmtune);
    if (file.path.empty()) {
      return c::fail(GEMMTUNE_INVALID_ARGUMENT,
                     "file is null and there is no config folder: expected one of them");
    }
  }
  const auto handler = std::make_shared<CMissHandler>(given);
  context.set_miss_handler(handler, std::move(file));
  handler->set_in_use();
  return GEMMTUNE_OK;
}

/// In the program's own libraries, else in GEMMTUNE_LIBRARY_DIR, else beside this library. The library stays
/// loaded: its threads and its handler are in use until the process ends.
Enable find_enable(const std::string& module_folder, std::string& why) {
  void* function = dlsym(RTLD_DEFAULT, enable_function);
  if (function == nullptr) {
    const std::string folder = module_folder.empty() ? own_folder() : module_folder;
    void* library = dlopen(join_path(folder, GEMMTUNE_TUNING_LIBRARY).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) function = dlsym(library, enable_function);
    if (function == nullptr) {
      const char* reason = dlerror();
      why = reason != nullptr ? reason : "not there";
    }
  }
  return reinterpret_cast<Enable>(function);
}

gemmtune_status check_line(const char* function, std::int32_t level, const char* line) noexcept {
  if (line == nullptr) return fail_null(function, "line");
  if (level >= 0 && level <= 3) return GEMMTUNE_OK;
  return guarded([&] {
    return fail(GEMMTUNE_INVALID_ARGUMENT, fmt::format("{}: level is {}, expected 0 to 3", function, level));
  });
}

}  // namespace

gemmtune_status attach_online_tuning(gemmtune_context* handle) noexcept {
  Context& context = *handle->context;
  if (context.online_tuning() == OnlineTuning::off) return GEMMTUNE_OK;
  return guarded([&] {
    std::string why;
    const Enable enable = find_enable(context.module_folder(), why);
    if (enable == nullptr) {
      context.say(
          LogLevel::warning,
          fmt::format("online tuning is asked for, but needs libgemmtune_tuning; rows that its file has "
                      "are used, none are added: {}",
                      why));
    } else if (const auto status = enable(handle, nullptr); status == GEMMTUNE_OUT_OF_MEMORY) {
      return status;
    } else if (status != GEMMTUNE_OK) {
      context.say(LogLevel::warning,
                  fmt::format("online tuning is asked for, but libgemmtune_tuning refuses: {}",
                              gemmtune_last_error()));
    }
    return GEMMTUNE_OK;
  });
}

}  // namespace gemmtune::c

namespace c = gemmtune::c;

extern "C" {

gemmtune_status gemmtune_context_set_miss_handler(gemmtune_context* context,
                                                  const gemmtune_miss_handler* handler) {
  if (context == nullptr) return c::fail_null("gemmtune_context_set_miss_handler", "context");
  if (handler == nullptr) {
    return c::guarded([&] {
      context->context->set_miss_handler(nullptr, std::nullopt);
      return GEMMTUNE_OK;
    });
  }
  gemmtune_miss_handler known;
  if (const auto status = c::read_struct(handler, known); status != GEMMTUNE_OK) return status;
  if (known.missed == nullptr) return c::fail_null("gemmtune_context_set_miss_handler", "missed");
  return c::guarded([&] { return c::set_handler(*context->context, known); });
}

gemmtune_status gemmtune_context_reload_online(gemmtune_context* context) {
  if (context == nullptr) return c::fail_null("gemmtune_context_reload_online", "context");
  return c::guarded([&] { return c::report(context->context->reload_online()); });
}

gemmtune_status gemmtune_log_line(int32_t level, const char* line) {
  if (const auto bad = c::check_line("gemmtune_log_line", level, line); bad != GEMMTUNE_OK) return bad;
  return c::guarded([&] {
    gemmtune::log_line(static_cast<gemmtune::LogLevel>(level), line);
    return GEMMTUNE_OK;
  });
}

gemmtune_status gemmtune_context_log(gemmtune_context* context, int32_t level, const char* line) {
  if (context == nullptr) return c::fail_null("gemmtune_context_log", "context");
  if (const auto bad = c::check_line("gemmtune_context_log", level, line); bad != GEMMTUNE_OK) return bad;
  return c::guarded([&] {
    context->context->say(static_cast<gemmtune::LogLevel>(level), line);
    return GEMMTUNE_OK;
  });
}

}  // extern "C"
