#include "support/faulty_device.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace gemmtune::testing {
namespace {

using std::chrono::milliseconds;

void segfault() {
  std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end the process in its own way
  std::raise(SIGSEGV);
}

void abort_with_a_word() {
  std::signal(SIGABRT, SIG_DFL);
  std::fputs("kernel: unhappy with tile 7\n", stderr);
  std::abort();
}

void loop_forever() {
  for (volatile bool forever = true; forever;) {
  }
}

/// Ends by itself at 3 GiB, so that a parent that does not watch costs a failed test and no machine.
void eat_memory() {
  constexpr std::size_t piece = std::size_t{32} << 20;
  std::vector<void*> pieces;
  for (int i = 0; i < 96; ++i) {
    pieces.push_back(std::malloc(piece));
    std::memset(pieces.back(), 1, piece);
    std::this_thread::sleep_for(milliseconds(2));
  }
  for (void* each : pieces) std::free(each);
}

void write_nothing(const Problem&, const Operands&, void*) {}

FakeCost always(double microseconds) {
  return [microseconds](const Problem&, Random& noise, double) {
    return microseconds * (1 + 0.002 * (noise.uniform() - 0.5));
  };
}

FakeRun after(void (*fault)()) {
  return [fault](const Problem& problem, const Operands& operands, void* workspace) {
    fault();
    right_gemm(problem, operands, workspace);
  };
}

void add_good(FakeDevice& device) {
  device.add({.name = "vendor", .cost = always(100), .tie_rank = 0});
  device.add({.name = "good_slow", .cost = always(200)});
  device.add({.name = "good_fast", .cost = always(50)});
  device.add({.name = "dawdling",
              .run = after([] { std::this_thread::sleep_for(milliseconds(20)); }),
              .cost = always(120)});
  device.add({.name = "slow_build", .cost = always(150), .on_build = [] {
                std::this_thread::sleep_for(milliseconds(500));
              }});
}

void add_faults_of_later(FakeDevice& device) {
  device.add({.name = "late_crash",
              .run =
                  [runs = 0](const Problem& problem, const Operands& operands, void* workspace) mutable {
                    if (++runs > 1) segfault();
                    right_gemm(problem, operands, workspace);
                  },
              .cost = always(20)});
  device.add({.name = "crash_at_m1",
              .run =
                  [](const Problem& problem, const Operands& operands, void* workspace) {
                    if (problem.m == 1) segfault();
                    right_gemm(problem, operands, workspace);
                  },
              .cost = always(30)});
}

}  // namespace

const std::vector<Fault>& faults() {
  static const std::vector<Fault> list = {
      {"segfault", OutcomeKind::crashed, "SIGSEGV"},
      {"abort", OutcomeKind::crashed, "kernel: unhappy with tile 7"},
      {"loop", OutcomeKind::timed_out, "did not end within"},
      {"exit_0", OutcomeKind::crashed, "exit code 0"},
      {"exit_3", OutcomeKind::crashed, "exit code 3"},
      {"memory_bomb", OutcomeKind::crashed, "MiB of memory"},
      {"stop", OutcomeKind::timed_out, "did not end within"},
      {"device_fault", OutcomeKind::crashed, "the device was lost: illegal address"},
      {"wrong", OutcomeKind::wrong, "", false},
  };
  return list;
}

std::unique_ptr<FakeDevice> make_faulty_device() {
  auto device = std::make_unique<FakeDevice>();
  add_good(*device);
  add_faults_of_later(*device);
  device->add({.name = "segfault", .run = after(segfault), .cost = always(10)});
  device->add({.name = "abort", .run = after(abort_with_a_word), .cost = always(10)});
  device->add({.name = "loop", .run = after(loop_forever), .cost = always(10)});
  device->add({.name = "exit_0", .run = after([] { _exit(0); }), .cost = always(10)});
  device->add({.name = "exit_3", .run = after([] { _exit(3); }), .cost = always(10)});
  device->add({.name = "memory_bomb", .run = after(eat_memory), .cost = always(10)});
  device->add({.name = "stop", .run = after([] { std::raise(SIGSTOP); }), .cost = always(10)});
  device->add({.name = "wrong", .run = write_nothing, .cost = always(10)});
  // What a GPU's fault looks like: the run itself is only enqueued.
  device->add({.name = "device_fault",
               .run = [lost = device.get()](const Problem&, const Operands&,
                                            void*) { lost->lose(Status::internal("illegal address")); },
               .cost = always(10)});
  // Fails where it was not announced before it is built.
  device->add(
      {.name = "announced", .cost = always(110), .accepts = [told = device.get()](const Problem&) -> Status {
         for (const auto& list : told->ahead)
           for (const Candidate& candidate : list)
             if (candidate.family == "announced") return {};
         return Status::unsupported("announced: nobody said that it would come");
       }});
  device->set_baseline(candidate_of("vendor"));
  return device;
}

Candidate candidate_of(const std::string& family) {
  Candidate candidate;
  candidate.family = family;
  return candidate;
}

}  // namespace gemmtune::testing
