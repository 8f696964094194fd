// Surrogate: what the times so far let one expect of candidates that were not measured yet.
#pragma once

#include <cstddef>
#include <vector>

#include "search/settings_grid.h"

namespace gemmtune {

/// A Gaussian process over the settings of one family (Rasmussen and Williams 2006, chapter 2), of the
/// logarithm of a time over the cost model's. Two candidates have the covariance
///   1 + trust · q(a) q(b) + additive · mean_j c_j(a, b) + joint · Π_j c_j(a, b),   c_j = exp(−d_j / reach)
/// with d_j their distance on axis j and q the centred logarithm of the cost model: an offset, a correction
/// of the model's slope, effects of single parameters, and what parameters do together. All of it times one
/// variance that is estimated from the observations.
///
/// An observation costs members × observations; nothing is inverted, because the factor of the covariance is
/// kept for all members at once.
class Surrogate {
 public:
  struct Belief {
    double mean = 0;       // of the logarithm of the time in microseconds
    double deviation = 0;  // standard deviation
  };

  /// `predicted`: the cost model's microseconds, one a member; 0: no opinion (those get the mean of the
  /// others). The grid must outlive this.
  Surrogate(const SettingsGrid& grid, const std::vector<double>& predicted);

  /// A measured time. May be repeated for one member: each is an observation with noise of its own.
  void observe(std::size_t member, double microseconds);
  std::size_t observations() const { return observed_.size(); }
  Belief belief(std::size_t member) const;

 private:
  double covariance(std::size_t a, std::size_t b) const;

  const SettingsGrid& grid_;
  std::vector<double> prior_;  // logarithm of the prediction
  std::vector<double> trust_;  // the same, centred
  double centre_ = 0;          // the first observation over its prior
  std::vector<std::size_t> observed_;
  std::vector<std::vector<double>> factor_;  // rows of L⁻¹ K(observed, all members)
  std::vector<double> mean_;                 // of log time − prior − centre
  std::vector<double> variance_;             // in units of the estimated one
  double squares_ = 0;                       // of the whitened observations
};

}  // namespace gemmtune
