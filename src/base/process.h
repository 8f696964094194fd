// This process among others: a name that no later process gets, and whether its bearer still runs.
#pragma once

#include <string>

namespace gemmtune {

/// "<boot id> <pid> <start time>": unique on this machine also after a pid was given out again.
std::string process_identity();
/// False for processes of other machines and of earlier boots, as for a text that is no identity.
bool process_runs(const std::string& identity);

}  // namespace gemmtune
