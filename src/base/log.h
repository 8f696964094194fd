// The log sink: the library never prints; it hands lines to the sink that its host installs (none by
// default).
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace gemmtune {

enum class LogLevel { debug, info, warning, error };

using LogSink = void (*)(LogLevel level, std::string_view line, void* context);

/// Replaces the process's sink; nullptr drops all lines. Safe from any thread; the sink may be called from
/// any.
void set_log_sink(LogSink sink, void* context);
/// True where a sink is installed: callers use it to skip formatting.
bool log_enabled();
void log_line(LogLevel level, std::string_view line);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled()) log_line(level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace gemmtune
