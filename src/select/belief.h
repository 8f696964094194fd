// Whether times of finals may be believed: they are compared with the other times of the same kernels in the run, and
// with what the machine can do. Noise that lasts through all rounds of one call passes every test of these rounds.
#pragma once

#include <optional>
#include <string>

namespace gemmtune {

/// Microseconds of the default kernel and of the kernel that it is compared with; 0: not known.
struct PairTimes {
  double default_us = 0;
  double kernel_us = 0;
  double ratio() const { return kernel_us > 0 ? default_us / kernel_us : 0; }
};

/// All that a run knows of a pair.
struct PairEvidence {
  PairTimes rounds;                // of the rounds that decide
  PairTimes screened;              // medians of screening
  PairTimes early;                 // of its first samples
  double screening_deviation = 0;  // of the logarithm of one sample; 0: screening is not asked who is faster
  std::optional<double> other_ratio;  // of rounds of another call
  double roof_microseconds = 0;       // FinalsResult::roof_microseconds
};

/// Why the times of the pair are measured again; empty if nothing speaks against them.
std::string doubt_of(const PairEvidence& evidence);

/// Why the kernel may not win although rounds say so: their ratio does not agree with that of screening, or of the first
/// samples of it, and by those it was not ahead of the default by more than screening varies. Rounds that follow one
/// another see one state of the machine, screening saw others.
std::string doubt_of_win(const PairEvidence& evidence);

/// Two measurings of one kernel that count as one: within 20 %.
bool agree(double a, double b);
bool agree(const PairTimes& a, const PairTimes& b);

}  // namespace gemmtune
