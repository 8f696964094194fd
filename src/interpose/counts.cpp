#include "interpose/counts.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace gemmtune::interpose {
namespace {

constexpr auto outcomes = static_cast<std::size_t>(Outcome::count);

// By Outcome; of those passed through, why.
constexpr std::array<const char*, outcomes> words = {"served by tuned rows",
                                                     "replaced for an erratum",
                                                     "no tuned row",
                                                     "types",
                                                     "compute type",
                                                     "epilogue",
                                                     "alpha or beta",
                                                     "pointer mode",
                                                     "layout",
                                                     "alignment",
                                                     "batch",
                                                     "scales",
                                                     "setting",
                                                     "not planned before graph capture",
                                                     "workspace",
                                                     "no device",
                                                     "refused"};

std::array<std::atomic<std::uint64_t>, outcomes> counted{};
std::atomic<bool> counting{false};
pthread_once_t prepared = PTHREAD_ONCE_INIT;

/// All counts in words; empty if there was no call.
std::string summary() {
  std::uint64_t passed = 0;
  std::string why;
  for (auto i = static_cast<std::size_t>(Outcome::no_row); i < outcomes; ++i) {
    const std::uint64_t calls = counted[i].load(std::memory_order_relaxed);
    if (calls == 0) continue;
    passed += calls;
    why += (why.empty() ? " (" : ", ") + std::to_string(calls) + " " + words[i];
  }
  const std::uint64_t served = counted[0].load(std::memory_order_relaxed);
  const std::uint64_t replaced = counted[1].load(std::memory_order_relaxed);
  if (served + replaced + passed == 0) return {};
  return std::to_string(served + replaced + passed) + " calls: " + std::to_string(served) + " " + words[0] +
         ", " + std::to_string(replaced) + " " + words[1] + ", " + std::to_string(passed) +
         " passed through" + why + (why.empty() ? "" : ")");
}

void say_summary() {
  if (const std::string text = summary(); !text.empty()) say(text.c_str());
}

/// A child counts its own calls.
void begin_child() {
  for (auto& calls : counted) calls.store(0, std::memory_order_relaxed);
}

void prepare() {
  std::atexit(say_summary);
  ::pthread_atfork(nullptr, nullptr, begin_child);
  counting.store(true, std::memory_order_release);
}

}  // namespace

void count(Outcome outcome) {
  if (!counting.load(std::memory_order_acquire)) ::pthread_once(&prepared, prepare);
  counted[static_cast<std::size_t>(outcome)].fetch_add(1, std::memory_order_relaxed);
}

void say(const char* text) {
  const std::string line = std::string("gemmtune: cublas: ") + text + "\n";
  // One write, so that lines of several processes do not mix. If it fails there is nowhere to say so.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace gemmtune::interpose
