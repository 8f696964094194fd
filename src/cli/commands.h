// The commands' declarations; see Command::declare.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace gemmtune::cli {

std::function<int()> declare_tune(CLI::App& app);
std::function<int()> declare_shapes(CLI::App& app);
std::function<int()> declare_lookup(CLI::App& app);
std::function<int()> declare_explain(CLI::App& app);
std::function<int()> declare_bench(CLI::App& app);
std::function<int()> declare_check(CLI::App& app);
std::function<int()> declare_hunt(CLI::App& app);
std::function<int()> declare_audit(CLI::App& app);
std::function<int()> declare_merge(CLI::App& app);
std::function<int()> declare_convert(CLI::App& app);
std::function<int()> declare_diff(CLI::App& app);
std::function<int()> declare_coverage(CLI::App& app);
std::function<int()> declare_devices(CLI::App& app);
std::function<int()> declare_cache(CLI::App& app);
std::function<int()> declare_journal(CLI::App& app);

/// The hidden command: the worker process of `tune`. Takes no options.
int run_worker_command();

}  // namespace gemmtune::cli
