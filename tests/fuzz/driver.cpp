// Runs a fuzz target where the compiler has no libFuzzer.
//
//   fuzz_targets TARGET [--seconds S] [--runs N] [--seed X] [--failing FILE] [--fixture PATH]... SEED...
//
// Seeds are files or folders; --fixture names some below GEMMTUNE_FIXTURES, which may be absent. Without
// --seconds and --runs each seed is replayed once, whole; with them, mutations of the seeds are run until one
// of the two is used up, the same ones for the same --seed. An input that crashes, takes more than 2 s of
// processor time, more than 256 MiB or more than 1 MiB of stack is kept as FILE.
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "fuzz/mutations.h"

// A sanitizer's finding ends in abort(), which keeps the input, and not in _exit().
#define GEMMTUNE_SANITIZER_OPTIONS(function) \
  extern "C" __attribute__((visibility("default"))) const char* function() { return "abort_on_error=1"; }
GEMMTUNE_SANITIZER_OPTIONS(__asan_default_options)
GEMMTUNE_SANITIZER_OPTIONS(__ubsan_default_options)
#undef GEMMTUNE_SANITIZER_OPTIONS

namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_memory = std::size_t{256} << 20;
constexpr rlim_t max_stack = rlim_t{1} << 20;
constexpr long max_seconds = 2;

struct Options {
  double seconds = 0;
  std::uint64_t runs = 0;
  std::uint64_t seed = 1;
  std::string failing = "fuzz.failing";
  std::vector<std::string> seeds;
};

// What the signal handler needs; set before each input.
const char* failing_path = "fuzz.failing";
const std::string* running = nullptr;
const gemmtune::fuzz::Target* target = nullptr;
std::atomic<std::size_t> live_bytes{0};

void say(const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

/// Only what is allowed in a signal handler.
void keep_input(const char* why) {
  if (running == nullptr) return;
  const int file = ::open(failing_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool kept = file >= 0 && ::write(file, running->data(), running->size()) >= 0;
  running = nullptr;
  say(why);
  say(kept ? "; the input is kept as " : "; the input could not be kept as ");
  say(failing_path);
  say("\n");
}

void on_signal(int number) {
  keep_input(number == SIGPROF ? "more than 2 s of processor time" : "a crash");
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void watch_signals() {
  static char stack[1 << 16];  // for an overflow of the usual one
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof(stack);
  ::sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF}) {
    ::sigaction(number, &action, nullptr);
  }
}

void run_one(const std::string& input) {
  running = &input;
  itimerval limit{};
  limit.it_value.tv_sec = max_seconds;
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  // A copy of exactly its size: reading past its end is seen by a sanitizer.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  target->run(bytes.data(), bytes.size());
  limit = {};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  running = nullptr;
}

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> read_seeds(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const fs::path path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& file : files) seeds.push_back(read(file));
  return seeds;
}

/// Null for another word.
const gemmtune::fuzz::Target* target_named(std::string_view name) {
  for (const gemmtune::fuzz::Target& one : gemmtune::fuzz::all_targets())
    if (one.name == name) return &one;
  return nullptr;
}

/// Those behind the target's name.
std::optional<Options> parse_arguments(int count, char** words) {
  Options options;
  for (int index = 2; index < count; ++index) {
    const std::string word = words[index];
    if (!word.starts_with("--")) {
      options.seeds.push_back(word);
      continue;
    }
    if (++index == count) return std::nullopt;
    const std::string value = words[index];
    if (word == "--seconds") {
      options.seconds = std::atof(value.c_str());
    } else if (word == "--runs") {
      options.runs = std::strtoull(value.c_str(), nullptr, 10);
    } else if (word == "--seed") {
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (word == "--failing") {
      options.failing = value;
    } else if (word == "--fixture") {
      const char* folder = std::getenv("GEMMTUNE_FIXTURES");
      const fs::path path = fs::path(folder == nullptr ? "" : folder) / value;
      if (folder != nullptr && fs::exists(path)) options.seeds.push_back(path.string());
    } else {
      return std::nullopt;
    }
  }
  return options;
}

/// Mutations of the seeds, until the time or the runs are used up. Returns how many there were.
std::uint64_t mutate(const Options& options, const std::vector<std::string>& seeds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  gemmtune::fuzz::Mutator mutator(options.seed, seeds);
  std::uint64_t runs = 0;
  const auto more = [&] {
    if (options.runs != 0 && runs >= options.runs) return false;
    return options.seconds == 0 || Clock::now() < end;
  };
  for (; more(); ++runs) run_one(mutator.next());
  return runs;
}

}  // namespace

// Counting what is alive: the parsers use no other allocation.
void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t now = live_bytes += ::malloc_usable_size(memory);
  if (now > max_memory && running != nullptr) {
    keep_input("more than 256 MiB");
    std::abort();
  }
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) live_bytes -= ::malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept { operator delete(memory); }

int main(int count, char** words) {
  target = count < 2 ? nullptr : target_named(words[1]);
  const auto options = parse_arguments(count, words);
  if (target == nullptr || !options) {
    std::fprintf(
        stderr,
        "usage: %s TARGET [--seconds S] [--runs N] [--seed X] [--failing FILE] [--fixture PATH]... SEED...\n",
        words[0]);
    return 2;
  }
  failing_path = options->failing.c_str();
  const rlimit stack{max_stack, max_stack};
  ::setrlimit(RLIMIT_STACK, &stack);
  watch_signals();
  const std::vector<std::string> seeds = read_seeds(options->seeds);
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds\n");
    return 2;
  }
  for (const std::string& seed : seeds) run_one(seed);
  const bool mutations = options->seconds != 0 || options->runs != 0;
  const std::uint64_t runs = mutations ? mutate(*options, seeds) : 0;
  std::printf("%zu seeds and %llu mutations of them: nothing found\n", seeds.size(),
              static_cast<unsigned long long>(runs));
  return 0;
}
