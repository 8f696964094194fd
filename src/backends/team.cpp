#include "backends/team.h"

#include "base/enumerators.h"

namespace gemmtune {

constexpr EnumeratorNames<Team, 5> team_names({{Team::automatic, "auto"},
                                               {Team::own, "own"},
                                               {Team::openmp, "openmp"},
                                               {Team::callback, "callback"},
                                               {Team::openmp_or_own, "openmp-or-own"}});
std::string_view to_string(Team team) { return team_names.of(team); }

std::optional<Team> parse_any_team(std::string_view text) { return team_names.find(text); }

std::optional<Team> parse_team(std::string_view text) {
  const auto team = parse_any_team(text);
  return team == Team::callback || team == Team::openmp_or_own ? std::nullopt : team;
}

}  // namespace gemmtune
