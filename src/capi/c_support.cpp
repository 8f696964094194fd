// The C functions of statuses, error texts, the log and versions.
#include "capi/c_support.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace gemmtune::c {
namespace {

/// A thread's last error. A fixed buffer: a failure must not fail for want of memory.
std::array<char, 2048>& error_text() {
  static thread_local std::array<char, 2048> text{};
  return text;
}

/// The host's function.
struct ProcessLog {
  gemmtune_log log = nullptr;
  void* context = nullptr;
};

/// A LogSink. The function may replace itself.
void write_process_log(LogLevel level, std::string_view line, void* installed) {
  const ProcessLog to = *static_cast<const ProcessLog*>(installed);
  to.log(to.context, static_cast<int>(level), std::string(line).c_str());
}

}  // namespace
}  // namespace gemmtune::c

extern "C" {

const char* gemmtune_status_text(gemmtune_status status) {
  // By number.
  constexpr const char* texts[] = {"ok",
                                   "invalid argument",
                                   "not found",
                                   "unsupported",
                                   "input or output error",
                                   "out of memory",
                                   "internal error",
                                   "null pointer",
                                   "misaligned"};
  static_assert(std::size(texts) == GEMMTUNE_MISALIGNED + 1);
  const auto number = static_cast<std::size_t>(status);
  return number < std::size(texts) ? texts[number] : "unknown status";
}

const char* gemmtune_last_error(void) { return gemmtune::c::error_text().data(); }

gemmtune_status gemmtune_set_last_error(gemmtune_status status, const char* message) {
  auto& text = gemmtune::c::error_text();
  const std::size_t length = message == nullptr ? 0 : std::min(std::strlen(message), text.size() - 1);
  if (length > 0) std::memmove(text.data(), message, length);  // it may be this text itself
  text[length] = '\0';
  return status;
}

void gemmtune_set_log(gemmtune_log log, void* context) {
  namespace c = gemmtune::c;
  (void)c::guarded([&] {
    static std::mutex mutex;
    static auto* const installed = new std::unique_ptr<c::ProcessLog>;  // outlives statics
    const std::lock_guard lock(mutex);
    auto next = log == nullptr ? nullptr : std::make_unique<c::ProcessLog>(c::ProcessLog{log, context});
    gemmtune::set_log_sink(next ? &c::write_process_log : nullptr, next.get());
    *installed = std::move(next);
    return GEMMTUNE_OK;
  });
}

const char* gemmtune_version(void) { return GEMMTUNE_VERSION; }

const char* gemmtune_layout_text(gemmtune_layout layout) { return gemmtune::c::layout_text(layout).data(); }

}  // extern "C"
