#include "backends/gpu/jit/compile_queue.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <set>
#include <utility>

namespace gemmtune::gpu {
namespace {

constexpr int niceness = 10;  // of the queue's threads: whoever measures goes first

/// Of the calling thread alone: Linux keeps it for each thread.
void yield_to_others() { (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), niceness); }

}  // namespace

CompileQueue::CompileQueue(std::function<Result<Binary>(const Source&)> compile, std::size_t threads)
    : compile_(std::move(compile)), max_threads_(std::max<std::size_t>(1, threads)) {}

CompileQueue::~CompileQueue() {
  {
    const std::lock_guard held(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CompileQueue::order(std::vector<KeyedSource> sources) {
  const std::lock_guard held(lock_);
  std::set<std::string> wanted;
  for (const KeyedSource& each : sources) wanted.insert(each.key);
  order_.clear();
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.second.state != State::running && wanted.count(entry.first) == 0;
  });
  for (KeyedSource& each : sources) {
    const auto [entry, is_new] = entries_.try_emplace(each.key);
    if (is_new) entry->second.source = std::move(each.source);
    if (entry->second.state == State::waiting) order_.push_back(std::move(each.key));
  }
  while (threads_.size() < std::min(max_threads_, order_.size())) threads_.emplace_back([this] { work(); });
  changed_.notify_all();
}

void CompileQueue::work() {
  yield_to_others();
  std::unique_lock held(lock_);
  for (;;) {
    changed_.wait(held, [&] { return stopping_ || !order_.empty(); });
    if (stopping_) return;
    const auto next = entries_.find(order_.front());
    order_.pop_front();
    if (next != entries_.end() && next->second.state == State::waiting) compile(next->second, held);
  }
}

void CompileQueue::compile(Entry& entry, std::unique_lock<std::mutex>& held) {
  entry.state = State::running;
  held.unlock();
  Result<Binary> result = Status::out_of_memory("no memory to compile");
  try {
    result = compile_(entry.source);
  } catch (const std::bad_alloc&) {
  }
  held.lock();
  entry.result = std::move(result);
  entry.state = State::done;
  changed_.notify_all();
}

Result<Binary> CompileQueue::take(const KeyedSource& wanted) {
  std::unique_lock held(lock_);
  for (;;) {
    const auto [found, is_new] = entries_.try_emplace(wanted.key);
    Entry& entry = found->second;
    if (is_new) entry.source = wanted.source;
    if (entry.state == State::waiting) compile(entry, held);
    if (entry.state == State::done) {
      auto result = std::move(entry.result);
      entries_.erase(found);
      return result;
    }
    // Where another taker is faster, this one begins anew.
    changed_.wait(held, [&] {
      const auto now = entries_.find(wanted.key);
      return now == entries_.end() || now->second.state != State::running;
    });
  }
}

}  // namespace gemmtune::gpu
