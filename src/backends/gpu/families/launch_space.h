// A space whose rules are about launch configs: what a config means for a problem on a device.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "candidates/space.h"
#include "candidates/tune_gemm_rules.h"
#include "problem/problem.h"

namespace gemmtune::gpu {

/// Parameters and rules of one problem. A rule gets the launch config, computed once for all rules of a config.
template <typename Launch>
class LaunchSpace {
 public:
  LaunchSpace(const Problem& problem, std::function<Launch(const Config&)> launch_config)
      : problem_(problem), launch_config_(std::move(launch_config)) {}

  const Problem& problem() const { return problem_; }
  void add(Parameter parameter) { space_.add(std::move(parameter)); }
  void add(Constraint constraint) { space_.add(std::move(constraint)); }
  void add(std::vector<Parameter> parameters) {
    for (Parameter& parameter : parameters) space_.add(std::move(parameter));
  }

  /// `refusal(launch)`, `refusal(problem, launch)` or `refusal(problem, config, launch)`: empty, or the reason. `reads` and `on` as of a
  /// Constraint.
  template <typename Refusal>
  void rule(std::string name, Rule kind, Refusal refusal, std::vector<std::string> reads = {},
            bool on = true) {
    const auto asked = [problem = problem_, compute = launch_config_,
                        refusal = std::move(refusal)](const AskedConfig& config) -> std::string {
      const Launch& launch = config.computed<Launch>(compute);
      static_cast<void>(problem);  // of a refusal that asks the launch config alone
      if constexpr (std::is_invocable_v<const Refusal&, const Launch&>) {
        return refusal(launch);
      } else if constexpr (std::is_invocable_v<const Refusal&, const Problem&, const Launch&>) {
        return refusal(problem, launch);
      } else {
        return refusal(problem, config, launch);
      }
    };
    space_.add(Constraint{std::move(name), asked, kind, std::move(reads), on});
  }

  /// The rules of tune_gemm, off; `read` says what a launch config is in its terms.
  void add_tune_gemm_rules(std::function<TuneGemmConfig(const Launch&)> read) {
    const auto of_config = [compute = launch_config_, read = std::move(read)](const AskedConfig& config) {
      return read(config.computed<Launch>(compute));
    };
    for (Constraint& each : tune_gemm_v2_rules(problem_, of_config)) space_.add(std::move(each));
  }

  Space take() { return std::move(space_); }

 private:
  Problem problem_;
  std::function<Launch(const Config&)> launch_config_;
  Space space_;
};

}  // namespace gemmtune::gpu
