// Constants of cost models. A family fits them to kernels that were measured on a card (bench/fit.py) and has a row for each such card. A device
// without a row gets that of the card most like it, in proportion to the bandwidth of its memory and to its clock.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "backends/gpu/driver.h"

namespace gemmtune::gpu {

/// A constant in proportion to the bandwidth of the device's memory: bytes a microsecond, or bytes under way.
struct OfMemory {
  double value = 0;
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator double() const { return value; }
};

/// A constant in proportion to the clock of the device's multiprocessors: cycles, operations or bytes of L2 a microsecond.
struct OfClock {
  double value = 0;
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator double() const { return value; }
};

/// A card, by what its driver states of it (Limits).
struct Card {
  std::string_view name;
  double memory_bytes_per_microsecond = 0;
  double cycles_per_microsecond = 0;
};

template <typename Constants>
struct FittedRow {
  Card card;
  Constants constants;
};

/// visit(name, constant) for each OfMemory, OfClock and double of a struct of constants; those of a member that is such a struct are "member.name".
void visit_constants(auto& constants, auto&& visit, const std::string& prefix = {}) {
  visit_fields(constants, [&](std::string_view name, auto& member) {
    using Member = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, double> || std::is_same_v<Member, OfMemory> ||
                  std::is_same_v<Member, OfClock>) {
      visit(prefix + std::string(name), member);
    } else {
      visit_constants(member, visit, prefix + std::string(name) + '.');
    }
  });
}

/// The constants of the card that is most like the device, with those in proportion to memory or clock scaled by the ratio of both; of a device of
/// which the driver states neither the first row's as they are. The members are listed by visit_fields().
template <typename Constants, std::size_t count>
Constants constants_for(const Limits& device, const FittedRow<Constants> (&rows)[count]) {
  if (device.memory_bytes_per_microsecond <= 0 || device.cycles_per_microsecond <= 0)
    return rows[0].constants;
  const FittedRow<Constants>* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const FittedRow<Constants>& row : rows) {
    const double distance =
        std::abs(std::log(device.memory_bytes_per_microsecond / row.card.memory_bytes_per_microsecond)) +
        std::abs(std::log(device.cycles_per_microsecond / row.card.cycles_per_microsecond));
    if (distance >= least) continue;
    nearest = &row;
    least = distance;
  }
  Constants scaled = nearest->constants;
  visit_constants(scaled, [&](const std::string&, auto& constant) {
    using Type = std::remove_cvref_t<decltype(constant)>;
    if constexpr (std::is_same_v<Type, OfMemory>)
      constant.value *= device.memory_bytes_per_microsecond / nearest->card.memory_bytes_per_microsecond;
    if constexpr (std::is_same_v<Type, OfClock>)
      constant.value *= device.cycles_per_microsecond / nearest->card.cycles_per_microsecond;
  });
  return scaled;
}

}  // namespace gemmtune::gpu
