// Random legal and damaged rows of tuned files of every operation, through the C functions, between guard
// pages: whatever a file says, a plan runs right. GEMMTUNE_SOAK=1 draws 40,000 rows; GEMMTUNE_SEED begins with
// another seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "base/rounding.h"
#include "capi/c_support.h"
#include "formats/aiter/tuned_csv.h"
#include "resolve/candidate_list.h"
#include "support/c_problem.h"
#include "support/cpu_context.h"
#include "support/fenced_operands.h"
#include "support/operation_problems.h"
#include "support/temporary_folder.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune::hostile_rows_test {
namespace {

int rows() { return std::getenv("GEMMTUNE_SOAK") != nullptr ? 40000 : 500; }

std::uint64_t seed_of_rows() { return test::seed_or(3); }

/// Every operation with each of its types.
const std::vector<Problem>& kinds() {
  static const std::vector<Problem> all = [] {
    const testing_problems::Shape shape{1, 32, 32};
    auto list = testing_problems::dense_problems(shape);
    const auto mixtures = testing_problems::mixtures(shape);
    list.insert(list.end(), mixtures.begin(), mixtures.end());
    for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
      for (int often = 0; often < 3; ++often) {
        list.push_back(default_problem(Operation::a16w16));
        list.back().x_type = list.back().w_type = list.back().y_type = type;
      }
    }
    return list;
  }();
  return all;
}

/// A third of the weights are packed, where their operation and a CPU (no mixture of experts) allow it.
void draw_layout(Problem& problem, Random& random) {
  if (random.below(3) != 0 || is_mixture(problem)) return;
  Problem packed = problem;
  const bool tiles = random.below(2) == 0 && problem.operation != Operation::a16w16;
  if (tiles) {
    packed.n = round_up(packed.n, std::int64_t{16});
    packed.k = round_up(packed.k, std::int64_t{64});
  }
  const WeightLayout layout = tiles ? WeightLayout::aiter16x16 : WeightLayout::panel16;
  if (testing_problems::in_layout(packed, layout) && check(packed).ok()) problem = packed;
}

Problem drawn_problem(Random& random) {
  Problem problem = kinds()[random.below(kinds().size())];
  const bool whole_rows = has_weight_groups(problem) && problem.w_group == problem.k;
  const bool mixture = is_mixture(problem);
  problem.m = 1 + static_cast<std::int64_t>(random.below(random.below(4) == 0 && !mixture ? 150 : 20));
  problem.n = 1 + static_cast<std::int64_t>(random.below(100));
  // A mixture's rows of few elements leave the bound on a row's error, which is one of many elements.
  problem.k = mixture ? 16 + static_cast<std::int64_t>(random.below(140))
                      : 1 + static_cast<std::int64_t>(random.below(300));
  const std::int64_t multiple_of_rows = mixture ? mx_block : 2;
  problem.k = round_up(problem.k, whole_rows ? multiple_of_rows : k_multiple(problem));
  if (whole_rows) problem.w_group = static_cast<std::int32_t>(problem.k);
  if (mixture) problem.n = round_up(problem.n, k_multiple(problem));
  if (traits(problem.operation).batched) problem.batch = 1 + static_cast<std::int64_t>(random.below(4));
  if (mixture) {
    problem.moe.experts = 1 + static_cast<std::int32_t>(random.below(9));
    problem.moe.topk =
        1 + static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(problem.moe.experts)));
    problem.moe.shared_experts =
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(problem.moe.topk)));
  }
  problem.bias = traits(problem.operation).bias && random.below(4) == 0;
  problem.alignment = 1;
  draw_layout(problem, random);
  return problem;
}

/// A kernel's name of this problem or of another, whole or with a number or a letter replaced.
std::string drawn_name(const Device& device, const Problem& problem, Random& random) {
  Problem other = problem;
  if (random.below(3) == 0) other = drawn_problem(random);
  const CandidateList list = list_candidates(device, other, {.libtypes = {"all", "reference"}});
  if (list.candidates.empty()) return "reference_r1";
  std::string name = list.candidates[random.below(list.candidates.size())].candidate.kernel_name();
  if (random.below(2) == 0) return name;
  constexpr const char* numbers[] = {"0",
                                     "1",
                                     "-1",
                                     "3",
                                     "65",
                                     "1000000",
                                     "2147483647",
                                     "2147483648",
                                     "9223372036854775807",
                                     "99999999999999999999",
                                     "x",
                                     ""};
  const std::size_t digit = name.find_first_of("0123456789", random.below(name.size()));
  if (digit != std::string::npos && random.below(4) != 0) {
    const std::size_t end = std::min(name.find_first_not_of("0123456789", digit), name.size());
    return name.replace(digit, end - digit, numbers[random.below(std::size(numbers))]);
  }
  name[random.below(name.size())] = static_cast<char>('!' + random.below(90));
  return name;
}

TunedEntry drawn_row(const Device& device, const Problem& problem, Random& random) {
  constexpr const char* libtypes[] = {"tiled", "skinny", "onednn", "openblas", "reference", "", "moe", "asm"};
  TunedEntry row;
  row.gfx = device.info().gfx;
  row.cu_num = device.info().cu_num;
  row.problem = problem;
  if (is_packed(problem)) row.problem.weight_layout = WeightLayout::any;
  row.kernel_name = drawn_name(device, problem, random);
  row.libtype = random.below(2) == 0 ? row.kernel_name.substr(0, row.kernel_name.find('_'))
                                     : libtypes[random.below(std::size(libtypes))];
  row.us = 10 + static_cast<double>(random.below(100));
  if (is_mixture(problem)) row.stages = std::make_shared<MoeStages>();
  return row;
}

/// The weight in `layout`, by the C functions; empty text, or what is wrong.
std::string pack(gemmtune_context* context, const gemmtune_problem* asked, gemmtune_layout layout,
                 const HostOperands& host, std::unique_ptr<FencedMemory>& packed) {
  std::size_t bytes = 0;
  if (gemmtune_packed_weight_bytes(context, asked, layout, &bytes) != GEMMTUNE_OK)
    return gemmtune_last_error();
  if (bytes % 64 != 0) return fmt::format("a packed weight of {} bytes", bytes);  // it ends at the guard page
  packed = std::make_unique<FencedMemory>(bytes, Fence::after);
  const test::FencedCopy plain(host.w, Fence::after);
  if (gemmtune_pack_weight(context, asked, layout, plain.data(), packed->data()) != GEMMTUNE_OK)
    return gemmtune_last_error();
  const FencedMemory back(host.w.size(), Fence::after);
  if (gemmtune_unpack_weight(context, asked, layout, packed->data(), back.data()) != GEMMTUNE_OK)
    return gemmtune_last_error();
  const bool same = std::memcmp(back.data(), host.w.data(), host.w.size()) == 0;
  return same && packed->surroundings_intact() && back.surroundings_intact() ? "" : "packing is not undone";
}

/// Empty, or what is wrong with the plan's result. `undecided`: the plan chooses a packed weight's layout.
std::string run_and_check(gemmtune_context* context, const Problem& problem, Fence fence, bool undecided) {
  test::CProblem asked(problem);
  if (undecided && is_packed(problem)) asked->weight_layout = GEMMTUNE_LAYOUT_ANY;
  gemmtune_plan* plan = nullptr;
  if (gemmtune_plan_create(context, asked.get(), &plan) != GEMMTUNE_OK) return gemmtune_last_error();
  gemmtune_plan_info info{};
  info.size = sizeof info;
  std::string wrong;
  if (gemmtune_plan_get_info(plan, &info) != GEMMTUNE_OK) wrong = gemmtune_last_error();
  const auto host = make_inputs(problem, 5);
  const auto reference = compute_reference(problem, *host, {});
  std::unique_ptr<FencedMemory> packed;
  if (is_packed(problem) && wrong.empty())
    wrong = pack(context, asked.get(), info.weight_layout, *host, packed);
  test::FencedOperands operands(problem, *host, fence);
  const FencedMemory workspace(round_up(info.workspace_bytes, std::size_t{64}), Fence::after);
  const gemmtune_operands given = operands.given(packed ? packed->data() : nullptr);
  if (wrong.empty() && gemmtune_plan_run(plan, &given, workspace.data(), nullptr) != GEMMTUNE_OK)
    wrong = gemmtune_last_error();
  if (wrong.empty()) {
    const auto* bytes = reinterpret_cast<const std::byte*>(operands.y.data());
    const CheckReport report = check_output(problem, *reference, {bytes, operands.y.bytes()},
                                            output_columns(problem), tolerance_for(problem, 0.05));
    if (!report.right) wrong = report.reason;
  }
  if (!operands.y.surroundings_intact() || !workspace.surroundings_intact()) wrong += " wrote outside";
  if (!wrong.empty()) wrong = fmt::format("{}: {}: {}", print(problem), info.kernel_name, wrong);
  gemmtune_plan_release(plan);
  return wrong;
}

std::unique_ptr<Device> open_cpu() {
  DeviceRequest request;
  request.text = "cpu";
  request.threads = 2;
  auto device = open_device("cpu", request);
  EXPECT_TRUE(device.ok()) << device.message();
  return std::move(*device);
}

TEST(HostileRows, NoneCrashesOrIsWrong) {
  const auto device = open_cpu();
  Random random(seed_of_rows());
  std::vector<Problem> problems;
  std::map<OperationForm, std::vector<TunedEntry>> tables;
  for (int i = 0; i < rows(); ++i) {
    problems.push_back(drawn_problem(random));
    ASSERT_TRUE(check(problems.back()).ok()) << check(problems.back()).message();
    tables[form_of(problems.back())].push_back(drawn_row(*device, problems.back(), random));
  }
  EXPECT_EQ(tables.size(), all_operation_forms().size());
  const test::TemporaryFolder folder;
  std::vector<std::string> paths;
  std::vector<gemmtune_tuned_files> files;
  paths.reserve(tables.size());
  for (const auto& [operation, entries] : tables) {
    paths.push_back(folder.write(std::string(to_string(operation)) + ".csv",
                                 write_tuned_csv(operation, entries, CsvSchema::aiter)));
    files.push_back({c::operation_to_c(operation), paths.back().c_str()});
  }
  gemmtune_context* context = test::open_cpu_context(files);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const Fence fence = i % 4 == 0 ? Fence::before : Fence::after;
    EXPECT_EQ(run_and_check(context, problems[i], fence, i % 2 == 0), "") << "seed " << seed_of_rows();
  }
  gemmtune_counters counters{};
  counters.size = sizeof counters;
  ASSERT_EQ(gemmtune_context_counters(context, &counters), GEMMTUNE_OK);
  EXPECT_GT(counters.exact, static_cast<std::uint64_t>(rows()) / 5) << "legal rows answer";
  EXPECT_GT(counters.untuned, static_cast<std::uint64_t>(rows()) / 20) << "damaged rows do not";
  gemmtune_context_destroy(context);
}

}  // namespace
}  // namespace gemmtune::hostile_rows_test
