#include "dispatch/context.h"

#include <utility>

#include "backends/device_request.h"
#include "backends/traits.h"
#include "base/file.h"
#include "dispatch/planner.h"
#include "formats/capture/capture_file.h"
#include "resolve/bind.h"
#include "resolve/errata.h"
#include "resolve/shipped_tables.h"
#include "resolve/source_use.h"
#include "tuned/choice.h"

namespace gemmtune {
namespace {

std::shared_ptr<const DispatchDevice> wrap_device(std::unique_ptr<Device> device, HostParallelFor host) {
  auto wrapped = std::make_shared<DispatchDevice>();
  wrapped->device = std::move(device);
  if (host.function != nullptr && traits_of(wrapped->device->info()).runs_on_host) {
    host.threads = wrapped->device->info().cu_num;
    wrapped->host_executor = make_host_executor(host);
  }
  return wrapped;
}

const std::string& config_folder_of(const ContextOptions& options, const Environment& environment) {
  return options.config_folder.empty() ? environment.config_folder : options.config_folder;
}

}  // namespace

std::vector<TablePath> context_table_paths(const ContextOptions& options, const Environment& environment) {
  const std::string& folder = config_folder_of(options, environment);
  auto paths = all_table_paths(options.tuned_files, tuned_files_of(environment), folder);
  auto triton = triton_table_paths(environment, folder);
  std::move(triton.begin(), triton.end(), std::back_inserter(paths));
  return paths;
}

Result<std::unique_ptr<Context>> Context::open(const ContextOptions& options) {
  const Environment environment = read_environment();
  if (!environment.invariant.empty() && environment.invariant != "rows")
    return Status::invalid("GEMMTUNE_INVARIANT {}: expected rows", environment.invariant);
  const Team team = options.parallel_for.function == nullptr ? Team::automatic : Team::callback;
  GEMMTUNE_TRY(
      auto request,
      device_request({.text = options.device, .threads = options.threads, .team = team}, environment));
  request.serves = true;
  GEMMTUNE_RETURN_IF_ERROR(known_errata().status);
  GEMMTUNE_TRY(auto device, open_device(options.backend.empty() ? "auto" : options.backend, request));
  return std::make_unique<Context>(options, environment, std::move(device));
}

Context::Context(const ContextOptions& options, const Environment& environment,
                 std::unique_ptr<Device> device)
    : options_(options),
      environment_(environment),
      device_(wrap_device(std::move(device), options.parallel_for)),
      workspaces_(WorkspacePool::make(device_)),
      tables_(std::make_shared<const TableSet>(read_tables())) {
  options_.log_config = options_.log_config || environment_.log_config;
  options_.verify_untuned = options_.verify_untuned || environment_.verify_untuned;
  if (environment_.log_config || (options_.log_config && options_.log == nullptr)) let_default_sink_inform();
  log_tables(*tables_);
  warn_of_sources(*tables_);
  leave_out_what_needs_a_config_folder();
  if (environment_.online_tuning != OnlineTuning::off) {
    online_file_ = default_online_file(environment_.online_tuning);
    online_ = load_online_rows(*online_file_, *device_->device);
    log_rows_of_ours(*online_);
  }
  start_capture();
}

OnlineFile Context::default_online_file(OnlineTuning switched_by) const {
  return gemmtune::default_online_file(switched_by, config_folder_of(options_, environment_));
}

Context::~Context() {
  set_miss_handler(nullptr, std::nullopt);
  if (capture_) capture_->close();
}

void Context::leave_out_what_needs_a_config_folder() {
  if (!config_folder_of(options_, environment_).empty()) return;
  constexpr const char* no_folder =
      "{} is off: there is no config folder; set HOME, XDG_CONFIG_HOME or GEMMTUNE_CONFIG_DIR";
  if (environment_.online_tuning == OnlineTuning::gemmtune) {
    environment_.online_tuning = OnlineTuning::off;
    say(LogLevel::warning, fmt::format(no_folder, "online tuning"));
  }
  const bool captures = options_.capture || environment_.capture;
  if (captures && options_.capture_folder.empty() && environment_.capture_folder.empty()) {
    options_.capture = environment_.capture = false;
    say(LogLevel::warning, fmt::format(no_folder, "capture"));
  }
}

void Context::start_capture() {
  if (!options_.capture && !environment_.capture) return;
  std::string folder = options_.capture_folder;
  if (folder.empty()) folder = environment_.capture_folder;
  if (folder.empty()) folder = config_folder_of(options_, environment_);
  capture_ = CaptureRecorder::make(std::move(folder),
                                   [this](LogLevel level, std::string_view line) { say(level, line); });
}

Result<PlanRef> Context::plan(const Problem& problem, Stream stream, LaunchPromises promises) {
  const PlanKey key{problem, generation_.load(std::memory_order_acquire), promises.dependent()};
  PlanRef plan = cache_.find(key);
  if (!plan) {
    auto made = make(key);
    if (capture_) capture_->write_new_lines();
    if (!made.ok()) return made.status();
    plan = std::move(made).value();
  }
  if (reports_misses_.load(std::memory_order_relaxed) && plan->has_miss()) {
    GEMMTUNE_TRY(plan, report_miss(std::move(plan), stream, key));
  }
  count(*plan);
  return plan;
}

Result<PlanRef> Context::tuned_plan(const Problem& problem, Stream stream, LaunchPromises promises) {
  const auto is_measured = [&problem](const PlanAccount& account) {
    return !is_of_another_m(account.match, problem) && !account.callers_kernel;
  };
  const auto if_a_row_answered = [&](PlanRef plan) {
    const PlanAccount& account = plan->account();
    return account.match == Match::untuned || !is_measured(account) ? PlanRef() : std::move(plan);
  };
  if (reports_misses_.load(std::memory_order_relaxed)) {  // the handler is given the fallback's name
    GEMMTUNE_TRY(auto answered, plan(problem, stream, promises));
    return if_a_row_answered(std::move(answered));
  }
  PlanKey key{problem, generation_.load(std::memory_order_acquire), promises.dependent()};
  PlanRef known = cache_.find(key);
  key.measured_only = true;
  if (!known || !is_measured(known->account())) known = cache_.find(key);
  if (!known) {
    auto made = make(key);
    if (capture_) capture_->write_new_lines();
    if (!made.ok()) return made.status();
    known = std::move(made).value();
  }
  count(*known);
  return if_a_row_answered(std::move(known));
}

PlanRef Context::cached_plan(const Problem& problem, LaunchPromises promises) {
  PlanRef plan = cache_.find({problem, generation_.load(std::memory_order_acquire), promises.dependent()});
  if (plan) count(*plan);
  return plan;
}

Result<PlanRef> Context::named_plan(std::string_view kernel, const Problem& problem, LaunchPromises promises,
                                    bool verify) {
  const std::lock_guard planning(planning_mutex_);
  return make_named_plan(device_, kernel, problem, promises, verify);
}

Status Context::silu_and_mul(const SiluAndMul& call, Stream stream) const {
  if (traits_of(device().info()).runs_on_host) {
    if (stream.handle != nullptr) return Status::invalid("stream is set, expected null on a CPU");
    stream = device_->default_stream();
  }
  return device().silu_and_mul(call, stream);
}

void Context::count(const Plan& plan) {
  counters_.count_answer(plan);
  if (CallCounts* calls = plan.call_counts()) {
    calls->count(plan.account().match);
    capture_->note_thread();
  }
}

Result<PlanRef> Context::make(const PlanKey& asked) {
  const std::lock_guard planning(planning_mutex_);
  std::shared_ptr<const TableSet> tables;
  std::shared_ptr<const TableSet> online;
  PlanKey key = asked;
  {
    const std::lock_guard lock(tables_mutex_);
    tables = tables_;
    online = online_;
    key.generation = generation_.load(std::memory_order_relaxed);
  }
  if (PlanRef plan = cache_.find(key)) return plan;  // another thread made it meanwhile
  int invalid_rows = 0;
  auto plan = make_plan(device_, {*tables, online.get(), [this] { return &shipped_tables(); }}, key.problem,
                        {.strict_environment = options_.strict_environment,
                         .dependent_launches = key.dependent,
                         .measured_only = key.measured_only,
                         .invariant_only = !environment_.invariant.empty()},
                        &invalid_rows, options_.verify_untuned);
  if (!plan.ok()) {
    if (check_runnable(key.problem).ok()) count_unanswered(key.problem, invalid_rows);
    return plan.status();
  }
  if (capture_) (*plan)->count_calls_in(capture_->counts_of(key.problem));
  if ((*plan)->account().match != Match::untuned) key.measured_only = false;
  cache_.insert(key, *plan);
  counters_.count_made(**plan);
  log_plan(**plan);
  return plan;
}

void Context::count_unanswered(const Problem& problem, int rows_passed_over) {
  counters_.count_unanswered(rows_passed_over);
  warn_of_sources(form_of(problem));
  CallCounts* calls = capture_ ? capture_->counts_of(problem) : nullptr;
  if (calls == nullptr) return;
  calls->count(Match::untuned);
  capture_->note_thread();
}

Status Context::flush_capture() { return capture_ ? capture_->flush() : Status(); }

Miss Context::miss_of(const Plan& plan) const {
  Miss miss;
  miss.problem = plan.problem();
  miss.fallback = plan.account().kernel_name;
  std::shared_ptr<const TableSet> tables;
  {
    const std::lock_guard lock(tables_mutex_);
    tables = tables_;
    if (online_file_) miss.file = online_path(*online_file_, form_of(miss.problem));
  }
  const DeviceInfo& device = device_->device->info();
  std::set<std::string> families{plan.account().family};
  for (const TunedEntry& entry : tables->table.entries()) {
    const bool chosen = entry.bucket.empty() ? may_be_chosen(entry) : check_has_kernel(entry).ok();
    if (entry.gfx == device.gfx && chosen) families.insert(entry.libtype);
  }
  for (const std::string& family : families) {
    if (!family.empty()) miss.proven_families += (miss.proven_families.empty() ? "" : ",") + family;
  }
  for (const TableSource& source : tables->sources) {
    if (source.operation != form_of(miss.problem) || source.triton) continue;
    miss.tuned_files += (miss.tuned_files.empty() ? "" : ":") + source.path;
  }
  return miss;
}

Result<PlanRef> Context::report_miss(PlanRef plan, Stream stream, PlanKey key) {
  if (device_->device->is_capturing(stream)) return plan;
  std::shared_ptr<MissHandler> handler;
  {
    const std::lock_guard lock(tables_mutex_);
    handler = miss_handler_;
  }
  if (!handler || !plan->take_miss()) return plan;
  bool looks_again = false;
  try {
    looks_again = handler->missed(miss_of(*plan));
  } catch (...) {
    plan->put_miss_back();
    throw;
  }
  if (!looks_again) return plan;
  key.generation = generation_.load(std::memory_order_acquire);
  if (PlanRef known = cache_.find(key)) return known;
  return make(key);
}

void Context::set_miss_handler(std::shared_ptr<MissHandler> handler, std::optional<OnlineFile> file) {
  std::shared_ptr<const TableSet> rows;
  if (file) {
    rows = load_online_rows(*file, *device_->device);
    log_rows_of_ours(*rows);
  }
  const std::lock_guard planning(planning_mutex_);  // or a plan of the old rows would be cached after them
  {
    const std::lock_guard lock(tables_mutex_);
    miss_handler_.swap(handler);
    reports_misses_ = miss_handler_ != nullptr;
    if (file) {
      online_file_ = std::move(file);
      online_ = std::move(rows);
    }
  }
  cache_.drop_untuned([](const Problem&) { return true; });
}

Status Context::reload_online() {
  const std::lock_guard reading(online_reading_mutex_);
  std::optional<OnlineFile> file;
  {
    const std::lock_guard lock(tables_mutex_);
    file = online_file_;
  }
  if (!file) return {};
  auto rows = load_online_rows(*file, *device_->device);
  GEMMTUNE_RETURN_IF_ERROR(rows->first_fault());
  const std::lock_guard planning(planning_mutex_);
  {
    const std::lock_guard lock(tables_mutex_);
    online_ = rows;
  }
  cache_.drop_untuned([&](const Problem& problem) { return has_row(*rows, *device_->device, problem); });
  return {};
}

Status Context::reload() {
  auto fresh = std::make_shared<const TableSet>(read_tables());
  GEMMTUNE_RETURN_IF_ERROR(fresh->first_fault());
  GEMMTUNE_RETURN_IF_ERROR(reload_online());
  log_tables(*fresh);
  {
    const std::lock_guard planning(planning_mutex_);
    look_ups_said_.clear();
    warn_of_sources(*fresh);
  }
  {
    const std::lock_guard lock(tables_mutex_);
    tables_.swap(fresh);
    generation_.fetch_add(1, std::memory_order_release);
  }
  cache_.clear();
  return {};
}

std::shared_ptr<const TableSet> Context::tables() const {
  const std::lock_guard lock(tables_mutex_);
  return tables_;
}

std::shared_ptr<const TableSet> Context::online_rows() const {
  const std::lock_guard lock(tables_mutex_);
  return online_;
}

const TableSet& Context::shipped_tables() const {
  std::call_once(shipped_flag_, [this] {
    auto read = production_shipped_tables(environment_, &device_->device->info());
    log_rows_of_ours(*read);
    shipped_ = std::move(read);
  });
  return *shipped_;
}

void Context::say(LogLevel level, std::string_view line) const {
  if (options_.log != nullptr) options_.log(level, line, options_.log_context);
  log_line(level, line, options_.log != nullptr);
}

TableSet Context::read_tables() const {
  TableSet tables = load_table_set(context_table_paths(options_, environment_));
  tables.fewer_threads =
      environment_.fewer_threads && !options_.own_threads_only && !options_.strict_environment;
  return tables;
}

void Context::log_tables(const TableSet& tables) const {
  for (const TableSource& source : tables.sources) {
    if (source.state.ok()) {
      // Of Triton configs there may be hundreds; shipped tables are of all devices.
      say(source.triton || (source.shipped && source.rows == 0) ? LogLevel::debug : LogLevel::info,
          fmt::format("{}: {} rows", source.path, source.rows));
    } else if (source.state.code() == StatusCode::not_found) {
      say(LogLevel::debug, source.state.message());
    }
    if (source.diagnostics.empty()) continue;
    const std::size_t others = source.diagnostics.size() - 1;
    warn_once(others == 0 ? source.diagnostics.front()
                          : fmt::format("{} (and {} more in this file: gemmtune audit)",
                                        source.diagnostics.front(), others));
  }
}

void Context::log_rows_of_ours(const TableSet& rows) const {
  log_tables(rows);
  for (const TableSource& source : rows.sources) {
    if (!source.state.ok() && source.state.code() != StatusCode::not_found) warn_once(source.state.message());
  }
}

void Context::warn_of_sources(const TableSet& tables) {
  waiting_warnings_.clear();
  for (SourceWarning& warning :
       source_warnings(tables, device_->device->info(), options_.strict_environment)) {
    if (warning.named) {
      warn_once(warning.text);
    } else {
      waiting_warnings_.emplace(warning.operation, std::move(warning.text));
    }
  }
}

void Context::warn_of_sources(OperationForm operation) {
  const auto [first, last] = waiting_warnings_.equal_range(operation);
  for (auto warning = first; warning != last; ++warning) warn_once(warning->second);
  waiting_warnings_.erase(first, last);
}

void Context::warn_once(const std::string& line) const {
  static std::mutex mutex;
  static auto* const said = new std::set<std::string>;  // by any context of the process
  if (options_.log != nullptr) options_.log(LogLevel::warning, line, options_.log_context);
  bool first = false;
  {
    const std::lock_guard lock(mutex);
    first = said->insert(line).second;
  }
  if (first) log_line(LogLevel::warning, line, options_.log != nullptr);
}

void Context::log_plan(const Plan& plan) {
  const PlanAccount& account = plan.account();
  if (plan.kernel() == nullptr && !writes_nothing(plan.problem()))
    return warn_of_sources(form_of(plan.problem()));
  if (plan.kernel() == nullptr || plan.problem().k == 0) return;
  if (!account.triton_only.empty() && triton_only_said_.insert(account.triton_only).second) {
    warn_once(fmt::format("{}: configurations that only Triton can run (no kernelName) answer nothing",
                          account.triton_only));
  }
  if (!account.passed_file.empty() && passed_said_.insert(account.passed_file).second) {
    warn_once(fmt::format("{}: rows whose kernel cannot run here are passed over, the first for {}: {}",
                          account.passed_file, short_name(plan.problem()), account.rule));
  }
  log_look_up(plan);
  if (!account.other_environment.empty() &&
      environments_said_.insert(account.file + account.other_environment).second) {
    warn_once(
        fmt::format("{}: rows of another environment are used: {}", account.file, account.other_environment));
  }
  if (is_miss(account.match)) warn_of_sources(form_of(plan.problem()));
}

/// Other programs read these lines: the words, their order and "name:number" are AITER's.
void Context::log_look_up(const Plan& plan) {
  constexpr std::size_t max_lines = 65536;
  const PlanAccount& account = plan.account();
  const bool untuned = account.match == Match::untuned;
  if (!options_.log_config && !untuned) return;
  const Problem& problem = plan.problem();
  const std::string sizes =
      fmt::format("{}M:{}, N:{}, K:{}", problem.batch == 1 ? "" : fmt::format("B:{}, ", problem.batch),
                  problem.m, problem.n, problem.k);
  std::string line = fmt::format("shape is {}, {}, ", sizes, print(problem_of_row(problem)));
  if (untuned) {
    line += fmt::format("not found tuned config in {}, will use default config! using {} solution:{}, {}",
                        asked_files(form_of(problem)), account.family, account.kernel_name, account.rule);
  } else {
    line += fmt::format(
        "found padded_M: {}, N:{}, K:{} is tuned on cu_num = {} in {}, libtype is {}, kernel name is {}, {}",
        account.hit_m, problem.n, problem.k,
        account.cu_num > 0 ? account.cu_num : device_->device->info().cu_num, account.file, account.family,
        account.kernel_name, account.rule);
  }
  if (look_ups_said_.size() >= max_lines || !look_ups_said_.insert(line).second) return;
  say(LogLevel::info, line);
}

std::string Context::asked_files(OperationForm operation) const {
  constexpr std::size_t max_files = 4;
  std::string text;
  std::size_t count = 0;
  const auto add = [&](const std::string& path) { text += (text.empty() ? "" : ":") + path; };
  for (const TableSource& source : tables()->sources) {
    if (source.operation != operation && !source.unknown) continue;
    if (++count > max_files) {
      add("…");
      break;
    }
    add(source.path);
  }
  // One word for all of them: they lie in one folder.
  for (const TableSource& source : shipped_tables().sources) {
    if (source.operation != operation || source.rows == 0) continue;
    add(parent_folder(source.path));
    break;
  }
  return text.empty() ? "(none)" : text;
}

}  // namespace gemmtune
