#include "evaluate/in_process/bit_class_finder.h"

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

// What belongs to the rows of one run, on the device.
struct BitClassFinder::Rows {
  std::unique_ptr<Buffer> x;
  std::unique_ptr<Buffer> x_scale;
  std::unique_ptr<Buffer> topk_ids;
  std::unique_ptr<Buffer> topk_weights;
};

Result<BitClassFinder> BitClassFinder::make(Device& device, const Problem& problem, std::uint64_t seed,
                                            int threads) {
  BitClassFinder finder(device, problem);
  for (int set = 0; set < bit_sets(problem); ++set) {
    auto host = bit_operands(problem, set, seed, threads);
    if (!host.ok()) return host.status();
    auto weights = DeviceOperands::make(device, bit_problem(problem), Placement::plain);
    if (!weights.ok()) return weights.status();
    GEMMTUNE_RETURN_IF_ERROR(weights->fill(*host));
    host->w = {};
    host->w2 = {};
    finder.sets_.push_back(
        {std::move(host).value(), std::make_unique<DeviceOperands>(std::move(weights).value())});
  }
  return finder;
}

Status BitClassFinder::place(Rows& rows, const Problem& problem, const RowPlacement& placement,
                             const Set& set) const {
  const HostOperands host = placed_rows(problem, set.rows, placement.rows);
  const auto put = [this](const auto& content, std::unique_ptr<Buffer>& buffer) -> Status {
    if (content.empty()) return {};
    const std::size_t bytes = content.size() * sizeof(content[0]);
    auto made = device_->allocate(bytes, Placement::plain);
    if (!made.ok()) return made.status();
    buffer = std::move(made).value();
    return device_->copy_in(buffer->data(), content.data(), bytes);
  };
  GEMMTUNE_RETURN_IF_ERROR(put(host.x, rows.x));
  GEMMTUNE_RETURN_IF_ERROR(put(host.x_scale, rows.x_scale));
  GEMMTUNE_RETURN_IF_ERROR(put(host.topk_ids, rows.topk_ids));
  return put(host.topk_weights, rows.topk_weights);
}

Result<std::string> BitClassFinder::add_run(const Kernel& kernel, const Problem& problem,
                                            const RowPlacement& placement, int set,
                                            BitClassBuilder& builder) {
  const Set& own = sets_[static_cast<std::size_t>(set)];
  Rows rows;
  GEMMTUNE_RETURN_IF_ERROR(place(rows, problem, placement, own));
  auto operands = own.weights->operands(kernel.weight_layout());
  if (!operands.ok()) return operands.status();
  const auto start = [](const std::unique_ptr<Buffer>& buffer) {
    return buffer == nullptr ? nullptr : buffer->data();
  };
  const MatrixShape x = operand_shapes(problem).x;
  const std::int64_t columns = output_columns(problem);
  operands->x = rows.x->data();
  operands->x_scale = start(rows.x_scale);
  operands->topk_ids = static_cast<const std::int32_t*>(start(rows.topk_ids));
  operands->topk_weights = static_cast<const float*>(start(rows.topk_weights));
  operands->ldx = x.line_elements();
  operands->x_batch_stride = x.lines() * operands->ldx;
  operands->ldy = columns;
  operands->y_batch_stride = problem.m * columns;
  if (!problem.bias) operands->bias = nullptr;
  const auto bytes = static_cast<std::size_t>(operand_shapes(problem).y.bytes());
  auto y = device_->allocate(bytes, Placement::plain);
  if (!y.ok()) return y.status();
  operands->y = (*y)->data();
  std::unique_ptr<Buffer> workspace;
  if (kernel.workspace_bytes() > 0) {
    auto made = device_->allocate(kernel.workspace_bytes(), Placement::plain);
    if (!made.ok()) return made.status();
    workspace = std::move(made).value();
    GEMMTUNE_RETURN_IF_ERROR(device_->fill(workspace->data(), 0, workspace->bytes()));
  }
  GEMMTUNE_RETURN_IF_ERROR(kernel.run(*operands, start(workspace), {}));
  GEMMTUNE_RETURN_IF_ERROR(device_->synchronize());
  std::vector<std::byte> output(bytes);
  GEMMTUNE_RETURN_IF_ERROR(device_->copy_out(output.data(), (*y)->data(), bytes));
  return builder.add({set, &problem, &placement, output});
}

Result<std::string> BitClassFinder::add_runs(const Candidate& candidate, const Problem& problem,
                                             bool all_placements, BitClassBuilder& builder,
                                             const std::function<void()>& before_run) {
  BuiltKernel built;
  const Outcome outcome = build_kernel(*device_, problem, candidate, built);
  if (outcome.kind != OutcomeKind::ok) return Status::unsupported("{}", outcome.reason);
  before_run();
  for (const RowPlacement& placement : row_placements(problem.m)) {
    if (!all_placements && placement.varied == Varied::neighbours) continue;
    for (int set = 0; set < static_cast<int>(sets_.size()); ++set) {
      auto difference = add_run(*built.kernel, problem, placement, set, builder);
      if (!difference.ok() || !difference->empty()) return difference;
    }
  }
  return std::string();
}

BitClass BitClassFinder::class_of(const Candidate& candidate, const std::function<void()>& before_run) {
  BitClassBuilder builder;
  for (Problem problem : with_float_sums(problem_)) {
    const bool is_own = problem.y_type == problem_.y_type;
    auto own = add_runs(candidate, problem, true, builder, before_run);
    if (!own.ok() && !is_own && own.status().code() == StatusCode::unsupported) continue;
    if (!own.ok()) return {{}, own.message()};
    if (!own->empty()) return {{}, *own};
    for (const std::int64_t m : other_bit_ms(problem_.m)) {
      problem.m = m;
      const auto other = add_runs(candidate, problem, false, builder, before_run);
      if (!other.ok() && other.status().code() == StatusCode::unsupported) continue;
      if (!other.ok()) return {{}, other.message()};
      if (!other->empty()) return {{}, *other};
    }
  }
  return {builder.id(), {}};
}

Result<std::string> BitClassFinder::difference(const Candidate& first, std::int64_t first_m,
                                               const Candidate& second, std::int64_t second_m) {
  Result<std::string> found = Status::unsupported("no kernel of both");
  for (Problem problem : with_float_sums(problem_)) {
    BitClassBuilder builder;
    const std::pair<const Candidate*, std::int64_t> runs[] = {{&first, first_m}, {&second, second_m}};
    for (const auto& [candidate, m] : runs) {
      problem.m = m;
      found = add_runs(*candidate, problem, false, builder, [] {});
      if (!found.ok()) break;
      if (!found->empty()) return found;
    }
  }
  return found;
}

BitClass bit_class_of(Result<BitClassFinder>& finder, const Candidate& candidate, bool is_deterministic,
                      const std::function<void()>& before_run) {
  if (!is_deterministic) return {{}, bit_phrase::runs};
  if (!finder.ok()) return {{}, finder.message()};
  return finder->class_of(candidate, before_run);
}

}  // namespace gemmtune
