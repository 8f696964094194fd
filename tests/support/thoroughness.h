// How much a test of GPU kernels compiles and runs: `make test` a sample.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <set>
#include <string>

namespace gemmtune::test {

/// `make soak`: everything.
inline bool is_soak() { return std::getenv("GEMMTUNE_SOAK") != nullptr; }

/// .ci/run: what an hour allows.
inline bool is_thorough() { return is_soak() || std::getenv("GEMMTUNE_THOROUGH") != nullptr; }

/// Cases of a list in turn: the first and each `period`-th behind it, with GEMMTUNE_THOROUGH all.
class Turns {
 public:
  explicit Turns(int period) : period_(period) {}
  bool is_next() { return turn_++ % period_ == 0 || is_thorough(); }

 private:
  int period_;
  int turn_ = 0;
};

/// What the cases of a test program had so far, each as words of what it adds to others.
class Coverage {
 public:
  /// Whether a word is new; always with GEMMTUNE_THOROUGH. All count as covered from then on.
  bool adds(std::initializer_list<std::string> words) {
    bool is_new = is_thorough();
    for (const std::string& word : words) is_new |= covered_.insert(word).second;
    return is_new;
  }

 private:
  std::set<std::string> covered_;
};

}  // namespace gemmtune::test
