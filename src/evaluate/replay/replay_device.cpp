#include "evaluate/replay/replay_device.h"

#include <set>

namespace gemmtune {
namespace {

Status no_machine() { return Status::unsupported("a replay has no machine"); }

Config config_of(const std::string& kernel_name, const std::vector<Parameter>& parameters) {
  std::vector<std::string> keys;
  for (const Parameter& parameter : parameters) keys.push_back(parameter.key);
  const auto candidate = parse_kernel_name(kernel_name, keys);
  return candidate.ok() ? candidate->config : Config();
}

/// The text of the first `count` settings.
std::string beginning(const Config& config, std::size_t count) {
  Config begun;
  for (const auto& [key, value] : config.settings()) {
    if (begun.settings().size() == count) break;
    begun.set(key, value);
  }
  return begun.text();
}

/// What a family returned for one problem, indexed for look-ups.
struct Answers {
  const RecordedSpace* space = nullptr;
  Config default_config;
  std::map<std::string, const RecordedConfig*> configs;  // by Config::text()
  std::set<std::string> beginnings;                      // of these, for enumeration
};

class ReplayFamily final : public LeafFamily {
 public:
  ReplayFamily(const RecordedFamily& family, const std::vector<RecordedProblem>& problems) : family_(family) {
    for (const RecordedProblem& problem : problems) {
      for (const RecordedSpace& space : problem.spaces) {
        if (space.family == family.name) answers_.emplace(print(problem.problem), answers_of(space));
      }
    }
  }

  std::string_view name() const override { return family_.name; }
  int revision() const override { return family_.revision; }
  std::string identity() const override { return family_.identity; }
  int tie_rank() const override { return family_.tie_rank; }
  std::string_view thread_pool() const override { return family_.thread_pool; }

  Status accepts(const Problem& problem) const override {
    const Answers* answers = find(problem);
    if (answers == nullptr) return Status::unsupported("the problem is not in the recording");
    return answers->space->refusal.empty() ? Status() : Status::unsupported("{}", answers->space->refusal);
  }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    const Answers* answers = find(problem);
    return answers == nullptr ? std::nullopt : answers->space->packed;
  }
  Space space(const Problem& problem) const override {
    Space space;
    const Answers* answers = find(problem);
    if (answers == nullptr) return space;
    std::size_t count = 0;
    for (const Parameter& parameter : answers->space->parameters) {
      space.add(parameter);
      ++count;
      space.add(Constraint{"recorded",
                           [answers, count](const Config& config) {
                             return answers->beginnings.contains(beginning(config, count))
                                        ? ""
                                        : "it was not in the space";
                           },
                           Rule::search,
                           {parameter.key}});
    }
    space.add(Constraint{"recorded",
                         [answers](const Config& config) {
                           return answers->configs.contains(config.text()) ? "" : "it was not in the space";
                         },
                         Rule::search});
    return space;
  }
  Config default_config(const Problem& problem) const override {
    const Answers* answers = find(problem);
    return answers == nullptr ? Config() : answers->default_config;
  }
  Result<std::unique_ptr<Kernel>> build(const Problem&, const Config&) const override { return no_machine(); }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    const RecordedConfig* recorded = find(problem, config);
    return recorded == nullptr ? 0 : recorded->predicted;
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    const RecordedConfig* recorded = find(problem, config);
    return recorded == nullptr ? 0 : recorded->resources;
  }

 private:
  static Answers answers_of(const RecordedSpace& space) {
    Answers answers;
    answers.space = &space;
    answers.default_config = config_of(space.default_kernel, space.parameters);
    for (const RecordedConfig& config : space.configs) {
      const Config full = config_of(config.kernel_name, space.parameters);
      answers.configs.emplace(full.text(), &config);
      for (std::size_t count = 1; count <= full.settings().size(); ++count)
        answers.beginnings.insert(beginning(full, count));
    }
    return answers;
  }
  const Answers* find(const Problem& problem) const {
    const auto found = answers_.find(print(problem));
    return found == answers_.end() ? nullptr : &found->second;
  }
  const RecordedConfig* find(const Problem& problem, const Config& config) const {
    const Answers* answers = find(problem);
    if (answers == nullptr) return nullptr;
    const auto found = answers->configs.find(config.text());
    return found == answers->configs.end() ? nullptr : found->second;
  }

  const RecordedFamily& family_;
  std::map<std::string, Answers> answers_;  // by problem text
};

}  // namespace

ReplayDevice::ReplayDevice(const Recording& recording) : recording_(recording) {
  for (const RecordedProblem& problem : recording.problems) problems_[print(problem.problem)] = &problem;
  for (const RecordedFamily& family : recording.run.families) {
    families_.push_back(std::make_unique<ReplayFamily>(family, recording.problems));
    pointers_.push_back(families_.back().get());
  }
}

ReplayDevice::~ReplayDevice() = default;

const RecordedProblem* ReplayDevice::find(const Problem& problem) const {
  const auto found = problems_.find(print(problem));
  return found == problems_.end() ? nullptr : found->second;
}

Result<Candidate> ReplayDevice::candidate_of(const std::string& kernel_name, const Problem& problem) const {
  const auto name = family_of_kernel_name(kernel_name);
  const KernelFamily* family = name ? find_family(*name) : nullptr;
  if (family == nullptr) return Status::not_found("'{}' is of no family of the recording", kernel_name);
  return parse_kernel_name(kernel_name, family->space(problem).keys());
}

Result<Candidate> ReplayDevice::baseline(const Problem& problem) const {
  const RecordedProblem* recorded = find(problem);
  if (recorded == nullptr || recorded->baseline.empty()) {
    return Status::not_found("the recording has no default kernel for {}", print(problem));
  }
  return candidate_of(recorded->baseline, problem);
}

Result<Candidate> ReplayDevice::fallback(const Problem& problem) const {
  const RecordedProblem* recorded = find(problem);
  if (recorded == nullptr || recorded->fallback.empty()) {
    return Status::not_found("the recording has no fallback for {}", print(problem));
  }
  return candidate_of(recorded->fallback, problem);
}

Result<std::unique_ptr<Buffer>> ReplayDevice::allocate(std::size_t, Placement) { return no_machine(); }
Status ReplayDevice::copy_in(void*, const void*, std::size_t) { return no_machine(); }
Status ReplayDevice::copy_out(void*, const void*, std::size_t) { return no_machine(); }
Status ReplayDevice::fill(void*, int, std::size_t) { return no_machine(); }
Result<std::size_t> ReplayDevice::packed_bytes(const Problem&, WeightLayout) const { return no_machine(); }
Status ReplayDevice::pack_weight(const Problem&, WeightLayout, const void*, void*) { return no_machine(); }
Result<double> ReplayDevice::sample(const SampleRequest&) { return no_machine(); }

}  // namespace gemmtune
