// kernel_times DEVICE ROUNDS [ENERGY_ROUNDS] [csv=FOLDER] [seconds=S] < LINES
//
// Times kernels by name, side by side with the default: interleaved rounds in one process on cold weights,
// after the full check of their results. A line is "M N K" and kernelNames, or FAMILY for a family's default kernel, or FAMILY:COUNT for its
// first COUNT kernels by its cost model, or FAMILY~COUNT for as many spread over that order; with :TEXT
// behind it, of those whose names hold TEXT, with :TEXT+TEXT both. In front of M: op=a16w4 or another operation, x=f16 or another type of x, packed=1 (the weight),
// moe=EXPERTS,TOPK,ACTIVATION,QUANTIZATION behind op=fused_moe, w=fp4 or another type of the weight, dtype=fp8 (with a scale each) or another type of both operands, x_order=N and w_order=N,
// bias=1, of int4 weights group=32, 64, 128 or row and zero_points=1, of mixtures routing=zipf. Prints a row a kernel, the fastest first: median µs, how many times as fast as the default it is, with the 99 %
// interval, what the cost model says. With ENERGY_ROUNDS also, of batches of a second, µs, joules of a launch and watts.
// With csv=FOLDER: no default beside them, and the medians are appended to FOLDER/cost_FAMILY.csv, from which bench/fit.py makes the constants of
// cost models. Families that have rows of a problem there are left out of its line. seconds=S: no line begins after S seconds.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/device_request.h"
#include "base/clock.h"
#include "base/environment.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "measure/statistics.h"

namespace {

using namespace gemmtune;

int fail(const std::string& text) {
  std::fprintf(stderr, "kernel_times: %s\n", text.c_str());
  return 2;
}

/// All of the texts between the '+' of `texts`.
bool has_all(const std::string& name, const std::string& texts) {
  std::istringstream words(texts);
  for (std::string word; std::getline(words, word, '+');)
    if (name.find(word) == std::string::npos) return false;
  return true;
}

std::vector<Candidate> by_model(const KernelFamily& family, const Problem& problem, std::size_t count,
                                bool spread, const std::string& text) {
  std::vector<std::pair<double, Candidate>> all;
  for (const Config& config : family.space(problem).enumerate()) {
    Candidate candidate{std::string(family.name()), family.revision(), config};
    if (!has_all(candidate.kernel_name(), text)) continue;
    all.emplace_back(family.predicted_microseconds(problem, config), std::move(candidate));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Candidate> chosen;
  const std::size_t step = spread ? std::max<std::size_t>(1, all.size() / count) : 1;
  for (std::size_t i = 0; i < all.size() && chosen.size() < count; i += step)
    chosen.push_back(std::move(all[i].second));
  return chosen;
}

Result<Candidate> default_of(const KernelFamily& family, const Problem& problem) {
  GEMMTUNE_RETURN_IF_ERROR(family.accepts(problem));
  return Candidate{std::string(family.name()), family.revision(), family.default_config(problem)};
}

/// Rows of measured kernels, a file a family.
class CostRows {
 public:
  /// `card` is the device's model.
  CostRows(std::string folder, std::string card) : folder_(std::move(folder)), card_(std::move(card)) {}

  /// Whether the family's file had rows of the problem when it was first asked about.
  bool has(const std::string& family, const Problem& problem) {
    auto [problems, is_new] = problems_.try_emplace(family);
    if (is_new) {
      std::ifstream file(path_of(family));
      for (std::string row; std::getline(file, row);) problems->second.insert(row.substr(0, row.find(',')));
    }
    return problems->second.contains(print(problem));
  }
  Status add(const Problem& problem, const Candidate& candidate, double microseconds) {
    const std::string path = path_of(candidate.family);
    std::ofstream file(path, std::ios::app);
    if (file.tellp() == 0) file << "problem,kernel,us,card\n";
    file << fmt::format("{},{},{:.3f},{}\n", print(problem), candidate.kernel_name(), microseconds, card_);
    return file.flush() ? Status() : Status::invalid("{}: expected a file that can be written", path);
  }

 private:
  std::string path_of(const std::string& family) const {
    return fmt::format("{}/cost_{}.csv", folder_, family);
  }

  std::string folder_;
  std::string card_;
  std::map<std::string, std::set<std::string>> problems_;  // by family, as print() writes them
};

/// What a line times.
struct Line {
  Problem problem = default_problem(Operation::a16w16);
  RoutingKind routing = RoutingKind::uniform;
  std::string group;  // of an int4 weight; empty: its default
};

/// A word in front of the sizes.
Status read_setting(const std::string& word, Line& line) {
  Problem& problem = line.problem;
  const std::size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = word.substr(equals + 1);
  const auto type = parse_data_type(value);
  const auto order = parse_order(value);
  const auto routing = parse_routing_kind(value);
  if (key == "dtype" && type) {
    problem.x_type = problem.w_type = *type;
    if (!traits(problem.operation).scale_ab) return {};
    problem.scale_ab = traits(*type).fp8;
    problem.y_type = problem.scale_ab ? DataType::bf16 : *type;
  } else if (key == "x_order" && order) {
    problem.x_order = *order;
  } else if (key == "w_order" && order) {
    problem.w_order = *order;
  } else if (const auto operation = parse_operation(value); key == "op" && operation) {
    problem = default_problem(*operation);
  } else if (key == "x" && type) {
    problem.x_type = *type;
    if (traits(problem.operation).y_as_x) problem.y_type = *type;
  } else if (key == "w" && type) {
    problem.w_type = *type;
  } else if (key == "moe") {
    std::istringstream fields(value);
    std::string activation;
    std::string quantization;
    char comma = 0;
    if (!(fields >> problem.moe.experts >> comma >> problem.moe.topk >> comma) ||
        !std::getline(fields, activation, ',') || !std::getline(fields, quantization) ||
        !parse_activation(activation) || !parse_quant_type(quantization))
      return Status::invalid("{}: expected moe=EXPERTS,TOPK,ACTIVATION,QUANTIZATION", word);
    problem.moe.activation = *parse_activation(activation);
    problem.moe.quant_type = *parse_quant_type(quantization);
    problem.moe.gated = true;
  } else if (key == "routing" && routing && *routing != RoutingKind::trace) {
    line.routing = *routing;
  } else if (key == "bias" && value == "1") {
    problem.bias = true;
  } else if (key == "group") {
    line.group = value;
  } else if (key == "zero_points" && value == "1") {
    problem.zero_points = true;
  } else if (key == "packed" && value == "1") {
    problem.weight_layout = WeightLayout::any;
  } else {
    return Status::invalid(
        "{}: expected dtype=TYPE, x_order=T|N, w_order=T|N, op=OPERATION, x=TYPE, w=TYPE, moe=…, "
        "routing=uniform|zipf, group=…, zero_points=1, bias=1 or packed=1",
        word);
  }
  return {};
}

Status print_energy(Evaluator& evaluator, const Problem& problem, const std::vector<Candidate>& candidates,
                    int rounds) {
  const auto result = evaluator.energy(problem, candidates, rounds);
  if (!result.ok()) return result.status();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (result->outcomes[i].kind != OutcomeKind::ok) continue;
    std::vector<double> times, joules;
    for (std::size_t round = 0; round < result->times.size(); ++round) {
      times.push_back(result->times[round][i]);
      joules.push_back(result->joules[round][i]);
    }
    fmt::print("{} {} {} {:8.2f} us {:.4f} J {:.0f} W {}\n", problem.m, problem.n, problem.k, median(times),
               median(joules), median(joules) / median(times) * 1e6, candidates[i].kernel_name());
  }
  std::fflush(stdout);
  return {};
}

Status time_line(Device& device, Evaluator& evaluator, const std::string& line, int rounds, int energy_rounds,
                 CostRows* cost_rows) {
  std::istringstream words(line);
  Line settings;
  Problem& problem = settings.problem;
  std::string word;
  if (!(words >> word)) return {};
  for (; word.find('=') != std::string::npos; words >> word)
    GEMMTUNE_RETURN_IF_ERROR(read_setting(word, settings));
  std::istringstream first(word);
  if (!(first >> problem.m) || !(words >> problem.n >> problem.k))
    return Status::invalid("expected M N K and kernels");
  if (!settings.group.empty() && !parse_group(settings.group, problem))
    return Status::invalid("group={}: expected a number or row", settings.group);
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  std::vector<Candidate> candidates;
  if (cost_rows == nullptr) {
    const auto baseline = device.baseline(problem);
    if (baseline.ok()) candidates.push_back(*baseline);
  }
  while (words >> word) {
    const std::size_t colon = word.find_first_of(":~");
    if (cost_rows != nullptr && cost_rows->has(word.substr(0, colon), problem)) continue;
    if (colon == std::string::npos) {
      const KernelFamily* family = device.find_family(word);
      auto candidate = family == nullptr ? device.resolve(word, problem) : default_of(*family, problem);
      if (!candidate.ok()) {
        fmt::print("{} {} {} {}: {}\n", problem.m, problem.n, problem.k, word, candidate.message());
        continue;
      }
      candidates.push_back(std::move(*candidate));
      continue;
    }
    const KernelFamily* family = device.find_family(word.substr(0, colon));
    if (family == nullptr) return Status::invalid("no family {}", word.substr(0, colon));
    std::size_t wanted = 0;
    std::istringstream counted(word.substr(colon + 1));
    if (!(counted >> wanted) || wanted == 0)
      return Status::invalid("{}: expected a count behind '{}'", word, word[colon]);
    const std::size_t second = word.find(':', colon + 1);
    const std::string text = second == std::string::npos ? std::string() : word.substr(second + 1);
    for (Candidate& one : by_model(*family, problem, wanted, word[colon] == '~', text))
      if (std::find(candidates.begin(), candidates.end(), one) == candidates.end())
        candidates.push_back(std::move(one));
  }
  if (candidates.empty()) return {};
  evaluator.announce(problem, candidates);
  const auto result = settings.routing == RoutingKind::uniform
                          ? evaluator.finals(problem, candidates, rounds)
                          : evaluator.finals_on(settings.routing, problem, candidates, rounds);
  if (!result.ok()) return result.status();
  struct Row {
    double median_us, ratio;
    std::string text;
  };
  std::vector<Row> rows;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Outcome& outcome = result->outcomes[i];
    const std::string name = candidates[i].kernel_name();
    if (outcome.kind != OutcomeKind::ok) {
      rows.push_back({1e9, 0, fmt::format("{} {}: {}", name, to_string(outcome.kind), outcome.reason)});
      continue;
    }
    std::vector<double> times, ratios;
    for (const auto& round : result->times) {
      times.push_back(round[i]);
      ratios.push_back(round[0] / round[i]);
    }
    const KernelFamily* family = device.find_family(candidates[i].family);
    const Interval interval = median_interval(ratios, 0.99);
    if (cost_rows != nullptr) GEMMTUNE_RETURN_IF_ERROR(cost_rows->add(problem, candidates[i], median(times)));
    rows.push_back({median(times), median(ratios),
                    fmt::format("{:8.2f} {:.3f} [{:.3f} {:.3f}] model {:8.2f} {}", median(times),
                                median(ratios), interval.low, interval.high,
                                family->predicted_microseconds(problem, candidates[i].config), name)});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.median_us < b.median_us; });
  for (const Row& row : rows) fmt::print("{} {} {} {}\n", problem.m, problem.n, problem.k, row.text);
  std::fflush(stdout);
  return energy_rounds > 0 ? print_energy(evaluator, problem, candidates, energy_rounds) : Status();
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> positional;
  std::string folder;
  double seconds = 0;
  for (const std::string& word : std::vector<std::string>(words + 1, words + count)) {
    if (word.starts_with("csv=")) {
      folder = word.substr(4);
    } else if (word.starts_with("seconds=")) {
      seconds = std::atof(word.c_str() + 8);
    } else {
      positional.push_back(word);
    }
  }
  const int rounds = positional.size() == 2 || positional.size() == 3 ? std::atoi(positional[1].c_str()) : 0;
  const int energy_rounds = positional.size() == 3 ? std::atoi(positional[2].c_str()) : 0;
  if (rounds < 1 || (positional.size() == 3 && energy_rounds < 1))
    return fail(
        "expected DEVICE ROUNDS [ENERGY_ROUNDS] [csv=FOLDER] [seconds=S], and lines on standard input");
  const auto request = device_request({.text = positional[0]}, read_environment());
  if (!request.ok()) return fail(request.message());
  auto device = open_device(request->text.substr(0, request->text.find(':')), *request);
  if (!device.ok()) return fail(device.message());
  InProcessOptions options;
  options.reference_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  InProcessEvaluator evaluator(**device, options);
  std::optional<CostRows> cost_rows;
  if (!folder.empty()) cost_rows.emplace(folder, (*device)->info().model);
  int code = 0;
  std::string line;
  const double begin = steady_seconds();
  while (std::getline(std::cin, line)) {
    if (seconds > 0 && steady_seconds() - begin > seconds) {
      fmt::print("cut off after {} s\n", seconds);
      break;
    }
    if (const Status status =
            time_line(**device, evaluator, line, rounds, energy_rounds, cost_rows ? &*cost_rows : nullptr);
        !status.ok())
      code = fail(fmt::format("{}: {}", line, status.message()));
  }
  return code;
}
