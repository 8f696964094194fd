// The C function that joins a context with the online tuner. It sees the context through gemmtune's C
// functions alone: the run-time half is another library.
#include <gemmtune/tuning.h>

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
constexpr double default_share = 0.25;

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
  /// `share`: of a worker, 0: none; `program`: that it runs.
  Service(gemmtune_context* context, OnlineTunerOptions options, Environment environment, double share,
          std::string program)
      : context_(context),
        environment_(std::move(environment)),
        share_(share),
        program_(std::move(program)),
        tuner_(host(), std::move(options)) {}

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
    OnlineHost host;
    host.open_device = [this] { return open_own_device(); };
    if (share_ > 0) host.worker_start = [this] { return worker_start(); };
    host.share = share_;
    host.rows_changed = [this] {
      if (gemmtune_context_reload_online(context_) == GEMMTUNE_OK) return Status();
      return Status::io("{}", gemmtune_last_error());
    };
    host.say = [this](LogLevel level, const std::string& line) {
      (void)gemmtune_context_log(context_, static_cast<std::int32_t>(level), line.c_str());
    };
    return host;
  }
  Result<gemmtune_device_info> context_device() const {
    gemmtune_device_info info{};
    info.size = sizeof info;
    if (gemmtune_context_device(context_, &info) != GEMMTUNE_OK)
      return Status::internal("{}", gemmtune_last_error());
    return info;
  }
  /// With threads of its own, which are not pinned: the context's serve.
  Result<DeviceRequest> own_request(const gemmtune_device_info& info) const {
    const int threads = traits_of(info.backend).runs_on_host ? info.cu_num : 0;
    // Nothing but the program could measure on its parallel_for.
    const bool own = info.team != nullptr && to_string(Team::own) == info.team;
    return device_request(
        {.text = info.name, .threads = threads, .team = own ? Team::own : Team::openmp_or_own}, environment_);
  }
  Result<std::unique_ptr<Device>> open_own_device() {
    GEMMTUNE_TRY(const auto info, context_device());
    GEMMTUNE_TRY(const auto request, own_request(info));
    GEMMTUNE_TRY(auto device, open_device(info.backend, request));
    const DeviceInfo& own = device->info();
    if (own.gfx == info.gfx && own.cu_num == info.cu_num) return device;
    return Status::internal("{} is {} with {} units here, the context has {} with {}", info.name, own.gfx,
                            own.cu_num, info.gfx, info.cu_num);
  }
  Result<OnlineWorkerStart> worker_start() const {
    GEMMTUNE_TRY(const auto info, context_device());
    GEMMTUNE_TRY(auto program, worker_program_of(program_));
    GEMMTUNE_TRY(auto request, own_request(info));
    request.serves = true;  // libraries' threads wait as they do in the service, and cost it no more
    return OnlineWorkerStart{std::move(program), info.backend, std::move(request), share_};
  }

  gemmtune_context* context_;
  Environment environment_;
  double share_;
  std::string program_;
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
    GEMMTUNE_TRY(const auto set,
                 environment.online_budget_milliseconds.read(0, std::numeric_limits<std::int64_t>::max()));
    milliseconds = set.value_or(0);
  }
  options.settings.budget_seconds =
      milliseconds > 0 ? static_cast<double>(milliseconds) / 1e3 : default_budget_seconds;
  options.settings.runtime_folder = environment.runtime_folder;
  return options;
}

/// Of the machine's processor time for a worker; 0: no worker. One that callers wait for has all of it, and a GPU is
/// measured in this process: another one would need memory of its own there.
Result<double> worker_share(gemmtune_context* context, const gemmtune_online_options& given,
                            const Environment& environment, bool synchronous) {
  GEMMTUNE_TRY(const auto set, environment.online_share.read_finite(0, 1));
  gemmtune_device_info info{};
  info.size = sizeof info;
  if (gemmtune_context_device(context, &info) != GEMMTUNE_OK)
    return Status::internal("{}", gemmtune_last_error());
  if (!traits_of(info.backend).runs_on_host || given.share < 0) return 0.0;
  const double share = given.share > 0 ? given.share : set.value_or(default_share);
  return share > 0 && synchronous ? 1.0 : share;
}

gemmtune_status enable(gemmtune_context* context, const gemmtune_online_options& given) {
  static const int stops_at_exit = std::atexit(stop_all);
  (void)stops_at_exit;  // where it is full, a thread may run on while the process ends
  Environment environment = read_environment();
  const auto options = tuner_options(given, environment);
  if (!options.ok()) return c::report(options.status());
  const auto share = worker_share(context, given, environment, options->synchronous);
  if (!share.ok()) return c::report(share.status());
  std::string program = given.worker_program == nullptr ? environment.program : given.worker_program;
  auto service =
      std::make_unique<Service>(context, *options, std::move(environment), *share, std::move(program));
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
    if (!(known.share <= 1)) {
      return c::fail(GEMMTUNE_INVALID_ARGUMENT, fmt::format("share is {}, expected at most 1", known.share));
    }
    return gemmtune::enable(context, known);
  });
}
