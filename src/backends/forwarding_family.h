// What decorators of families derive from: every function asks the family behind it, for the problem as that family sees it.
#pragma once

#include "backends/backend.h"

namespace gemmtune {

class ForwardingFamily : public KernelFamily {
 public:
  /// `inner` must outlive this.
  explicit ForwardingFamily(const KernelFamily& inner) : inner_(inner) {}

  std::string_view name() const override { return inner_.name(); }
  int revision() const override { return inner_.revision(); }
  std::string identity() const override { return inner_.identity(); }
  int tie_rank() const override { return inner_.tie_rank(); }
  Status accepts(const Problem& problem) const override { return inner_.accepts(inner_problem(problem)); }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    return inner_.packed_layout(inner_problem(problem));
  }
  Space space(const Problem& problem) const override { return inner_.space(inner_problem(problem)); }
  Space exhaustive_space(const Problem& problem) const override {
    return inner_.exhaustive_space(inner_problem(problem));
  }
  Config default_config(const Problem& problem) const override {
    return inner_.default_config(inner_problem(problem));
  }
  Config fast_config(const Problem& problem) const override {
    return inner_.fast_config(inner_problem(problem));
  }
  Accuracy accuracy(const Problem& problem, const Config& config) const override {
    return inner_.accuracy(inner_problem(problem), config);
  }
  std::string sum_order(const Problem& problem, const Config& config) const override {
    return inner_.sum_order(inner_problem(problem), config);
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    return inner_.build(inner_problem(problem), config);
  }
  std::vector<LauncherParameter> launcher_parameters(const Config& config) const override {
    return inner_.launcher_parameters(config);
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return inner_.predicted_microseconds(inner_problem(problem), config);
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    return inner_.resources(inner_problem(problem), config);
  }
  std::string_view thread_pool() const override { return inner_.thread_pool(); }

 protected:
  /// The problem that the family behind this one is asked about.
  virtual Problem inner_problem(const Problem& problem) const { return problem; }

 private:
  const KernelFamily& inner_;
};

}  // namespace gemmtune
