// Which threads run the kernels of a CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gemmtune {

enum class Team : std::uint8_t {
  automatic,      // the OpenMP runtime that the program uses, else our own pool
  own,            // our own pool
  openmp,         // an OpenMP runtime; libgomp is loaded if there is none
  callback,       // the program's parallel_for
  openmp_or_own,  // as openmp, but our own pool if libgomp cannot be loaded
};

/// "auto", "own", "openmp", "callback", "openmp-or-own".
std::string_view to_string(Team team);
std::optional<Team> parse_any_team(std::string_view text);
/// What a user may ask for: auto, own, openmp.
std::optional<Team> parse_team(std::string_view text);

}  // namespace gemmtune
