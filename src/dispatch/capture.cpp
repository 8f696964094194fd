#include "dispatch/capture.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/quiet_thread.h"
#include "formats/aiter/schema.h"

namespace gemmtune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds soon{20};
// What lines may cost the threads that ask for new problems: this, and a tenth of the time.
constexpr std::chrono::milliseconds first_lines{200};
constexpr std::chrono::milliseconds shortest_pause{1000};
constexpr std::chrono::milliseconds longest_pause{60000};
constexpr int pause_per_flush = 10;  // times as long as the flush took

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

MatchCounts CallCounts::read() const {
  MatchCounts counts;
  for (std::size_t match = 0; match < counts.size(); ++match) {
    counts[match] = by_match_[match].load(std::memory_order_relaxed);
  }
  return counts;
}

struct CaptureRecorder::Writer {
  std::mutex mutex;
  std::condition_variable wake;
  bool lines_wanted = false;
  bool counts_wanted = false;
  bool stopped = false;
  std::thread thread;
};

struct CaptureRecorder::Files {
  std::mutex mutex;
  bool closed = false;
  std::set<std::string> said;
  const Clock::time_point begin = Clock::now();
  Clock::duration lines_took{};           // of threads that asked
  std::atomic<Clock::rep> flushed_at{0};  // the end of the last flush
  std::atomic<Clock::rep> flush_took{0};
};

/// All recorders of the process: what its end and fork() concern.
class CaptureProcess {
 public:
  static CaptureProcess& instance() {
    static auto* const all = new CaptureProcess;  // never destroyed
    return *all;
  }
  void add(const std::shared_ptr<CaptureRecorder>& recorder) {
    const std::lock_guard lock(mutex_);
    std::erase_if(recorders_, [](const auto& known) { return known.expired(); });
    recorders_.push_back(recorder);
  }

 private:
  CaptureProcess() {
    // Where either fails (no memory), the end of the process may lose counts, and children record nothing new.
    (void)std::atexit([] { instance().end(); });
    (void)::pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork(false); },
                           [] { instance().after_fork(true); });
  }

  std::vector<std::shared_ptr<CaptureRecorder>> live() const {
    std::vector<std::shared_ptr<CaptureRecorder>> recorders;
    for (const auto& known : recorders_)
      if (auto recorder = known.lock()) recorders.push_back(std::move(recorder));
    return recorders;
  }

  void end() {
    end_log_sink();  // what the host's function uses may be gone already
    std::unique_lock lock(mutex_);
    const auto recorders = live();
    lock.unlock();
    for (const auto& recorder : recorders) recorder->process_ends();
  }

  /// The child's copies must be whole. Files are not waited for.
  void before_fork() {
    mutex_.lock();
    forking_ = live();
    for (const auto& recorder : forking_) recorder->entries_mutex_.lock();
  }
  void after_fork(bool child) {
    for (const auto& recorder : forking_) {
      if (child) recorder->begin_in_child();
      recorder->entries_mutex_.unlock();
    }
    const auto recorders = std::exchange(forking_, {});
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<CaptureRecorder>> recorders_;
  std::vector<std::shared_ptr<CaptureRecorder>> forking_;
};

/// The recorders that a thread's calls were counted by.
class CapturingThread {
 public:
  /// True if the recorder was not known.
  static bool add(CaptureRecorder& recorder, std::uint64_t id) {
    return !is_over_ && current().add_to_list(recorder, id);
  }

 private:
  struct Known {
    std::uint64_t id;
    std::weak_ptr<CaptureRecorder> recorder;
  };

  CapturingThread() = default;
  ~CapturingThread() {
    is_over_ = true;
    for (const Known& known : recorders_)
      if (const auto recorder = known.recorder.lock()) recorder->thread_ended();
  }

  static CapturingThread& current() {
    static thread_local CapturingThread thread;
    return thread;
  }
  bool add_to_list(CaptureRecorder& recorder, std::uint64_t id) {
    if (id == last_) return false;
    last_ = id;
    for (const Known& known : recorders_)
      if (known.id == id) return false;
    std::erase_if(recorders_, [](const Known& known) { return known.recorder.expired(); });
    recorders_.push_back({id, recorder.weak_from_this()});
    return true;
  }

  static thread_local bool is_over_;  // calls may come later than the thread's objects
  std::uint64_t last_ = 0;
  std::vector<Known> recorders_;
};

thread_local bool CapturingThread::is_over_ = false;

std::shared_ptr<CaptureRecorder> CaptureRecorder::make(std::string folder, Say say) {
  std::shared_ptr<CaptureRecorder> recorder(new CaptureRecorder(std::move(folder), std::move(say)));
  CaptureProcess::instance().add(recorder);
  return recorder;
}

CaptureRecorder::CaptureRecorder(std::string folder, Say say)
    : folder_(std::move(folder)),
      say_(std::move(say)),
      id_(next_id()),
      files_(std::make_unique<Files>()),
      writer_(std::make_unique<Writer>()) {}

CaptureRecorder::~CaptureRecorder() { stop_writer(); }

std::string CaptureRecorder::path_of(OperationForm operation) const {
  return folder_ + "/" + untuned_file_name(operation);
}

// ---- the writer's thread -----------------------------------------------------------------------------------

void CaptureRecorder::start_writer() {
  Writer& writer = *writer_;
  const std::lock_guard lock(writer.mutex);
  if (writer.stopped || writer.thread.joinable()) return;
  // Without a thread flush() and the end still write.
  writer.thread = start_quiet_thread([this, &writer] { run_writer(writer); });
}

void CaptureRecorder::run_writer(Writer& writer) {
  std::unique_lock lock(writer.mutex);
  auto flush_at = Clock::now() + shortest_pause;
  while (!writer.stopped) {
    writer.wake.wait_until(lock, flush_at,
                           [&] { return writer.stopped || writer.lines_wanted || writer.counts_wanted; });
    if (writer.stopped) return;
    if (writer.lines_wanted || writer.counts_wanted) {  // others may follow
      writer.wake.wait_for(lock, soon, [&] { return writer.stopped; });
      if (writer.stopped) return;
    }
    const auto begin = Clock::now();
    const bool flushes = writer.counts_wanted || begin >= flush_at;
    writer.lines_wanted = writer.counts_wanted = false;
    lock.unlock();
    if (flushes) {
      flush_without_caller();
      const auto taken = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
      flush_at = Clock::now() + std::clamp(taken * pause_per_flush, shortest_pause, longest_pause);
    } else {
      try {
        const std::lock_guard files(files_->mutex);
        add_lines();
      } catch (const std::exception&) {  // no memory: the next flush writes them
      }
    }
    lock.lock();
  }
}

void CaptureRecorder::wake_writer(bool counts) {
  start_writer();
  {
    const std::lock_guard lock(writer_->mutex);
    (counts ? writer_->counts_wanted : writer_->lines_wanted) = true;
  }
  writer_->wake.notify_all();
}

void CaptureRecorder::stop_writer() {
  {
    const std::lock_guard lock(writer_->mutex);
    writer_->stopped = true;
  }
  writer_->wake.notify_all();
  if (writer_->thread.joinable()) writer_->thread.join();
}

// ---- what is asked for -------------------------------------------------------------------------------------

CallCounts* CaptureRecorder::counts_of(const Problem& problem) {
  if (problem.m == 0 || problem.n == 0 || problem.k == 0) return nullptr;
  const PlanKey key{problem_of_row(problem), 0};
  {
    const std::lock_guard lock(entries_mutex_);
    if (const auto known = index_.find(key); known != index_.end()) return &known->second->counts;
    if (entries_.size() < max_problems) {
      new_.reserve(new_.size() + 1);
      Entry& entry = entries_.emplace_back();
      entry.problem = key.problem;
      try {
        index_.emplace(key, &entry);
      } catch (...) {
        entries_.pop_back();
        throw;
      }
      entry.line_pending = true;
      new_.push_back(&entry);
      has_new_.store(true, std::memory_order_release);
      return &entry.counts;
    }
    if (std::exchange(full_, true)) return nullptr;
  }
  say(LogLevel::warning, fmt::format("capture: more than {} problems; {} and further ones are not kept",
                                     max_problems, print(problem)));
  return nullptr;
}

void CaptureRecorder::write_new_lines() noexcept {
  if (!has_new_.load(std::memory_order_acquire)) return;
  try {
    {
      const std::unique_lock files(files_->mutex, std::try_to_lock);
      const auto begin = Clock::now();
      const auto allowed = first_lines + (begin - files_->begin) / pause_per_flush;
      if (files.owns_lock() && files_->lines_took <= allowed) {
        add_lines();
        files_->lines_took += Clock::now() - begin;
        return;
      }
    }
    wake_writer(false);
  } catch (const std::exception&) {  // no memory: the next flush writes them
  }
}

void CaptureRecorder::note_thread() {
  if (CapturingThread::add(*this, id_.load(std::memory_order_relaxed))) start_writer();
}

// ---- files -------------------------------------------------------------------------------------------------

CaptureRecorder::UnwrittenByOperation CaptureRecorder::collect_lines() {
  UnwrittenByOperation unwritten;
  const std::lock_guard lock(entries_mutex_);
  for (Entry* entry : new_) {
    Unwritten& of_operation = unwritten[form_of(entry->problem)];
    of_operation.seen.emplace_back().problem = entry->problem;
    of_operation.entries.push_back(entry);
  }
  for (Entry* entry : new_) entry->line_pending = false;
  new_.clear();
  has_new_.store(false, std::memory_order_relaxed);
  return unwritten;
}

CaptureRecorder::UnwrittenByOperation CaptureRecorder::collect() {
  UnwrittenByOperation unwritten;
  const std::string now = utc_text();
  const std::lock_guard lock(entries_mutex_);
  for (Entry& entry : entries_) {
    CapturedProblem one;
    const MatchCounts counts = entry.counts.read();
    for (std::size_t match = 0; match < counts.size(); ++match) {
      one.by_match[match] = counts[match] - entry.written[match];
      one.calls += one.by_match[match];
    }
    if (one.calls == 0 && !entry.line_pending) continue;
    one.problem = entry.problem;
    one.last_seen = now;
    Unwritten& of_operation = unwritten[form_of(entry.problem)];
    of_operation.seen.push_back(std::move(one));
    of_operation.entries.push_back(&entry);
  }
  for (Entry* entry : new_) entry->line_pending = false;
  new_.clear();
  has_new_.store(false, std::memory_order_relaxed);
  return unwritten;
}

void CaptureRecorder::pend_again(const Unwritten& unwritten) {
  const std::lock_guard lock(entries_mutex_);
  for (Entry* entry : unwritten.entries) {
    if (std::exchange(entry->line_pending, true)) continue;
    new_.push_back(entry);
  }
  has_new_.store(true, std::memory_order_release);
}

void CaptureRecorder::add_lines() {
  if (files_->closed) return;
  const auto unwritten = collect_lines();
  for (const auto& [operation, of_operation] : unwritten) {
    const auto merged = try_add_lines(path_of(operation), of_operation.seen);
    if (!merged.ok()) {
      pend_again(of_operation);  // the next flush says why
    } else if (!merged->has_value()) {
      pend_again(of_operation);
      wake_writer(false);
    } else {
      say_merged(path_of(operation), **merged);
    }
  }
}

Status CaptureRecorder::write(OperationForm operation, const Unwritten& unwritten) {
  const std::string path = path_of(operation);
  GEMMTUNE_TRY(const auto merged, merge_capture(path, unwritten.seen));
  // At once: calls that are written would be counted again if a line of the log failed.
  for (std::size_t index = 0; index < unwritten.entries.size(); ++index) {
    MatchCounts& written = unwritten.entries[index]->written;
    for (std::size_t match = 0; match < written.size(); ++match) {
      written[match] += unwritten.seen[index].by_match[match];
    }
  }
  say_merged(path, merged);
  return {};
}

Status CaptureRecorder::flush() {
  Files& files = *files_;
  const std::lock_guard writing(files.mutex);
  if (files.closed) return {};
  const auto begin = Clock::now();
  Status first;
  const auto unwritten = collect();
  for (const auto& [operation, of_operation] : unwritten) {
    const Status status = write(operation, of_operation);
    if (status.ok()) continue;
    pend_again(of_operation);
    say_once(LogLevel::error, status.message(), "capture: " + status.message());
    if (first.ok()) first = status;
  }
  const auto end = Clock::now();
  files.flushed_at.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  files.flush_took.store((end - begin).count(), std::memory_order_relaxed);
  return first;
}

void CaptureRecorder::flush_without_caller() noexcept {
  try {
    (void)flush();
  } catch (const std::exception&) {  // no memory: what is not written stays for the next flush
  }
}

// ---- ends --------------------------------------------------------------------------------------------------

void CaptureRecorder::close() {
  stop_writer();
  flush_without_caller();
  const std::lock_guard writing(files_->mutex);
  files_->closed = true;
}

void CaptureRecorder::thread_ended() noexcept {
  const auto since =
      Clock::now().time_since_epoch().count() - files_->flushed_at.load(std::memory_order_relaxed);
  const auto took = files_->flush_took.load(std::memory_order_relaxed);
  if (since >= took * pause_per_flush) return flush_without_caller();
  try {
    wake_writer(true);
  } catch (const std::exception&) {  // no memory: the next flush writes the counts
  }
}

void CaptureRecorder::process_ends() noexcept {
  speaks_.store(false, std::memory_order_relaxed);
  stop_writer();
  flush_without_caller();
}

/// Only this thread is in the child, and what others held there is not whole: it is left behind.
void CaptureRecorder::begin_in_child() {
  id_.store(next_id(), std::memory_order_relaxed);
  const bool closed = files_->closed;
  const bool stopped = writer_->stopped;
  struct LeftBehind {
    Files* files;
    Writer* writer;
  };
  static auto* const left_behind = new std::vector<LeftBehind>;  // reachable: no leak
  left_behind->push_back({files_.release(), writer_.release()});
  files_ = std::make_unique<Files>();
  files_->closed = closed;
  writer_ = std::make_unique<Writer>();
  writer_->stopped = stopped;
  for (Entry& entry : entries_) {
    entry.written = entry.counts.read();
    entry.line_pending = false;
  }
  new_.clear();
  has_new_.store(false, std::memory_order_relaxed);
}

// ---- the log -----------------------------------------------------------------------------------------------

void CaptureRecorder::say(LogLevel level, std::string_view line) const {
  if (speaks_.load(std::memory_order_relaxed)) return say_(level, line);
  log_line(level, line);
}

void CaptureRecorder::say_once(LogLevel level, const std::string& about, const std::string& line) {
  if (files_->said.insert(about).second) say(level, line);
}

void CaptureRecorder::say_merged(const std::string& path, const CaptureMerge& merged) {
  if (!merged.damage.empty()) say(LogLevel::warning, "capture: " + merged.damage);
  if (!merged.diagnostic.empty()) say_once(LogLevel::error, path, "capture: " + merged.diagnostic);
}

}  // namespace gemmtune
