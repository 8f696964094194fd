#include "evaluate/replay/recording.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "evaluate/fields_json.h"
#include "evaluate/outcome_json.h"
#include "evaluate/replay/gzip.h"
#include "formats/json_text.h"

namespace gemmtune {

GEMMTUNE_FIELDS(RecordedFamily, name, revision, tie_rank, identity, thread_pool);

namespace {

constexpr int recording_version = 2;  // 2: candidates of screenings are numbers

/// The fields of a policy that change the meaning of a time: those of Policy::text().
constexpr std::array policy_fields = {"cache", "warmup", "iterations", "sample_us"};
/// Those that are written only where they are not the default: older recordings do not have them.
constexpr std::array later_policy_fields = {"init", "launch",        "rotating_mb",   "routing",
                                            "team", "parallel_pass", "processor_time"};

// ---- to JSON

/// Eight digits: a row says four decimals of a time.
double brief(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 7);
  return unit < 1 ? std::round(value / unit) / std::round(1 / unit) : std::round(value / unit) * unit;
}

void make_brief(std::vector<double>& values) {
  for (double& value : values) value = brief(value);
}

Outcome brief(Outcome outcome) {
  make_brief(outcome.microseconds);
  outcome.err_ratio = brief(outcome.err_ratio);
  return outcome;
}

FinalsResult brief(FinalsResult result) {
  for (Outcome& outcome : result.outcomes) outcome = brief(std::move(outcome));
  for (auto& round : result.times) make_brief(round);
  make_brief(result.same_ratios);
  return result;
}

/// The candidates of a problem in the order of its spaces.
std::vector<std::string> numbered_candidates(const RecordedProblem& problem) {
  std::vector<std::string> names;
  for (const RecordedSpace& space : problem.spaces) {
    for (const RecordedConfig& config : space.configs) names.push_back(config.kernel_name);
  }
  return names;
}

Json recorded_json(const Policy& policy) {
  const Json all = policy;
  Json json;
  for (const char* field : policy_fields) json[field] = all.at(field);
  const Json defaults = Policy();
  for (const char* field : later_policy_fields) {
    if (all.at(field) != defaults.at(field)) json[field] = all.at(field);
  }
  return json;
}

Json recorded_json(const RecordedRun& run) {
  return {
      {"line", "recording"},      {"version", recording_version},        {"device", run.device},
      {"families", run.families}, {"policy", recorded_json(run.policy)}, {"err_ratio", run.max_err_ratio}};
}

Json recorded_json(const RecordedSpace& space) {
  if (!space.refusal.empty()) return {{"family", space.family}, {"refusal", space.refusal}};
  Json json = {{"family", space.family},
               {"default", space.default_kernel},
               {"parameters", Json::array()},
               {"configs", Json::array()}};
  if (space.packed) json["packed"] = to_string(*space.packed);
  for (const Parameter& parameter : space.parameters) {
    json["parameters"].push_back({{"key", parameter.key},
                                  {"values", parameter.values},
                                  {"absent", parameter.absent},
                                  {"meaning", parameter.meaning}});
    if (!parameter.range) continue;
    Json& described = json["parameters"].back();
    if (parameter.range->is_any())
      described["open"] = true;
    else
      described["range"] = {parameter.range->first, parameter.range->last, parameter.range->step};
  }
  for (const RecordedConfig& config : space.configs) {
    json["configs"].push_back(Json::array({config.kernel_name, brief(config.predicted), config.resources}));
  }
  return json;
}

Json recorded_json(const RecordedProblem& problem) {
  Json json = {{"line", "problem"},
               {"problem", print(problem.problem)},
               {"calls", problem.calls},
               {"baseline", problem.baseline},
               {"fallback", problem.fallback},
               {"spaces", Json::array()}};
  for (const RecordedSpace& space : problem.spaces) json["spaces"].push_back(recorded_json(space));
  return json;
}

// ---- from JSON. nlohmann throws where a member is missing or of another type; read_line catches that.

Policy policy_from(const Json& json) {
  Json all = Policy();
  for (const char* field : policy_fields) all[field] = json.at(field);
  for (const char* field : later_policy_fields) {
    if (json.contains(field)) all[field] = json.at(field);
  }
  return all.get<Policy>();
}

RecordedRun run_from(const Json& json) {
  RecordedRun run;
  run.device = json.at("device").get<DeviceInfo>();
  run.families = json.at("families").get<std::vector<RecordedFamily>>();
  run.policy = policy_from(json.at("policy"));
  run.device.team = run.policy.team;
  run.max_err_ratio = json.at("err_ratio");
  return run;
}

RecordedSpace space_from(const Json& json) {
  RecordedSpace space;
  space.family = json.at("family");
  space.refusal = json.value("refusal", std::string());
  // Families put their name in front of a refusal once.
  if (space.refusal.starts_with(space.family + ": ")) space.refusal.erase(0, space.family.size() + 2);
  if (!space.refusal.empty()) return space;
  space.default_kernel = json.at("default");
  if (json.contains("packed")) space.packed = parse_weight_layout(json.at("packed").get<std::string>());
  for (const Json& one : json.at("parameters")) {
    std::optional<NumberRange> range;
    if (one.value("open", false)) range = NumberRange();
    if (one.contains("range")) {
      const Json& numbers = one.at("range");
      range = NumberRange{numbers.at(0).get<std::int64_t>(), numbers.at(1).get<std::int64_t>(),
                          std::max<std::int64_t>(1, numbers.at(2).get<std::int64_t>())};
    }
    space.parameters.push_back({one.at("key"), one.at("values").get<std::vector<std::string>>(),
                                one.at("absent"), one.at("meaning"), range});
  }
  for (const Json& one : json.at("configs")) {
    space.configs.push_back({one.at(0), one.at(1), one.at(2)});
  }
  return space;
}

Result<RecordedProblem> problem_from(const Json& json) {
  GEMMTUNE_TRY(auto problem, parse_problem(json.at("problem").get<std::string>()));
  RecordedProblem record;
  record.problem = problem;
  record.calls = json.at("calls");
  record.baseline = json.at("baseline");
  record.fallback = json.at("fallback");
  for (const Json& space : json.at("spaces")) record.spaces.push_back(space_from(space));
  return record;
}

Status no_outcome() { return Status::invalid("expected an outcome (kind, us, err)"); }

/// `candidate` is a name, or a number in the problem's candidates.
Status read_screening(const Json& json, RecordedProblem& problem) {
  auto outcome = outcome_from_json(json.at("outcome"));
  if (!outcome) return no_outcome();
  const Json& candidate = json.at("candidate");
  std::string name;
  if (candidate.is_number()) {
    std::size_t number = candidate;
    for (const RecordedSpace& space : problem.spaces) {
      if (number < space.configs.size()) {
        name = space.configs[number].kernel_name;
        break;
      }
      number -= space.configs.size();
    }
    if (name.empty()) return Status::invalid("candidate {}: the problem has fewer", json_line(candidate));
  } else {
    name = candidate;
  }
  problem.screenings.push_back({std::move(name), std::move(*outcome), json.at("seconds")});
  return {};
}

Status read_finals(const Json& json, RecordedProblem& problem) {
  auto candidates = texts_from_json(json.at("candidates"));
  auto result = finals_from_json(json.at("result"));
  if (!candidates || !result || candidates->size() != result->outcomes.size()) {
    return Status::invalid("expected finals: as many outcomes and times a round as candidates");
  }
  problem.finals.push_back({std::move(*candidates), std::move(*result), json.at("seconds")});
  return {};
}

Status read_neighbour(const Json& json, RecordedProblem& problem) {
  auto outcome = outcome_from_json(json.at("outcome"));
  if (!outcome) return no_outcome();
  problem.neighbours.push_back({json.at("candidate"), json.at("m"), std::move(*outcome), json.at("seconds")});
  return {};
}

/// Reads line after line; problems that were begun twice (a run that went on) are one.
class Reader {
 public:
  Status read_line(const Json& json) {
    if (!began_ && !json.contains("line")) return Status::invalid("no recording of gemmtune");
    try {
      const std::string kind = json.at("line");
      if (!began_) return begin(kind, json);
      if (kind == "recording") return {};  // of the run that went on; the writer has compared them
      if (kind == "problem") return add_problem(json);
      const std::size_t number = json.at("problem");
      if (number >= places_.size()) {
        return Status::invalid("problem {}: only {} stand before", number, places_.size());
      }
      RecordedProblem& problem = recording.problems[places_[number]];
      if (kind == "screen") return read_screening(json, problem);
      if (kind == "finals") return read_finals(json, problem);
      if (kind == "neighbour") return read_neighbour(json, problem);
      return Status::invalid("line '{}': expected problem, screen, finals or neighbour", kind);
    } catch (const Json::exception& error) {
      return Status::invalid("{}", error.what());
    }
  }

  bool began() const { return began_; }
  std::size_t problem_lines() const { return places_.size(); }

  Recording recording;

 private:
  Status begin(const std::string& kind, const Json& json) {
    if (kind != "recording") return Status::invalid("expected the line of a recording of gemmtune first");
    if (const int version = json.at("version"); version > recording_version) {
      return Status::unsupported("recording version {}, this gemmtune knows up to {}", version,
                                 recording_version);
    }
    recording.run = run_from(json);
    began_ = true;
    return {};
  }

  Status add_problem(const Json& json) {
    auto problem = problem_from(json);
    if (!problem.ok()) return problem.status();
    const auto [place, is_new] = known_.try_emplace(print(problem->problem), recording.problems.size());
    if (is_new) recording.problems.push_back(std::move(*problem));
    places_.push_back(place->second);
    return {};
  }

  bool began_ = false;
  std::vector<std::size_t> places_;  // number in the file → index into problems
  std::map<std::string, std::size_t> known_;
};

/// Compressed files are known by their first bytes, whatever their name is.
Result<std::string> read_text(const std::string& path) {
  auto content = read_file(path);
  if (!content.ok() || !is_gzip(*content)) return content;
  auto text = gunzip(*content, max_file_bytes);
  if (!text.ok()) return Status::invalid("{}: {}", path, text.message());
  return text;
}

Status read_all(const std::string& path, Reader& reader) {
  GEMMTUNE_TRY(const auto content, read_text(path));
  std::size_t number = 0;
  for (const std::string_view line : split(content, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    const Json json = parse_json(line);
    if (json.is_discarded() && reader.began()) {
      ++reader.recording.damaged_lines;
      continue;
    }
    if (const Status status = reader.read_line(json); !status.ok()) {
      return {status.code(),
              fmt::format("{}:{}: {}", path, number,
                          json.is_discarded() ? "no recording of gemmtune" : status.message())};
    }
  }
  if (!reader.began()) return Status::invalid("{}: empty, expected a recording", path);
  return {};
}

}  // namespace

Result<Recording> read_recording(const std::string& path) {
  Reader reader;
  GEMMTUNE_RETURN_IF_ERROR(read_all(path, reader));
  return std::move(reader.recording);
}

RecordedRun recorded_run(const Device& device, const Policy& policy, double max_err_ratio) {
  RecordedRun run;
  run.device = device.info();
  for (const KernelFamily* family : device.families()) {
    run.families.push_back({std::string(family->name()), family->revision(), family->tie_rank(),
                            device.family_identity(family->name()), std::string(family->thread_pool())});
  }
  run.policy = policy;
  run.max_err_ratio = max_err_ratio;
  return run;
}

Result<RecordingWriter> RecordingWriter::open(const std::string& path, const RecordedRun& run) {
  const std::string first = json_line(recorded_json(run));
  Reader reader;
  bool goes_on = false;
  if (file_exists(path)) {
    GEMMTUNE_TRY(const auto content, read_file(path));
    goes_on = !content.empty();
    if (is_gzip(content)) {
      return Status::invalid("{}: is compressed; a recording is continued uncompressed (gunzip)", path);
    }
    if (goes_on) {
      GEMMTUNE_RETURN_IF_ERROR(read_all(path, reader));
      if (json_line(recorded_json(reader.recording.run)) != first) {
        return Status::invalid("{}: is a recording of another device, build or policy; choose another file",
                               path);
      }
    }
  }
  GEMMTUNE_TRY(auto file, LineFile::open(path));
  RecordingWriter writer(std::move(file));
  writer.goes_on_ = goes_on;
  writer.problems_ = reader.problem_lines();
  // An empty line ends what a kill may have cut off.
  GEMMTUNE_RETURN_IF_ERROR(writer.file_.write(goes_on ? std::string() : first));
  return writer;
}

Result<std::size_t> RecordingWriter::add(const RecordedProblem& problem) {
  GEMMTUNE_RETURN_IF_ERROR(file_.write(json_line(recorded_json(problem))));
  auto& numbers = numbers_[problems_];
  for (std::string& name : numbered_candidates(problem)) numbers.emplace(std::move(name), numbers.size());
  return problems_++;
}

Status RecordingWriter::add(std::size_t problem, const RecordedScreening& screening) {
  const auto& numbers = numbers_[problem];
  const auto number = numbers.find(screening.candidate);
  return file_.write(json_line(
      Json{{"line", "screen"},
           {"problem", problem},
           {"candidate", number == numbers.end() ? Json(screening.candidate) : Json(number->second)},
           {"outcome", gemmtune::to_json(brief(screening.outcome))},
           {"seconds", brief(screening.seconds)}}));
}

Status RecordingWriter::add(std::size_t problem, const RecordedFinals& finals) {
  return file_.write(json_line(Json{{"line", "finals"},
                                    {"problem", problem},
                                    {"candidates", finals.candidates},
                                    {"result", gemmtune::to_json(brief(finals.result))},
                                    {"seconds", brief(finals.seconds)}}));
}

Status RecordingWriter::add(std::size_t problem, const RecordedNeighbour& neighbour) {
  return file_.write(json_line(Json{{"line", "neighbour"},
                                    {"problem", problem},
                                    {"candidate", neighbour.candidate},
                                    {"m", neighbour.m},
                                    {"outcome", gemmtune::to_json(brief(neighbour.outcome))},
                                    {"seconds", brief(neighbour.seconds)}}));
}

}  // namespace gemmtune
