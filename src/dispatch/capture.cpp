#include "dispatch/capture.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/quiet_thread.h"
#include "formats/aiter/schema.h"

namespace gemmtune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds shortest_pause{1000};
constexpr std::chrono::milliseconds longest_pause{60000};
constexpr int pause_per_flush = 10;  // times as long as the flush took

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
  bool stopping = false;
  std::thread thread;
};

CaptureRecorder::CaptureRecorder(std::string folder, Say say)
    : folder_(std::move(folder)),
      say_(std::move(say)),
      process_(::getpid()),
      writer_(std::make_unique<Writer>()) {
  // Without a thread flush() and the destructor still write.
  writer_->thread = start_quiet_thread([this] { run_writer(); });
}

CaptureRecorder::~CaptureRecorder() {
  stop();
  // The thread behind these is the parent's: neither it nor what it waits on can be destroyed here.
  if (forked()) (void)writer_.release();
}

bool CaptureRecorder::forked() const { return ::getpid() != process_; }

void CaptureRecorder::run_writer() {
  Writer& writer = *writer_;
  std::unique_lock lock(writer.mutex);
  auto pause = shortest_pause;
  while (!writer.wake.wait_for(lock, pause, [&] { return writer.stopping; })) {
    lock.unlock();
    const auto begin = Clock::now();
    flush_without_caller();
    const auto taken = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    pause = std::clamp(taken * pause_per_flush, shortest_pause, longest_pause);
    lock.lock();
  }
}

void CaptureRecorder::stop() {
  if (forked()) return;
  {
    const std::lock_guard lock(writer_->mutex);
    writer_->stopping = true;
  }
  writer_->wake.notify_all();
  if (writer_->thread.joinable()) writer_->thread.join();
  flush_without_caller();
}

void CaptureRecorder::flush_without_caller() noexcept {
  try {
    (void)flush();
  } catch (const std::exception&) {  // no memory: what is not written stays for the next flush
  }
}

CallCounts* CaptureRecorder::counts_of(const Problem& problem) {
  if (problem.m == 0 || forked()) return nullptr;
  const PlanKey key{problem_of_row(problem), 0};
  const std::lock_guard lock(entries_mutex_);
  if (const auto known = index_.find(key); known != index_.end()) return &known->second->counts;
  if (entries_.size() >= max_problems) {
    if (!std::exchange(full_, true)) {
      say_(LogLevel::warning, fmt::format("capture: more than {} problems; {} and further ones are not kept",
                                          max_problems, print(problem)));
    }
    return nullptr;
  }
  Entry& entry = entries_.emplace_back();
  entry.problem = key.problem;
  try {
    index_.emplace(key, &entry);
  } catch (...) {
    entries_.pop_back();
    throw;
  }
  return &entry.counts;
}

std::vector<CaptureRecorder::Unwritten> CaptureRecorder::collect() {
  std::vector<Unwritten> unwritten(all_operations().size());
  const std::string now = utc_text();
  const std::lock_guard lock(entries_mutex_);
  for (Entry& entry : entries_) {
    CapturedProblem one;
    const MatchCounts counts = entry.counts.read();
    for (std::size_t match = 0; match < counts.size(); ++match) {
      one.by_match[match] = counts[match] - entry.written[match];
      one.calls += one.by_match[match];
    }
    if (one.calls == 0) continue;
    one.problem = entry.problem;
    one.last_seen = now;
    Unwritten& of_operation = unwritten[static_cast<std::size_t>(entry.problem.operation)];
    of_operation.seen.push_back(std::move(one));
    of_operation.entries.push_back(&entry);
  }
  return unwritten;
}

Status CaptureRecorder::write(Operation operation, const Unwritten& unwritten) {
  const std::string path = folder_ + "/" + untuned_file_name(operation);
  const auto merged = merge_capture(path, unwritten.seen);
  if (!merged.ok()) return merged.status();
  // At once: calls that are written would be counted again if a line of the log failed.
  for (std::size_t index = 0; index < unwritten.entries.size(); ++index) {
    MatchCounts& written = unwritten.entries[index]->written;
    for (std::size_t match = 0; match < written.size(); ++match) {
      written[match] += unwritten.seen[index].by_match[match];
    }
  }
  if (!merged->damage.empty()) say_(LogLevel::warning, "capture: " + merged->damage);
  if (!merged->diagnostic.empty()) say_once(LogLevel::error, path, "capture: " + merged->diagnostic);
  return {};
}

Status CaptureRecorder::flush() {
  if (forked()) return {};
  const std::lock_guard flushing(flushing_);
  Status first;
  const auto unwritten = collect();
  for (const Operation operation : all_operations()) {
    const Unwritten& of_operation = unwritten[static_cast<std::size_t>(operation)];
    if (of_operation.seen.empty()) continue;
    const Status status = write(operation, of_operation);
    if (status.ok()) continue;
    say_once(LogLevel::error, status.message(), "capture: " + status.message());
    if (first.ok()) first = status;
  }
  return first;
}

void CaptureRecorder::say_once(LogLevel level, const std::string& about, const std::string& line) {
  if (said_.insert(about).second) say_(level, line);
}

}  // namespace gemmtune
