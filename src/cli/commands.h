// The commands' declarations; see Command::declare.
#pragma once

#include <functional>

namespace gemmtune::cli {

class CommandOptions;

std::function<int()> declare_tune(CommandOptions& app);
std::function<int()> declare_worth(CommandOptions& app);
std::function<int()> declare_shapes(CommandOptions& app);
std::function<int()> declare_lookup(CommandOptions& app);
std::function<int()> declare_explain(CommandOptions& app);
std::function<int()> declare_bench(CommandOptions& app);
std::function<int()> declare_check(CommandOptions& app);
std::function<int()> declare_hunt(CommandOptions& app);
std::function<int()> declare_audit(CommandOptions& app);
std::function<int()> declare_merge(CommandOptions& app);
std::function<int()> declare_convert(CommandOptions& app);
std::function<int()> declare_diff(CommandOptions& app);
std::function<int()> declare_report(CommandOptions& app);
std::function<int()> declare_coverage(CommandOptions& app);
std::function<int()> declare_devices(CommandOptions& app);
std::function<int()> declare_cache(CommandOptions& app);
std::function<int()> declare_journal(CommandOptions& app);

/// The hidden command: the worker process of `tune` and of online tuning. Takes no options.
int run_worker_command();

}  // namespace gemmtune::cli
