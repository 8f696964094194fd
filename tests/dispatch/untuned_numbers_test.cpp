// The guard of untuned plans on operands with NaN, infinities and numbers whose sums pass float32: the real kernels of this CPU are
// right on them, for every operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backends/device_request.h"
#include "dispatch/context.h"
#include "problem/operands.h"
#include "support/elements.h"
#include "support/operands_on_host.h"
#include "support/operation_problems.h"
#include "verify/inputs.h"
#include "verify/output_check.h"

namespace gemmtune::untuned_numbers_test {
namespace {

using testing::store;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// What is done to one operand.
struct Change {
  const char* name;
  std::vector<std::byte> HostOperands::*operand;
  float value;
  bool everywhere = false;
};

const std::vector<Change>& changes() {
  static const std::vector<Change> all = [] {
    std::vector<Change> list;
    const std::pair<const char*, std::vector<std::byte> HostOperands::*> operands[] = {
        {"x", &HostOperands::x},
        {"w", &HostOperands::w},
        {"bias", &HostOperands::bias},
        {"x_scale", &HostOperands::x_scale},
        {"w_scale", &HostOperands::w_scale},
        {"x_global_scale", &HostOperands::x_global_scale},
        {"w_global_scale", &HostOperands::w_global_scale},
        {"w2", &HostOperands::w2},
        {"w2_scale", &HostOperands::w2_scale},
        {"w2_global_scale", &HostOperands::w2_global_scale},
        {"bias2", &HostOperands::bias2}};
    for (const auto& [name, operand] : operands) {
      for (const float value : {nan, infinity, -infinity, 3e38F}) list.push_back({name, operand, value});
      list.push_back({name, operand, 1e30F, true});
    }
    return list;
  }();
  return all;
}

/// The type of an operand's elements; e8m0 scales are bytes, of which 255 is NaN.
DataType type_of(const Problem& problem, std::vector<std::byte> HostOperands::*operand) {
  const OperandShapes shapes = operand_shapes(problem);
  const auto scale = [](const ScaleShape& shape) {
    switch (shape.type) {
      case ScaleType::e8m0:
        return DataType::u8;
      case ScaleType::e4m3:
        return DataType::f8_e4m3fn;
      case ScaleType::bf16:
        return DataType::bf16;
      case ScaleType::f16:
        return DataType::f16;
      default:
        return DataType::f32;
    }
  };
  if (operand == &HostOperands::x) return shapes.x.type;
  if (operand == &HostOperands::w) return shapes.w.type;
  if (operand == &HostOperands::w2) return shapes.w2.type;
  if (operand == &HostOperands::bias) return is_mixture(problem) ? DataType::f32 : problem.y_type;
  if (operand == &HostOperands::bias2) return DataType::f32;
  if (operand == &HostOperands::x_global_scale || operand == &HostOperands::w_global_scale)
    return DataType::f32;
  if (operand == &HostOperands::x_scale) return scale(shapes.x.scale);
  if (operand == &HostOperands::w_scale) return scale(shapes.w.scale);
  return scale(shapes.w2.scale);
}

/// False where the operand has no such number.
bool apply(const Problem& problem, const Change& change, HostOperands& host) {
  std::vector<std::byte>& bytes = host.*change.operand;
  if (bytes.empty()) return false;
  const DataType type = type_of(problem, change.operand);
  if (type == DataType::i8 || type == DataType::i4 || type == DataType::f4_e2m1) return false;
  if (type == DataType::u8) {
    if (!std::isnan(change.value)) return false;
    bytes[bytes.size() / 2] = std::byte{255};
    return true;
  }
  if (bits(type) == 8) {
    if (!std::isnan(change.value)) return false;
    bytes[bytes.size() / 2] =
        std::byte{type == DataType::f8_e4m3fnuz ? std::uint8_t{0x80} : std::uint8_t{0x7f}};
    return true;
  }
  if (type == DataType::f16 && std::isfinite(change.value)) return false;
  const auto count = static_cast<std::int64_t>(bytes.size()) * 8 / bits(type);
  if (!change.everywhere) {
    store(type, bytes.data(), count / 2, change.value);
    return true;
  }
  for (std::int64_t i = 0; i < count; ++i)
    store(type, bytes.data(), i, testing::load_element(type, bytes.data(), i) * change.value);
  return true;
}

std::vector<Problem> problems(std::int64_t m) {
  std::vector<Problem> all = testing_problems::dense_problems({m, 34, 64});
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    Problem plain = default_problem(Operation::a16w16);
    plain.m = m;
    plain.n = 34;
    plain.k = 64;
    set_types(plain, type);
    plain.bias = true;
    all.push_back(plain);
  }
  for (const Problem& mixture : testing_problems::mixtures({m, 32, 64})) all.push_back(mixture);
  return all;
}

/// The verdict of the guard's check on one kernel; "" if it is right.
std::string fault_of(Device& device, const Problem& problem, const HostOperands& host, const Kernel& kernel,
                     Accuracy accuracy) {
  if (kernel.weight_layout() != WeightLayout::plain) {
    const auto bytes = device.packed_bytes(problem, kernel.weight_layout());
    if (!bytes.ok()) return bytes.message();
    std::vector<std::byte> packed(*bytes + 64);
    void* place = packed.data();
    std::size_t room = packed.size();
    std::align(64, *bytes, place, room);
    if (const Status status = device.pack_weight(problem, kernel.weight_layout(), host.w.data(), place);
        !status.ok())
      return status.message();
    return {};  // the layouts of one family run the same code
  }
  const std::int64_t columns = output_columns(problem);
  std::vector<std::byte> y(static_cast<std::size_t>(operand_shapes(problem).y.bytes()));
  std::vector<std::byte> workspace(kernel.workspace_bytes() + 64);
  void* aligned = workspace.data();
  std::size_t room = workspace.size();
  std::align(64, kernel.workspace_bytes(), aligned, room);
  const Operands operands = testing::operands_on_host(problem, host, y.data());
  if (const Status ran = kernel.run(operands, aligned, {}); !ran.ok()) return ran.message();
  ReferenceOptions options;
  options.max_complete_flops = 0;
  options.sampled_rows = 1;
  options.sampled_columns = 4;
  options.any_numbers = true;
  const auto reference = compute_reference(problem, host, options);
  if (!reference.ok()) return reference.message();
  Tolerance tolerance = tolerance_for(problem, 1, {accuracy, false, Signs::both});
  tolerance.max_misrounded = 1;
  return check_output(problem, *reference, y, columns, tolerance).reason;
}

TEST(UntunedNumbers, EveryKernelOfThisCpuIsRightOnNanInfinitiesAndOverflows) {
  DeviceRequest request;
  request.threads = 2;
  const auto device = open_device("cpu", request);
  ASSERT_TRUE(device.ok()) << device.message();
  int checked = 0;
  for (const std::int64_t m : {1, 5})
    for (const Problem& problem : problems(m))
      for (const KernelFamily* family : (*device)->families()) {
        if (!family->accepts(problem).ok()) continue;
        const Candidate candidate{std::string(family->name()), family->revision(),
                                  family->default_config(problem)};
        const auto kernel = (*device)->build(candidate, problem);
        if (!kernel.ok()) continue;
        for (const Change& change : changes()) {
          HostOperands host = *make_inputs(problem, 3);
          if (!apply(problem, change, host)) continue;
          ++checked;
          EXPECT_EQ(fault_of(**device, problem, host, **kernel, (*device)->accuracy(candidate, problem)), "")
              << print(problem) << ": " << candidate.kernel_name() << " on " << change.name << " with "
              << change.value << (change.everywhere ? " times all" : "");
        }
      }
  EXPECT_GT(checked, 500);
}

TEST(UntunedNumbers, AContextServesThem) {
  ContextOptions options;
  options.config_folder = "/none";
  options.backend = "cpu";
  options.threads = 2;
  options.verify_untuned = true;
  std::vector<std::string> lines;
  options.log_context = &lines;
  options.log = [](LogLevel, std::string_view line, void* kept) {
    static_cast<std::vector<std::string>*>(kept)->emplace_back(line);
  };
  const auto context = Context::open(options);
  ASSERT_TRUE(context.ok()) << context.message();
  Problem problem;
  problem.m = 5;
  problem.n = 34;
  problem.k = 64;
  problem.alignment = 1;
  HostOperands host = *make_inputs(problem, 3);
  store(problem.x_type, host.x.data(), 0, nan);
  std::vector<std::byte> y(static_cast<std::size_t>(operand_shapes(problem).y.bytes()));
  const auto plan = (*context)->plan(problem);
  ASSERT_TRUE(plan.ok()) << plan.message();
  std::vector<std::byte> workspace((*plan)->workspace_bytes() + 64);
  void* aligned = workspace.data();
  std::size_t room = workspace.size();
  std::align(64, (*plan)->workspace_bytes(), aligned, room);
  Operands operands;
  operands.x = host.x.data();
  operands.w = host.w.data();
  operands.y = y.data();
  operands.ldx = problem.k;
  operands.ldy = problem.n;
  const Status status = (*plan)->run(operands, aligned, {});
  EXPECT_TRUE(status.ok()) << status.message();
  for (const std::string& line : lines) EXPECT_EQ(line.find("is wrong"), std::string::npos) << line;
}

}  // namespace
}  // namespace gemmtune::untuned_numbers_test
