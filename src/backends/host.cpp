#include "backends/host.h"

#include <algorithm>

#include "backends/cpu/machine/affinity.h"
#include "backends/cpu/machine/core_set.h"
#include "backends/cpu/machine/system_limits.h"

namespace gemmtune {
namespace {

constexpr std::string_view cpu_prefix = "cpu:";

cpu::CoreList cores_of(const DeviceInfo& device) {
  if (!device.name.starts_with(cpu_prefix)) return {};
  const auto cores = cpu::parse_core_list(std::string_view(device.name).substr(cpu_prefix.size()));
  return cores.ok() ? *cores : cpu::CoreList{};
}

}  // namespace

std::size_t free_host_memory_bytes() { return cpu::free_memory_bytes(); }

int shared_core(const DeviceInfo& first, const DeviceInfo& second) {
  const cpu::CoreList others = cores_of(second);
  for (const int core : cores_of(first)) {
    if (std::find(others.begin(), others.end(), core) != others.end()) return core;
  }
  return -1;
}

CoresOfChildren::CoresOfChildren(const DeviceInfo& device) {
  const cpu::CoreList cores = cores_of(device);
  if (cores.empty()) return;
  before_ = cpu::thread_affinity();
  (void)cpu::set_thread_affinity(cores);
}

CoresOfChildren::~CoresOfChildren() {
  if (!before_.empty()) (void)cpu::set_thread_affinity(before_);
}

}  // namespace gemmtune
