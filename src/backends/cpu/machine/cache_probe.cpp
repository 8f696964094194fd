#include "backends/cpu/machine/cache_probe.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "backends/cpu/machine/memory.h"
#include "backends/cpu/machine/system_limits.h"

namespace gemmtune::cpu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::size_t smallest_answer = 4 * mebibyte;
constexpr std::size_t max_answer = 512 * mebibyte;
constexpr std::size_t believed_report = 64 * mebibyte;  // a pool of twice that costs next to nothing
constexpr std::size_t max_set = 256 * mebibyte;
constexpr double time_limit_seconds = 0.3;
constexpr int passes = 3;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// One word of every cache line, in four chains so that loads overlap.
std::uint64_t read_lines(const std::uint64_t* words, std::size_t bytes) {
  constexpr std::size_t line = 8;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
  std::uint64_t d = 0;
  for (std::size_t i = 0; i + 4 * line <= bytes / 8; i += 4 * line) {
    a += words[i];
    b += words[i + line];
    c += words[i + 2 * line];
    d += words[i + 3 * line];
  }
  return a + b + c + d;
}

double best_rate(const std::uint64_t* words, std::size_t bytes) {
  volatile std::uint64_t sink = read_lines(words, bytes);  // brings the set in
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const auto begin = Clock::now();
    sink = read_lines(words, bytes);
    const double seconds = seconds_since(begin);
    if (seconds > 0) best = std::max(best, static_cast<double>(bytes) / seconds);
  }
  (void)sink;
  return best;
}

/// Rates of sets that double from 4 MiB until `largest`, the time limit, or memory ends.
std::vector<ReadRate> measure_rates(std::size_t largest) {
  std::vector<ReadRate> rates;
  const auto begin = Clock::now();
  for (std::size_t bytes = smallest_answer; bytes <= largest; bytes *= 2) {
    // Each set costs about as much as all smaller ones together and twice its predecessor.
    if (2.5 * seconds_since(begin) > time_limit_seconds) break;
    const auto buffer = allocate_memory(bytes, Placement::pool);
    if (!buffer.ok()) break;
    rates.push_back({bytes, best_rate(static_cast<const std::uint64_t*>((*buffer)->data()), bytes)});
  }
  return rates;
}

std::size_t probe(const CoreList& cores) {
  const ReportedCaches reported = reported_caches(cores);
  std::size_t seen = 0;
  if (reported.last_bytes == 0 || reported.last_bytes > believed_report) {
    const std::size_t largest = reported.last_bytes == 0 ? max_set : 4 * reported.last_bytes;
    seen = first_uncached_bytes(measure_rates(std::min(largest, max_set)));
  }
  const std::size_t one = believable_cache_bytes(reported.last_bytes, seen);
  const std::size_t all = one * static_cast<std::size_t>(reported.last_instances);
  return std::clamp(all, smallest_answer, max_answer);
}

}  // namespace

std::size_t first_uncached_bytes(std::span<const ReadRate> rates) {
  if (rates.empty()) return 0;
  const double memory_rate = rates.back().bytes_per_second;
  std::size_t answer = 0;
  for (std::size_t i = rates.size(); i-- > 0;) {
    if (rates[i].bytes_per_second > 1.25 * memory_rate) {
      return answer;
    }
    answer = rates[i].bytes;
  }
  return 0;
}

std::size_t believable_cache_bytes(std::size_t reported, std::size_t seen) {
  if (reported == 0) return std::max(seen, believed_report);
  if (reported <= believed_report || seen == 0) return reported;
  return std::clamp(seen, believed_report, reported);
}

std::size_t effective_last_level_cache(const CoreList& cores) {
  static std::mutex mutex;
  static std::map<CoreList, std::size_t> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(cores);
  if (found != known.end()) return found->second;
  return known[cores] = probe(cores);
}

}  // namespace gemmtune::cpu
