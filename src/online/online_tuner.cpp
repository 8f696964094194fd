#include "online/online_tuner.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/byte_lock.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/hash.h"
#include "base/quiet_thread.h"
#include "measure/timing_lock.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_problems = 65536;
constexpr std::chrono::milliseconds pause_while_another_tunes{50};
constexpr std::chrono::milliseconds pause_for_others{120};  // twice as long: they come to their turn
constexpr double budgets_to_wait = 3;
constexpr int nice_without_worker = 10;  // serving threads go first; those of our device inherit it

/// The calling thread, not less than it does already.
void give_way(int nice) {
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  if (::getpriority(PRIO_PROCESS, self) < nice) (void)::setpriority(PRIO_PROCESS, self, nice);
}

}  // namespace

struct OnlineTuner::State {
  struct Job {
    OnlineProblem problem;
    std::string key;  // among State::problems
    Clock::time_point not_before{};
  };
  enum class Progress { waiting, done, done_with_row };

  std::mutex mutex;
  std::condition_variable wake;  // the thread: something to do, or stop
  std::condition_variable done;  // callers: a problem was decided, or the thread has ended
  std::deque<Job> queue;
  std::map<std::string, Progress> problems;  // every one that was ever asked
  std::thread thread;
  bool running = false;  // the thread looks at the queue
  bool gave_up = false;  // the file cannot be written
  std::atomic<bool> stopping{false};
  bool without_worker = false;  // none can be started; of the thread alone
};

OnlineTuner::OnlineTuner(OnlineHost host, OnlineTunerOptions options)
    : host_(std::move(host)),
      options_(std::move(options)),
      process_(::getpid()),
      state_(std::make_unique<State>()) {}

OnlineTuner::~OnlineTuner() {
  stop();
  // The thread behind these is the parent's: neither it nor what it waits on can be destroyed here.
  if (forked()) (void)state_.release();
}

bool OnlineTuner::forked() const { return ::getpid() != process_; }

void OnlineTuner::stop() {
  if (forked()) return;
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    thread.swap(state_->thread);
  }
  state_->wake.notify_all();
  state_->done.notify_all();
  if (thread.joinable()) thread.join();
}

bool OnlineTuner::start_thread() {
  State& state = *state_;
  if (state.running) return true;
  if (state.thread.joinable()) state.thread.join();  // it has left its loop, or is about to end
  state.thread = start_quiet_thread([this] { run(); });
  state.running = state.thread.joinable();
  return state.running;
}

bool OnlineTuner::missed(OnlineProblem problem) {
  if (forked() || problem.file.empty()) return false;
  problem.problem = online_key_problem(problem.problem);
  const std::string key = print(problem.problem);
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.stopping || state.gave_up || state.problems.size() >= max_problems) return false;
  const auto [asked, is_new] = state.problems.try_emplace(key, State::Progress::waiting);
  if (is_new) {
    bool started = false;
    try {
      state.queue.push_back({std::move(problem), key, {}});
      started = start_thread();
    } catch (...) {
      std::erase_if(state.queue, [&](const State::Job& job) { return job.key == key; });
      state.problems.erase(asked);  // a later miss asks again
      throw;
    }
    if (!started) {
      state.gave_up = true;
      state.queue.clear();
      lock.unlock();
      host_.say(LogLevel::warning, "online tuning is off: no thread could be started for it");
      return false;
    }
    state.wake.notify_all();
  }
  if (!options_.synchronous) return false;
  const auto limit = std::chrono::duration<double>(budgets_to_wait * options_.settings.budget_seconds);
  const auto progress = [&] {
    const auto known = state.problems.find(key);
    return known == state.problems.end() ? State::Progress::done : known->second;
  };
  state.done.wait_for(lock, limit, [&] {
    return state.stopping || !state.running || progress() != State::Progress::waiting;
  });
  return progress() == State::Progress::done_with_row;
}

bool OnlineTuner::wait_until_idle(double seconds) {
  std::unique_lock lock(state_->mutex);
  return state_->done.wait_for(lock, std::chrono::duration<double>(seconds),
                               [&] { return !state_->running; });
}

void OnlineTuner::run() {
  std::string current;
  try {
    work(current);
  } catch (const std::exception&) {
    // No memory, not even for a message: a later miss starts a thread again.
    const std::lock_guard lock(state_->mutex);
    state_->problems.erase(current);
    state_->running = false;
    state_->done.notify_all();
  }
}

void OnlineTuner::work(std::string& current) {
  if (!options_.synchronous) {
    // A worker inherits it, so that it gets its share where the service has all processors.
    give_way(host_.worker_start && !state_->without_worker ? nice_of_share(host_.share)
                                                           : nice_without_worker);
  }
  State& state = *state_;
  Workplace workplace;
  std::unique_lock lock(state.mutex);
  while (!state.stopping && !state.queue.empty()) {
    const auto next = std::ranges::min_element(
        state.queue, [](const auto& a, const auto& b) { return a.not_before < b.not_before; });
    if (next->not_before > Clock::now()) {
      state.wake.wait_until(lock, next->not_before);
      continue;
    }
    current = next->key;
    State::Job job = std::move(*next);
    state.queue.erase(next);
    lock.unlock();
    bool busy = false;
    OnlineResult result;
    try {
      result = attempt(job.problem, workplace, busy);
    } catch (const std::exception& error) {
      result.text = fmt::format("{}: not tuned online: {}", short_name(job.problem.problem), error.what());
    }
    if (!busy) conclude(job.key, result);
    lock.lock();
    if (busy) {
      job.not_before = Clock::now() + pause_while_another_tunes;
      state.queue.push_back(std::move(job));
    } else if (workplace.worker && !state.queue.empty()) {
      state.wake.wait_for(lock, pause_for_others, [&] { return state.stopping.load(); });
    }
  }
  // Its threads end and its memory goes before anybody hears that all is done.
  lock.unlock();
  workplace.worker.reset();
  workplace.device.reset();
  lock.lock();
  if (!state.stopping && !state.queue.empty()) {  // asked meanwhile
    lock.unlock();
    return work(current);
  }
  state.running = false;
  state.done.notify_all();
}

Status OnlineTuner::open(Workplace& workplace) {
  if (!workplace.device) {
    GEMMTUNE_TRY(workplace.device, host_.open_device());
  }
  if (!workplace.worker && host_.worker_start && !state_->without_worker) start_worker(workplace);
  // Measured once, outside any problem's budget.
  if (!workplace.worker) (void)workplace.device->last_level_cache_bytes();
  return {};
}

void OnlineTuner::start_worker(Workplace& workplace) {
  Device& device = *workplace.device;
  const auto start = host_.worker_start();
  const OnlineSettings& settings = options_.settings;
  auto worker = start.ok() ? OnlineWorker::start(
                                 *start, device, online_policy(device), settings.max_err_ratio,
                                 timing_lock_path(settings.runtime_folder, device.info()), state_->stopping)
                           : Result<std::unique_ptr<OnlineWorker>>(start.status());
  if (worker.ok()) {
    workplace.worker = std::move(worker).value();
    return;
  }
  if (state_->stopping) return;
  state_->without_worker = true;
  if (!options_.synchronous) give_way(nice_without_worker);
  host_.say(LogLevel::warning,
            fmt::format(
                "online tuning measures in this process, kernels of vendors and of proven families alone: {}",
                worker.message()));
}

bool OnlineTuner::takes_turns() const {
  return host_.worker_start && !state_->without_worker && !options_.synchronous;
}

OnlineResult OnlineTuner::attempt(const OnlineProblem& problem, Workplace& workplace, bool& busy) {
  const auto failed = [&](const Status& status) {
    return OnlineResult{OnlineState::failed, status.message(), true};
  };
  const std::string folder = parent_folder(problem.file);
  if (!folder.empty()) {
    if (const Status made = make_folders(folder); !made.ok()) return failed(made);
  }
  const Problem group = [&] {
    Problem key = group_of(problem.problem);
    key.m = problem.problem.m;
    return key;
  }();
  // Any byte can be locked. Two problems at one place only wait for each other.
  auto claim = ByteLock::take(problem.file + ".claims", hash64(print(group)) >> 2);
  if (!claim.ok()) return failed(claim.status());
  busy = !claim->has_value();
  if (busy) return {};
  std::optional<FileLock> turn;
  if (const std::string path = online_lock_path(options_.settings.runtime_folder);
      takes_turns() && !path.empty()) {
    auto taken = FileLock::try_acquire(path);
    busy = taken.ok() && !taken->has_value();
    if (busy) {
      workplace.worker.reset();  // it would hold memory while another service's works
      return {};
    }
    if (taken.ok()) turn = std::move(*taken);
  }
  if (const Status opened = open(workplace); !opened.ok()) return failed(opened);
  return tune_online(*workplace.device, workplace.worker.get(), problem, options_.settings, state_->stopping);
}

void OnlineTuner::conclude(const std::string& key, const OnlineResult& result) {
  bool has_row = result.state == OnlineState::tuned || result.state == OnlineState::known;
  if (!result.text.empty() && !result.hopeless) {
    host_.say(result.state == OnlineState::failed ? LogLevel::warning : LogLevel::info, result.text);
  }
  if (has_row) {
    if (const Status changed = host_.rows_changed(); !changed.ok()) {
      has_row = false;
      host_.say(LogLevel::warning, changed.message());
    }
  }
  State& state = *state_;
  bool gives_up = false;
  {
    const std::lock_guard lock(state.mutex);
    state.problems[key] = has_row ? State::Progress::done_with_row : State::Progress::done;
    gives_up = result.hopeless && !std::exchange(state.gave_up, true);
    if (gives_up) {
      for (const State::Job& job : state.queue) state.problems[job.key] = State::Progress::done;
      state.queue.clear();
    }
  }
  if (gives_up) {
    host_.say(LogLevel::warning, fmt::format("online tuning is off until the next start, fallbacks go on "
                                             "answering: {}",
                                             result.text));
  }
  state.done.notify_all();
}

}  // namespace gemmtune
