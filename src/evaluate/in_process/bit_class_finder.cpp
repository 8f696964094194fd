#include "evaluate/in_process/bit_class_finder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evaluate/in_process/problem_bench.h"
#include "problem/operands.h"

namespace gemmtune {
namespace {

/// The problem with y in float32 and without the bias, which is added to finished sums; none if y is float32 anyway.
std::vector<Problem> with_float_sums(const Problem& problem) {
  Problem sums = problem;
  sums.y_type = DataType::f32;
  sums.bias = false;
  if (problem.y_type == DataType::f32 || !check(sums).ok()) return {problem};
  return {sums, problem};
}

}  // namespace

// What belongs to the rows of a placement, on the device, and where their results go.
struct BitClassFinder::Rows {
  std::unique_ptr<Buffer> x;
  std::unique_ptr<Buffer> x_scale;
  std::unique_ptr<Buffer> topk_ids;
  std::unique_ptr<Buffer> topk_weights;
  std::unique_ptr<Buffer> y;
};

// A kernel, built for one M and type of y after the other.
struct BitClassFinder::Subject {
  const Candidate* candidate = nullptr;
  std::size_t index = 0;
  BitClassBuilder* builder = nullptr;
  BuiltKernel built = {};
  std::unique_ptr<Buffer> workspace = {};
  Result<std::string> difference = std::string();
};

Result<BitClassFinder> BitClassFinder::make(Device& device, const Problem& problem, std::uint64_t seed,
                                            int threads) {
  BitClassFinder finder(device, problem);
  for (int set = 0; set < bit_sets(problem); ++set) {
    GEMMTUNE_TRY(auto host, bit_operands(problem, set, seed, threads));
    GEMMTUNE_TRY(auto weights, DeviceOperands::make(device, bit_problem(problem), Placement::plain));
    GEMMTUNE_RETURN_IF_ERROR(weights.fill(host));
    host.w = {};
    host.w2 = {};
    finder.sets_.push_back({std::move(host), std::make_unique<DeviceOperands>(std::move(weights))});
  }
  return finder;
}

Result<BitClassFinder::Rows> BitClassFinder::place(const Problem& problem, const RowPlacement& placement,
                                                   const Set& set) const {
  const HostOperands host = placed_rows(problem, set.rows, placement.rows);
  Rows rows;
  const auto allocate = [this](std::size_t bytes, std::unique_ptr<Buffer>& buffer) -> Status {
    GEMMTUNE_TRY(buffer, device_->allocate(bytes, Placement::plain));
    return {};
  };
  const auto put = [&](const auto& content, std::unique_ptr<Buffer>& buffer) -> Status {
    if (content.empty()) return {};
    const std::size_t bytes = content.size() * sizeof(content[0]);
    GEMMTUNE_RETURN_IF_ERROR(allocate(bytes, buffer));
    return device_->copy_in(buffer->data(), content.data(), bytes);
  };
  GEMMTUNE_RETURN_IF_ERROR(put(host.x, rows.x));
  GEMMTUNE_RETURN_IF_ERROR(put(host.x_scale, rows.x_scale));
  GEMMTUNE_RETURN_IF_ERROR(put(host.topk_ids, rows.topk_ids));
  GEMMTUNE_RETURN_IF_ERROR(put(host.topk_weights, rows.topk_weights));
  GEMMTUNE_RETURN_IF_ERROR(allocate(static_cast<std::size_t>(operand_shapes(problem).y.bytes()), rows.y));
  return rows;
}

Result<std::string> BitClassFinder::add_run(Subject& subject, const Rows& rows, const Problem& problem,
                                            const RowPlacement& placement, int set) {
  const Kernel& kernel = *subject.built.kernel;
  GEMMTUNE_TRY(auto operands, sets_[static_cast<std::size_t>(set)].weights->operands(kernel.weight_layout()));
  const auto start = [](const std::unique_ptr<Buffer>& buffer) {
    return buffer == nullptr ? nullptr : buffer->data();
  };
  const MatrixShape x = operand_shapes(problem).x;
  const std::int64_t columns = output_columns(problem);
  operands.x = rows.x->data();
  operands.x_scale = start(rows.x_scale);
  operands.topk_ids = static_cast<const std::int32_t*>(start(rows.topk_ids));
  operands.topk_weights = static_cast<const float*>(start(rows.topk_weights));
  operands.ldx = x.line_elements();
  operands.x_batch_stride = x.lines() * operands.ldx;
  operands.y = rows.y->data();
  operands.ldy = columns;
  operands.y_batch_stride = problem.m * columns;
  if (!problem.bias) operands.bias = nullptr;
  // What another kernel left there is no result of this one.
  constexpr int poison = 0xff;
  GEMMTUNE_RETURN_IF_ERROR(device_->fill(rows.y->data(), poison, rows.y->bytes()));
  if (subject.workspace != nullptr)
    GEMMTUNE_RETURN_IF_ERROR(device_->fill(subject.workspace->data(), 0, subject.workspace->bytes()));
  GEMMTUNE_RETURN_IF_ERROR(kernel.run(operands, start(subject.workspace), {}));
  GEMMTUNE_RETURN_IF_ERROR(device_->synchronize());
  const std::vector<std::int64_t> probes = placed_probes(placement);
  const auto row_bytes = static_cast<std::size_t>(bytes_of(problem.y_type, columns));
  std::vector<std::byte> output(static_cast<std::size_t>(problem.batch) * probes.size() * row_bytes);
  std::byte* to = output.data();
  for (std::int64_t batch = 0; batch < problem.batch; ++batch)
    for (const std::int64_t row : probes) {
      const auto from = static_cast<std::size_t>(batch * problem.m + row) * row_bytes;
      GEMMTUNE_RETURN_IF_ERROR(
          device_->copy_out(to, static_cast<const std::byte*>(rows.y->data()) + from, row_bytes));
      to += row_bytes;
    }
  return subject.builder->add({set, &problem, &placement, output});
}

void BitClassFinder::add_runs(std::span<Subject* const> subjects, const Problem& problem, bool all_placements,
                              const BeforeRun& before_run) {
  std::vector<Subject*> running;
  for (Subject* subject : subjects) {
    subject->difference = std::string();
    subject->workspace.reset();
    const Outcome outcome = build_kernel(*device_, problem, *subject->candidate, subject->built);
    if (outcome.kind != OutcomeKind::ok) {
      subject->difference = Status::unsupported("{}", outcome.reason);
      continue;
    }
    if (const std::size_t bytes = subject->built.kernel->workspace_bytes(); bytes > 0) {
      auto workspace = device_->allocate(bytes, Placement::plain);
      if (!workspace.ok()) {
        subject->difference = workspace.status();
        continue;
      }
      subject->workspace = std::move(workspace).value();
    }
    running.push_back(subject);
  }
  for (const RowPlacement& placement : row_placements(problem.m)) {
    if (!all_placements && placement.varied == Varied::neighbours) continue;
    for (int set = 0; set < static_cast<int>(sets_.size()) && !running.empty(); ++set) {
      const auto rows = place(problem, placement, sets_[static_cast<std::size_t>(set)]);
      for (Subject* subject : running) {
        before_run(subject->index);
        subject->difference = rows.ok() ? add_run(*subject, *rows, problem, placement, set)
                                        : Result<std::string>(rows.status());
      }
      std::erase_if(running, [](const Subject* subject) {
        return !subject->difference.ok() || !subject->difference->empty();
      });
    }
  }
}

// What is needed first comes last: it replaces what no core has begun by then.
void BitClassFinder::compile_ahead(std::span<const Candidate> candidates) {
  std::vector<Problem> problems = with_float_sums(problem_);
  std::ranges::reverse(problems);
  for (Problem problem : problems) {
    for (const std::int64_t m : other_bit_ms(problem_.m)) {
      problem.m = m;
      device_->compile_ahead(problem, candidates);
    }
    problem.m = problem_.m;
    device_->compile_ahead(problem, candidates);
  }
}

std::vector<BitClass> BitClassFinder::classes_of(std::span<const Candidate> candidates,
                                                 const BeforeRun& before_run) {
  std::vector<BitClass> classes(candidates.size());
  std::vector<BitClassBuilder> builders(candidates.size());
  // Whether the subject goes on; otherwise the class has a reason, unless the family does not take the problem and need not.
  const auto goes_on = [&](const Subject& subject, bool may_be_refused) {
    const Result<std::string>& found = subject.difference;
    if (found.ok() && found->empty()) return true;
    if (!found.ok() && may_be_refused && found.status().code() == StatusCode::unsupported) return false;
    classes[subject.index].reason = found.ok() ? *found : std::string(found.message());
    return false;
  };
  compile_ahead(candidates);
  for (Problem problem : with_float_sums(problem_)) {
    const bool is_own = problem.y_type == problem_.y_type;
    std::vector<Subject> subjects;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (classes[i].reason.empty()) subjects.push_back({&candidates[i], i, &builders[i]});
    std::vector<Subject*> running;
    for (Subject& subject : subjects) running.push_back(&subject);
    add_runs(running, problem, true, before_run);
    std::erase_if(running, [&](const Subject* subject) { return !goes_on(*subject, !is_own); });
    for (const std::int64_t m : other_bit_ms(problem_.m)) {
      problem.m = m;
      add_runs(running, problem, false, before_run);
      std::erase_if(running, [&](const Subject* subject) {
        return !goes_on(*subject, true) && !classes[subject->index].reason.empty();
      });
    }
  }
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (classes[i].reason.empty()) classes[i].id = builders[i].id();
  return classes;
}

Result<std::string> BitClassFinder::difference(const Candidate& first, std::int64_t first_m,
                                               const Candidate& second, std::int64_t second_m) {
  Result<std::string> found = Status::unsupported("no kernel of both");
  for (Problem problem : with_float_sums(problem_)) {
    BitClassBuilder builder;
    const std::pair<const Candidate*, std::int64_t> runs[] = {{&first, first_m}, {&second, second_m}};
    for (const auto& [candidate, m] : runs) {
      problem.m = m;
      Subject subject{candidate, 0, &builder};
      Subject* const subjects[] = {&subject};
      add_runs(subjects, problem, false, [](std::size_t) {});
      found = subject.difference;
      if (!found.ok()) break;
      if (!found->empty()) return found;
    }
  }
  return found;
}

std::string refuse_bit_class(const KernelFamily& family, const Problem& problem, const Config& config) {
  if (!is_mixture(problem) || !family.sum_order(problem, config).empty()) return {};
  return fmt::format("{}: {} promises no order of sums for {}", bit_phrase::routes, family.name(),
                     config.text());
}

void find_bit_classes(Device& device, const Problem& problem, std::uint64_t seed, int threads,
                      std::span<const VerifiedCandidate> verified,
                      const BitClassFinder::BeforeRun& before_run) {
  std::vector<std::size_t> asked;
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < verified.size(); ++i) {
    Outcome& outcome = *verified[i].outcome;
    if (outcome.kind != OutcomeKind::ok) continue;
    if (!outcome.deterministic) {
      outcome.bits = {{}, bit_phrase::runs};
      continue;
    }
    const Candidate& candidate = *verified[i].candidate;
    std::string refusal = refuse_bit_class(*device.find_family(candidate.family), problem, candidate.config);
    if (!refusal.empty()) {
      outcome.bits = {{}, std::move(refusal)};
      continue;
    }
    asked.push_back(i);
    candidates.push_back(candidate);
  }
  if (asked.empty()) return;
  auto finder = BitClassFinder::make(device, problem, seed, threads);
  std::vector<BitClass> classes(asked.size(), BitClass{{}, std::string(finder.message())});
  if (finder.ok())
    classes = finder->classes_of(candidates, [&](std::size_t candidate) { before_run(asked[candidate]); });
  for (std::size_t i = 0; i < asked.size(); ++i) verified[asked[i]].outcome->bits = std::move(classes[i]);
}

}  // namespace gemmtune
