// The log: lines go to the sink that the host installs, else warnings and errors to stderr.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace gemmtune {

enum class LogLevel { debug, info, warning, error };

using LogSink = void (*)(LogLevel level, std::string_view line, void* context);

/// Replaces the process's sink; nullptr brings the default one back: "gemmtune: warning: …" on stderr. Safe from any
/// thread. The sink may be called from any, from several at once; when this returns, no other thread is in the
/// previous one.
void set_log_sink(LogSink sink, void* context);
/// For the end of the process: the default sink from now on, and no wait.
void end_log_sink();
/// The default sink of this process writes information from now on, too.
void let_default_sink_inform();
/// False if nobody would see a line of this level: callers use it to skip formatting.
bool log_enabled(LogLevel level);
/// `heard`: somebody else has the line already, so the default sink leaves it out.
void log_line(LogLevel level, std::string_view line, bool heard = false);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace gemmtune
