// The text of --device: "cpu", "cpu:0-15", "cpu:0,2" and the cores that it stands for.
#pragma once

#include <string>
#include <string_view>

#include "backends/cpu/machine/affinity.h"
#include "base/status.h"

namespace gemmtune::cpu {

struct CoreSet {
  CoreList cores;      // one thread a core
  bool named = false;  // the text named them: threads must not leave the set
};

/// "0-3,8" → 0 1 2 3 8. Order is kept; a core named twice and a range that runs downwards are errors.
Result<CoreList> parse_core_list(std::string_view text);
/// The shortest text that parse_core_list reads back.
std::string print_core_list(const CoreList& cores);

/// The cores of a request. Without named cores: `allowed`, of which no more are taken than `quota` (CPUs'
/// worth of time, 0: unlimited) can feed. `threads` > 0 takes the first so many; asking for more than there
/// are is an error that names both.
Result<CoreSet> choose_cores(std::string_view text, int threads, const CoreList& allowed, double quota);

}  // namespace gemmtune::cpu
