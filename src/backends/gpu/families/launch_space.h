// A space whose rules are about launch configs: what a config means for a problem on a device.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "candidates/space.h"
#include "candidates/tune_gemm_rules.h"
#include "problem/problem.h"

namespace gemmtune::gpu {

/// The launch config of the config that was asked for last: rules are asked about the same config one after another. Safe from any
/// thread, as copies of a space share it.
template <typename Launch>
class LastLaunch {
 public:
  explicit LastLaunch(std::function<Launch(const Config&)> compute) : compute_(std::move(compute)) {}
  Launch of(const Config& config) {
    const std::lock_guard held(lock_);
    if (!launch_ || !(config_ == config)) {
      launch_ = compute_(config);
      config_ = config;
    }
    return *launch_;
  }

 private:
  std::function<Launch(const Config&)> compute_;
  std::mutex lock_;
  Config config_;
  std::optional<Launch> launch_;
};

/// Parameters and rules of one problem. A rule gets the launch config, computed once for all rules of a config.
template <typename Launch>
class LaunchSpace {
 public:
  LaunchSpace(const Problem& problem, std::function<Launch(const Config&)> launch_config)
      : problem_(problem), last_(std::make_shared<LastLaunch<Launch>>(std::move(launch_config))) {}

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
    const auto asked = [problem = problem_, last = last_,
                        refusal = std::move(refusal)](const Config& config) -> std::string {
      const Launch launch = last->of(config);
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
    const auto of_config = [last = last_, read = std::move(read)](const Config& config) {
      return read(last->of(config));
    };
    for (Constraint& each : tune_gemm_v2_rules(problem_, of_config)) space_.add(std::move(each));
  }

  Space take() { return std::move(space_); }

 private:
  Problem problem_;
  std::shared_ptr<LastLaunch<Launch>> last_;
  Space space_;
};

}  // namespace gemmtune::gpu
