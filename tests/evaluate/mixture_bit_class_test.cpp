// Bit classes of mixtures: kernels whose bits of a token depend on the other tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "evaluate/in_process/in_process_evaluator.h"
#include "problem/mixture_routes.h"
#include "support/elements.h"
#include "support/fake_device.h"
#include "support/operation_problems.h"
#include "verify/bit_class.h"

namespace gemmtune::mixture_bit_class_test {
namespace {

using ::testing::AnyOf;
using testing::FakeDevice;
using testing::FakeRun;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::load_row;
using ::testing::StartsWith;
using testing::store;

using Row = std::vector<float>;

/// A row of the first product: of which call it is, and which tokens its expert has before it.
struct ExpertRow {
  std::int64_t m = 0;
  std::vector<Row> before;
};
using Sum = std::function<float(const ExpertRow& row, const Row& x, const Row& w)>;

float sum_of(const Row& x, const Row& w, std::size_t from, std::size_t to, float start = 0) {
  for (std::size_t k = from; k < to; ++k) start += x[k] * w[k];
  return start;
}

float in_parts(const Row& x, const Row& w, std::size_t parts) {
  float sum = 0;
  for (std::size_t part = 0; part < parts; ++part)
    sum += sum_of(x, w, part * x.size() / parts, (part + 1) * x.size() / parts);
  return sum;
}

float chain(const ExpertRow&, const Row& x, const Row& w) { return in_parts(x, w, 1); }

float split_by_m(const ExpertRow& row, const Row& x, const Row& w) {
  return in_parts(x, w, row.m < 8 ? 4 : 1);
}

/// Every fourth row of an expert goes through another loop.
float other_tail(const ExpertRow& row, const Row& x, const Row& w) {
  return in_parts(x, w, row.before.size() % 4 == 3 ? 3 : 1);
}

/// The accumulator still holds the expert's row before, which is taken away at the end.
float with_neighbour(const ExpertRow& row, const Row& x, const Row& w) {
  if (row.before.empty()) return chain(row, x, w);
  const float other = chain(row, row.before.back(), w);
  return sum_of(x, w, 0, x.size(), other) - other;
}

/// A mixture without gates whose first product is added by `sum`.
FakeRun run_of(const Sum& sum) {
  return [sum](const Problem& problem, const Operands& operands, void*) {
    const auto inter = static_cast<std::size_t>(problem.n);
    const auto model = static_cast<std::size_t>(problem.k);
    const MixtureRoutes routes(problem.moe, operands.topk_ids, operands.topk_weights);
    std::vector<ExpertRow> experts(static_cast<std::size_t>(problem.moe.experts));
    Row x(model), w1(model), w2(inter), hidden(inter);
    for (std::int64_t token = 0; token < problem.m; ++token) {
      load_row(problem.x_type, operands.x, token * operands.ldx, x);
      Row y(model);
      for (std::int64_t pair = token * problem.moe.topk; pair < (token + 1) * problem.moe.topk; ++pair) {
        const std::int32_t expert = routes.expert(pair);
        if (expert == empty_slot) continue;
        ExpertRow& row = experts[static_cast<std::size_t>(expert)];
        row.m = problem.m;
        for (std::size_t n = 0; n < inter; ++n) {
          load_row(problem.w_type, operands.w,
                   (expert * problem.n + static_cast<std::int64_t>(n)) * problem.k, w1);
          const float gate = sum(row, x, w1);
          hidden[n] = gate / (1 + std::exp(-gate));
        }
        row.before.push_back(x);
        for (std::size_t k = 0; k < model; ++k) {
          load_row(problem.w_type, operands.w2,
                   (expert * problem.k + static_cast<std::int64_t>(k)) * problem.n, w2);
          y[k] += routes.weight(pair) * sum_of(hidden, w2, 0, inter);
        }
      }
      for (std::size_t k = 0; k < model; ++k)
        store(problem.y_type, operands.y, token * operands.ldy + static_cast<std::int64_t>(k), y[k]);
    }
  };
}

BitClass class_of(std::int64_t m, const Sum& sum, const std::string& promise = "in a chain") {
  Problem problem =
      testing_problems::moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {m, 24, 88});
  problem.moe.gated = false;
  problem.moe.activation = Activation::silu;
  FakeDevice device;
  const Candidate candidate = device.add({.name = "experts", .run = run_of(sum), .sum_order = promise});
  InProcessOptions options;
  options.bit_classes = true;
  InProcessEvaluator evaluator(device, options);
  const Outcome outcome = evaluator.check_neighbour_m(problem, candidate, m);
  EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
  return outcome.bits;
}

TEST(MixtureBitClass, one_order_of_sums_is_one_class_at_every_m) {
  const std::string first = class_of(1, chain).id;
  EXPECT_THAT(first, StartsWith("bf16-"));
  for (const std::int64_t m : {7, 33}) EXPECT_EQ(class_of(m, chain).id, first) << "M = " << m;
}

TEST(MixtureBitClass, a_split_that_depends_on_m_has_none) {
  const BitClass bits = class_of(33, split_by_m);
  EXPECT_THAT(bits.id, IsEmpty());
  EXPECT_THAT(bits.reason, StartsWith(bit_phrase::rows));
  EXPECT_THAT(bits.reason, HasSubstr("M = 1, row 0, element "));
}

TEST(MixtureBitClass, a_tail_of_an_experts_rows_with_another_sum_has_none) {
  const BitClass bits = class_of(35, other_tail);
  EXPECT_THAT(bits.id, IsEmpty());
  EXPECT_THAT(bits.reason, AnyOf(StartsWith(bit_phrase::neighbours), StartsWith(bit_phrase::position)));
}

TEST(MixtureBitClass, a_neighbours_row_in_the_accumulator_has_none) {
  const BitClass bits = class_of(33, with_neighbour);
  EXPECT_THAT(bits.id, IsEmpty());
  EXPECT_THAT(bits.reason, StartsWith(bit_phrase::neighbours));
}

TEST(MixtureBitClass, without_a_promise_there_is_none) {
  const BitClass bits = class_of(7, chain, "");
  EXPECT_THAT(bits.id, IsEmpty());
  EXPECT_THAT(bits.reason, StartsWith(bit_phrase::routes));
  EXPECT_THAT(bits.reason, HasSubstr("experts promises no order of sums"));
}

}  // namespace
}  // namespace gemmtune::mixture_bit_class_test
