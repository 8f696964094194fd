#include "base/log.h"

#include <atomic>
#include <mutex>

namespace gemmtune {
namespace {

std::mutex sink_mutex;
LogSink installed_sink = nullptr;
void* installed_context = nullptr;
std::atomic<bool> has_sink{false};

}  // namespace

void set_log_sink(LogSink sink, void* context) {
  const std::lock_guard lock(sink_mutex);
  installed_sink = sink;
  installed_context = context;
  has_sink.store(sink != nullptr, std::memory_order_release);
}

bool log_enabled() { return has_sink.load(std::memory_order_acquire); }

void log_line(LogLevel level, std::string_view line) {
  const std::lock_guard lock(sink_mutex);
  if (installed_sink != nullptr) installed_sink(level, line, installed_context);
}

}  // namespace gemmtune
