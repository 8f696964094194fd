// A command of the program: one file a command, listed in all_commands.cpp.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "base/status.h"

namespace gemmtune::cli {

class CommandOptions;

/// Exit codes of every command.
inline constexpr int exit_done = 0;
inline constexpr int exit_findings = 1;       // finished, with failed shapes or other findings
inline constexpr int exit_usage = 2;          // usage or input: one line on stderr says what
inline constexpr int exit_interrupted = 130;  // Ctrl-C; what was decided by then is published

struct Command {
  std::string_view name;
  std::string_view summary;
  /// Declares the command's options on `app` and answers what runs once they are parsed. Its exit code, or a usage_error().
  std::function<Result<int>()> (*declare)(CommandOptions& app);
};

std::span<const Command> all_commands();

// See Command::declare.
std::function<Result<int>()> declare_tune(CommandOptions& app);
std::function<Result<int>()> declare_worth(CommandOptions& app);
std::function<Result<int>()> declare_shapes(CommandOptions& app);
std::function<Result<int>()> declare_lookup(CommandOptions& app);
std::function<Result<int>()> declare_explain(CommandOptions& app);
std::function<Result<int>()> declare_bench(CommandOptions& app);
std::function<Result<int>()> declare_check(CommandOptions& app);
std::function<Result<int>()> declare_hunt(CommandOptions& app);
std::function<Result<int>()> declare_audit(CommandOptions& app);
std::function<Result<int>()> declare_merge(CommandOptions& app);
std::function<Result<int>()> declare_convert(CommandOptions& app);
std::function<Result<int>()> declare_diff(CommandOptions& app);
std::function<Result<int>()> declare_report(CommandOptions& app);
std::function<Result<int>()> declare_coverage(CommandOptions& app);
std::function<Result<int>()> declare_devices(CommandOptions& app);
std::function<Result<int>()> declare_cache(CommandOptions& app);
std::function<Result<int>()> declare_journal(CommandOptions& app);

}  // namespace gemmtune::cli
