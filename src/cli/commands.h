// The commands' declarations; see Command::declare.
#pragma once

#include <functional>

#include "base/status.h"

namespace gemmtune::cli {

class CommandOptions;

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

/// The hidden command: the worker process of `tune` and of online tuning. Takes no options.
int run_worker_command();

}  // namespace gemmtune::cli
