// Random legal and damaged rows of a tuned file, through the C functions, between guard pages: whatever a file
// says, a plan runs right. GEMMTUNE_SOAK=1 draws 40,000 rows; GEMMTUNE_SEED begins with another seed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backends/backend.h"
#include "backends/traits.h"
#include "base/random.h"
#include "capi/c_support.h"
#include "resolve/candidate_list.h"
#include "support/fenced_memory.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

int rows() { return std::getenv("GEMMTUNE_SOAK") != nullptr ? 40000 : 250; }

std::uint64_t seed() {
  const char* text = std::getenv("GEMMTUNE_SEED");
  return text == nullptr ? 3 : std::strtoull(text, nullptr, 10);
}

Problem drawn_problem(Random& random) {
  constexpr DataType types[] = {DataType::bf16, DataType::f16, DataType::f32};
  Problem problem = default_problem(Operation::a16w16);
  problem.x_type = problem.w_type = problem.y_type = types[random.below(3)];
  problem.m = 1 + static_cast<std::int64_t>(random.below(random.below(4) == 0 ? 150 : 20));
  problem.n = 1 + static_cast<std::int64_t>(random.below(100));
  problem.k = 1 + static_cast<std::int64_t>(random.below(300));
  problem.bias = random.below(4) == 0;
  problem.alignment = 1;
  return problem;
}

/// A kernel's name of this problem or of another, whole or with a number or a letter replaced.
std::string drawn_name(const Device& device, const Problem& problem, Random& random) {
  Problem other = problem;
  if (random.below(3) == 0) other = drawn_problem(random);
  const CandidateList list = list_candidates(device, other, {.libtypes = {"all", "reference"}});
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

std::string cell(std::string text) {
  for (char& letter : text)
    if (letter == ',' || letter == '"') letter = ';';
  return text;
}

std::string row_text(const Device& device, const Problem& problem, Random& random) {
  const std::string type = "torch." + std::string(problem.x_type == DataType::bf16  ? "bfloat16"
                                                  : problem.x_type == DataType::f16 ? "float16"
                                                                                    : "float32");
  constexpr const char* libtypes[] = {"tiled", "skinny", "onednn", "openblas", "reference", "", "moe", "asm"};
  const std::string name = cell(drawn_name(device, problem, random));
  const std::string libtype =
      random.below(2) == 0 ? name.substr(0, name.find('_')) : libtypes[random.below(std::size(libtypes))];
  return fmt::format("{},{},{},{},{},{},{},{},False,False,{},0,0,{},{},0.0,1.0,1.0\n", device.info().gfx,
                     device.info().cu_num, problem.m, problem.n, problem.k, problem.bias ? "True" : "False",
                     type, type, libtype, 1 + random.below(100), name);
}

/// Operands that end at an unreadable page.
struct FencedOperands {
  explicit FencedOperands(const HostOperands& host) : x(host.x), w(host.w), bias(host.bias) {}
  struct Fenced {
    explicit Fenced(const std::vector<std::byte>& bytes) : memory(bytes.size(), Fence::after) {
      if (!bytes.empty()) std::memcpy(memory.data(), bytes.data(), bytes.size());
    }
    FencedMemory memory;
  };
  Fenced x;
  Fenced w;
  Fenced bias;
};

gemmtune_problem to_c(const Problem& problem) {
  gemmtune_problem known{};
  known.size = sizeof known;
  known.operation = GEMMTUNE_A16W16;
  known.x_type = known.w_type = known.y_type =
      static_cast<gemmtune_type>(static_cast<int>(problem.x_type) + 1);
  known.m = problem.m;
  known.n = problem.n;
  known.k = problem.k;
  known.batch = 1;
  known.bias = problem.bias ? 1 : 0;
  known.weight_layout = GEMMTUNE_LAYOUT_PLAIN;
  known.alignment = 1;
  return known;
}

/// Empty, or what is wrong with the plan's result.
std::string run_and_check(gemmtune_context* context, const Problem& problem) {
  const gemmtune_problem asked = to_c(problem);
  gemmtune_plan* plan = nullptr;
  if (gemmtune_plan_create(context, &asked, &plan) != GEMMTUNE_OK) return gemmtune_last_error();
  gemmtune_plan_info info{};
  info.size = sizeof info;
  std::string wrong;
  if (gemmtune_plan_get_info(plan, &info) != GEMMTUNE_OK) wrong = gemmtune_last_error();
  const auto host = make_inputs(problem, 5);
  const auto reference = compute_reference(problem, *host, {});
  const FencedOperands fenced(*host);
  const auto y_bytes = static_cast<std::size_t>(bytes_of(problem.y_type, problem.m * problem.n));
  FencedMemory y(y_bytes, Fence::after);
  const std::size_t workspace_bytes = (info.workspace_bytes + 63) / 64 * 64;
  FencedMemory workspace(workspace_bytes, Fence::after);
  gemmtune_operands operands{};
  operands.size = sizeof operands;
  operands.x = fenced.x.memory.data();
  operands.w = fenced.w.memory.data();
  operands.bias = problem.bias ? fenced.bias.memory.data() : nullptr;
  operands.y = y.data();
  operands.ldx = problem.k;
  operands.ldy = problem.n;
  if (wrong.empty() && gemmtune_plan_run(plan, &operands, workspace.data(), nullptr) != GEMMTUNE_OK)
    wrong = gemmtune_last_error();
  if (wrong.empty()) {
    const auto* bytes = reinterpret_cast<const std::byte*>(y.data());
    const CheckReport report =
        check_output(problem, *reference, {bytes, y_bytes}, problem.n, tolerance_for(problem, 0.05));
    if (!report.right) wrong = report.reason;
    if (!y.surroundings_intact() || !workspace.surroundings_intact()) wrong += " wrote outside";
  }
  if (!wrong.empty()) wrong = fmt::format("{}: {}: {}", print(problem), info.kernel_name, wrong);
  gemmtune_plan_release(plan);
  return wrong;
}

TEST(HostileRows, NoneCrashesOrIsWrong) {
  DeviceRequest request;
  request.text = "cpu";
  request.threads = 2;
  auto device = open_device("cpu", request);
  ASSERT_TRUE(device.ok()) << device.message();
  Random random(seed());
  std::vector<Problem> problems;
  std::string text =
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_"
      "ratio,"
      "tflops,bw\n";
  for (int i = 0; i < rows(); ++i) {
    problems.push_back(drawn_problem(random));
    text += row_text(**device, problems.back(), random);
  }
  const std::string path =
      fmt::format("{}/gemmtune-hostile-{}.csv", std::filesystem::temp_directory_path().string(), getpid());
  std::ofstream(path) << text;
  const gemmtune_tuned_files files{GEMMTUNE_A16W16, path.c_str()};
  gemmtune_context_options options{};
  options.size = sizeof options;
  options.config_folder = "/none";
  options.backend = "cpu";
  options.threads = 2;
  options.tuned_files = &files;
  options.tuned_file_count = 1;
  gemmtune_context* context = nullptr;
  ASSERT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
  for (const Problem& problem : problems) EXPECT_EQ(run_and_check(context, problem), "") << "seed " << seed();
  gemmtune_counters counters{};
  counters.size = sizeof counters;
  ASSERT_EQ(gemmtune_context_counters(context, &counters), GEMMTUNE_OK);
  EXPECT_GT(counters.exact, static_cast<std::uint64_t>(rows()) / 5) << "legal rows answer";
  EXPECT_LT(counters.exact, static_cast<std::uint64_t>(rows())) << "damaged rows do not";
  gemmtune_context_destroy(context);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace gemmtune
