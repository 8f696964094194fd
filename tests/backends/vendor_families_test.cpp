// oneDNN and OpenBLAS as families, against float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "backends/backend.h"
#include "backends/cpu/families/onednn/onednn_library.h"
#include "backends/device_request.h"
#include "base/environment.h"
#include "base/file.h"
#include "problem/operands.h"
#include "support/dense_problem.h"
#include "support/elements.h"
#include "verify/inputs.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Device& device() {
  static const auto opened = open_device("cpu", *device_request({}, read_environment()));
  return **opened;
}

Problem packed_for_onednn(Problem problem) {
  problem.weight_layout = WeightLayout::onednn;
  return problem;
}

/// Host operands of a problem and what float64 says of them.
struct Case {
  Problem problem;
  HostOperands inputs;
  Reference reference;
};

Case make_case(const Problem& problem) {
  Problem plain = problem;
  plain.weight_layout = WeightLayout::plain;
  Case made{problem, *make_inputs(plain, 7), {}};
  made.reference = *compute_reference(plain, made.inputs, {});
  return made;
}

/// The weight in the problem's layout, ending at an unreadable page where it is plain.
std::unique_ptr<Buffer> weight_of(const Case& one) {
  const Problem& problem = one.problem;
  const auto bytes = device().packed_bytes(problem, problem.weight_layout);
  EXPECT_TRUE(bytes.ok()) << bytes.message();
  auto weight = device().allocate(*bytes, Placement::guarded);
  const Status status =
      device().pack_weight(problem, problem.weight_layout, one.inputs.w.data(), (*weight)->data());
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE((*weight)->guards_intact().ok());
  return std::move(*weight);
}

/// Leading dimensions beyond the dense ones.
struct Strides {
  std::int64_t x = 0;
  std::int64_t y = 0;
};

/// Every element of y within the rounding of float32 sums and of y's type; elements between rows untouched.
void expect_right(const Case& one, const void* y, std::int64_t ldy) {
  const Problem& problem = one.problem;
  const double relative = problem.y_type == DataType::f32 ? 0x1p-23 : 0x1p-8;
  for (std::int64_t row = 0; row < problem.m; ++row) {
    for (std::int64_t column = 0; column < ldy; ++column) {
      const double got = testing::load_element(problem.y_type, y, row * ldy + column);
      if (column >= problem.n) {
        ASSERT_TRUE(std::isnan(got)) << "column " << column << " lies beyond row " << row;
        continue;
      }
      const auto index = static_cast<std::size_t>(row * problem.n + column);
      const double want = one.reference.values[index];
      const double bound = relative * std::abs(want) +
                           static_cast<double>(problem.k + 2) * 0x1p-24 * one.reference.magnitudes[index] +
                           0x1p-24;
      ASSERT_NEAR(got, want, bound) << print(problem) << " row " << row << " column " << column;
    }
  }
}

/// Builds the family's kernel, runs it over NaN poison and compares.
void run_and_compare(std::string_view family_name, const Case& one, Strides strides) {
  const Problem& problem = one.problem;
  const KernelFamily* family = device().find_family(family_name);
  const Candidate candidate{std::string(family_name), family->revision(), family->default_config(problem)};
  auto kernel = device().build(candidate, problem);
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  ASSERT_EQ((*kernel)->weight_layout(), problem.weight_layout);
  const MatrixShape shape = operand_shapes(problem).x;
  const std::int64_t ldx = shape.line_elements() + strides.x;
  const std::int64_t ldy = problem.n + strides.y;
  const auto x_bytes = static_cast<std::size_t>(bytes_of(problem.x_type, ldx));
  std::vector<std::byte> x(x_bytes * static_cast<std::size_t>(shape.lines()), std::byte{0xff});
  const auto line_bytes = static_cast<std::size_t>(bytes_of(problem.x_type, shape.line_elements()));
  for (std::size_t line = 0; line < static_cast<std::size_t>(shape.lines()); ++line) {
    std::memcpy(x.data() + line * x_bytes, one.inputs.x.data() + line * line_bytes, line_bytes);
  }
  const auto weight = weight_of(one);
  auto y = device().allocate(static_cast<std::size_t>(bytes_of(problem.y_type, problem.m * ldy)),
                             Placement::guarded);
  auto workspace = device().allocate((*kernel)->workspace_bytes(), Placement::guarded);
  ASSERT_TRUE(device().fill((*y)->data(), 0xff, (*y)->bytes()).ok());
  const Operands operands{x.data(),
                          weight->data(),
                          problem.bias ? one.inputs.bias.data() : nullptr,
                          nullptr,
                          nullptr,
                          (*y)->data(),
                          ldx,
                          ldy};
  const Status status = (*kernel)->run(operands, (*workspace)->data(), {});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE((*y)->guards_intact().ok()) << (*y)->guards_intact().message();
  EXPECT_TRUE((*workspace)->guards_intact().ok()) << (*workspace)->guards_intact().message();
  expect_right(one, (*y)->data(), ldy);
}

const std::vector<std::array<std::int64_t, 3>> awkward_shapes{
    {1, 1, 1},   {1, 3, 7},     {2, 17, 33}, {1, 64, 129},  {3, 100, 65},  {16, 33, 31},
    {17, 1, 64}, {31, 127, 15}, {33, 63, 1}, {65, 16, 255}, {128, 129, 2}, {1, 257, 256}};

std::string missing(std::string_view family) {
  return device().find_family(family) == nullptr ? device().missing_family(family).message() : std::string();
}

/// errata/onednn-f32-k1.json: nothing above the backends runs such a kernel.
bool has_erratum(DataType type, std::int64_t k) {
  return k == 1 && type == DataType::f32 && device().info().libraries.front().version == "3.6.2";
}

class Onednn : public ::testing::TestWithParam<std::pair<DataType, DataType>> {
 protected:
  void SetUp() override {
    if (const auto why = missing("onednn"); !why.empty()) GTEST_SKIP() << why;
    const auto [x_type, y_type] = GetParam();
    const Status taken = device().find_family("onednn")->accepts(dense(2, 3, 4, x_type, y_type));
    if (!taken.ok()) GTEST_SKIP() << taken.message();
  }
  template <typename Check>
  void for_each_case(Check check) {
    const auto [x_type, y_type] = GetParam();
    for (const auto& [m, n, k] : awkward_shapes) {
      if (has_erratum(x_type, k)) continue;
      for (const bool bias : {false, true}) {
        Problem problem = dense(m, n, k, x_type, y_type);
        problem.bias = bias;
        check(make_case(problem));
      }
    }
  }
};

TEST_P(Onednn, PlainWeights) {
  for_each_case([](const Case& one) { run_and_compare("onednn", one, {}); });
}

constexpr std::pair<Order, Order> column_orders[] = {{Order::column_major, Order::row_major},
                                                     {Order::row_major, Order::column_major},
                                                     {Order::column_major, Order::column_major}};

/// oneDNN may have only its reference code for some sizes; then the family does not build a kernel.
bool builds(std::string_view family_name, const Problem& problem) {
  const KernelFamily* family = device().find_family(family_name);
  return family->build(problem, family->default_config(problem)).ok();
}

TEST_P(Onednn, ColumnMajorOperands) {
  const auto [x_type, y_type] = GetParam();
  int built = 0;
  for (const auto& [m, n, k] : awkward_shapes)
    for (const auto& [x_order, w_order] : column_orders) {
      if (has_erratum(x_type, k)) continue;
      Problem problem = dense(m, n, k, x_type, y_type);
      problem.bias = m % 2 == 0;
      problem.x_order = x_order;
      problem.w_order = w_order;
      if (!builds("onednn", problem)) continue;
      ++built;
      const Case one = make_case(problem);
      run_and_compare("onednn", one, {});
      run_and_compare("onednn", one, {3, 5});
    }
  EXPECT_GT(built, 18);
}

TEST_P(Onednn, PackedWeights) {
  for_each_case([](Case one) {
    one.problem = packed_for_onednn(one.problem);
    run_and_compare("onednn", one, {});
  });
}

TEST_P(Onednn, LeadingDimensions) {
  for_each_case([](Case one) {
    run_and_compare("onednn", one, {3, 0});
    run_and_compare("onednn", one, {0, 5});
    one.problem = packed_for_onednn(one.problem);
    run_and_compare("onednn", one, {8, 16});
  });
}

TEST_P(Onednn, UnpackingGivesTheWeightBack) {
  for_each_case([](Case one) {
    one.problem = packed_for_onednn(one.problem);
    const auto weight = weight_of(one);
    std::vector<std::byte> plain(one.inputs.w.size());
    const Status status =
        device().unpack_weight(one.problem, WeightLayout::onednn, weight->data(), plain.data());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(plain, one.inputs.w);
  });
}

TEST_P(Onednn, PackedWeightsMayBeReadOnly) {
  const auto [x_type, y_type] = GetParam();
  Case one = make_case(dense(5, 100, 77, x_type, y_type));
  one.problem = packed_for_onednn(one.problem);
  const std::size_t bytes = *device().packed_bytes(one.problem, WeightLayout::onednn);
  const std::size_t mapped = (bytes + 4095) / 4096 * 4096;
  void* weight = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(weight, MAP_FAILED);
  ASSERT_TRUE(device().pack_weight(one.problem, WeightLayout::onednn, one.inputs.w.data(), weight).ok());
  ASSERT_EQ(::mprotect(weight, mapped, PROT_READ), 0);
  const auto kernel = device().build(*device().baseline(one.problem), one.problem);
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  std::vector<std::byte> y(static_cast<std::size_t>(bytes_of(y_type, 500)));
  auto workspace = device().allocate((*kernel)->workspace_bytes(), Placement::plain);
  const Operands operands{one.inputs.x.data(), weight, nullptr, nullptr, nullptr, y.data(), 77, 100};
  EXPECT_TRUE((*kernel)->run(operands, (*workspace)->data(), {}).ok());
  expect_right(one, y.data(), 100);
  ::munmap(weight, mapped);
}

INSTANTIATE_TEST_SUITE_P(Types, Onednn,
                         ::testing::Values(std::pair{DataType::bf16, DataType::bf16},
                                           std::pair{DataType::bf16, DataType::f32},
                                           std::pair{DataType::f32, DataType::f32}));

// As CTest runs it, once without and once with a folder of oneDNN 3.
TEST(OnednnFamily, IsOfTheNewestLibraryThatTheEnvironmentNames) {
  const char* folder = std::getenv("GEMMTUNE_TEST_ONEDNN3");
  if (folder == nullptr) GTEST_SKIP() << "GEMMTUNE_TEST_ONEDNN3 is not set";
  const std::string file = join_path(folder, "lib/libdnnl.so.3");
  if (!file_exists(file))
    GTEST_SKIP() << file << " is not there: tools/onednn_library.py --for-tests fetches it";
  ASSERT_EQ(missing("onednn"), "");
  const Library& library = device().info().libraries.front();
  EXPECT_THAT(library.version, StartsWith("3."));
  EXPECT_EQ(library.path, file);
  EXPECT_EQ(library.passed_over, "");
}

TEST(OnednnFamily, KnowsTheYearsOfReleases) {
  EXPECT_EQ(cpu::onednn_release_year("2.6.3"), 2022);
  EXPECT_EQ(cpu::onednn_release_year("3.2.0"), 2023);
  EXPECT_EQ(cpu::onednn_release_year("3.6.2"), 2024);
  EXPECT_EQ(cpu::onednn_release_year("3.12.0"), 2026);
  for (const char* unknown : {"3.99.1", "2.65.0", "4", ""})
    EXPECT_EQ(cpu::onednn_release_year(unknown), 0) << unknown;
  Library library;
  library.name = "oneDNN";
  library.version = "2.6.3";
  EXPECT_EQ(library.text(), "oneDNN 2.6.3");
  library.year = 2022;
  EXPECT_EQ(library.text(), "oneDNN 2.6.3 (2022)");
}

TEST(OnednnFamily, PacksTheSameForEveryM) {
  if (const auto why = missing("onednn"); !why.empty()) GTEST_SKIP() << why;
  const KernelFamily* family = device().find_family("onednn");
  for (const DataType type : {DataType::bf16, DataType::f32}) {
    for (const std::int64_t m : {1, 2, 15, 16, 17, 128, 512, 2048}) {
      const Problem problem = packed_for_onednn(dense(m, 320, 200, type, type));
      if (!family->accepts(problem).ok()) continue;
      const auto kernel = family->build(problem, family->default_config(problem));
      EXPECT_TRUE(kernel.ok()) << kernel.message();
      EXPECT_EQ(*device().packed_bytes(problem, WeightLayout::onednn),
                *device().packed_bytes(dense(1, 320, 200, type, type), WeightLayout::onednn));
    }
  }
}

TEST(OnednnFamily, OneKernelServesManyThreads) {
  if (const auto why = missing("onednn"); !why.empty()) GTEST_SKIP() << why;
  const Case one = make_case(dense(4, 96, 80, DataType::f32, DataType::f32));
  const auto kernel = device().build(*device().baseline(one.problem), one.problem);
  ASSERT_TRUE(kernel.ok());
  std::vector<std::vector<float>> results(
      12, std::vector<float>(4 * 96));  // more than the kernel keeps calls for
  std::vector<std::thread> threads;
  for (auto& y : results) {
    threads.emplace_back([&] {
      auto workspace = device().allocate((*kernel)->workspace_bytes(), Placement::plain);
      for (int call = 0; call < 50; ++call) {
        const Operands operands{
            one.inputs.x.data(), one.inputs.w.data(), nullptr, nullptr, nullptr, y.data(), 80, 96};
        if (!(*kernel)->run(operands, (*workspace)->data(), {}).ok())
          y[0] = std::numeric_limits<float>::quiet_NaN();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& y : results) expect_right(one, y.data(), 96);
}

TEST(OnednnFamily, RefusesInWordsOfItsVocabulary) {
  if (const auto why = missing("onednn"); !why.empty()) GTEST_SKIP() << why;
  const KernelFamily* family = device().find_family("onednn");
  Problem narrow = dense(2, 3, 4, DataType::f32, DataType::bf16);
  if (const Status status = family->accepts(narrow); !status.ok()) {
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_THAT(status.message(), StartsWith("data types: f32 to bf16"));
  }
  Problem panels = dense(2, 3, 4, DataType::f32, DataType::f32);
  panels.weight_layout = WeightLayout::panel16;
  EXPECT_THAT(family->accepts(panels).message(), StartsWith("weight layout: "));
  Problem eight = dense(2, 3, 4, DataType::f32, DataType::f32);
  eight.operation = Operation::a8w8;
  EXPECT_THAT(family->accepts(eight).message(), StartsWith("operation: "));
}

TEST(OnednnFamily, IsMissingWithAReasonWhereItsModuleIsNot) {
  DeviceRequest request;
  request.module_folder = "/nonexistent";
  const auto bare = open_device("cpu", request);
  ASSERT_TRUE(bare.ok()) << bare.message();
  EXPECT_EQ((*bare)->find_family("onednn"), nullptr);
  const std::string why = (*bare)->missing_family("onednn").message();
  if (device().find_family("onednn") != nullptr) {
    EXPECT_THAT(why, HasSubstr("/nonexistent/libgemmtune_onednn.so"));
    EXPECT_THAT(why, HasSubstr("apt-get install libdnnl2"));
  }
  Problem packed = packed_for_onednn(dense(1, 8, 8, DataType::f32, DataType::f32));
  EXPECT_EQ((*bare)->packed_bytes(packed, WeightLayout::onednn).code(), StatusCode::unsupported);
  // Our own families take over.
  const Problem plain = dense(1, 8, 8, DataType::bf16, DataType::bf16);
  EXPECT_EQ((*bare)->fallback(plain)->family, "skinny");
  EXPECT_EQ((*bare)->baseline(plain).code(), StatusCode::not_found);
}

TEST(Openblas, IsRightOnAwkwardShapes) {
  if (const auto why = missing("openblas"); !why.empty()) GTEST_SKIP() << why;
  for (const auto& [m, n, k] : awkward_shapes) {
    for (const bool bias : {false, true}) {
      Problem problem = dense(m, n, k, DataType::f32, DataType::f32);
      problem.bias = bias;
      const Case one = make_case(problem);
      run_and_compare("openblas", one, {});
      run_and_compare("openblas", one, {3, 5});
    }
  }
}

TEST(Openblas, TakesColumnMajorOperands) {
  if (const auto why = missing("openblas"); !why.empty()) GTEST_SKIP() << why;
  for (const auto& [m, n, k] : awkward_shapes)
    for (const auto& [x_order, w_order] : column_orders) {
      Problem problem = dense(m, n, k, DataType::f32, DataType::f32);
      problem.bias = m % 2 == 0;
      problem.x_order = x_order;
      problem.w_order = w_order;
      const Case one = make_case(problem);
      run_and_compare("openblas", one, {});
      run_and_compare("openblas", one, {3, 5});
    }
}

TEST(Openblas, RefusesWhatIsNotPlainFloat) {
  if (const auto why = missing("openblas"); !why.empty()) GTEST_SKIP() << why;
  const KernelFamily* family = device().find_family("openblas");
  EXPECT_THAT(family->accepts(dense(2, 3, 4, DataType::bf16, DataType::f32)).message(),
              StartsWith("data types: bf16 to f32"));
  EXPECT_THAT(family->accepts(packed_for_onednn(dense(2, 3, 4, DataType::f32, DataType::f32))).message(),
              StartsWith("weight layout: onednn"));
  EXPECT_EQ(::getenv("OPENBLAS_THREAD_TIMEOUT"), nullptr) << "set for the moment of loading only";
}

}  // namespace
}  // namespace gemmtune
