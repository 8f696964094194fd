// What the operating system and a container's control groups leave to this process.
#pragma once

#include <cstddef>
#include <string>

#include "backends/cpu/machine/affinity.h"

namespace gemmtune::cpu {

/// CPUs' worth of time by the tightest quota of this process's control groups (v1 and v2); 0: no quota.
/// `root` stands before /proc and /sys.
double cpu_quota(const std::string& root = "");
/// Bytes that can still be used: what the machine has available, or less where a limit of a control group or of
/// this process (RLIMIT_AS, RLIMIT_DATA) is nearer. Page cache counts as free.
std::size_t free_memory_bytes(const std::string& root = "");
/// "AMD EPYC 9654 …": the processor's own name, or "unknown CPU".
std::string cpu_model_name(const std::string& root = "");

/// Caches as the operating system reports them; a virtual machine may report what it does not own.
struct ReportedCaches {
  std::size_t level2_bytes = 0;  // of one core; 0: unknown
  std::size_t last_bytes = 0;    // of one instance of the last level; 0: unknown
  int last_instances = 1;        // last-level caches that these cores share out
};
ReportedCaches reported_caches(const CoreList& cores, const std::string& root = "");

}  // namespace gemmtune::cpu
