#include "cli/command.h"
#include "cli/commands.h"
namespace gemmtune::cli {
std::function<int()> declare_convert(CLI::App&) { return [] { return exit_usage; }; }
}
