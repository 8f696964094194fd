#include "select/round_log.h"

#include <cmath>
#include <limits>

namespace gemmtune {

void RoundLog::add(std::span<const std::size_t> who, const std::vector<std::vector<double>>& rounds) {
  for (const auto& round : rounds) {
    for (auto& column : columns_) column.push_back(std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 0; i < who.size() && i < round.size(); ++i) columns_[who[i]].back() = round[i];
  }
}

std::vector<double> RoundLog::times(std::size_t entrant) const {
  std::vector<double> times = columns_[entrant];
  std::erase_if(times, [](double time) { return !std::isfinite(time); });
  return times;
}

std::vector<double> RoundLog::ratios(std::size_t a, std::size_t b) const {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < columns_[a].size(); ++round) {
    const double ratio = columns_[a][round] / columns_[b][round];
    if (std::isfinite(ratio)) ratios.push_back(ratio);
  }
  return ratios;
}

}  // namespace gemmtune
