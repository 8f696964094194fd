// The C++ program of bench/first_run: a linear layer y = x · wᵀ in bf16, as a user's first program calls it.
//
// Reads lines "M N K calls" from stdin; answers with the median microseconds of that many calls, each with another weight, so that
// weights come from memory. "serve SECONDS M N K ...": calls the sizes in turns for so long, and answers with the number of calls.
#include <gemmtune/gemmtune.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
/// Weights of this many bytes are in no cache: twice the last level's (a virtual machine reports what it shares).
std::size_t cold_bytes() {
  const long reported = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::max<std::size_t>(150 << 20, 2 * static_cast<std::size_t>(std::max(reported, 0L)));
}

class Layer {
 public:
  Layer(std::int64_t m, std::int64_t n, std::int64_t k)
      : m_(m), n_(n), k_(k), x_(random(m * k, 1)), y_(static_cast<std::size_t>(m * n)) {
    const auto bytes = static_cast<std::size_t>(n * k * 2);
    const std::size_t count = std::max<std::size_t>(cold_bytes() / bytes + 1, 2);
    for (std::size_t i = 0; i < count; ++i) w_.push_back(random(n * k, i + 2));
  }
  /// Microseconds of one call; negative: it failed.
  double call() {
    const auto& w = w_[next_++ % w_.size()];
    const auto begin = Clock::now();
    const auto status = gemmtune::gemm(gemmtune::bf16(x_.data()), gemmtune::bf16(w.data()),
                                       gemmtune::bf16(y_.data()), m_, n_, k_);
    if (!status) {
      std::fprintf(stderr, "%s\n", status.message().c_str());
      return -1;
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

 private:
  /// bf16 numbers of both signs around 1/64 to 1.
  static std::vector<std::uint16_t> random(std::int64_t count, std::uint64_t seed) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
    std::uint64_t state = seed * 0x9e3779b97f4a7c15U;
    for (auto& value : values) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      value = static_cast<std::uint16_t>((state >> 33 & 0x8000U) | (0x3c80U + (state >> 40 & 0x2ffU)));
    }
    return values;
  }

  std::int64_t m_, n_, k_;
  std::vector<std::uint16_t> x_;
  std::vector<std::uint16_t> y_;
  std::vector<std::vector<std::uint16_t>> w_;
  std::size_t next_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Layers {
 public:
  Layer& operator()(std::int64_t m, std::int64_t n, std::int64_t k) {
    return made_.try_emplace({m, n, k}, m, n, k).first->second;
  }

 private:
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Layer> made_;
};

}  // namespace

int main() {
  Layers layers;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    if (first == "serve") {
      double seconds = 0;
      words >> seconds;
      std::vector<Layer*> all;
      while (words >> m >> n >> k) all.push_back(&layers(m, n, k));
      long calls = 0;
      for (const auto begin = Clock::now();
           std::chrono::duration<double>(Clock::now() - begin).count() < seconds;)
        for (Layer* layer : all) {
          if (layer->call() < 0) return 1;
          ++calls;
        }
      std::printf("%ld\n", calls);
    } else {
      std::size_t calls = 0;
      m = std::strtoll(first.c_str(), nullptr, 10);
      if (!(words >> n >> k >> calls) || m < 1 || calls < 1) {
        std::fprintf(stderr, "%s: expected M N K calls\n", line.c_str());
        return 2;
      }
      Layer& layer = layers(m, n, k);
      std::vector<double> times;
      for (std::size_t i = 0; i <= calls; ++i) {
        const double microseconds = layer.call();
        if (microseconds < 0) return 1;
        if (i > 0) times.push_back(microseconds);  // the first one plans
      }
      std::printf("%.3f\n", median(std::move(times)));
    }
    std::fflush(stdout);
  }
  return 0;
}
