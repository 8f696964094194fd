// The C function that joins a context with the online tuner. It sees the context through gemmtune's C
// functions alone: the run-time half is another library.
#include <gemmtune/tuning.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "backends/device_request.h"
#include "backends/traits.h"
#include "base/environment.h"
#include "base/text.h"
#include "capi/c_status.h"
#include "online/online_tuner.h"

namespace gemmtune {
namespace {

constexpr double default_budget_seconds = 2;

std::vector<std::string> words(const char* list, char separator) {
  std::vector<std::string> result;
  for (const std::string_view word : split(list, separator)) {
    if (!word.empty()) result.emplace_back(word);
  }
  return result;
}

/// One context's tuner, owned by its miss handler.
class Service {
 public:
  Service(gemmtune_context* context, OnlineTunerOptions options, Environment environment)
      : context_(context), environment_(std::move(environment)), tuner_(host(), std::move(options)) {}

  std::int32_t missed(const gemmtune_miss& miss) {
    auto problem = parse_problem(miss.problem);
    if (!problem.ok()) return 0;
    OnlineProblem asked{*problem, miss.file, miss.fallback, words(miss.proven_families, ','),
                        words(miss.tuned_files, ':')};
    return tuner_.missed(std::move(asked)) ? 1 : 0;
  }
  void stop() { tuner_.stop(); }

 private:
  OnlineHost host() {
    return {[this] { return open_own_device(); },
            [this] {
              if (gemmtune_context_reload_online(context_) == GEMMTUNE_OK) return Status();
              return Status::io("{}", gemmtune_last_error());
            },
            [this](LogLevel level, const std::string& line) {
              (void)gemmtune_context_log(context_, static_cast<std::int32_t>(level), line.c_str());
            }};
  }
  /// With threads of its own, which are not pinned: the context's serve.
  Result<std::unique_ptr<Device>> open_own_device() {
    gemmtune_device_info info{};
    info.size = sizeof info;
    if (gemmtune_context_device(context_, &info) != GEMMTUNE_OK)
      return Status::internal("{}", gemmtune_last_error());
    const int threads = traits_of(info.backend).runs_on_host ? info.cu_num : 0;
    const auto request = device_request({.text = info.name, .threads = threads}, environment_);
    if (!request.ok()) return request.status();
    auto device = open_device(info.backend, *request);
    if (!device.ok()) return device;
    const DeviceInfo& own = (*device)->info();
    if (own.gfx == info.gfx && own.cu_num == info.cu_num) return device;
    return Status::internal("{} is {} with {} units here, the context has {} with {}", info.name, own.gfx,
                            own.cu_num, info.gfx, info.cu_num);
  }

  gemmtune_context* context_;
  Environment environment_;
  OnlineTuner tuner_;
};

/// Those that live, so that no thread of theirs outlives the end of the process's main function. Never
/// destroyed: handlers may be released after statics are.
struct LiveServices {
  std::mutex mutex;
  std::set<Service*> services;
};
LiveServices& live() {
  static auto* const all = new LiveServices;
  return *all;
}

void stop_all() {
  const std::lock_guard lock(live().mutex);
  for (Service* service : live().services) service->stop();
}

std::int32_t missed(void* service, const gemmtune_miss* miss) {
  try {
    return static_cast<Service*>(service)->missed(*miss);
  } catch (const std::exception&) {
    return 0;  // the fallback answers
  }
}

void release(void* handler_context) {
  auto* const service = static_cast<Service*>(handler_context);
  {
    const std::lock_guard lock(live().mutex);
    live().services.erase(service);
  }
  delete service;
}

Result<OnlineTunerOptions> tuner_options(const gemmtune_online_options& given,
                                         const Environment& environment) {
  const bool as_aiter = environment.online_tuning == OnlineTuning::aiter;
  OnlineTunerOptions options;
  options.synchronous = given.synchronous != 0 || as_aiter;
  options.settings.hipblaslt_table = given.hipblaslt_table != 0 || (given.file == nullptr && as_aiter);
  std::int64_t milliseconds = given.budget_milliseconds;
  if (milliseconds <= 0) {
    const auto set = environment.online_budget_milliseconds.read(0, std::numeric_limits<std::int64_t>::max());
    if (!set.ok()) return set.status();
    milliseconds = set->value_or(0);
  }
  options.settings.budget_seconds =
      milliseconds > 0 ? static_cast<double>(milliseconds) / 1e3 : default_budget_seconds;
  options.settings.runtime_folder = environment.runtime_folder;
  return options;
}

gemmtune_status enable(gemmtune_context* context, const gemmtune_online_options& given) {
  static const int stops_at_exit = std::atexit(stop_all);
  (void)stops_at_exit;  // where it is full, a thread may run on while the process ends
  Environment environment = read_environment();
  const auto options = tuner_options(given, environment);
  if (!options.ok()) return c::report(options.status());
  auto service = std::make_unique<Service>(context, *options, std::move(environment));
  {
    const std::lock_guard lock(live().mutex);
    live().services.insert(service.get());
  }
  gemmtune_miss_handler handler{};
  handler.size = sizeof handler;
  handler.missed = &missed;
  handler.release = &release;
  handler.handler_context = service.get();
  handler.file = given.file;
  handler.hipblaslt_table = options->settings.hipblaslt_table ? 1 : 0;
  const gemmtune_status status = gemmtune_context_set_miss_handler(context, &handler);
  Service* const of_handler = service.release();
  if (status != GEMMTUNE_OK) release(of_handler);
  return status;
}

}  // namespace
}  // namespace gemmtune

extern "C" gemmtune_status gemmtune_enable_online_tuning(gemmtune_context* context,
                                                         const gemmtune_online_options* options) {
  namespace c = gemmtune::c;
  if (context == nullptr) return c::fail_null("gemmtune_enable_online_tuning", "context");
  gemmtune_online_options known{};
  if (options != nullptr) {
    if (const auto bad = c::read_struct(options, known); bad != GEMMTUNE_OK) return bad;
  }
  return c::guarded([&] {
    if (known.budget_milliseconds < 0) {
      return c::fail(GEMMTUNE_INVALID_ARGUMENT, fmt::format("budget_milliseconds is {}, expected at least 0",
                                                            known.budget_milliseconds));
    }
    return gemmtune::enable(context, known);
  });
}
