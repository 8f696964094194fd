#include "select/paired_rounds.h"

#include <cmath>
#include <limits>

namespace gemmtune {

void PairedRounds::add(std::span<const std::size_t> measured,
                       const std::vector<std::vector<double>>& rounds) {
  for (const auto& round : rounds) {
    for (auto& column : columns_) column.push_back(std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 0; i < measured.size() && i < round.size(); ++i) {
      if (std::isfinite(round[i]) && round[i] > 0) columns_[measured[i]].back() = round[i];
    }
  }
}

std::vector<double> PairedRounds::times(std::size_t kernel) const {
  std::vector<double> times = columns_[kernel];
  std::erase_if(times, [](double time) { return std::isnan(time); });
  return times;
}

std::vector<double> PairedRounds::ratios(std::size_t a, std::size_t b) const {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < columns_[a].size(); ++round) {
    const double ratio = columns_[a][round] / columns_[b][round];
    if (!std::isnan(ratio)) ratios.push_back(ratio);
  }
  return ratios;
}

}  // namespace gemmtune
