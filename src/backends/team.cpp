#include "backends/team.h"

namespace gemmtune {

std::string_view to_string(Team team) {
  switch (team) {
    case Team::automatic:
      return "auto";
    case Team::own:
      return "own";
    case Team::openmp:
      return "openmp";
    case Team::callback:
      return "callback";
    case Team::openmp_or_own:
      return "openmp-or-own";
  }
  return "?";
}

std::optional<Team> parse_any_team(std::string_view text) {
  for (const Team team : {Team::automatic, Team::own, Team::openmp, Team::callback, Team::openmp_or_own}) {
    if (to_string(team) == text) return team;
  }
  return std::nullopt;
}

std::optional<Team> parse_team(std::string_view text) {
  const auto team = parse_any_team(text);
  return team == Team::callback || team == Team::openmp_or_own ? std::nullopt : team;
}

}  // namespace gemmtune
