#include "search/surrogate.h"

#include <algorithm>
#include <cmath>

namespace gemmtune {
namespace {

// Weights of the covariance's terms. They were chosen on recorded spaces; results depend little on them.
constexpr double trust = 0.25;
constexpr double additive = 0.6;
constexpr double joint = 0.4;
constexpr double reach = 0.7;  // in widths of an axis
constexpr double offset = 1.0;
constexpr double noise = 0.1;  // variance of an observation, in units of the signal's

// The variance's own prior: this many observations of a standard deviation of 20 %.
constexpr double prior_observations = 4;
constexpr double prior_variance = 0.04;

}  // namespace

Surrogate::Surrogate(const SettingsGrid& grid, const std::vector<double>& predicted)
    : grid_(grid), prior_(predicted.size()), mean_(predicted.size(), 0) {
  double sum = 0;
  double count = 0;
  for (const double time : predicted) {
    if (time <= 0) continue;
    sum += std::log(time);
    count += 1;
  }
  const double middle = count > 0 ? sum / count : 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    prior_[i] = predicted[i] > 0 ? std::log(predicted[i]) : middle;
    trust_.push_back(prior_[i] - middle);
    variance_.push_back(covariance(i, i));
  }
}

double Surrogate::covariance(std::size_t a, std::size_t b) const {
  const auto axes = static_cast<double>(std::max<std::size_t>(1, grid_.axes()));
  double sum = grid_.axes() == 0 ? 1 : 0;
  double exponent = 0;
  for (std::size_t axis = 0; axis < grid_.axes(); ++axis) {
    const double distance = grid_.distance(axis, a, b);
    sum += std::exp(-distance / reach);
    exponent += distance / reach;
  }
  return offset + trust * trust_[a] * trust_[b] + additive * sum / axes + joint * std::exp(-exponent);
}

void Surrogate::observe(std::size_t member, double microseconds) {
  if (observed_.empty()) centre_ = std::log(microseconds) - prior_[member];
  std::vector<double> row(prior_.size());
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = covariance(member, i);
  for (const std::vector<double>& earlier : factor_) {
    const double share = earlier[member];
    if (share == 0) continue;
    for (std::size_t i = 0; i < row.size(); ++i) row[i] -= share * earlier[i];
  }
  const double pivot = std::sqrt(std::max(row[member], 0.0) + noise);
  const double surprise = (std::log(microseconds) - prior_[member] - centre_ - mean_[member]) / pivot;
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] /= pivot;
    mean_[i] += row[i] * surprise;
    variance_[i] -= row[i] * row[i];
  }
  squares_ += surprise * surprise;
  factor_.push_back(std::move(row));
  observed_.push_back(member);
}

Surrogate::Belief Surrogate::belief(std::size_t member) const {
  const auto count = static_cast<double>(observed_.size());
  const double scale = (squares_ + prior_observations * prior_variance) / (count + prior_observations);
  return {prior_[member] + centre_ + mean_[member], std::sqrt(std::max(variance_[member], 0.0) * scale)};
}

}  // namespace gemmtune
