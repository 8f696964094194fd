// A simulated device with a vendor's kernel and families of ours, some of which end their process: the
// tuner's side and its worker's program make the same one.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <utility>

#include "support/fake_device.h"

namespace gemmtune::testing {

/// vendor (100 µs, the baseline), own (50 µs), and faster ones that are no use: own_crash, own_exit,
/// own_wrong. Families of ours are never tried in a process that serves.
inline std::unique_ptr<FakeDevice> make_device_with_own_families() {
  auto device = std::make_unique<FakeDevice>();
  const auto add = [&](const char* name, int tie_rank, double microseconds, FakeRun run = {}) {
    FakeFamilyOptions family;
    family.name = name;
    family.tie_rank = tie_rank;
    family.run = std::move(run);
    family.cost = [microseconds](const Problem&, Random&, double) { return microseconds; };
    return device->add(std::move(family));
  };
  device->set_baseline(add("vendor", 0, 100));
  add("own", 10, 50);
  add("own_crash", 10, 10, [](const Problem&, const Operands&, void*) {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end the process in its own way
    std::raise(SIGSEGV);
  });
  add("own_exit", 10, 10, [](const Problem&, const Operands&, void*) { ::_exit(0); });
  add("own_wrong", 10, 10, [](const Problem&, const Operands&, void*) {});
  return device;
}

}  // namespace gemmtune::testing
